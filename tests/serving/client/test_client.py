"""Both clients over both transports: the answers and errors of the served policy."""

import asyncio
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from rrl_tf.export import load_policy
from serving.client import ServingError, connect, connect_async
from serving.client.arrays import split_outputs

pytestmark = pytest.mark.tf_only


class Blocking:
    """An `AsyncClient` with the methods of `Client`, in a private event loop."""

    def __init__(self, *args, **options):
        self._runner = asyncio.Runner()
        self._client = connect_async(*args, **options)

    def act(self, *args, **options):
        return self._runner.run(self._client.act(*args, **options))

    def predict(self, *args, **options):
        return self._runner.run(self._client.predict(*args, **options))

    @property
    def signatures(self):
        return self._runner.run(self._client.signatures())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._runner.run(self._client.close())
        self._runner.close()


@pytest.fixture(scope="module", params=[connect, Blocking], ids=["sync", "async"])
def connect_either(request):
    return request.param


@pytest.fixture(scope="module", params=["grpc", "http"])
def scheme(request):
    return request.param


@pytest.fixture(scope="module")
def address(scheme, server):
    return address_of(server, scheme)


@pytest.fixture(scope="module")
def client(connect_either, address):
    with connect_either(address, "tiny") as client:
        yield client


def address_of(server, scheme):
    port = server.grpc_port if scheme == "grpc" else server.rest_port
    return f"{scheme}://127.0.0.1:{port}"


def test_actions_equal_those_in_process(client, exported, tools):
    policy, raw = load_policy(exported / "1"), tools.observations(5)
    batch = client.act(raw)
    np.testing.assert_array_equal(batch, policy.act(raw))
    assert [client.act(one) for one in raw] == batch.tolist()
    assert client.act(raw[0].tolist()) == batch[0]
    assert isinstance(client.act(raw[0]), int)


def test_attention_equals_that_in_process(client, exported, tools):
    raw = tools.observations(2)
    _, expected = load_policy(exported / "1").act(raw, return_attention_scores=True)
    action, attention = client.act(raw, return_attention_scores=True)
    assert action.shape == (2,) and list(attention) == ["round_1"]
    np.testing.assert_allclose(attention["round_1"], expected["round_1"], rtol=1e-6)
    action, attention = client.act(raw[0], return_attention_scores=True)
    assert isinstance(action, int) and attention["round_1"].shape == (2, 9, 9)
    assert attention["round_1"].dtype == np.float32


def test_attention_is_in_the_order_of_the_rounds():
    outputs = {f"attention_round_{number}": np.array(number) for number in (10, 2, 12, 1)}
    _, found = split_outputs({"action": np.array([0]), **outputs}, False, True)
    assert list(found) == ["round_1", "round_2", "round_10", "round_12"]
    assert [int(each) for each in found.values()] == [1, 2, 10, 12]


def test_predict_returns_all_outputs_of_a_signature(client, tools):
    outputs = client.predict({"observation": tools.observations(3)})
    assert {name: array.shape for name, array in outputs.items()} == {
        "action": (3,),
        "q_values": (3, tools.ACTIONS),
    }
    assert outputs["action"].dtype == np.int32 and outputs["q_values"].dtype == np.float32
    assert set(client.signatures) == {"act", "act_with_attention", "serving_default"}
    assert client.signatures["act"]["inputs"]["observation"] == (np.uint8, [-1, 3, 3, 2])


def test_the_server_reports_a_wrong_shape_or_dtype(client, tools):
    raw = tools.observations(1)
    for wrong in (raw[:, 1:], raw[0, 1:], np.uint8(3), raw.astype("float32") + 0.5):
        with pytest.raises(ServingError) as refusal:
            client.act(wrong)
        assert refusal.value.code == "INVALID_ARGUMENT"


def test_lists_that_the_dtype_does_not_hold_raise(client, tools):
    fractions = (0.9 * tools.observations(1)).tolist()  # NumPy's cast to integers drops them
    for wrong in ([[1, 2], [3]], "left", [[[[300]]]], [[[[-1]]]], [[[[np.nan]]]], fractions):
        with pytest.raises(ValueError, match=r"dtype uint8 and shape \[3, 3, 2\].*received"):
            client.act(wrong)
    with pytest.raises(ValueError, match=r"names \['observation'\]; received"):
        client.predict(tools.observations(1))


def test_unknown_models_versions_and_signatures_raise(connect_either, address, tools):
    raw = tools.observations(1)
    for options in ({"model": "other"}, {"model": "tiny", "version": 4}):
        with connect_either(address, **options) as client, pytest.raises(ServingError) as refusal:
            client.act(raw)
        assert refusal.value.code == "NOT_FOUND"
    with connect_either(address, "tiny", version=1) as client:
        client.act(raw)
        with pytest.raises(ServingError, match="no signature 'other'") as refusal:
            client.predict({"observation": raw}, "other")
        assert refusal.value.code == "FAILED_PRECONDITION"


def test_timeout_covers_all_requests_of_a_call(connect_either, scheme, tools):
    """Without a server: the request for the signatures is retried until the timeout."""
    begun = time.monotonic()
    with connect_either(f"{scheme}://127.0.0.1:{tools.free_port()}", "tiny", timeout=3) as client:
        for call in (client.act, lambda raw, timeout: client.predict({"x": raw}, timeout=timeout)):
            with pytest.raises(ServingError) as refusal:
                call(tools.observations(1), timeout=0.2)
            assert refusal.value.code == "UNAVAILABLE"
    assert time.monotonic() - begun < 1.5


def test_the_grpc_port_is_suggested_for_a_reply_without_http(server, tools):
    address = f"http://127.0.0.1:{server.grpc_port}"
    guess = pytest.raises(ServingError, match="is this the gRPC port")
    with connect(address, "tiny", retries=0) as client, guess as refusal:
        client.act(tools.observations(1))
    assert refusal.value.code == "UNAVAILABLE"


@pytest.mark.parametrize(
    "text",
    [
        *("localhost:8500", "ftp://h:1", "grpc://h", "http://", ""),
        *("grpc://h:99999", "grpc://h:port", "http://[h:1", "http://h:1/v1/models/tiny"),
    ],
)
def test_an_address_of_another_form_raises(text):
    for function in (connect, connect_async):
        with pytest.raises(ValueError, match="received"):
            function(text, "tiny")


def test_threads_share_a_client(address, exported, tools):
    raw = tools.observations(40)
    expected = load_policy(exported / "1").act(raw).tolist()
    answers = [None] * len(raw)

    def ask(start):
        for index in range(start, len(raw), 4):
            answers[index] = client.act(raw[index])

    with connect(address, "tiny") as client:
        threads = [threading.Thread(target=ask, args=(start,)) for start in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == expected


def test_tasks_share_an_async_client(address, exported, tools):
    raw = tools.observations(40)

    async def act_on_all():
        async with connect_async(address, "tiny") as client:
            return await asyncio.gather(*(client.act(observation) for observation in raw))

    assert asyncio.run(act_on_all()) == load_policy(exported / "1").act(raw).tolist()


def test_the_event_loop_runs_during_retries(scheme, tools):
    ticks = []

    async def tick_during_act():
        address = f"{scheme}://127.0.0.1:{tools.free_port()}"
        async with connect_async(address, "tiny", retries=3) as client:
            acting = asyncio.create_task(client.act(tools.observations(1)))
            while not acting.done():
                ticks.append(None)
                await asyncio.sleep(0.005)
            await acting

    with pytest.raises(ServingError) as refusal:
        asyncio.run(tick_during_act())
    assert refusal.value.code == "UNAVAILABLE" and len(ticks) > 5


def test_strings_scalars_and_empty_batches(tmp_path, tools, scheme):
    def join(text, number, flag):
        joined = tf.strings.join([text, tf.strings.as_string(number)])
        empty = {"none": tf.zeros([0, 3]), "no_words": tf.fill([0, 3], "")}
        return {"joined_bytes": joined, "flag": flag, **empty}

    specs = [tf.TensorSpec([None], tf.string, name="text")]
    specs += [tf.TensorSpec([], tf.int64, name="number"), tf.TensorSpec([], tf.bool, name="flag")]
    tools.save_module(tmp_path / "1", {"serving_default": (join, specs)})
    with (
        tools.serve(tmp_path) as server,
        connect(address_of(server, scheme), "tiny") as client,
    ):
        inputs = {"text": ["a", "é"], "number": np.int64(2**62), "flag": np.bool_(True)}
        outputs = client.predict(inputs)
    assert outputs["joined_bytes"].tolist() == [f"{t}{2**62}".encode() for t in "aé"]
    assert outputs["flag"].shape == () and bool(outputs["flag"])
    assert outputs["none"].shape == outputs["no_words"].shape == (0, 3)


def test_strings_keep_zero_bytes_at_their_end(tmp_path, tools, scheme):
    """Serialised Examples end with zero bytes, which NumPy's string dtypes drop."""
    spec = [tf.TensorSpec(None, tf.string, name="s")]
    tools.save_module(
        tmp_path / "1", {"serving_default": (lambda s: {"sizes": tf.strings.length(s)}, spec)}
    )
    with (
        tools.serve(tmp_path) as server,
        connect(address_of(server, scheme), "tiny") as client,
    ):

        def sizes(strings):
            return client.predict({"s": strings})["sizes"].tolist()

        strings = [b"ab\0", "é\0", b"\xff\0\0", "ab"]
        for given in (strings, np.array(strings, object), tuple(strings)):
            assert sizes(given) == [3, 3, 3, 2]
        assert sizes([strings[:1], strings[1:2]]) == [[3], [3]]
        assert sizes(b"ab\0") == 3 and sizes([]) == []
        assert sizes(np.array(["é", "ab"])) == [2, 2]
        for wrong in ([b"a", 1], [["a"], "b"], np.array([1], object)):
            with pytest.raises(ServingError, match="'s' must be strings or bytes; rec") as refusal:
                client.predict({"s": wrong})
            assert refusal.value.code == "INVALID_ARGUMENT"
