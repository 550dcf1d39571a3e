"""Limits of requests, connections and replies, and requests that try to stall the server."""

import asyncio
import contextlib
import gzip
import http.client
import json
import logging
import os
import signal
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

from serving.client import ServingError, connect
from serving.server import admission, command, grpc_service, json_codec
from serving.server.metrics import Metrics

pytestmark = pytest.mark.tf_only
PREDICT = "/v1/models/tiny:predict"


def post(server, body, headers=None, path=PREDICT):
    """Return (status, headers, reply) of a request on a new connection."""
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=60)
    with contextlib.closing(connection):
        connection.request("POST", path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.headers, json.loads(response.read())


def post_document(server, document, verb="predict"):
    """Return (status, reply) of a request on a new connection."""
    status, _, reply = post(server, json.dumps(document), path=f"/v1/models/tiny:{verb}")
    return status, reply


class Watch:
    """Sends small requests in a loop; `longest` is the slowest reply in seconds.

    It requests `/readyz` and, if the server has the tiny policy, the action for an observation.
    """

    def __init__(self, server, observation=None):
        self._server, self._observation = server, observation
        self.longest, self._stop = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._send_requests)

    def _send_requests(self):
        ready = http.client.HTTPConnection("127.0.0.1", self._server.rest_port, timeout=60)
        with connect(f"grpc://127.0.0.1:{self._server.grpc_port}", "tiny") as client:
            while not self._stop.wait(0.002):
                begun = time.perf_counter()
                if self._observation is not None:
                    client.act(self._observation)
                ready.request("GET", "/readyz")
                assert ready.getresponse().read() == b'{"ready": true}'
                self.longest = max(self.longest, time.perf_counter() - begun)
        ready.close()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


def open_connection(stack, server, text=b"", timeout=60):
    """Return a socket to the REST port that has sent a text; `stack` closes it."""
    address = ("127.0.0.1", server.rest_port)
    connection = stack.enter_context(socket.create_connection(address, timeout=timeout))
    connection.sendall(text)
    return connection


@pytest.fixture(scope="module")
def servers(exported, tools):
    """Limit of a body -> a server with that limit."""
    with contextlib.ExitStack() as stack:
        yield {
            limit: stack.enter_context(
                tools.serve(exported, rest_api_max_request_bytes=limit, max_request_rows=0)
            )
            for limit in (1 << 20, 1 << 30)
        }


MEGABYTES = 6
ZEROS = b'{"instances":[' + b"0," * (MEGABYTES << 19) + b"0]}"


@pytest.mark.parametrize(
    ("body", "encoding", "limit", "status"),
    [
        (gzip.compress(ZEROS, mtime=0), "gzip", 1 << 20, 413),
        (gzip.compress(gzip.compress(b"0" * (50 << 20), mtime=0), mtime=0), "gzip", 1 << 30, 400),
        (gzip.compress(ZEROS, mtime=0), "gzip", 1 << 30, 400),
        (ZEROS, "", 1 << 20, 413),
        (ZEROS, "", 1 << 30, 400),
        (ZEROS.replace(b"[0", b"[NaN"), "", 1 << 30, 413),
        (b'{"instances":[' + b'"",' * 500_000 + b'""]}', "", 1 << 30, 400),
        (b'{"instances":' + b"[" * 1_000_000, "", 1 << 30, 400),
    ],
    ids=(
        "packed",
        "packed twice",
        "packed, unlimited",
        "plain",
        "unlimited",
        "NaN",
        "texts",
        "deep",
    ),
)
def test_huge_body_does_not_stall_small_requests(servers, tools, body, encoding, limit, status):
    """Reading 20 MB of JSON takes seconds; other requests do not wait for it."""
    server = servers[limit]
    with Watch(server, tools.observations(1)[0]) as watch:
        headers = {"Content-Encoding": encoding} if encoding else {}
        received, _, reply = post(server, body, headers)
    assert received == status and list(reply) == ["error"]
    assert watch.longest < 1.0  # the machine may be busy; parsing takes longer


def test_deadline_ends_a_worker(exported, tools):
    """The request of a worker that hangs times out, and a new worker replaces it."""
    body = json.dumps({"instances": tools.observations(400).tolist()})
    with tools.serve(exported, rest_api_timeout_in_ms=1000, rest_api_num_readers=1) as server:
        (reader,) = server._rest._workers._idle
        os.kill(reader.process.pid, signal.SIGSTOP)
        begun = time.monotonic()
        status, _, reply = post(server, body)
        assert status == 504 and "1 seconds" in reply["error"]
        assert time.monotonic() - begun < 3.0
        while post(server, body)[0] != 200:
            assert time.monotonic() - begun < 60.0


def test_worker_and_slow_path_give_the_same_reply(server, exported, tools):
    raw = tools.observations(1500)
    with connect(f"grpc://127.0.0.1:{server.grpc_port}", "tiny") as client:
        expected = client.predict({"observation": raw})
    rows = raw.tolist()
    for document, headers in (
        ({"instances": rows}, {}),
        ({"instances": rows}, {"Content-Encoding": "gzip"}),
        ({"instances": rows}, {"Content-Encoding": "deflate"}),
        ({"instances": [{"observation": row} for row in rows]}, {}),
        ({"inputs": rows, "other": "\\"}, {}),
    ):
        body = json.dumps(document).encode()
        if headers:
            import zlib

            pack = {"gzip": gzip.compress, "deflate": zlib.compress}
            body = pack[headers["Content-Encoding"]](body)
        status, _, reply = post(server, body, headers)
        assert status == 200
        if "inputs" in document:
            actions, q_values = (reply["outputs"][name] for name in ("action", "q_values"))
        else:
            actions = [row["action"] for row in reply["predictions"]]
            q_values = [row["q_values"] for row in reply["predictions"]]
        np.testing.assert_array_equal(actions, expected["action"])
        np.testing.assert_array_equal(np.float32(q_values), expected["q_values"])


@pytest.mark.parametrize(
    ("body", "headers", "path", "words"),
    [
        (b"{}", {"Content-Encoding": "gzip"}, PREDICT, "not valid gzip"),
        (
            gzip.compress(b"{}", mtime=0)[:-3],
            {"Content-Encoding": "gzip"},
            PREDICT,
            "is incomplete",
        ),
        (b"{}", {"Content-Encoding": "br"}, PREDICT, "'br'"),
        (b"{}", {}, f"/v1/models/tiny/versions/{'9' * 4500}:predict", "out of range"),
        (b"{}", {}, f"/v1/models/tiny/versions/{'0' * 4500}:predict", "not found"),
    ],
)
def test_client_error_is_not_logged_as_an_error(server, caplog, body, headers, path, words):
    status, _, reply = post(server, body, headers, path)
    assert status in (400, 404) and words in reply["error"]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_disconnect_is_counted_as_cancelled(exported, tools, tmp_path, caplog):
    monitoring = tmp_path / "monitoring.config"
    monitoring.write_text("prometheus_config { enable: true }")
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n".encode()
    with tools.serve(exported, monitoring_config_file=str(monitoring)) as server:
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", server.rest_port)) as connection:
                connection.sendall(head + b"{")
        deadline = time.monotonic() + 20
        while b'status="CANCELLED"} 5' not in page_of(server):
            assert time.monotonic() < deadline, page_of(server)
            time.sleep(0.01)
        assert b'status="INTERNAL"' not in page_of(server)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def page_of(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", "/monitoring/prometheus/metrics")
        return connection.getresponse().read()


def everything(connection):
    with contextlib.suppress(ConnectionError):
        return b"".join(iter(lambda: connection.recv(4096), b""))
    return b""


def test_text_that_is_not_http_is_a_400(server):
    with socket.create_connection(("127.0.0.1", server.rest_port), timeout=20) as connection:
        connection.sendall(b"GARBAGE\x00\r\n\r\n")
        assert everything(connection).split()[1] == b"400"


def test_header_timeout_closes_connections(exported, tools):
    changes = {"rest_api_header_timeout_in_ms": 300, "rest_api_max_connections": 3}
    with tools.serve(exported, **changes) as server, contextlib.ExitStack() as stack:
        slow = [
            open_connection(stack, server, b""),
            open_connection(stack, server, b"GET /readyz HTTP/1.1\r\nHo"),
        ]
        again = open_connection(stack, server, b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b'{"ready": true}' in again.recv(4096)
        again.sendall(b"GET /rea")
        begun = time.monotonic()
        assert [everything(connection) for connection in (*slow, again)] == [b"", b"", b""]
        assert time.monotonic() - begun < 5
        assert b" 200 " in everything(
            open_connection(stack, server, b"GET /readyz HTTP/1.0\r\n\r\n")
        )


def test_idle_connections_make_room_for_new_ones(exported, tools):
    ask = b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"
    begun = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{{".encode()
    with (
        tools.serve(exported, rest_api_max_connections=3) as server,
        contextlib.ExitStack() as stack,
    ):
        idle = [open_connection(stack, server, ask) for _ in range(3)]
        assert all(b" 200 " in connection.recv(4096) for connection in idle)
        idle[0].sendall(ask)
        assert b" 200 " in idle[0].recv(4096)
        for closed in (idle[1], idle[2], idle[0]):
            new = open_connection(stack, server, begun)
            assert everything(closed) == b""
            new.sendall(b"   ")
        refused = everything(open_connection(stack, server, b""))
        assert refused.startswith(b"HTTP/1.1 503") and b"too many connections" in refused


def test_rows_and_replies_have_limits(exported, tools):
    """Seventy bytes can request 5,000 rows, 192 MB of attention and 2.3 GB of memory."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "tiny", "act_with_attention"
    tensor = request.inputs["observation"]
    tensor.dtype = 4  # DT_UINT8
    for size in (5000, *tools.SHAPE):
        tensor.tensor_shape.dim.add(size=size)
    tensor.int_val.append(1)
    for changes, words in (
        ({}, "4096 rows; received 5000"),
        ({"max_request_rows": 0, "max_reply_bytes": 1 << 20}, "1048576 bytes; this one would"),
    ):
        with tools.serve(exported, **changes) as server:
            with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
                stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
                with pytest.raises(grpc.RpcError, match=words) as refusal:
                    stub.Predict(request, timeout=20)
            assert refusal.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            rows = {"instances": tools.observations(5000).tolist()}
            rows["signature_name"] = "act_with_attention"
            status, _, reply = post(server, json.dumps(rows))
            assert status == 413 or "values" in reply["error"]


def test_metrics_of_unloaded_versions_are_dropped():
    metrics = Metrics()
    sizes = []
    for number in range(20):
        metrics.warmed_up(f"/models/{number}", "OK", 0.1, 3)
        metrics.forget(f"/models/{number - 1}")
        sizes.append(sum(len(f["samples"]) for f in metrics.collect().values()))
    assert len(set(sizes)) == 1


def test_client_retries_until_its_timeout(exported, tools):
    ports = {"port": tools.free_port(), "rest_api_port": tools.free_port()}
    answers, raw = [], tools.observations(2)

    def ask(address):
        with connect(address, "tiny", timeout=60) as client:
            answers.append(client.act(raw).tolist())

    addresses = [f"grpc://127.0.0.1:{ports['port']}", f"http://127.0.0.1:{ports['rest_api_port']}"]
    threads = [threading.Thread(target=ask, args=(address,)) for address in addresses]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    with tools.serve(exported, **ports):
        for thread in threads:
            thread.join()
    assert len(answers) == 2 and answers[0] == answers[1]
    with connect(addresses[1], "tiny", timeout=0.3) as client, pytest.raises(ServingError):
        client.act(raw)


def test_accepted_requests_get_replies_at_shutdown(exported, tools):
    raw = tools.observations(1000)
    body, outcomes = json.dumps({"instances": raw.tolist()}), []

    def ask_rest():
        status, headers, _ = post(server, body)
        outcomes.append((status, headers.get("Connection")))

    def ask_grpc():
        with connect(f"grpc://127.0.0.1:{server.grpc_port}", "tiny", retries=0) as client:
            client.signatures
            barrier.wait()
            try:
                outcomes.append((200, client.act(raw).shape))
            except ServingError as error:  # sent after the shutdown began
                outcomes.append((error.code, None))

    barrier = threading.Barrier(2)
    with tools.serve(exported, drain_seconds=60) as server:
        threads = [threading.Thread(target=ask_rest) for _ in range(8)]
        threads.append(threading.Thread(target=ask_grpc))
        for thread in threads:
            thread.start()
        barrier.wait()
        while server._inference._num_accepted < 5:
            time.sleep(0.0005)
        # The end of this block starts the shutdown.
    for thread in threads:
        thread.join()
    assert len(outcomes) == 9 and outcomes.count((200, "close")) >= 3
    late = {(503, "close"), ("UNAVAILABLE", None)}
    assert set(outcomes) <= {(200, "close"), (200, None), (200, (1000,))} | late


@given(st.text(max_size=3000), st.sampled_from(["model %s", "%s"]))
def test_log_message_is_one_line(text, form):
    record = logging.LogRecord("serving", logging.ERROR, "f", 1, form, (text,), None)
    line = command.OneLine("%(levelname)s %(message)s").format(record)
    assert line.isprintable() and line.startswith("ERROR ")
    assert len(line) <= 10 * (command._LONGEST + 100)
    if text.isprintable() and len(text) < 900:
        assert line.endswith(text)
    line = command.JsonLines().format(record)
    assert line.isprintable()
    assert json.loads(line)["level"] == "ERROR"
    if len(text) < 900:
        assert json.loads(line)["message"] == form % text


def test_connection_of_a_slow_reader_is_closed(exported, tools):
    rows = tools.observations(4000).tolist()
    body = json.dumps({"signature_name": "act_with_attention", "instances": rows}).encode()
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with (
        tools.serve(exported, rest_api_header_timeout_in_ms=500) as server,
        socket.socket() as slow,
    ):
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", server.rest_port))
        slow.settimeout(60)
        slow.sendall(head + body)
        deadline = time.monotonic() + 60
        connections = server._rest.connections
        while not any(each.idle_since is None for each in list(connections.values())):
            assert time.monotonic() < deadline
        while connections:
            assert time.monotonic() < deadline
            time.sleep(0.01)


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
def test_count_fields_includes_nested_and_packed_fields(num_inputs, num_texts, num_bytes):
    request = predict_pb2.PredictRequest()
    request.model_spec.version.value = 3  # three fields: spec, version, value
    for index in range(num_inputs):
        tensor = request.inputs[str(index)]  # three: entry, key, value
        tensor.string_val.extend([b"text"] * num_texts)
        if num_bytes:
            tensor.int_val.extend([1] * num_bytes)  # one packed field
    packed = bool(num_bytes) + num_bytes // grpc_service._PACKED_PER_FIELD
    expected = 3 + num_inputs * (3 + num_texts + packed)
    data, described = request.SerializeToString(), predict_pb2.PredictRequest.DESCRIPTOR
    assert grpc_service.count_fields(data, described) == expected


@given(st.binary(max_size=60))
def test_count_fields_of_a_broken_message_is_at_most_its_bytes(data):
    assert grpc_service.count_fields(data, predict_pb2.PredictRequest.DESCRIPTOR) <= len(data)


@pytest.mark.parametrize("change", [0, 1])
def test_texts_of_a_message_are_limited(texts, stub, change):
    """The event loop's thread decodes names, hashes them and writes them into errors."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "a" * (grpc_service.MAX_TEXT + change)
    request.inputs["x"].tensor_content = b"x" * grpc_service.MAX_TEXT * 2  # not a text
    code, details = refusal_of(stub.Predict, request)
    assert code == ("RESOURCE_EXHAUSTED" if change else "NOT_FOUND")
    assert ("name may have at most 65536 bytes; received 65537" in details) == bool(change)


def test_messages_with_many_fields_do_not_stall_readiness(texts, stub):
    """protobuf and Python need seconds for 300 kB of tasks or 40 MB of empty names."""
    tasks = inference_pb2.MultiInferenceRequest()
    for index in range(40_000):
        tasks.tasks.add().model_spec.signature_name = f"{index}"
    names = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=[""] * 4_000_000)
    outputs = predict_pb2.PredictRequest(output_filter=[""] * 900_000)
    outputs.model_spec.name = "tiny"
    outputs.inputs["inputs"].dtype = 7
    outputs.inputs["inputs"].tensor_shape.dim.add(size=0)
    with Watch(texts) as watch:
        assert refusal_of(stub.MultiInference, tasks)[0] == "RESOURCE_EXHAUSTED"
        assert refusal_of(stub.GetModelMetadata, names)[0] == "RESOURCE_EXHAUSTED"
        code, details = refusal_of(stub.Predict, outputs)
        assert code == "INVALID_ARGUMENT" and "repeats an output" in details
    assert watch.longest < 5.0  # the machine may be busy


def test_copies_of_a_context_are_limited(texts, stub):
    """Copies of half a megabyte of context in 4,000 examples would take gigabytes."""
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name = "tiny"
    examples = request.input.example_list_with_context
    examples.context.features.feature["c"].bytes_list.value.append(b"x" * 500_000)
    for _ in range(50):
        examples.examples.add()
    with Watch(texts) as watch:
        assert len(stub.Classify(request, timeout=60).result.classifications) == 50
        for _ in range(1000):
            examples.examples.add()
        code, details = refusal_of(stub.Classify, request)
    assert code == "RESOURCE_EXHAUSTED" and "copies of the context" in details
    assert watch.longest < 5.0
    body = {"context": {"c": "x" * 500_000}, "examples": [{}] * 1000}
    status, reply = post_document(texts, body, "classify")
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
            slow.append(open_connection(stack, server, HEAD + b" " * (LIMIT - 1)))
        budget = server._rest._budget
        wait_until(lambda: budget.held >= 4 * (LIMIT - 1))
        status, reply = post_document(server, {"instances": tools.observations(300).tolist()})
        assert status == (200 if stalled else 503)
        assert stalled or f"at most {4 * LIMIT} bytes" in reply["error"]
        assert post_document(server, {"instances": tools.observations(2).tolist()})[0] == 200
        if stalled:
            assert slow[0].recv(4096).startswith(b"HTTP/1.1 408")
        for each in slow:
            each.close()
        wait_until(lambda: not budget.held)


@pytest.mark.parametrize("sent", [0, 100_000])
def test_stalled_body_times_out(exported, tools, sent):
    changes = {"rest_api_max_request_bytes": LIMIT, "rest_api_header_timeout_in_ms": 300}
    with tools.serve(exported, **changes) as server:
        with socket.create_connection(("127.0.0.1", server.rest_port), timeout=60) as slow:
            slow.sendall(HEAD + b" " * sent)
            reply = b"".join(iter(lambda: slow.recv(4096), b""))  # until the server closes it
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
        with pytest.raises(ServingError, match=f"at most {count} values") as refusal:
            read(text, "", 1 << 24, *arguments)
        assert refusal.value.http_status == 413
    assert sum(made) < 1000


def test_lists_of_numbers_may_exceed_the_limit_of_values():
    count = 2 * json_codec.MOST_VALUES
    text = b'{"instances":[' + b",".join([b"1"] * count) + b"]}"
    dtypes = {"": {"x": np.dtype("float32")}}
    _, arrays, *_ = json_codec.read_predict(text, "", 1 << 24, dtypes)
    assert arrays["x"].shape == (count,)


def test_size_of_requests_with_examples_is_limited(texts, stub):
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name = "tiny"
    example = request.input.example_list.examples.add()
    example.features.feature["x"].bytes_list.value.append(b"x" * (1 << 25))
    code, details = refusal_of(stub.Classify, request)
    assert code == "RESOURCE_EXHAUSTED" and f"at most {1 << 25} bytes" in details
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
    names = ["x" * 1000] * (limit // 1004)
    large = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=names)
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
            assert code == "RESOURCE_EXHAUSTED" and f"at most {4 * limit} bytes" in details
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
        json_codec.parse_numbers(b'{"instances":%b}' % text, json_codec._unpack_predict)
    assert time.perf_counter() - begun < 5.0


def test_large_replies_of_strings_and_empty_lists_are_written_by_workers(texts, monkeypatch):
    called, call = [], texts._rest._workers.call

    async def spy(function, *arguments, peer):
        called.append(function)
        return await call(function, *arguments, peer=peer)

    monkeypatch.setattr(texts._rest._workers, "call", spy)
    for signature, rows in (("echo", ["\n" * 100_000]), ("anything", [[]] * 100_000)):
        document = {"signature_name": signature, "instances": rows}
        assert post_document(texts, document) == (200, {"predictions": rows})
        assert called.pop() is json_codec.predict_reply
        called.clear()
    assert post_document(texts, {"signature_name": "echo", "instances": ["short"]})[0] == 200
    assert not called


def test_max_reply_bytes_counts_strings(tmp_path, tools):
    import tensorflow as tf

    def longer(text):
        return {"text": tf.strings.join([text] * 8)}

    spec = tf.TensorSpec([None], "string", name="text")
    tools.save_module(tmp_path / "1", {"serving_default": (longer, [spec])})
    with tools.serve(tmp_path, max_reply_bytes=1000) as server:
        assert post_document(server, {"instances": ["x" * 100]})[0] == 200
        status, reply = post_document(server, {"instances": ["x" * 200]})
    assert status == 413 and "would have 1608" in reply["error"]


def test_half_closed_connection_gets_the_reply_in_progress(server, tools):
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


def test_half_closed_connection_gets_a_slow_reply_to_get(server, monkeypatch):
    status = server._inference.status

    async def slow_status(model):
        await asyncio.sleep(0.3)
        return await status(model)

    monkeypatch.setattr(server._inference, "status", slow_status)
    with socket.create_connection(("127.0.0.1", server.rest_port), timeout=20) as connection:
        connection.sendall(b"GET /v1/models/tiny HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        reply = b"".join(iter(lambda: connection.recv(4096), b""))
    assert reply.startswith(b"HTTP/1.1 200 OK") and b"AVAILABLE" in reply


def test_chunks_of_one_byte_do_not_stall_readiness(server, tools):
    body = json.dumps({"instances": tools.observations(1).tolist()}).encode()
    head = b"POST /v1/models/tiny:predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    last = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    with (
        Watch(server) as watch,
        socket.create_connection(("127.0.0.1", server.rest_port), timeout=60) as connection,
    ):
        connection.sendall(head + b"1\r\n \r\n" * 1_000_000 + last)
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 OK")
    assert watch.longest < 1.0  # the machine may be busy


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


@pytest.mark.parametrize(
    ("path", "headers", "status", "words"),
    [
        (PREDICT, {"Content-Length": "10000000000"}, 413, "larger than"),
        (PREDICT, {"Content-Length": "9", "Content-Encoding": "br"}, 400, "gzip or deflate"),
        (PREDICT.replace("tiny", "other"), {"Content-Length": "9"}, 404, "Latest(other)"),
        (PREDICT.replace("tiny", "tiny/versions/7"), {"Content-Length": "9"}, 404, "(tiny, 7)"),
        (PREDICT.replace("tiny", "tiny/labels/new"), {"Content-Length": "9"}, 400, "label: new"),
        (PREDICT.replace("predict", "guess"), {"Content-Length": "9"}, 400, "Malformed"),
        ("/v1/models/tiny", {"Content-Length": "9"}, 400, "Malformed"),
    ],
)
@pytest.mark.parametrize("expect", [{}, {"Expect": "100-continue"}])
def test_headers_alone_are_refused_without_the_body(server, path, headers, status, words, expect):
    """The reply comes before a body, without `100 Continue`, and ends a connection that waits."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in (headers | expect).items())
    with contextlib.ExitStack() as stack:
        text = f"POST {path} HTTP/1.1\r\nHost: a\r\n{lines}\r\n".encode()
        connection = open_connection(stack, server, text, timeout=10)
        response = http.client.HTTPResponse(connection)
        response.begin()  # skips `100 Continue`, so the first line is checked below
        assert response.status == status and words in json.loads(response.read())["error"]
        assert not expect or response.headers["Connection"] == "close"
        if expect:
            again = open_connection(stack, server, text, timeout=10)
            assert again.recv(12) == b"HTTP/1.1 %d" % status
