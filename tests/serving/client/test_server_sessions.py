"""Sessions with their state on the server act like sessions with their state in the client."""

import json
import time

import numpy as np
import pytest

from rrl_tf.errors import InvalidInput
from rrl_tf.export import load_policy
from serving.client import ServingError, connect
from serving.sessions import MemorySession, WindowSession

pytestmark = pytest.mark.tf_only
LENGTH, STATE, ACTION = 4, 3, 2  # of the windows
SEQUENCES = ":tensorflow:serving:sequences"


@pytest.fixture(scope="module")
def windows(tools, tmp_path_factory):
    """A base folder with a small function that takes windows."""
    import tensorflow as tf

    base = tmp_path_factory.mktemp("windows")
    shapes = {"states": [STATE], "actions": [ACTION], "returns_to_go": [1], "mask": []}
    specs = [tf.TensorSpec([None, LENGTH, *s], name=name) for name, s in shapes.items()]
    specs.insert(3, tf.TensorSpec([None, LENGTH], "int32", name="timesteps"))

    def act(states, actions, returns_to_go, timesteps, mask):
        seen = tf.reduce_sum(states * mask[:, :, None] + returns_to_go, axis=[1, 2])
        late = tf.reduce_sum(actions, axis=[1, 2]) + tf.cast(timesteps[:, -1], "float32")
        return {"action": tf.sin(tf.stack([seen, late], axis=1))}

    tools.save_module(base / "1", {"act": (act, specs), "serving_default": (act, specs)})
    return base


@pytest.fixture(scope="module", params=["grpc", "http"])
def scheme(request):
    return request.param


def serving(fixture):
    @pytest.fixture(scope="module")
    def pair(request, scheme, tools):
        """Yield (server, client)."""
        base = request.getfixturevalue(fixture)
        with tools.serve(base, enable_batching=True) as server, at(server, scheme) as client:
            yield server, client

    return pair


remembering, looking_back = serving("recurrent"), serving("windows")


def at(server, scheme):
    port = server.grpc_port if scheme == "grpc" else server.rest_port
    return connect(f"{scheme}://127.0.0.1:{port}", "tiny", timeout=30.0)


def num_sequences(server):
    return server._inference.metrics.collect()[SEQUENCES]["samples"][f"{SEQUENCES}{{}}"]


def play(sessions, observations, rewards, resets):
    """Assert that all sessions act equally; `resets` are the rows to reset before each step."""
    for raw, reward, rows in zip(observations, rewards, resets):
        for session in sessions:
            session.reset(rows)
        first, *others = (session.act(raw, reward) for session in sessions)
        for other in others:
            np.testing.assert_array_equal(first, other)


def some_resets(steps, size):
    return np.random.default_rng(0).random((steps, size)) < 0.25


def test_memories_on_the_server_equal_those_in_the_client(remembering, tools):
    server, client = remembering
    size, steps = 3, 12
    sessions = [MemorySession(client, size, state=state) for state in ("client", "server")]
    raw = tools.observations(size * steps).reshape(steps, size, *tools.SHAPE)
    play(sessions, raw, np.zeros((steps, size)), some_resets(steps, size))
    np.testing.assert_allclose(*(session.memory for session in sessions), rtol=1e-4, atol=1e-5)
    sessions[1].reset()
    assert num_sequences(server) == 0


def test_windows_on_the_server_equal_those_in_the_client(looking_back):
    server, client = looking_back
    size, steps, rng = 3, 15, np.random.default_rng(1)
    target = [5.0, 0.0, -3.0]
    sessions = [WindowSession(client, target, size, state=s) for s in ("client", "server")]
    raw = rng.normal(size=(steps, size, STATE)).astype("float32")
    rewards = rng.normal(size=(steps, size))
    play(sessions, raw, rewards, some_resets(steps, size))
    one = [WindowSession(client, 2.0, state=s) for s in ("client", "server")]
    play(one, raw[:, 0], rewards[:, 0], [[]] * steps)
    for session in (*sessions, *one):
        session.reset()
    assert num_sequences(server) == 0


def test_attention_and_one_environment(remembering, recurrent, tools):
    _, client = remembering
    policy = load_policy(recurrent / "1")
    here, there = MemorySession(policy), MemorySession(client, state="server")
    for raw in tools.observations(5):
        action, scores = there.act(raw, return_attention_scores=True)
        assert action == here.act(raw) and isinstance(action, int)
        assert scores["block_1"].ndim == 3
    there.reset()
    policy.close()


def test_a_memory_moves_between_sessions(remembering, tools):
    _, client = remembering
    raw = tools.observations(9)
    whole = MemorySession(client)
    expected = [whole.act(each) for each in raw]
    first, second = MemorySession(client, state="server"), MemorySession(client, state="server")
    third = MemorySession(client)
    assert first.memory is None
    actions = [first.act(each) for each in raw[:3]]
    second.memory = first.memory
    actions += [second.act(each) for each in raw[3:6]]
    third.memory = second.memory
    actions += [third.act(each) for each in raw[6:]]
    assert actions == expected
    first.act(raw[3])  # the step returned the memory
    first.memory = None
    assert first.act(raw[0]) == expected[0]
    first.reset()
    with pytest.raises(InvalidInput, match="`memory` must have the shape"):
        first.memory = np.zeros((2, 3))


def test_a_lost_sequence_is_one_error(recurrent, tools, scheme):
    """After a restart of the server, each session fails once and then begins an episode."""
    ports = {"port": tools.free_port(), "rest_api_port": tools.free_port()}
    raw = tools.observations(4)
    with tools.serve(recurrent, **ports) as server:
        client = at(server, scheme)
        sessions = [MemorySession(client, state="server") for _ in range(3)]
        expected, *_ = [[session.act(each) for each in raw[:2]] for session in sessions]
    with tools.serve(recurrent, **ports) as server:
        for session in sessions:
            with pytest.raises(ServingError, match=r"does not exist.*restarted") as error:
                session.act(raw[2])
            assert error.value.code == "NOT_FOUND"
            assert [session.act(each) for each in raw[:2]] == expected
        assert num_sequences(server) == 3
        lost = MemorySession(client, state="server")
        lost.act(raw[0])
        server._inference._sequences._drop_oldest()  # of the first session
        with pytest.raises(ServingError, match="does not exist"):
            _ = sessions[0].memory
        assert sessions[0].memory is None
        client.close()


def test_a_client_that_vanishes_leaves_nothing(recurrent, tools, scheme):
    with tools.serve(recurrent, sequence_idle_seconds=0.5) as server:
        with at(server, scheme) as client:
            for _ in range(3):
                MemorySession(client, state="server").act(tools.observations(1)[0])
            assert num_sequences(server) == 3
        end = time.monotonic() + 30
        while num_sequences(server):
            assert time.monotonic() < end
            time.sleep(0.05)


def late(*_, **__):
    raise ServingError("DEADLINE_EXCEEDED", "no time is left")


def test_a_failed_first_step_can_be_repeated(remembering, tools, monkeypatch):
    _, client = remembering
    (raw,) = tools.observations(1)
    session = MemorySession(client, state="server")
    with pytest.raises(InvalidInput):
        session.act(np.zeros((2, 2)))
    with monkeypatch.context() as patched, pytest.raises(ServingError, match="no time is left"):
        patched.setattr(client, "predict", late)
        session.act(raw)
    assert session.act(raw) == MemorySession(client).act(raw)
    session.reset()


def test_a_rest_step_has_no_memory(remembering, tools, scheme):
    """The request contains the observation; the reply contains the action and the Q values."""
    if scheme == "grpc":
        pytest.skip("its messages are binary")
    _, client = remembering
    bodies, send = [], client.transport.send

    async def record(request, timeout):
        reply = await send(request, timeout)
        bodies.append((json.loads(request[2] or b"{}"), reply))
        return reply

    client.transport.send = record
    session = MemorySession(client, state="server")
    for raw in tools.observations(2):
        session.act(raw)
    client.transport.send = send
    session.reset()
    request, reply = bodies[-1]
    assert request.keys() == {"signature_name", "inputs", "sequence_id"}
    assert request["inputs"].keys() == {"observation"}
    assert reply["outputs"].keys() == {"action", "q_values"}


def test_state_must_be_known(recurrent, remembering):
    policy = load_policy(recurrent / "1")
    with pytest.raises(InvalidInput, match="`state` must be 'client', or 'server' for a client"):
        MemorySession(policy, state="server")
    with pytest.raises(InvalidInput, match=r"received 'remote' and a Client"):
        MemorySession(remembering[1], state="remote")
    policy.close()
