"""The REST client with servers that fail, change, or use another protocol."""

import asyncio
import contextlib
import http.server
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from serving.client import ServingError, connect, connect_async
from serving.client.address import ModelAddress, split_address
from serving.client.rest import RestMessages

pytestmark = pytest.mark.tf_only
ROOT = Path(__file__).parents[3]


class Flaky(http.server.BaseHTTPRequestHandler):
    """Responds with a list of statuses and closes the connection after each."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(self.server.metadata)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer({"outputs": self.server.outputs})

    def answer(self, body):
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        body = {"error": "busy"} if status != 200 else body
        text = json.dumps(body).encode()
        self.server.asked += 1
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        self.close_connection = True

    def log_message(self, *_):
        pass


def metadata(signatures):
    return {"metadata": {"signature_def": {"signature_def": signatures}}}


def columns(*names, dtype="DT_FLOAT"):
    """Return the metadata of vectors."""
    shape = {"dim": [{"size": "-1"}], "unknown_rank": False}
    return {name: {"dtype": dtype, "tensor_shape": shape} for name in names}


@contextlib.contextmanager
def answered_by(handler):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.address, server.asked = f"http://127.0.0.1:{server.server_address[1]}", 0
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def flaky():
    with answered_by(Flaky) as server:
        server.statuses, server.metadata = [], metadata({})
        yield server


def test_the_timeout_covers_a_slow_response():

    class Trickling(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            with contextlib.suppress(OSError):
                for _ in range(100):
                    self.wfile.write(b" ")
                    time.sleep(0.1)

        def log_message(self, *_):
            pass

    with answered_by(Trickling) as server:
        begun = time.monotonic()
        client = connect(server.address, "tiny", timeout=0.5)
        with pytest.raises(ServingError, match="no answer") as refusal:
            client.signatures
        assert refusal.value.code == "DEADLINE_EXCEEDED" and time.monotonic() - begun < 5


def test_another_thread_may_take_the_last_idle_connection(flaky):

    class Taken(list):
        def __len__(self):
            return 1

    with connect(flaky.address, "tiny") as client:
        client.transport._idle = Taken()
        assert client.signatures == {}
        client.transport._idle = list(client.transport._idle)


@pytest.mark.parametrize(
    ("statuses", "retries", "asked", "code"),
    [
        ([503, 503], 3, 3, None),
        ([503] * 9, 2, 3, "UNAVAILABLE"),
        ([404], 3, 1, "NOT_FOUND"),
        ([500], 3, 1, "INTERNAL"),
        ([504], 3, 1, "DEADLINE_EXCEEDED"),
    ],
)
def test_only_unavailable_is_retried(flaky, statuses, retries, asked, code):
    flaky.statuses = statuses
    client = connect(flaky.address, "tiny", retries=retries)
    if code is None:
        assert client.signatures == {}
    else:
        with pytest.raises(ServingError, match="busy") as refusal:
            client.signatures
        assert refusal.value.code == code
    assert flaky.asked == asked
    client.close()


def test_a_connection_closed_while_idle_is_reopened(flaky):
    client = connect(flaky.address, "tiny", retries=0)
    for _ in range(3):
        client._client._signatures = None
        assert client.signatures == {}
    client.close()


def test_a_dead_connection_is_retried_once_within_the_timeout():

    class Hanging(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.asked += 1
            time.sleep(0.3)  # and closes the connection

    with (
        answered_by(Hanging) as server,
        connect(server.address, "tiny", timeout=0.5, retries=0) as client,
    ):
        for _ in range(4):
            connection = client.transport._new_connection()
            connection.connect()
            client.transport._idle.append(connection)
        begun = time.monotonic()
        with pytest.raises(ServingError, match=r"no answer in 0\.5 s"):
            client.signatures
        assert time.monotonic() - begun < 0.8 and server.asked == 2


def test_a_dtype_unknown_to_numpy_is_none_in_the_signatures(flaky):
    odd = [columns("x", dtype=f"DT_{name}") for name in ("BFLOAT16", "VARIANT", "QINT8", "NEW")]
    signatures = {f"odd{n}": {"inputs": each, "outputs": each} for n, each in enumerate(odd)}
    signatures["serving_default"] = {"inputs": columns("x"), "outputs": columns("y")}
    flaky.metadata, flaky.outputs = metadata(signatures), [1.5]
    with connect(flaky.address, "tiny") as client:
        assert client.predict({"x": [1.0]})["y"].tolist() == [1.5]
        assert client.signatures["odd1"]["inputs"] == {"x": (None, [-1])}


@pytest.mark.parametrize("answer", [{}, [], "<html>", None, {"metadata": {"signature_def": 3}}])
@pytest.mark.parametrize("status", [200, 404, 503])
def test_an_invalid_reply_raises_a_serving_error(status, answer):
    form = RestMessages(ModelAddress(split_address("http://h:1", ["http"]), "m"))
    for text in (json.dumps(answer), f"{answer}"):
        with pytest.raises(ServingError) as refusal:
            form.read_signatures(form.read_reply(status, text.encode()))
        assert refusal.value.code == {200: "INTERNAL", 404: "NOT_FOUND", 503: "UNAVAILABLE"}[status]
        assert refusal.value.message and ("expected" in str(refusal.value)) == (status == 200)


@pytest.fixture(params=["threads", "event loop"])
def predict(request, flaky):
    """The predict function of `connect`'s client or of `connect_async`'s."""
    address = flaky.address
    if request.param == "threads":
        with connect(address, "tiny") as client:
            yield lambda: client.predict({"x": [1.0]})
        return
    with asyncio.Runner() as runner:
        awaited = connect_async(address, "tiny")
        yield lambda: runner.run(awaited.predict({"x": [1.0]}))
        runner.run(awaited.close())


@pytest.mark.parametrize("others", [("y", "z"), ("y", "z", "w"), ("z",)])
def test_outputs_of_a_new_version_are_read_after_one_error(flaky, predict, others):

    def change(names):
        both = {"inputs": columns("x"), "outputs": columns(*names)}
        flaky.metadata = metadata({"serving_default": both})
        flaky.outputs = {name: [1.5] for name in names} if len(names) > 1 else [1.5]
        return set(names)

    names = change(("u", "v"))
    assert predict().keys() == names
    names = change(others)
    with pytest.raises(ServingError, match=r"outputs \['u', 'v'\] .*try again\); received"):
        predict()
    assert predict().keys() == names


def test_rest_needs_numpy_and_the_standard_library_only(server, tools):
    script = (
        "import sys, numpy as np\n"
        "from serving.client import connect\n"
        f"client = connect('http://127.0.0.1:{server.rest_port}', 'tiny')\n"
        f"client.act(np.zeros({tools.SHAPE}, np.uint8), return_attention_scores=True)\n"
        "heavy = {'tensorflow', 'keras', 'gymnasium', 'grpc', 'google.protobuf', 'aiohttp'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=60)
