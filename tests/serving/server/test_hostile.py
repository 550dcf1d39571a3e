"""Requests that try to stall, starve or fill the server."""

import contextlib
import http.client
import json
import socket
import threading
import time

import grpc
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    inference_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from serving.errors import ServingError
from serving.server import admission, grpc_service, json_codec

pytestmark = pytest.mark.tf_only


class Readiness:
    """Requests `/readyz` in a loop; `longest` is the slowest reply in seconds."""

    def __init__(self, server):
        self._port, self.longest = server.rest_port, 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def _ask(self):
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        while not self._stop.wait(0.002):
            begun = time.perf_counter()
            connection.request("GET", "/readyz")
            assert connection.getresponse().read() == b'{"ready": true}'
            self.longest = max(self.longest, time.perf_counter() - begun)
        connection.close()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


def post(server, document, verb="predict"):
    """Return (status, reply) of a request on a new connection."""
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=60)
    with contextlib.closing(connection):
        connection.request("POST", f"/v1/models/tiny:{verb}", json.dumps(document))
        response = connection.getresponse()
        return response.status, json.loads(response.read())


@pytest.fixture(scope="module")
def texts(tmp_path_factory, tools):
    """A server of a model that classifies examples by their length."""
    import tensorflow as tf

    def classify(inputs):
        return {"scores": tf.cast(tf.strings.length(inputs), "float32")[:, None]}

    def echo(text):
        return {"text": tf.identity(text)}

    def anything(x):
        return {"x": tf.identity(x)}

    base = tmp_path_factory.mktemp("texts")
    functions = {
        "serving_default": (classify, [tf.TensorSpec([None], "string", name="inputs")]),
        "echo": (echo, [tf.TensorSpec([None], "string", name="text")]),
        "anything": (anything, [tf.TensorSpec(None, "float32", name="x")]),
    }
    tools.save_module(base / "1", functions)
    with tools.serve(base) as server:
        yield server


@pytest.fixture(scope="module")
def stub(texts):
    with grpc.insecure_channel(f"127.0.0.1:{texts.grpc_port}") as channel:
        yield prediction_service_pb2_grpc.PredictionServiceStub(channel)


def refusal_of(call, request):
    with pytest.raises(grpc.RpcError) as refusal:
        call(request, timeout=60)
    return refusal.value.code().name, refusal.value.details()


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 300))
def test_fields_are_counted(num_inputs, num_texts, num_bytes):
    request = predict_pb2.PredictRequest()
    request.model_spec.version.value = 3  # three fields: spec, version, value
    for index in range(num_inputs):
        tensor = request.inputs[str(index)]  # three: entry, key, value
        tensor.string_val.extend([b"text"] * num_texts)
        if num_bytes:
            tensor.int_val.extend([1] * num_bytes)  # one that is packed
    packed = bool(num_bytes) + num_bytes // grpc_service._PACKED_PER_FIELD
    expected = 3 + num_inputs * (3 + num_texts + packed)
    data, described = request.SerializeToString(), predict_pb2.PredictRequest.DESCRIPTOR
    assert grpc_service.count_fields(data, described) == expected


@given(st.binary(max_size=60))
def test_fields_of_a_broken_message_are_counted(data):
    assert grpc_service.count_fields(data, predict_pb2.PredictRequest.DESCRIPTOR) <= len(data)


def test_messages_with_many_fields_stall_no_one(texts, stub):
    """protobuf and Python need seconds for 300 kB of tasks or 40 MB of empty names."""
    tasks = inference_pb2.MultiInferenceRequest()
    for index in range(40_000):
        tasks.tasks.add().model_spec.signature_name = f"{index}"
    names = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=[""] * 4_000_000)
    outputs = predict_pb2.PredictRequest(output_filter=[""] * 900_000)
    outputs.model_spec.name = "tiny"
    outputs.inputs["inputs"].dtype = 7
    outputs.inputs["inputs"].tensor_shape.dim.add(size=0)
    with Readiness(texts) as readiness:
        assert refusal_of(stub.MultiInference, tasks)[0] == "RESOURCE_EXHAUSTED"
        assert refusal_of(stub.GetModelMetadata, names)[0] == "RESOURCE_EXHAUSTED"
        code, details = refusal_of(stub.Predict, outputs)
        assert code == "INVALID_ARGUMENT" and "repeats an output" in details
    assert readiness.longest < 5.0  # the machine may be busy


def test_copies_of_a_context_are_limited(texts, stub):
    """Half a megabyte of context in 4,000 examples would take gigabytes."""
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name = "tiny"
    examples = request.input.example_list_with_context
    examples.context.features.feature["c"].bytes_list.value.append(b"x" * 500_000)
    for _ in range(50):
        examples.examples.add()
    with Readiness(texts) as readiness:
        assert len(stub.Classify(request, timeout=60).result.classifications) == 50
        for _ in range(1000):
            examples.examples.add()
        code, details = refusal_of(stub.Classify, request)
    assert code == "RESOURCE_EXHAUSTED" and "copies of the context" in details
    assert readiness.longest < 5.0
    body = {"context": {"c": "x" * 500_000}, "examples": [{}] * 1000}
    status, reply = post(texts, body, "classify")
    assert status == 413 and "copies of the context" in reply["error"]


LIMIT = 1 << 18
HEAD = b"POST /v1/models/tiny:predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % LIMIT


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("stalled", [False, True])
def test_stalled_bodies_make_room_for_others(exported, tools, monkeypatch, stalled):
    """Four stalled bodies fill the budget; a fifth request evicts one of them."""
    monkeypatch.setattr(admission, "_STALLED_SECONDS", 0.0 if stalled else 3600.0)
    with (
        tools.serve(exported, rest_api_max_request_bytes=LIMIT) as server,
        contextlib.ExitStack() as stack,
    ):
        slow = []
        for _ in range(4):
            address = ("127.0.0.1", server.rest_port)
            slow.append(stack.enter_context(socket.create_connection(address, timeout=60)))
            slow[-1].sendall(HEAD + b" " * (LIMIT - 1))
        budget = server._rest._budget
        wait_until(lambda: budget.held >= 4 * (LIMIT - 1))
        status, reply = post(server, {"instances": tools.observations(300).tolist()})
        assert status == (200 if stalled else 503)
        assert stalled or f"hold {4 * LIMIT} bytes" in reply["error"]
        assert post(server, {"instances": tools.observations(2).tolist()})[0] == 200
        if stalled:
            assert slow[0].recv(4096).startswith(b"HTTP/1.1 408")
        for each in slow:
            each.close()
        wait_until(lambda: not budget.held)


@pytest.mark.parametrize("sent", [0, 5, 100_000])
def test_stalled_body_times_out(exported, tools, sent):
    changes = {"rest_api_max_request_bytes": LIMIT, "rest_api_header_timeout_in_ms": 300}
    with tools.serve(exported, **changes) as server:
        with socket.create_connection(("127.0.0.1", server.rest_port), timeout=60) as slow:
            slow.sendall(HEAD + b" " * sent)
            reply = b"".join(iter(lambda: slow.recv(4096), b""))  # and it is closed
        assert reply.startswith(b"HTTP/1.1 408") and b"in 0.3 seconds" in reply
        assert not server._rest._budget.held


@pytest.mark.parametrize(
    "value", [b'""', b"[]", b"{}", b"NaN", b'"\\n"', b'{"a":1}', b"[1,[]]", b"null"]
)
def test_values_are_counted_before_json_reads_them(monkeypatch, value):
    """Python's json needs ten seconds for 16 MB of `"",` or `[],`."""
    made, loads = [], json.loads
    monkeypatch.setattr(json, "loads", lambda text: (made.append(len(text)), loads(text))[1])
    count = json_codec.MOST_VALUES
    text = b'{"instances":[' + b",".join([value] * count) + b"]}"
    for read, arguments in (
        (json_codec.read_predict, ({"": {"x": np.dtype("float32")}},)),
        (json_codec.read_examples, ()),
    ):
        with pytest.raises(ServingError, match=f"may have {count} values") as refusal:
            read(text, "", 1 << 24, *arguments)
        assert refusal.value.http_status == 413
    assert sum(made) < 1000


def test_lists_of_numbers_may_exceed_the_limit_of_values():
    count = 2 * json_codec.MOST_VALUES
    text = b'{"instances":[' + b",".join([b"1"] * count) + b"]}"
    dtypes = {"": {"x": np.dtype("float32")}}
    _, arrays, _ = json_codec.read_predict(text, "", 1 << 24, dtypes)
    assert arrays["x"].shape == (count,)


def test_size_of_requests_with_examples_is_limited(texts, stub):
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name = "tiny"
    example = request.input.example_list.examples.add()
    example.features.feature["x"].bytes_list.value.append(b"x" * (1 << 25))
    code, details = refusal_of(stub.Classify, request)
    assert code == "RESOURCE_EXHAUSTED" and f"may have {1 << 25} bytes" in details
    task = inference_pb2.MultiInferenceRequest(input=request.input)
    assert refusal_of(stub.MultiInference, task)[0] == "RESOURCE_EXHAUSTED"
    example.features.feature["x"].bytes_list.value[0] = b"x" * (1 << 24)
    assert len(stub.Classify(request, timeout=60).result.classifications) == 1


def test_total_size_of_grpc_requests_is_limited(exported, tools, monkeypatch):
    limit, free, held = 1 << 20, threading.Event(), []
    read = grpc_service._parse

    def slowly(message_class, data):
        if len(data) > 1000:
            held.append(data)
            assert free.wait(60)
        return read(message_class, data)

    monkeypatch.setattr(grpc_service, "_parse", slowly)
    large = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["x" * (limit - 100)])
    small = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["x"])
    with (
        tools.serve(exported, max_request_bytes=limit) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel,
    ):
        call = prediction_service_pb2_grpc.PredictionServiceStub(channel).GetModelMetadata
        first = [call.future(large, timeout=60) for _ in range(4)]
        try:
            wait_until(lambda: len(held) == 4)
            code, details = refusal_of(call, large)
            assert code == "RESOURCE_EXHAUSTED" and f"hold {4 * limit} bytes" in details
            assert refusal_of(call, small)[0] == "INVALID_ARGUMENT"
        finally:
            free.set()
        for each in first:
            assert each.exception(timeout=60).code().name == "INVALID_ARGUMENT"
        assert refusal_of(call, large)[0] == "INVALID_ARGUMENT"


def test_deep_lists_take_the_slow_path_quickly():
    """A search of the whole text for each of 900 levels would take half a minute."""
    depth = 900
    text = b"[" * depth + b",".join([b"1"] * 3_000_000) + b"]" * depth
    begun = time.perf_counter()
    with pytest.raises(json_codec.NeedsSlowPath):
        json_codec._parse_numbers(b'{"instances":%b}' % text)
    assert time.perf_counter() - begun < 5.0


def test_large_replies_of_strings_and_empty_lists_are_written_by_workers(texts, monkeypatch):
    called, call = [], texts._rest._workers.call

    async def spy(function, *arguments, peer):
        called.append(function)
        return await call(function, *arguments, peer=peer)

    monkeypatch.setattr(texts._rest._workers, "call", spy)
    for signature, rows in (("echo", ["\n" * 100_000]), ("anything", [[]] * 100_000)):
        document = {"signature_name": signature, "instances": rows}
        assert post(texts, document) == (200, {"predictions": rows})
        assert called.pop() is json_codec.predict_reply
        called.clear()
    assert post(texts, {"signature_name": "echo", "instances": ["short"]})[0] == 200
    assert not called


def test_max_reply_bytes_counts_strings(tmp_path, tools):
    import tensorflow as tf

    def longer(text):
        return {"text": tf.strings.join([text] * 8)}

    spec = tf.TensorSpec([None], "string", name="text")
    tools.save_module(tmp_path / "1", {"serving_default": (longer, [spec])})
    with tools.serve(tmp_path, max_reply_bytes=1000) as server:
        assert post(server, {"instances": ["x" * 100]})[0] == 200
        status, reply = post(server, {"instances": ["x" * 200]})
    assert status == 413 and "would have 1608" in reply["error"]


def test_half_closed_connection_gets_its_replies(server, tools):
    """`nc -N` closes its half of the connection after the request."""
    body = json.dumps({"instances": tools.observations(1).tolist()}).encode()
    head = b"POST /v1/models/tiny:predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    for text, answers in (
        (head % len(body) + body, 1),
        (3 * (head % len(body) + body), 1),  # pipelined
        (head % len(body) + body[:-1], 0),
        (b"", 0),
    ):
        with socket.create_connection(("127.0.0.1", server.rest_port), timeout=20) as connection:
            connection.sendall(text)
            connection.shutdown(socket.SHUT_WR)
            reply = b"".join(iter(lambda: connection.recv(4096), b""))
        assert reply.count(b"HTTP/1.1 200 OK") == reply.count(b"predictions") == answers


def test_chunks_of_one_byte_stall_no_one(server, tools):
    body = json.dumps({"instances": tools.observations(1).tolist()}).encode()
    head = b"POST /v1/models/tiny:predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    last = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    with (
        Readiness(server) as readiness,
        socket.create_connection(("127.0.0.1", server.rest_port), timeout=60) as connection,
    ):
        connection.sendall(head + b"1\r\n \r\n" * 1_000_000 + last)
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 OK")
    assert readiness.longest < 1.0  # the machine may be busy


def test_number_of_grpc_connections_is_limited(exported, tools, monkeypatch):
    """Idle gRPC connections leave file descriptors for REST."""
    from serving.server import server as module

    monkeypatch.setattr(module, "_max_descriptors", lambda: 40)
    hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"
    with tools.serve(exported) as server, contextlib.ExitStack() as stack:
        answered = 0
        for _ in range(30):
            address = ("127.0.0.1", server.grpc_port)
            idle = stack.enter_context(socket.create_connection(address, timeout=20))
            with contextlib.suppress(ConnectionError):
                idle.sendall(hello)
                answered += bool(idle.recv(1))
        assert 5 <= answered <= 10
