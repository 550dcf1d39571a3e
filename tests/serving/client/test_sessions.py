"""Sessions: episodes with a memory or a window, in one or several environments."""

import re
import time
import types

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf.errors import InvalidInput
from rrl_tf.export import load_policy
from serving.client import ServingError, connect
from serving.client.arrays import as_batch
from serving.sessions import MemorySession, WindowSession

pytestmark = pytest.mark.tf_only
LENGTH, STATE, ACTION = 4, 3, 2  # of the windows


@pytest.fixture(scope="module", params=["grpc", "http", "in process"])
def recurrent_client(request, recurrent, tools):
    """A recurrent policy in process and behind a server that merges requests."""
    if request.param == "in process":
        policy = load_policy(recurrent / "1")
        yield policy
        policy.close()
        return
    with tools.serve(recurrent, enable_batching=True) as server:
        port = server.grpc_port if request.param == "grpc" else server.rest_port
        with connect(f"{request.param}://127.0.0.1:{port}", "tiny") as client:
            yield client


def expected_actions(tools, raw):
    """Return the Keras model's actions and attention, without an export or a server."""
    model, initial_memory = tools.make_recurrent_model()  # the same seed, the same weights
    memory, actions = initial_memory(1), []
    for observation in raw:
        q_values, memory, scores = model(
            tools.prepare(observation[None]), memory, return_attention_scores=True
        )
        actions.append(int(np.argmax(q_values)))
    return actions, {name: np.array(score[0]) for name, score in scores.items()}


def test_an_episode_equals_that_of_the_model(recurrent_client, tools):
    raw = tools.observations(12)
    expected, scores = expected_actions(tools, raw)
    session = MemorySession(recurrent_client)
    for _ in range(2):  # again after a reset
        answers = [session.act(observation) for observation in raw[:-1]]
        action, attention = session.act(raw[-1], return_attention_scores=True)
        assert [*answers, action] == expected and isinstance(action, int)
        np.testing.assert_allclose(attention["block_1"], scores["block_1"], rtol=1e-4, atol=1e-6)
        session.reset()
        assert session.memory is None
    fresh = [MemorySession(recurrent_client).act(observation) for observation in raw]
    assert fresh != expected  # the memory matters


def test_reset_of_some_environments_keeps_the_others(recurrent_client, tools):
    raw, size = tools.observations(30).reshape(10, 3, *tools.SHAPE), 3
    rng = np.random.default_rng(0)
    together = MemorySession(recurrent_client, num_envs=size)
    alone = [MemorySession(recurrent_client) for _ in range(size)]
    for observations in raw:
        new = rng.random(size) < 0.3
        together.reset(new if rng.random() < 0.5 else np.flatnonzero(new))
        for session in np.array(alone)[new]:
            session.reset()
        actions = together.act(observations, reward=np.zeros(size))
        assert actions.shape == (size,)
        assert actions.tolist() == [s.act(o) for s, o in zip(alone, observations)]
        np.testing.assert_allclose(
            together.memory, np.concatenate([s.memory for s in alone]), rtol=1e-4, atol=1e-5
        )


def test_many_sessions_share_batches(recurrent, tools):
    """32 episodes at once over both transports, each with its own memory."""
    import threading

    raw = tools.observations(64).reshape(32, 2, *tools.SHAPE)
    policy = load_policy(recurrent / "1")
    expected = [[s.act(o) for o in episode] for episode in raw for s in [MemorySession(policy)]]
    answers = [None] * len(raw)
    with tools.serve(recurrent, enable_batching=True) as server:
        addresses = [f"grpc://127.0.0.1:{server.grpc_port}", f"http://127.0.0.1:{server.rest_port}"]
        clients = [connect(address, "tiny") for address in addresses]

        def play(index):
            session = MemorySession(clients[index % 2])
            answers[index] = [session.act(observation) for observation in raw[index]]

        threads = [threading.Thread(target=play, args=(index,)) for index in range(len(raw))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for client in clients:
            client.close()
    assert answers == expected


class Recorder:
    """A client with a Decision Transformer that records its windows."""

    signatures = {
        "act": {
            "inputs": {
                "states": (np.dtype("float32"), [-1, LENGTH, STATE]),
                "actions": (np.dtype("float32"), [-1, LENGTH, ACTION]),
                "returns_to_go": (np.dtype("float32"), [-1, LENGTH, 1]),
                "timesteps": (np.dtype("int32"), [-1, LENGTH]),
                "mask": (np.dtype("float32"), [-1, LENGTH]),
            },
            "outputs": {"action": (np.dtype("float32"), [-1, ACTION])},
        }
    }

    def __init__(self, discrete=False):
        self.windows, self.failing, self._discrete = [], False, discrete

    def predict(self, inputs, signature, timeout=None):
        if self.failing:
            raise ServingError("UNAVAILABLE", "down")
        self.windows.append({name: array.copy() for name, array in inputs.items()})
        total = inputs["states"].sum((1, 2))
        if self._discrete:
            return {"action": total.astype(int) % ACTION}
        return {"action": np.stack([total, -total], axis=1)}


def expected_window(history, target, discrete):
    """Return the window of an episode; history is a list of (state, reward before it, action)."""
    states = np.array([state for state, _, _ in history])
    rewards = np.array([reward for _, reward, _ in history])
    actions = np.zeros((len(history), ACTION))
    for index, (_, _, action) in enumerate(history[:-1]):
        actions[index] = np.eye(ACTION)[action] if discrete else action
    full = {
        "states": states,
        "actions": actions,
        "returns_to_go": (target - rewards.cumsum())[:, None],
        "timesteps": np.arange(len(history)),
        "mask": np.ones(len(history)),
    }
    window = {}
    for name, values in full.items():
        newest = values[-LENGTH:]
        window[name] = np.zeros((LENGTH, *values.shape[1:]))
        window[name][LENGTH - len(newest) :] = newest
    return window


@given(st.integers(0, 2**16), st.booleans())
def test_windows_hold_the_newest_steps(seed, discrete):
    rng = np.random.default_rng(seed)
    size, target = 3, np.array([10.0, 0.0, -5.0])
    client = Recorder(discrete)
    session = WindowSession(client, target, num_envs=size)
    histories = [[] for _ in range(size)]
    rewards = np.zeros(size)
    for _ in range(9):
        new = rng.random(size) < 0.2
        session.reset(new)
        states = rng.integers(0, 9, (size, STATE)).astype("float32")
        for row in range(size):
            if new[row]:
                histories[row] = []
            earned = rewards[row] if histories[row] else 0.0
            histories[row].append((states[row], earned, None))
        actions = session.act(states, rewards)
        for row, history in enumerate(histories):
            expected = expected_window(history, target[row], discrete)
            for name, values in client.windows[-1].items():
                np.testing.assert_allclose(values[row], expected[name], err_msg=name)
            history[-1] = (*history[-1][:2], actions[row])
        rewards = rng.integers(-3, 4, size).astype(float)


def test_a_failed_step_can_be_repeated():
    client = Recorder()
    session = WindowSession(client, 5.0)
    session.act(np.ones(STATE))
    client.failing = True
    with pytest.raises(ServingError):
        session.act(np.full(STATE, 2.0), 1.0)
    client.failing = False
    session.act(np.full(STATE, 2.0), 1.0)
    window = client.windows[-1]
    assert window["timesteps"].tolist() == [[0, 0, 0, 1]]
    assert window["returns_to_go"][0, :, 0].tolist() == [0, 0, 5, 4]
    assert window["mask"].tolist() == [[0, 0, 1, 1]]


def transformer(states, actions, returns_to_go, timesteps, mask):
    """Return an action from the inputs of a Decision Transformer."""
    weights = mask[:, :, None]
    seen = tf.reduce_sum(states * weights, axis=[1, 2]) + tf.reduce_sum(actions, axis=[1, 2])
    newest = returns_to_go[:, -1, 0] + tf.cast(timesteps[:, -1], "float32")
    return {"action": tf.tanh(tf.stack([seen, newest], axis=1) / 10.0)}


def save_transformer(tools, folder):
    inputs = Recorder.signatures["act"]["inputs"]
    specs = [
        tf.TensorSpec([None, *shape[1:]], dtype, name=name)
        for name, (dtype, shape) in inputs.items()
    ]
    tools.save_module(
        folder, {"act": (transformer, specs), "serving_default": (transformer, specs)}
    )


class Drift(gymnasium.Env):
    """Adds the action to the state; ends after `length` steps."""

    def __init__(self, length):
        self.observation_space = gymnasium.spaces.Box(-100, 100, (STATE,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1, 1, (ACTION,), np.float32)
        self._length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._state, self._step = np.arange(STATE, dtype=np.float32), 0
        return self._state.copy(), {}

    def step(self, action):
        self._state[:ACTION] += action
        self._step += 1
        return self._state.copy(), 1.0, self._step == self._length, False, {}


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_windows_play_gymnasium_environments(tmp_path, tools, scheme):
    save_transformer(tools, tmp_path / "1")
    lengths = (3, 5, 11)
    with tools.serve(tmp_path, enable_batching=True) as server:
        port = server.grpc_port if scheme == "grpc" else server.rest_port
        with connect(f"{scheme}://127.0.0.1:{port}", "tiny") as client:
            alone = [play_alone(client, Drift(length)) for length in lengths]
            together = play_together(client, lengths)
    for one, rows in zip(alone, together):
        np.testing.assert_allclose(rows, (one * 20)[: len(rows)], rtol=1e-5)


def play_alone(client, env):
    session = WindowSession(client, target_return=8.0)
    observation, _ = env.reset()
    reward, over, actions = 0.0, False, []
    while not over:
        actions.append(session.act(observation, reward))
        assert env.action_space.contains(actions[-1])
        observation, reward, over, _, _ = env.step(actions[-1])
    return actions


def play_together(client, lengths):
    """Play twelve steps in a vector environment, as in the docstring of `serving.sessions`."""
    makers = [lambda length=length: Drift(length) for length in lengths]
    envs = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
    session = WindowSession(client, target_return=8.0, num_envs=len(lengths))
    observations, _ = envs.reset()
    rewards, new, actions = np.zeros(len(lengths)), np.zeros(len(lengths), bool), []
    for _ in range(12):
        session.reset(new)
        actions.append(session.act(observations, rewards))
        observations, rewards, terminated, truncated, _ = envs.step(actions[-1])
        new = terminated | truncated
    envs.close()
    return np.swapaxes(actions, 0, 1)


def test_invalid_policies_and_arguments_raise(exported, recurrent, tools):
    forgetful, remembering = load_policy(exported / "1"), load_policy(recurrent / "1")
    raw = tools.observations(3)
    with pytest.raises(
        InvalidInput, match=r"MemorySession needs .* and the inputs \['observation'\]"
    ):
        MemorySession(forgetful)
    with pytest.raises(InvalidInput, match=r"WindowSession .* \['memory', 'observation'\]"):
        WindowSession(remembering, 1.0)
    classifier = types.SimpleNamespace(signatures={"classify": {}})
    for session in (MemorySession, WindowSession):
        told = rf"{session.__name__} needs .* received a policy with the signatures \['classify'\]"
        with pytest.raises(InvalidInput, match=told):
            session(classifier)
    for number in (0, "3", 2.5, True):
        with pytest.raises(InvalidInput, match=f"`num_envs` must be .* received {number!r}"):
            MemorySession(remembering, number)
    with pytest.raises(InvalidInput, match=r"3, 2\] in each of 2 .* received .*\[3, 3, 3"):
        MemorySession(remembering, 2).act(raw)
    with pytest.raises(InvalidInput, match=r"received the shape \[3, 3, 3, 2\]"):
        MemorySession(remembering).act(raw)
    MemorySession(remembering, 2).reset([])
    for rows in ([True], [2], [0.5], [-3]):
        with pytest.raises(IndexError):
            MemorySession(remembering, 2).reset(rows)
    with pytest.raises(ValueError, match="broadcast"):
        WindowSession(Recorder(), 1.0, 2).act(np.zeros((2, STATE)), [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="broadcast"):
        WindowSession(Recorder(), [1.0, 2.0, 3.0], 2)
    with pytest.raises(InvalidInput, match="target_return must be numbers"):
        WindowSession(Recorder(), "best")
    with pytest.raises(InvalidInput, match=r"whole numbers \(uint8\); received 0\.99"):
        MemorySession(remembering).act(np.full((3, 3, 2), 0.99).tolist())


def test_the_timeout_covers_all_requests_of_a_step(recurrent, tools):
    policy, given = load_policy(recurrent / "1"), []

    def predict(inputs, signature, timeout=None):
        given.append((signature, timeout))
        time.sleep(0.1)
        return policy.predict(inputs, signature)

    client = types.SimpleNamespace(signatures=policy.signatures, predict=predict)
    MemorySession(client).act(tools.observations(1)[0], timeout=2.0)
    MemorySession(client).act(tools.observations(1)[0])
    assert [signature for signature, _ in given] == ["initial_memory", "act"] * 2
    assert 1.5 < given[1][1] <= 1.9 < given[0][1] <= 2.0 and given[2][1] is given[3][1] is None
    policy.close()


@pytest.mark.parametrize(
    ("size", "shape"), [(None, (1,)), (None, (2,)), (None, ()), (3, (3, 1)), (3, (1, STATE))]
)
def test_an_observation_is_not_broadcast(size, shape):
    client = Recorder()
    session = WindowSession(client, 1.0, size)
    told = rf"`observation` must have the shape \[3\] in each of {size or 1} .*received the shape"
    with pytest.raises(InvalidInput, match=told):
        session.act(np.ones(shape))
    assert not client.windows


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 1e300])
def test_values_must_be_finite_in_float32(recurrent, wrong):
    told = re.escape(f"must be finite in float32; received {wrong}")
    with pytest.raises(InvalidInput, match=f"target_return {told}"):
        WindowSession(Recorder(), [1.0, wrong], 2)
    client = Recorder()
    session = WindowSession(client, 1.0, 2)
    session.act(np.zeros((2, STATE)))
    with pytest.raises(InvalidInput, match=f"reward {told}"):
        session.act(np.zeros((2, STATE)), [0.0, wrong])
    with np.errstate(over="ignore"):
        seen = np.array([[0, 0, 0], [0, 0, wrong]], np.float32)
    with pytest.raises(InvalidInput, match="observation must be finite"):
        session.act(seen)
    assert len(client.windows) == 1
    policy = load_policy(recurrent / "1")
    session = MemorySession(policy)
    session.act(np.zeros((3, 3, 2), np.uint8))
    with np.errstate(over="ignore"), pytest.raises(InvalidInput, match="memory must be finite"):
        session.memory = np.full_like(session.memory, wrong)
    policy.close()


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_act_names_the_session_of_a_recurrent_policy(recurrent, tools, scheme):
    with tools.serve(recurrent) as server:
        port = server.grpc_port if scheme == "grpc" else server.rest_port
        client = connect(f"{scheme}://127.0.0.1:{port}", "tiny")
        with client, pytest.raises(ValueError, match=r"sessions\.MemorySession"):
            client.act(tools.observations(1))


def test_act_names_the_session_of_a_decision_transformer():
    with pytest.raises(ValueError, match=r"received .*'states'.*WindowSession"):
        as_batch(np.zeros(3), Recorder().signatures["act"])
