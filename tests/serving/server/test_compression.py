"""Replies that are compressed with gzip over REST and gRPC."""

import contextlib
import gzip
import http.client
import json
import socket
import threading
import time

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from serving.client import connect_async
from serving.server import rest

pytestmark = pytest.mark.tf_only
PREDICT = "/v1/models/tiny:predict"


@pytest.fixture(scope="module")
def echo(tmp_path_factory, tools):
    """A server of a model that returns its input, with compression over gRPC."""
    base = tmp_path_factory.mktemp("echo")
    spec = tf.TensorSpec([None], tf.int64, name="x")
    tools.save_module(base / "1", {"serving_default": (lambda x: {"y": x + 0}, [spec])})
    (base / "monitoring").write_text("prometheus_config { enable: true }")
    with tools.serve(
        base,
        max_request_rows=0,
        grpc_channel_arguments="grpc.default_compression_algorithm=2",
        monitoring_config_file=str(base / "monitoring"),
    ) as server:
        yield server


def ask(server, path, values=None, **headers):
    """Return (headers, body) of a reply with status 200; http.client decompresses nothing."""
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=60)
    with contextlib.closing(connection):
        body = None if values is None else json.dumps({"inputs": values})
        method = "GET" if values is None else "POST"
        connection.request(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
        response = connection.getresponse()
        assert response.status == 200
        return response.headers, response.read()


@pytest.mark.parametrize("count", [1000, 200_000])  # in the event loop, and in a thread
def test_rest_replies_are_compressed_if_the_client_accepts_gzip(echo, count):
    values = list(range(count))
    headers, plain = ask(echo, PREDICT, values)
    assert headers["Content-Encoding"] is None and headers["Vary"] == "Accept-Encoding"
    headers, packed = ask(echo, PREDICT, values, Accept_Encoding="deflate, gzip;q=0.5")
    assert headers["Content-Encoding"] == "gzip" and headers["Vary"] == "Accept-Encoding"
    assert int(headers["Content-Length"]) == len(packed) < len(plain) / 2
    assert gzip.decompress(packed) == plain and json.loads(plain) == {"outputs": values}


def test_small_replies_are_not_compressed(echo):
    headers, body = ask(echo, PREDICT, [1], Accept_Encoding="gzip")
    assert headers["Content-Encoding"] is None and json.loads(body) == {"outputs": [1]}


@pytest.mark.parametrize("path", ["/v1/models/tiny/metadata", "/monitoring/prometheus/metrics"])
def test_metadata_and_metrics_are_compressed(server, echo, path):
    """The tiny policy has long metadata; the echo server has metrics."""
    asked = server if path.endswith("metadata") else echo
    ask(echo, PREDICT, [1])
    headers, packed = ask(asked, path, Accept_Encoding="gzip")
    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed)[:100] == ask(asked, path)[1][:100]


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("", False),
        ("identity", False),
        ("br, zstd", False),
        ("gzip", True),
        ("GZip", True),
        ("x-gzip", True),
        ("br;q=1.0, gzip;q=0.8, *;q=0.1", True),
        ("*", True),
        ("*;q=0", False),
        ("gzip;q=0", False),
        ("gzip; q=0.000, *", False),
        ("gzip;q=0.001", True),
        ("not-gzip", False),
    ],
)
def test_accept_encoding(header, accepted):
    assert rest.accepts_gzip(header) == accepted


def test_compression_of_a_large_reply_does_not_stall_readiness(echo):
    """Compression of 10 MB takes at least 0.1 seconds, so it runs in a thread."""
    longest, stop = [0.0], threading.Event()

    def watch():
        ready = http.client.HTTPConnection("127.0.0.1", echo.rest_port, timeout=60)
        while not stop.is_set():
            begun = time.perf_counter()
            ready.request("GET", "/readyz")
            ready.getresponse().read()
            longest[0] = max(longest[0], time.perf_counter() - begun)
        ready.close()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        values = np.random.default_rng(0).integers(0, 1 << 40, 800_000).tolist()
        headers, _ = ask(echo, PREDICT, values, Accept_Encoding="gzip")
    finally:
        stop.set()
        thread.join()
    assert headers["Content-Encoding"] == "gzip" and longest[0] < 1.0


def test_the_asynchronous_client_asks_for_no_compression(echo):
    """Compression costs more time than it saves inside a machine or a data centre."""
    import asyncio

    async def answer():
        async with connect_async(f"http://127.0.0.1:{echo.rest_port}", "tiny") as client:
            return await client.predict({"x": np.arange(1000)})

    assert asyncio.run(answer())["y"][-1] == 999


@contextlib.contextmanager
def counting_proxy(port):
    """Forward one connection to a port; yield (its own port, list of received sizes)."""
    sizes = []

    def forward(source, target, count):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                count.append(len(data))
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def run():
        client, _ = listener.accept()
        with client, socket.create_connection(("127.0.0.1", port)) as server:
            there = threading.Thread(target=forward, args=(client, server, []))
            there.start()
            forward(server, client, sizes)
            there.join()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=run)
        thread.start()
        yield listener.getsockname()[1], sizes
        thread.join()


@pytest.mark.parametrize(
    ("count", "is_compressed"), [(12_000, True), (1_000_000, False)], ids=["small", "large"]
)
def test_only_small_grpc_replies_are_compressed(echo, count, is_compressed):
    """gRPC compresses in the event loop's thread, so large replies are not compressed."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "tiny"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.zeros(count, np.int64)))
    with counting_proxy(echo.grpc_port) as (port, sizes):
        options = [("grpc.max_receive_message_length", -1)]
        with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            reply = stub.Predict(request, timeout=20)
    assert len(reply.outputs["y"].int64_val) == count
    assert (sum(sizes) < reply.ByteSize() / 4) == is_compressed
