"""Runs of recurrent agents: training, resume, export and play."""

import dataclasses
import functools
import shutil

import keras
import numpy as np
import pytest

from rrl_tf.agents import (
    Curriculum,
    GraphEvaluation,
    RecurrentDoubleDQNConfig,
    RolloutStatistics,
    evaluate,
    make_agent,
    make_loop,
    train_double_dqn,
)
from rrl_tf.agents import train as agent_train
from rrl_tf.envs import DoorKeyGraph, doorkey_task, enumerate_starts, make_doorkey, memory_task
from rrl_tf.errors import InvalidInput
from rrl_tf.export import load_policy
from rrl_tf.models import RecurrentQNetwork, dense_q_network
from serving.sessions import MemorySession

pytestmark = [pytest.mark.tf_only, pytest.mark.usefixtures("few_pictures")]
SMALL = {
    "encoder_arguments": {"hidden_units": (16,)},
    "hidden_units": (8,),
}
CORES = {
    "lstm-dense": {"units": 6},
    "relational-memory-dense": {"mem_slots": 2, "head_size": 3},
    "none-dense": {"units": 6},
}
TOY = RecurrentDoubleDQNConfig(
    name="toy",
    steps=120,
    num_envs=2,
    batch_size=3,
    learning_starts=20,
    burn_in=1,
    unroll_length=2,
    n_step=2,
    sequence_period=2,
    updates_per_step=0.5,
    use_return_lower_bound=True,
    epsilon_exponent=2.0,
    log_every=20,
    evaluate_every=60,
    evaluation_episodes=2,
    checkpoint_every=40,
)


@functools.cache
def memory():
    return memory_task((7,), max_steps=12)


def network(task, preset="lstm-dense", **arguments):
    keras.utils.set_random_seed(1)
    return RecurrentQNetwork.from_preset(
        preset,
        task.preprocessor,
        num_actions=task.num_actions,
        core_arguments=CORES[preset],
        **SMALL,
        **arguments,
    )


def train(path, preset="lstm-dense", task=None, **changes):
    task = task or memory()
    config = dataclasses.replace(TOY, runs=str(path), **changes)
    return train_double_dqn(task, network(task, preset), config)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, few_pictures):
    return train(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="module")
def trained_in_graph(tmp_path_factory, few_pictures):
    return train(tmp_path_factory.mktemp("trained"), task=small_doorkey(), loop="graph")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Return a run that was stopped at step 60, and its agent."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agent_train, "_finish", lambda *_: None)
        return train(tmp_path_factory.mktemp("stopped"), steps=60)


@pytest.fixture
def copied(stopped, tmp_path):
    """Return the folder of a copy of the stopped run."""
    return shutil.copytree(stopped[0].folder.path, tmp_path / "toy")


def weights(agent):
    return agent.get_state()


@pytest.mark.parametrize("jit_compile", [True, False])
def test_jit_compile_of_a_recurrent_run_holds_for_agent_and_replay(jit_compile):
    config = dataclasses.replace(TOY, jit_compile=jit_compile)
    loop = make_loop(memory(), network(memory()), config)
    assert loop.agent.jit_compile == jit_compile
    if not jit_compile:
        with pytest.raises(ValueError, match="marked with 'jit_compile=True'"):
            loop.replay.sample.experimental_get_compiler_ir(4, (0, 0))


@pytest.mark.parametrize(
    ("loop", "whole"),
    [("python", "trained"), pytest.param("graph", "trained_in_graph", marks=pytest.mark.slow)],
)
def test_resume_after_stop_is_bit_exact(tmp_path, request, loop, whole):
    run, whole = request.getfixturevalue(whole)
    request.getfixturevalue("unfinished")  # only now: the other run must finish
    changes = {"loop": loop, "task": memory() if loop == "python" else small_doorkey()}
    if loop == "python":
        request.getfixturevalue("copied")
    else:
        train(tmp_path, **changes, steps=60)
    again, resumed = train(tmp_path, **changes)
    assert again.step == run.step == 120
    for name, value in weights(whole).items():
        np.testing.assert_array_equal(weights(resumed)[name], value, err_msg=name)
    losses, expected = (
        [row["train/loss"] for row in each.log.rows if "train/loss" in row] for each in (again, run)
    )
    assert len(losses) > 3
    np.testing.assert_allclose(losses, expected, rtol=1e-5)  # the precision of metrics.csv


@functools.cache
def small_doorkey():
    return doorkey_task((5,), max_steps=12)


def test_run_of_another_core_is_not_resumed(tmp_path, copied):
    before = {path: path.stat().st_mtime_ns for path in copied.rglob("*")}
    with pytest.raises(InvalidInput, match=r"parameters was \d+ and is now \d+"):
        train(tmp_path, "relational-memory-dense", steps=80)
    assert {path: path.stat().st_mtime_ns for path in copied.rglob("*")} == before


def test_run_of_another_network_of_equal_size_is_not_resumed(tmp_path, copied):
    before = {path: path.stat().st_mtime_ns for path in copied.rglob("*")}
    config = dataclasses.replace(TOY, runs=str(tmp_path), steps=80)
    leaky = network(memory(), "lstm-dense", hidden_activation="leaky_relu")
    with pytest.raises(InvalidInput, match="hidden_activation was 'relu' and is now 'leaky_relu'"):
        train_double_dqn(memory(), leaky, config)
    assert {path: path.stat().st_mtime_ns for path in copied.rglob("*")} == before


@pytest.fixture(scope="module")
def restored(stopped):
    """Return a new loop and the state of the stopped run."""
    run, agent = stopped
    return make_loop(memory(), agent.network, run.config), run.load()


def restore(loop, step, state, levels=1):
    agent_train._restore(loop, Curriculum(levels), RolloutStatistics(), step, state)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"recurrent_state/memory": None},
            r"recurrent_state state 'memory' must be float32\(2, 12\); .* none",
        ),
        (
            {"recurrent_state/memory": lambda a: a[:, :5]},
            r"memory.* float32\(2, 12\); .* float32\(2, 5\)",
        ),
        (
            {"recurrent_state/memory": lambda a: a[:1]},
            r"memory.* float32\(2, 12\); .* float32\(1, 12\)",
        ),
        (
            {"recurrent_state/memory": np.float64},
            r"memory.* float32\(2, 12\); received float64\(2, 12\)",
        ),
        ({"recurrent_state/memory": lambda a: a * np.float32("nan")}, "memory.*float32.* with nan"),
        (
            {"episodes/length": lambda a: a[:1]},
            r"episodes state 'length' .* received float32\(1,\)",
        ),
        ({"agent/online/000": lambda a: a * np.nan}, "online/000 contains nan, expected finite"),
        ({"replay/memory": lambda a: a[:-1]}, r"replay state 'memory' must be float32\(60, 12\)"),
        ({"loop/step": -5}, "`loop.step` must be an integer of at least 0; received -5"),
        ({"loop/step": 16}, "loop.step. must be 60, the step of the checkpoint; received 16"),
        ({"loop/updates": 1.5}, "loop.updates.* must be an integer of at least 0; received 1.5"),
        (
            {"loop/updates_owed": 1e9},
            "`loop.updates_owed` must be from 0 to 1; received 1000000000",
        ),
        ({"environment/reset_options": {"level": 9}}, "`level` must be from 0 to 0; received 9"),
        ({"curriculum/level": 0.0}, "level.* must be an integer; received 0.0"),
    ],
)
def test_damaged_checkpoint_is_rejected(restored, change, message):
    loop, state = restored
    state = {part: dict(values) for part, values in state.items()}
    for path, value in change.items():
        part, _, name = path.partition("/")
        if value is None:
            del state[part][name]
        else:
            state[part][name] = value(state[part][name]) if callable(value) else value
    with pytest.raises(InvalidInput, match=message):
        restore(loop, 60, state)


def test_checkpoint_of_contradicting_levels_is_rejected():
    levels = doorkey_task((5, 6), max_steps=12)
    loop = make_loop(levels, network(levels), TOY)
    parts = {"curriculum": Curriculum(2).get_state(), "statistics": RolloutStatistics().get_state()}
    state = loop.get_state() | parts
    restore(loop, 0, state, levels=2)
    state["environment"]["reset_options"] = {"level": 1}
    with pytest.raises(InvalidInput, match=r"level of the curriculum, 0; received {'level': 1}"):
        restore(loop, 0, state, levels=2)


def test_exported_agent_acts_like_the_trained_one(trained):
    run, agent = trained
    greedy = agent.greedy_policy()
    policy = load_policy(run.folder.export)
    env = memory().make_test_env()
    for reset in memory().evaluation_resets(at_most=4):
        session = MemorySession(policy)
        observation, _ = env.reset(**reset)
        state, reward, done = greedy.initial_state(1), 0.0, False
        while not done:
            action, memory_after = greedy(observation[None], state)
            assert session.act(observation, reward) == action[0]
            observation, reward, terminated, truncated, _ = env.step(int(action[0]))
            done = terminated or truncated
            state = greedy.next_state(
                memory_after, action, np.array([reward], np.float32), np.array([done])
            )
    policy.close()


def test_exported_agent_reads_its_previous_action_and_reward(trained):
    run, agent = trained
    policy = load_policy(run.folder.export)
    observation = memory().observation_space.sample()[None]
    memories = np.random.default_rng(0).normal(size=(4, agent.network.memory_size + 2))
    memories[:, -2] = [-1, 0, 0, 2]  # the previous action; -1 before the first step
    memories[:, -1] = policy.predict({"batch_size": np.int32(1)}, "initial_memory")["memory"][0, -1]
    rewards = np.array([5.0, 0.0, 5.0, 0.0], np.float32)
    inputs = {
        "observation": np.repeat(observation, 4, axis=0),
        "memory": np.repeat(memories[:1], 4, axis=0).astype(np.float32),
        "reward": rewards,
    }
    inputs["memory"][:, -2] = memories[:, -2]
    values = policy.predict(inputs)["q_values"]
    assert len(np.unique(values.round(6), axis=0)) == 4
    # The network ignores the reward in the first step of an episode.
    inputs["reward"] = np.array([-3.0, 0.0, 5.0, 0.0], np.float32)
    np.testing.assert_array_equal(policy.predict(inputs)["q_values"], values)
    expected, after = agent.policy_values(
        inputs["observation"],
        {
            "memory": inputs["memory"][:, :-2],
            "previous_action": memories[:, -2].astype(np.int32),
            "previous_reward": np.where(memories[:, -2] < 0, 0, rewards).astype(np.float32),
        },
    )
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)
    answer = policy.predict(inputs)
    np.testing.assert_allclose(answer["next_memory"][:, :-2], after, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(answer["next_memory"][:, -2], answer["action"])
    np.testing.assert_array_equal(answer["next_memory"][:, -1], memories[:, -1])
    policy.close()


@pytest.mark.parametrize(
    "preset", [c if c == "lstm-dense" else pytest.param(c, marks=pytest.mark.slow) for c in CORES]
)
def test_recurrent_evaluation_in_the_graph_equals_that_in_python(preset):
    task = doorkey_task((6,))
    agent = make_agent(task, network(task, preset), TOY)
    for variable in agent.policy.trainable_variables:  # so that the agent moves
        variable.assign(variable * 3)
    starts = enumerate_starts(6)[::40]
    found = GraphEvaluation(agent, DoorKeyGraph(6, max_steps=40), starts)()
    expected = evaluate(
        agent.greedy_policy(),
        functools.partial(make_doorkey, 6, "compass", max_steps=40),
        [{"options": {"start": start}} for start in starts],
    )
    for name in ("success", "length", "returns"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), err_msg=name)
    assert found.loop is None and expected.loop is None
    assert "loops" not in found.summary()


def test_every_environment_explores_with_its_own_epsilon():
    task = memory()
    config = dataclasses.replace(TOY, num_envs=3, epsilon_start=0.5, epsilon_end=0.5)
    loop = make_loop(task, network(task), config)
    np.testing.assert_allclose(loop.epsilon(10**6), [0.5, 0.25, 0.125])
    alone = dataclasses.replace(config, num_envs=1)
    np.testing.assert_allclose(make_loop(task, network(task), alone).epsilon(0), [0.5])


def test_run_that_cannot_be_trained_is_rejected_before_anything_is_written(tmp_path):
    cases = {
        "capacity. must be at least 126, which is 63 steps .*; received 120": {"unroll_length": 60},
        "`unroll_length` must be greater than 0; received 0": {"unroll_length": 0},
        "`burn_in` must be at least 0 and finite; received -1": {"burn_in": -1},
        "`priority_max_weight` must be from 0 to 1; received 2": {"priority_max_weight": 2},
        "`learning_starts` must be .* received 119": {"learning_starts": 119},
        r"make_graph.*received task 'MemoryS7'": {"loop": "graph"},
    }
    for message, changes in cases.items():
        with pytest.raises(InvalidInput, match=message):
            train(tmp_path, **{"replay_capacity": 120, **changes})
    with pytest.raises(InvalidInput, match="must be a RecurrentQNetwork; received"):
        train_double_dqn(memory(), dense_q_network(3), TOY)
    with pytest.raises(InvalidInput, match="must return Q values of shape"):
        make_agent(doorkey_task((5,)), network(memory()), TOY)
    assert not list(tmp_path.iterdir())
