"""A seeded fuzzer: malformed requests are refused and do not change the server."""

import json
import random
import socket
from pathlib import Path

import grpc
import numpy as np
import pytest
from tensorflow_serving.apis import predict_pb2

from serving.client import connect

pytestmark = pytest.mark.tf_only
REFUSED = {"INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION"}


def mutate(random_, data):
    """Delete, repeat, flip or replace a few bytes."""
    data = bytearray(data)
    for _ in range(random_.randint(1, 4)):
        start = random_.randrange(len(data) + 1)
        end = min(len(data), start + random_.randint(0, 20))
        kind = random_.randrange(5)
        if kind == 0:
            del data[start:end]
        elif kind == 1:
            data[start:start] = data[start:end] * random_.randint(1, 30)
        elif kind == 2 and start < len(data):
            data[start] ^= 1 << random_.randrange(8)
        elif kind == 3:
            data[start:end] = random_.randbytes(random_.randint(1, 20))
        else:
            pieces = (b"[", b"]", b"{", b'"', b",", b"null", b"1e999", b"NaN", b'{"b64": "%"}')
            data[start:end] = random_.choice(pieces)
    return bytes(data)


def rest_status(port, head, body):
    """Send raw bytes; return the status of the reply, or None if the server hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(head + body)
        connection.shutdown(socket.SHUT_WR)
        reply = b""
        while chunk := connection.recv(65536):
            reply += chunk
    return int(reply.split(b" ", 2)[1]) if reply else None


def rest_requests(observation):
    """Yield valid requests of each protocol: path, body and further headers."""
    body = json.dumps({"signature_name": "act", "instances": [observation.tolist()]}).encode()
    yield b"/v1/models/tiny/versions/1:predict", body, b""
    raw = observation.tobytes()
    tensor = {"name": "observation", "datatype": "UINT8", "shape": [1, *observation.shape]}
    document = {
        "inputs": [{**tensor, "parameters": {"binary_data_size": len(raw)}}],
        "outputs": [{"name": "action", "parameters": {"binary_data": True}}],
        "parameters": {"signature_name": "act", "sequence_id": 0},
        "id": "a",
    }
    text = json.dumps(document).encode()
    header = f"Inference-Header-Content-Length: {len(text)}\r\n".encode()
    yield b"/v2/models/tiny/versions/1/infer", text + raw, header
    document["inputs"] = [{**tensor, "data": observation.ravel().tolist()}]
    yield b"/v2/models/tiny/infer", json.dumps(document).encode(), b""


def fuzz_rest(random_, port, observation, count):
    requests = list(rest_requests(observation))
    for _ in range(count):
        path, body, headers = random_.choice(requests)
        fuzzed, target, length = body, path, None
        kind = random_.randrange(8)
        if kind == 0:
            target = mutate(random_, path).translate(None, b" \r\n\t")
        elif kind == 1:
            length = random_.randrange(2 * len(body))
        else:
            fuzzed = mutate(random_, body)
        length = len(fuzzed) if length is None else length
        head = b"POST " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + headers
        status = rest_status(port, head + f"Content-Length: {length}\r\n\r\n".encode(), fuzzed)
        assert status is None or status == 200 or 400 <= status < 500 or status == 501, (
            status,
            target,
            fuzzed,
        )


def grpc_requests(observation):
    """Yield valid requests of each protocol: the path of the method and the message."""
    from serving.server.open_inference_messages import message_class
    from serving.tensors import pack

    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "tiny", "act"
    request.inputs["observation"].CopyFrom(pack(observation[None]))
    yield "/tensorflow.serving.PredictionService/Predict", request.SerializeToString()
    tensor = {"name": "observation", "datatype": "UINT8", "shape": [1, *observation.shape]}
    typed = {"contents": {"uint_contents": observation.ravel().tolist()}}
    for members in (
        {"inputs": [tensor], "raw_input_contents": [observation.tobytes()]},
        {"inputs": [{**tensor, **typed}], "outputs": [{"name": "action"}], "model_version": "1"},
    ):
        request = message_class("ModelInferRequest")(model_name="tiny", id="a", **members)
        request.parameters["signature_name"].string_param = "act"
        yield "/inference.GRPCInferenceService/ModelInfer", request.SerializeToString()


def fuzz_grpc(random_, port, observation, count):
    requests = list(grpc_requests(observation))
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for _ in range(count):
            path, request = random_.choice(requests)
            fuzzed = mutate(random_, request)
            try:
                channel.unary_unary(path)(fuzzed, timeout=20)
            except grpc.RpcError as error:
                assert error.code().name in REFUSED, (error, fuzzed)


def fuzz(server, tools, count):
    """Send half of the requests over each transport, and valid requests in between."""
    random_ = random.Random(7)
    observation = tools.observations(1)[0]
    addresses = [f"grpc://127.0.0.1:{server.grpc_port}", f"http://127.0.0.1:{server.rest_port}"]
    clients = [connect(address, "tiny") for address in addresses]
    expected = clients[0].act(tools.observations(9))
    for _ in range(count // 100):
        fuzz_rest(random_, server.rest_port, observation, 50)
        fuzz_grpc(random_, server.grpc_port, observation, 50)
        for client in clients:
            np.testing.assert_array_equal(client.act(tools.observations(9)), expected)
    for client in clients:
        client.close()


def test_malformed_requests_are_refused(server, tools):
    fuzz(server, tools, 800)


@pytest.mark.slow
def test_malformed_requests_do_not_leak_memory(exported, tools):
    def resident_mib():
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * 4096 / 2**20

    with tools.serve(exported, enable_batching=True) as server:
        fuzz(server, tools, 2_000)
        before = resident_mib()
        fuzz(server, tools, 10_000)
        assert resident_mib() - before < 20
