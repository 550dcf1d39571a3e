"""Sessions of recurrent double DQNs, whose inputs include the last action and its reward."""

import functools
import itertools
import shutil
import threading
import time

import keras
import numpy as np
import pytest

from rrl_tf.errors import InvalidInput
from rrl_tf.export import export_recurrent_policy, load_policy
from rrl_tf.export.load import Policy
from rrl_tf.models import RecurrentQNetwork
from serving.client import ServingError, connect
from serving.sessions import MemorySession

pytestmark = pytest.mark.tf_only
CORES = {"lstm-dense": {"units": 5}, "relational-memory-dense": {"mem_slots": 2, "head_size": 3}}


def make_network(tools, preset="lstm-dense", seed=0, **core):
    keras.utils.set_random_seed(seed)
    network = RecurrentQNetwork.from_preset(
        preset,
        num_actions=tools.ACTIONS,
        core_arguments={**CORES[preset], **core},
        encoder_arguments={"hidden_units": (8,)},
        hidden_units=(8,),
    )
    network.build({"observation": (None, *tools.SHAPE)})
    rng = np.random.default_rng(seed)
    for weight in network.trainable_variables:  # so that every weight matters
        weight.assign(rng.normal(0.0, 0.7, size=weight.shape))
    return network


def export(base, tools, *args, version=None, **core):
    network = make_network(tools, *args, **core)
    export_recurrent_policy(base, network, tools.prepare, tools.SHAPE, version=version)
    return network


@pytest.fixture(scope="module")
def export_once(tmp_path_factory, tools):
    """Function of a preset and a seed: a network and the base folder of its export."""

    @functools.cache  # pytest sets a fixture up again whenever its parameters change
    def exported(preset, seed):
        base = tmp_path_factory.mktemp(preset)
        return export(base, tools, preset, seed), base

    return exported


@pytest.fixture(scope="module", params=CORES)
def exported_network(request, export_once):
    """A network and the base folder of its export; read only."""
    return export_once(request.param, 0)


@pytest.fixture(scope="module", params=["grpc", "http", "in process"])
def client(request, exported_network, tools):
    """The policy in process and behind a server that merges requests."""
    base = exported_network[1]
    if request.param == "in process":
        policy = load_policy(base)
        yield policy
        policy.close()
        return
    with tools.serve(base, enable_batching=True) as server, at(server, request.param) as client:
        yield client


def at(server, scheme):
    port = server.grpc_port if scheme == "grpc" else server.rest_port
    return connect(f"{scheme}://127.0.0.1:{port}", "tiny")


EPISODES = {}


def expected_episode(network, tools, raw, rewards):
    """Return the network's actions and memories in an episode, cached for all clients."""
    episode = network, raw.tobytes(), rewards.tobytes()
    if episode not in EPISODES:
        EPISODES[episode] = played_episode(network, tools, raw, rewards)
    return EPISODES[episode]


def played_episode(network, tools, raw, rewards):
    memory, action, actions, memories = None, -1, [], []
    for observation, reward in zip(raw, rewards):
        step = {
            "observation": tools.prepare(observation[None]),
            "previous_action": np.array([action], np.int32),
            "previous_reward": np.array([0.0 if action < 0 else reward], np.float32),
        }
        q_values, memory = network(step, memory)
        action = int(np.argmax(q_values))
        actions.append(action)
        memories.append(np.array(memory)[0])
    return actions, np.stack(memories)


def some_rewards(count, seed=1):
    return np.random.default_rng(seed).normal(0.0, 3.0, count).astype(np.float32)


def test_an_episode_equals_that_of_the_network(client, exported_network, tools):
    network, _ = exported_network
    raw, rewards = tools.observations(15), some_rewards(15)
    actions, memories = expected_episode(network, tools, raw, rewards)
    session = MemorySession(client)
    for _ in range(2):  # again after a reset
        for observation, reward, action, memory in zip(raw, rewards, actions, memories):
            assert session.act(observation, reward) == action
            np.testing.assert_allclose(session.memory[0, :-2], memory, rtol=1e-3, atol=1e-4)
            assert session.memory[0, -2] == action
        session.reset()
    _, without = expected_episode(network, tools, raw, np.zeros(15))
    assert np.abs(without - memories).max() > 0.05  # rewards matter


def test_policy_json_has_the_number_of_slots(exported_network):
    network, base = exported_network
    policy = load_policy(base)
    slots = 2 if network.core == "relational_memory" else None
    assert policy.details.get("memory_slots") == slots
    policy.close()


def test_several_environments_equal_single_ones(client, exported_network, tools):
    network, _ = exported_network
    steps, size = 12, 3
    raw = tools.observations(steps * size).reshape(steps, size, *tools.SHAPE)
    rewards = some_rewards(steps * size).reshape(steps, size)
    new = np.random.default_rng(2).random((steps, size)) < 0.25
    session, answers, memories = MemorySession(client, num_envs=size), [], []
    for t in range(steps):
        session.reset(new[t])
        answers.append(session.act(raw[t], rewards[t]))
        memories.append(session.memory[:, :-2])
    for row in range(size):
        begins = [0, *np.flatnonzero(new[1:, row]) + 1, steps]
        for begin, end in itertools.pairwise(begins):
            part = slice(begin, end)
            steps_of_row = raw[part, row], rewards[part, row]
            expected, remembered = expected_episode(network, tools, *steps_of_row)
            assert [answer[row] for answer in answers[part]] == expected
            found = [memory[row] for memory in memories[part]]
            np.testing.assert_allclose(found, remembered, rtol=1e-3, atol=1e-4)


def test_another_session_continues_an_episode(client, exported_network, tools):
    raw, rewards = tools.observations(8), some_rewards(8)
    expected, memories = expected_episode(exported_network[0], tools, raw, rewards)
    session = MemorySession(client)
    answers = [session.act(o, r) for o, r in zip(raw[:4], rewards)]
    later = MemorySession(client)
    later.memory = session.memory.tolist()  # as if loaded from a file
    answers += [later.act(o, r) for o, r in zip(raw[4:], rewards[4:])]
    assert answers == expected
    np.testing.assert_allclose(later.memory[0, :-2], memories[-1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e300])
def test_a_reward_that_is_not_finite_keeps_the_memory(client, exported_network, tools, wrong):
    raw, rewards = tools.observations(4), some_rewards(4)
    expected, _ = expected_episode(exported_network[0], tools, raw, rewards)
    session = MemorySession(client)
    answers = [session.act(raw[0])]
    for observation, reward in zip(raw[1:], rewards[1:]):
        before = session.memory
        with pytest.raises(InvalidInput, match="reward must be finite in float32; received"):
            session.act(observation, wrong)
        assert session.memory is before
        answers.append(session.act(observation, reward))
    assert answers == expected
    session.reset()
    with pytest.raises(InvalidInput, match="`observation` must have the shape"):
        session.act(raw)
    assert session.memory is None


def test_rewards_in_first_steps_are_ignored(client, tools):
    raw, memories = tools.observations(2), []
    for first, after_reset in ((0.0, 0.0), (5.0, -3.0)):
        session = MemorySession(client, num_envs=2)
        session.act(raw, first)
        session.reset([0])
        session.act(raw, [after_reset, 1.0])
        memories.append(session.memory)
    np.testing.assert_array_equal(*memories)


def refusal(client):
    """Return the class of the client's error for invalid inputs."""
    return ValueError if isinstance(client, Policy) else ServingError


def test_a_memory_of_another_shape_raises(client, tools):
    session = MemorySession(client, num_envs=2)
    session.act(tools.observations(2), [1.0, 2.0])
    before = session.memory
    for memory in (before[:1], np.repeat(before, 2, axis=0), before[:, :-1], before[0]):
        with pytest.raises(
            ValueError, match=r"`memory` must have the shape \[2, \d+\].* 2 environments; rec"
        ):
            session.memory = memory
    assert session.memory is before
    inputs = {
        "observation": tools.observations(2),
        "memory": before,
        "reward": np.zeros(2, np.float32),
    }
    for changes in ({"memory": before[:1]}, {"reward": np.zeros(1, np.float32)}):
        with pytest.raises(refusal(client), match=r"one batch; received|the same number of rows"):
            client.predict({**inputs, **changes}, "act")
    with pytest.raises(refusal(client), match=r"memory.* shape .*\d"):
        client.predict({**inputs, "memory": before[:, :-1]}, "act")


def test_a_memory_of_another_policy_raises(client, exported_network, export_once, tools):
    known = exported_network[0].core_arguments.items()
    preset = next(name for name in CORES if CORES[name].items() <= known)
    other = load_policy(export_once(preset, 1)[1])  # the same settings, other weights
    theirs, session = MemorySession(other), MemorySession(client)
    theirs.act(tools.observations(1)[0])
    session.memory = theirs.memory
    with pytest.raises(refusal(client), match="memory must come from this version of this policy"):
        session.act(tools.observations(1)[0])
    np.testing.assert_array_equal(session.memory, theirs.memory)  # unchanged
    session.reset()
    session.act(tools.observations(1)[0])
    other.close()


def test_a_memory_of_zeros_begins_an_episode(client, exported_network, tools):
    """Warm-up requests contain zeros, which no policy returns; the initial memory replaces them."""
    raw, rewards = tools.observations(3), np.array([1.0, 2.0, 3.0], np.float32)
    start = client.predict({"batch_size": np.int32(3)}, "initial_memory")["memory"]
    step = client.predict({"observation": raw, "memory": start, "reward": rewards}, "act")
    mixed = np.stack([np.zeros_like(start[0]), step["next_memory"][1], np.zeros_like(start[0])])
    expected = np.stack([start[0], step["next_memory"][1], start[0]])
    answers = [
        client.predict({"observation": raw, "memory": memory, "reward": rewards}, "act")
        for memory in (mixed, expected)
    ]
    for name in ("action", "q_values", "next_memory"):
        np.testing.assert_array_equal(answers[0][name], answers[1][name])
    np.testing.assert_allclose(answers[0]["q_values"][0], step["q_values"][0], rtol=1e-5)
    almost = np.zeros_like(start)
    almost[:, 0] = 1e-6
    with pytest.raises(refusal(client), match="memory must come from this version of this policy"):
        client.predict({"observation": raw, "memory": almost, "reward": rewards}, "act")


def test_an_export_of_the_same_weights_accepts_the_memory(export_once, tmp_path, tools):
    export(tmp_path, tools, version=2)
    one, two = load_policy(export_once("lstm-dense", 0)[1]), load_policy(tmp_path / "2")
    session, later = MemorySession(one), MemorySession(two)
    raw = tools.observations(3)
    session.act(raw[0])
    later.memory = session.memory
    assert later.act(raw[1], 1.0) == session.act(raw[1], 1.0)
    one.close()
    two.close()


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_another_version_does_not_accept_the_memory(tmp_path, export_once, tools, scheme):
    (_, first), (network, second) = (export_once("lstm-dense", seed) for seed in (0, 1))
    shutil.copytree(first / "1", tmp_path / "1")
    raw = tools.observations(4)
    with tools.serve(tmp_path) as server, at(server, scheme) as client:
        session = MemorySession(client)
        session.act(raw[0])
        shutil.copytree(second / "1", tmp_path / ".whole").rename(tmp_path / "2")
        error = None
        for _ in range(600):  # until the server has found it
            before = session.memory
            try:
                session.act(raw[1], 1.0)
            except ServingError as raised:
                error = raised
                break
            time.sleep(0.05)
        assert error is not None and error.code == "INVALID_ARGUMENT"
        assert "this version" in error.message
        assert session.memory is before
        session.reset()
        expected, _ = expected_episode(network, tools, raw, np.zeros(4))
        assert [session.act(observation) for observation in raw] == expected


def test_a_foreign_memory_affects_no_other_episode(exported_network, tools):
    """Requests merge into one batch; only the one with the wrong memory is refused."""
    network, base = exported_network
    raw, rewards = tools.observations(5), some_rewards(5)
    expected, _ = expected_episode(network, tools, raw, rewards)
    answers, errors = [None] * 16, []
    with tools.serve(base, enable_batching=True) as server, at(server, "grpc") as client:

        def play(index):
            session = MemorySession(client)
            if index % 4:
                answers[index] = [session.act(o, r) for o, r in zip(raw, rewards)]
                return
            session.act(raw[0])
            session.memory = session.memory + 1
            for _ in range(4):
                try:
                    session.act(raw[0])
                except ServingError as error:
                    errors.append(error.code)

        threads = [threading.Thread(target=play, args=(index,)) for index in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == ["INVALID_ARGUMENT"] * 16
    assert [answer for index, answer in enumerate(answers) if index % 4] == [expected] * 12


def test_a_network_without_memory_is_served(tmp_path, tools):
    keras.utils.set_random_seed(0)
    network = RecurrentQNetwork.from_preset("none-dense", num_actions=tools.ACTIONS)
    network.build({"observation": (None, *tools.SHAPE)})
    export_recurrent_policy(tmp_path, network, tools.prepare, tools.SHAPE)
    policy = load_policy(tmp_path)
    raw, rewards = tools.observations(6), some_rewards(6)
    expected, _ = expected_episode(network, tools, raw, rewards)
    session = MemorySession(policy)
    assert [session.act(o, r) for o, r in zip(raw, rewards)] == expected
    policy.close()
