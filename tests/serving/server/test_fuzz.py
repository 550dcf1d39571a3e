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
    """Cuts, doubles, flips or fills in a few bytes."""
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
    """Sends raw bytes and returns the status of the reply, None if the server hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(head + body)
        connection.shutdown(socket.SHUT_WR)
        reply = b""
        while chunk := connection.recv(65536):
            reply += chunk
    return int(reply.split(b" ", 2)[1]) if reply else None


def fuzz_rest(random_, port, observation, count):
    body = json.dumps({"signature_name": "act", "instances": [observation.tolist()]}).encode()
    path = b"/v1/models/tiny/versions/1:predict"
    for _ in range(count):
        fuzzed, target, length = body, path, None
        kind = random_.randrange(8)
        if kind == 0:
            target = mutate(random_, path).translate(None, b" \r\n\t")
        elif kind == 1:
            length = random_.randrange(2 * len(body))
        else:
            fuzzed = mutate(random_, body)
        length = len(fuzzed) if length is None else length
        head = b"POST " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        status = rest_status(port, head + f"Content-Length: {length}\r\n\r\n".encode(), fuzzed)
        assert status is None or status == 200 or 400 <= status < 500 or status == 501, (
            status,
            target,
            fuzzed,
        )


def fuzz_grpc(random_, port, observation, count):
    from serving.tensors import pack

    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "tiny", "act"
    request.inputs["observation"].CopyFrom(pack(observation[None]))
    request = request.SerializeToString()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        for _ in range(count):
            fuzzed = mutate(random_, request)
            try:
                call(fuzzed, timeout=20)
            except grpc.RpcError as error:
                assert error.code().name in REFUSED, (error, fuzzed)


def fuzz(server, tools, count):
    """Half over each transport, good requests in between."""
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
    fuzz(server, tools, 600)


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
