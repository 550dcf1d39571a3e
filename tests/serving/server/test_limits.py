"""Limits of requests, connections, replies and log lines."""

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
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from serving.client import ServingError, connect
from serving.server import logs
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


class Watch:
    """Sends small requests in a loop; `longest` is the slowest reply in seconds."""

    def __init__(self, server, tools):
        self._server, self._raw = server, tools.observations(1)[0]
        self.longest, self._stop = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def _ask(self):
        ready = http.client.HTTPConnection("127.0.0.1", self._server.rest_port, timeout=60)
        with connect(f"grpc://127.0.0.1:{self._server.grpc_port}", "tiny") as client:
            client.act(self._raw)
            while not self._stop.wait(0.002):
                begun = time.perf_counter()
                client.act(self._raw)
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
def test_huge_body_stalls_no_one(exported, tools, body, encoding, limit, status):
    """Reading 20 MB of JSON takes seconds; other requests do not wait for it."""
    changes = {"rest_api_max_request_bytes": limit, "max_request_rows": 0}
    with tools.serve(exported, **changes) as server, Watch(server, tools) as watch:
        headers = {"Content-Encoding": encoding} if encoding else {}
        received, _, reply = post(server, body, headers)
    assert received == status and list(reply) == ["error"]
    assert watch.longest < 1.0  # the machine may be busy; it was the whole time before


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
        (gzip.compress(b"{}", mtime=0)[:-3], {"Content-Encoding": "gzip"}, PREDICT, "ends early"),
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

        def open_one(text):
            address = ("127.0.0.1", server.rest_port)
            connection = stack.enter_context(socket.create_connection(address, timeout=20))
            connection.sendall(text)
            return connection

        slow = [open_one(b""), open_one(b"GET /readyz HTTP/1.1\r\nHo")]
        again = open_one(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b'{"ready": true}' in again.recv(4096)
        again.sendall(b"GET /rea")
        begun = time.monotonic()
        assert [everything(connection) for connection in (*slow, again)] == [b"", b"", b""]
        assert time.monotonic() - begun < 5
        assert b" 200 " in everything(open_one(b"GET /readyz HTTP/1.0\r\n\r\n"))


def test_idle_connections_make_room_for_new_ones(exported, tools):
    ask = b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"
    begun = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{{".encode()
    with (
        tools.serve(exported, rest_api_max_connections=3) as server,
        contextlib.ExitStack() as stack,
    ):

        def open_one(text):
            address = ("127.0.0.1", server.rest_port)
            connection = stack.enter_context(socket.create_connection(address, timeout=20))
            connection.sendall(text)
            return connection

        idle = [open_one(ask) for _ in range(3)]
        assert all(b" 200 " in connection.recv(4096) for connection in idle)
        idle[0].sendall(ask)
        assert b" 200 " in idle[0].recv(4096)
        for closed in (idle[1], idle[2], idle[0]):
            new = open_one(begun)
            assert everything(closed) == b""
            new.sendall(b"   ")
        refused = everything(open_one(b""))
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


def test_similar_log_lines_are_limited():
    limit = logs.RateLimit(most=3, seconds=0.2)
    lines = []

    def write(text):
        record = logging.LogRecord("serving", logging.ERROR, "", 0, text, (), None)
        if limit.filter(record):
            lines.append(record.getMessage())

    for number in range(100):
        write(f"accept() out of system resource, and here we go: {number}")
    write("another")
    assert len(lines) == 4 and "left out" in lines[2] and lines[3] == "another"
    time.sleep(0.25)
    write("accept() out of system resource, and here we go: later")
    assert lines[-1].endswith("(and 97 lines like it)")


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
    time.sleep(3.0)
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
            except ServingError as error:  # it came too late, and knows where it stands
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
        # Here it begins to stop.
    for thread in threads:
        thread.join()
    assert len(outcomes) == 9 and outcomes.count((200, "close")) >= 3
    late = {(503, "close"), ("UNAVAILABLE", None)}
    assert set(outcomes) <= {(200, "close"), (200, None), (200, (1000,))} | late


@given(st.text(max_size=3000), st.sampled_from(["model %s", "%s"]))
def test_log_message_is_one_line(text, form):
    record = logging.LogRecord("serving", logging.ERROR, "f", 1, form, (text,), None)
    line = logs.OneLine("%(levelname)s %(message)s").format(record)
    assert line.isprintable() and line.startswith("ERROR ")
    assert len(line) <= 10 * (logs._LONGEST + 100)
    if text.isprintable() and len(text) < 900:
        assert line.endswith(text)


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
