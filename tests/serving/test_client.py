"""The client: one `act` for both transports."""

import contextlib
import http.server
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf.export import load_policy
from serving.client import ServingError, connect, split_attention

pytestmark = pytest.mark.tf_only
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", params=["grpc", "http"])
def address(request, server):
    port = server.grpc_port if request.param == "grpc" else server.rest_port
    return f"{request.param}://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def client(address):
    with connect(address, "tiny") as client:
        yield client


def test_act_is_the_policy_in_process(client, exported, tools):
    policy, raw = load_policy(exported / "1"), tools.observations(5)
    batch = client.act(raw)
    np.testing.assert_array_equal(batch, policy.act(raw))
    assert [client.act(one) for one in raw] == batch.tolist()
    assert client.act(raw[0].tolist()) == batch[0]
    assert isinstance(client.act(raw[0]), int)


@given(rounds=st.permutations(range(1, 13)))
def test_rounds_come_in_their_order_whatever_a_protocol_makes_of_it(rounds):
    outputs = {f"attention_round_{number}": np.array(number) for number in rounds}
    found = split_attention({"action": np.array(0), **outputs})
    assert list(found) == [f"round_{number}" for number in range(1, 13)]
    assert [int(each) for each in found.values()] == list(range(1, 13))


def test_attention_comes_along(client, exported, tools):
    raw = tools.observations(2)
    _, expected = load_policy(exported / "1").act(raw, return_attention_scores=True)
    action, attention = client.act(raw, return_attention_scores=True)
    assert action.shape == (2,) and list(attention) == ["round_1"]
    np.testing.assert_allclose(attention["round_1"], expected["round_1"], rtol=1e-6)
    action, attention = client.act(raw[0], return_attention_scores=True)
    assert isinstance(action, int) and attention["round_1"].shape == (2, 9, 9)
    assert attention["round_1"].dtype == np.float32


def test_any_signature_can_be_asked(client, tools):
    outputs = client.predict({"observation": tools.observations(3)})
    assert {name: array.shape for name, array in outputs.items()} == {
        "action": (3,),
        "q_values": (3, tools.ACTIONS),
    }
    assert outputs["action"].dtype == np.int32 and outputs["q_values"].dtype == np.float32
    assert set(client.signatures) == {"act", "act_with_attention", "serving_default"}
    assert client.signatures["act"]["inputs"]["observation"] == (np.uint8, [-1, 3, 3, 2])


def test_the_server_explains_a_wrong_observation(client, tools):
    for wrong in (tools.observations(1)[:, 1:], tools.observations(1)[0, 1:], np.uint8(3)):
        with pytest.raises(ServingError, match=r"'observation'.*expected") as refusal:
            client.act(wrong)
        assert refusal.value.code == "INVALID_ARGUMENT"
    with pytest.raises(ServingError) as refusal:
        client.act(tools.observations(1).astype("float32") + 0.5)
    assert refusal.value.code == "INVALID_ARGUMENT"


def test_what_is_no_observation_is_said_here(client, tools):
    fractions = (0.9 * tools.observations(1)).tolist()  # each would be sent as a whole number
    for wrong in ([[1, 2], [3]], "left", [[[[300]]]], [[[[-1]]]], [[[[np.nan]]]], fractions):
        with pytest.raises(ValueError, match=r"of uint8 of shape \[3, 3, 2\].*received"):
            client.act(wrong)
    with pytest.raises(ValueError, match=r"names: observation\); received"):
        client.predict(tools.observations(1))


def test_http_at_the_port_of_grpc_is_guessed(server, tools):
    address = f"http://127.0.0.1:{server.grpc_port}"
    said = pytest.raises(ServingError, match="is it the port of gRPC")
    with connect(address, "tiny", retries=0) as client, said as refusal:
        client.act(tools.observations(1))
    assert refusal.value.code == "UNAVAILABLE"


def test_unknown_models_versions_and_signatures(address, tools):
    raw = tools.observations(1)
    for options in ({"model": "other"}, {"model": "tiny", "version": 4}):
        with connect(address, **options) as client, pytest.raises(ServingError) as refusal:
            client.act(raw)
        assert refusal.value.code == "NOT_FOUND"
    with connect(address, "tiny", version=1) as client:
        client.act(raw)
        with pytest.raises(ServingError, match="no signature 'other'"):
            client.predict({"observation": raw}, "other")


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_nobody_there(scheme, tools):
    address = f"{scheme}://127.0.0.1:{tools.free_port()}"
    with connect(address, "tiny", retries=1) as client, pytest.raises(ServingError) as refusal:
        client.act(tools.observations(1))
    assert refusal.value.code == "UNAVAILABLE"


@pytest.mark.parametrize(
    "text",
    [
        *("localhost:8500", "ftp://h:1", "grpc://h", "http://", ""),
        *("grpc://h:99999", "grpc://h:port", "http://[h:1", "http://h:1/v1/models/tiny"),
    ],
)
def test_addresses_have_one_form(text):
    with pytest.raises(ValueError, match="received"):
        connect(text, "tiny")


def test_a_client_may_be_shared_by_threads(client, exported, tools):
    raw = tools.observations(40)
    expected = load_policy(exported / "1").act(raw).tolist()
    answers = [None] * len(raw)

    def ask(start):
        for index in range(start, len(raw), 4):
            answers[index] = client.act(raw[index])

    threads = [threading.Thread(target=ask, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == expected


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_strings_scalars_and_empty_batches(tmp_path, tools, scheme):
    def join(text, number, flag):
        joined = tf.strings.join([text, tf.strings.as_string(number)])
        return {"joined_bytes": joined, "flag": flag, "none": tf.zeros([0, 3])}

    specs = [tf.TensorSpec([None], tf.string, name="text")]
    specs += [tf.TensorSpec([], tf.int64, name="number"), tf.TensorSpec([], tf.bool, name="flag")]
    tools.save_module(tmp_path / "1", {"serving_default": (join, specs)})
    with tools.serve(tmp_path) as server:
        port = server.grpc_port if scheme == "grpc" else server.rest_port
        with connect(f"{scheme}://127.0.0.1:{port}", "tiny") as client:
            inputs = {"text": ["a", "é"], "number": np.int64(2**62), "flag": np.bool_(True)}
            outputs = client.predict(inputs)
    assert outputs["joined_bytes"].tolist() == [f"{t}{2**62}".encode() for t in "aé"]
    assert outputs["flag"].shape == () and bool(outputs["flag"])
    assert outputs["none"].shape == (0, 3)


class Flaky(http.server.BaseHTTPRequestHandler):
    """Answers with the statuses it is given, one after another, and hangs up after each."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        body = {"error": "busy"} if status != 200 else self.server.metadata
        text = json.dumps(body).encode()
        self.server.asked += 1
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.fixture
def flaky():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Flaky)
    server.statuses, server.asked = [], 0
    server.metadata = {"metadata": {"signature_def": {"signature_def": {}}}}
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_answers_that_trickle_in_are_given_up_in_time():
    """Each byte began the time anew: an answer in small pieces took as long as it liked."""

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

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Trickling) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        begun = time.monotonic()
        client = connect(f"http://127.0.0.1:{server.server_address[1]}", "tiny", timeout=0.5)
        with pytest.raises(ServingError, match="no answer") as refusal:
            client.signatures
        assert refusal.value.code == "DEADLINE_EXCEEDED" and time.monotonic() - begun < 5
        server.shutdown()
        thread.join()


def test_another_thread_may_take_the_last_idle_connection(flaky):
    """Between the look whether there is one and the taking of it: an IndexError before."""

    class Taken(list):
        def __len__(self):
            return 1

    with connect(f"http://127.0.0.1:{flaky.server_address[1]}", "tiny") as client:
        client._transport._idle = Taken()
        assert client.signatures == {}
        client._transport._idle = list(client._transport._idle)


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
def test_only_unavailable_is_asked_again(flaky, statuses, retries, asked, code):
    flaky.statuses = statuses
    client = connect(f"http://127.0.0.1:{flaky.server_address[1]}", "tiny", retries=retries)
    if code is None:
        assert client.signatures == {}
    else:
        with pytest.raises(ServingError, match="busy") as refusal:
            client.signatures
        assert refusal.value.code == code
    assert flaky.asked == asked
    client.close()


def test_a_connection_closed_while_idle_is_opened_again(flaky):
    client = connect(f"http://127.0.0.1:{flaky.server_address[1]}", "tiny", retries=0)
    for _ in range(3):
        client._signatures = None
        assert client.signatures == {}
    client.close()


def test_rest_needs_numpy_and_the_standard_library_only(server, tools):
    script = (
        "import sys, numpy as np\n"
        "from serving.client import connect\n"
        f"client = connect('http://127.0.0.1:{server.rest_port}', 'tiny')\n"
        f"client.act(np.zeros({tools.SHAPE}, np.uint8), return_attention_scores=True)\n"
        "heavy = {'tensorflow', 'keras', 'rrl_tf', 'grpc', 'google.protobuf', 'aiohttp'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=60)
