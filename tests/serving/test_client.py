"""The client: one `act` for both transports."""

import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf.export import load_policy
from serving.client import ServingError, connect
from serving.client.client import split_attention

pytestmark = pytest.mark.tf_only


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


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_the_time_of_a_call_is_for_all_that_it_asks(scheme, tools):
    """What signatures there are was asked for with the client's time."""
    begun = time.monotonic()
    with connect(f"{scheme}://127.0.0.1:{tools.free_port()}", "tiny", timeout=3) as client:
        for call in (client.act, lambda raw, timeout: client.predict({"x": raw}, timeout=timeout)):
            with pytest.raises(ServingError):
                call(tools.observations(1), timeout=0.2)
    assert time.monotonic() - begun < 1.5


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
        nothing = {"none": tf.zeros([0, 3]), "no_words": tf.fill([0, 3], "")}
        return {"joined_bytes": joined, "flag": flag, **nothing}

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
    assert outputs["none"].shape == outputs["no_words"].shape == (0, 3)


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_strings_keep_the_zeros_at_their_end(tmp_path, tools, scheme):
    """Serialised Examples end in zeros, which NumPy's own strings lose: other data were sent."""
    spec = [tf.TensorSpec(None, tf.string, name="s")]
    tools.save_module(
        tmp_path / "1", {"serving_default": (lambda s: {"sizes": tf.strings.length(s)}, spec)}
    )
    with tools.serve(tmp_path) as server:
        port = server.grpc_port if scheme == "grpc" else server.rest_port
        with connect(f"{scheme}://127.0.0.1:{port}", "tiny") as client:
            strings = [b"ab\0", "é\0", b"\xff\0\0", "ab"]
            for given in (strings, np.array(strings, object), tuple(strings)):
                assert client.predict({"s": given})["sizes"].tolist() == [3, 3, 3, 2]
            assert client.predict({"s": [strings[:1], strings[1:2]]})["sizes"].tolist() == [
                [3],
                [3],
            ]
            assert client.predict({"s": b"ab\0"})["sizes"] == 3
            assert client.predict({"s": np.array(["é", "ab"])})["sizes"].tolist() == [2, 2]
            assert client.predict({"s": []})["sizes"].shape == (0,)
            for wrong in ([b"a", 1], [["a"], "b"], np.array([1], object)):
                with pytest.raises(ServingError, match="'s' must be strings or bytes; rec") as told:
                    client.predict({"s": wrong})
                assert told.value.code == "INVALID_ARGUMENT"
