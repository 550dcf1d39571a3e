"""The training loop pauses, counts, stores transitions and resumes bit for bit."""

import copy
import functools
from typing import ClassVar

import gymnasium
import keras
import numpy as np
import pytest
import tensorflow as tf

from rrl_tf.agents import (
    Collector,
    DoubleDQN,
    GraphEnvs,
    Loop,
    PythonEnvs,
    Record,
    ReplayBuffer,
    RolloutStatistics,
)
from rrl_tf.agents.evaluation import make_play
from rrl_tf.envs import DoorKeyGraph, DoorKeyState, SeededVectorEnv, doorkey_task, make_doorkey
from rrl_tf.errors import InvalidInput
from rrl_tf.training import linear_schedule

pytestmark = pytest.mark.tf_only
TASK = doorkey_task((5, 6))
NUM_ENVS = 4


def make_loop(seed=0, python=False, max_steps=30, extra_layers=(), **changes):
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    network = keras.Sequential(
        [layers.Flatten(), layers.Dense(8, "relu"), *extra_layers, layers.Dense(TASK.num_actions)]
    )
    network.build((None, *TASK.preprocessor.shape))
    numbers = {
        "epsilon": functools.partial(linear_schedule, start=1.0, end=0.2, steps=600),
        "updates_per_step": 0.1,
        "batch_size": 8,
        "learning_starts": 50,
        "seed": seed,
        "pauses": (100, 150),
        **changes,
    }
    replay = ReplayBuffer(
        200,
        (7, 7, 4),
        "uint8",
        num_envs=NUM_ENVS,
        n_step=3,
        priority_exponent=0.6,
        use_return_lower_bound=True,
        jit_compile=False,
    )
    agent = DoubleDQN(network, TASK.preprocessor, jit_compile=False)
    if python:
        make = functools.partial(make_doorkey, 5, "compass", max_steps=12)
        env = PythonEnvs(SeededVectorEnv(make, NUM_ENVS, seed))
    else:
        levels = [DoorKeyGraph(size, reward="success", max_steps=max_steps) for size in (5, 6)]
        env = GraphEnvs(levels, NUM_ENVS)
    return Loop(agent, Collector(agent, env, seed), replay, **numbers)


def outcome(record):
    return record.step, record.updates, record.sums, record.episodes


@pytest.mark.parametrize("python", [False, True])
def test_restored_loop_is_bit_exact(python):
    whole = make_loop(seed=1, python=python)
    if not python:
        whole.collector.reset_options = {"level": 1}
    later = []
    for record in whole.run(600):
        if record.step == 300:
            state = copy.deepcopy(whole.get_state())
        elif record.step > 300:
            later.append(outcome(record))
    second = make_loop(seed=1, python=python)
    second.agent.network.set_weights([w + 1 for w in second.agent.network.get_weights()])
    second.set_state(state)
    assert [outcome(record) for record in second.run(600)] == later
    for part, values in whole.get_state().items():
        for name, value in values.items():
            np.testing.assert_array_equal(value, second.get_state()[part][name], err_msg=name)


def test_state_taken_before_the_first_step_changes_nothing():
    loop = make_loop(python=True)
    _, first = make_loop(python=True).collector.env.begin(0)
    assert loop.get_state()["environment"] == loop.get_state()["environment"]
    np.testing.assert_array_equal(loop._carry["observation"], first)


def test_loop_pauses_counts_and_learns_as_configured():
    loop = make_loop()
    records = list(loop.run(601))
    # Multiples of 100 and 150 and the end, rounded up to steps of four environments.
    assert [r.step for r in records] == [100, 152, 200, 300, 400, 452, 500, 600, 604]
    assert records[0].epsilon == pytest.approx(1 - 0.8 * 96 / 600)
    assert records[0].updates > 0
    assert set(records[0].sums) == {"loss", "q_mean", "gradient_norm"}
    assert all(np.isfinite(list(r.sums.values())).all() for r in records)
    # 0.1 updates per step as soon as more than 50 transitions can be sampled.
    assert records[-1].updates == pytest.approx(0.1 * (604 - 60), abs=1)
    episodes = [episode for r in records for episode in r.episodes]
    assert len(episodes) >= 604 / 30 - NUM_ENVS
    for episode in episodes:
        assert 1 <= episode["length"] <= 30
        assert episode["return"] == episode["success"]  # the reward is 1 at the goal
        assert episode["success"] or episode["length"] == 30


@pytest.mark.parametrize("python", [False, True])
def test_replay_stores_the_observed_transitions(python):
    loop = make_loop(updates_per_step=0.0, python=python)
    for _ in loop.run(160):
        pass
    state = loop.replay.get_state()
    done = state["over"].reshape(-1, NUM_ENVS)
    seen, seen_next = (
        state[name].reshape(-1, NUM_ENVS, 7, 7, 4) for name in ("observation_t", "observation_tp1")
    )
    assert done.any()
    # Within an episode, the next observation is the stored successor; after its end, a new start.
    np.testing.assert_array_equal(seen[1:][~done[:-1]], seen_next[:-1][~done[:-1]])
    assert (seen[1:][done[:-1]] != seen_next[:-1][done[:-1]]).any()
    if not python:
        now = loop.get_state()["environment"]
        assert {now[name].shape for name in DoorKeyState._fields} == {(NUM_ENVS,)}


@pytest.mark.parametrize(("level", "expected"), [(0, 0.0), (1, 0.7)])
def test_current_level_has_its_fraction_of_episodes(level, expected):
    env = GraphEnvs([DoorKeyGraph(5), DoorKeyGraph(6)], 4000)
    state = env.initial_state((3, 4), tf.constant(level))
    assert np.mean(state.size.numpy() == 6) == pytest.approx(expected, abs=0.03)


def test_easier_levels_have_equal_fractions():
    env = GraphEnvs([DoorKeyGraph(size) for size in (5, 6, 8)], 6000)
    sizes = env.initial_state((0, 0), tf.constant(2)).size.numpy()
    fractions = [np.mean(sizes == size) for size in (5, 6, 8)]
    np.testing.assert_allclose(fractions, [0.15, 0.15, 0.7], atol=0.03)


def test_state_of_other_environments_is_rejected():
    loop, other = make_loop(), make_loop()
    for _ in loop.run(100):
        pass
    state = loop.get_state()
    state["environment"]["size"] = state["environment"]["size"][:2]
    with pytest.raises(InvalidInput, match=r"'size' must be int32\(4,\); received int32\(2,\)"):
        other.set_state(state)
    assert other.step == 0
    state = loop.get_state()
    state["environment"]["reset_options"] = {"level": 2}
    with pytest.raises(InvalidInput, match="`level` must be from 0 to 1; received 2"):
        other.set_state(state)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("batch_size", 0),
        ("updates_per_step", -1.0),
        ("updates_per_step", float("nan")),
        ("updates_per_step", float("inf")),
        ("learning_starts", 192),
        ("learning_starts", -1),
        ("pauses", (0,)),
    ],
)
def test_loop_rejects_numbers_out_of_range(argument, value):
    with pytest.raises(InvalidInput, match=f"{argument}.*received"):
        make_loop(**{argument: value})


def test_levels_of_different_spaces_are_rejected():
    with pytest.raises(InvalidInput, match=r"levels.*equal spaces.*\(7, 7, 3\)"):
        GraphEnvs([DoorKeyGraph(5), DoorKeyGraph(5, observation="view")], 2)
    with pytest.raises(InvalidInput, match=r"one or more environments .*; received none"):
        GraphEnvs([], 2)


def fail(env, method, error):
    """Make a method of an environment raise `error`; without an error, make it reward with nan."""

    def failing(*args, **kwargs):
        if error is not None:
            raise error
        observation, _, *rest = env.__class__.step(env, *args, **kwargs)
        return observation, float("nan"), *rest

    setattr(env, method, failing)


@pytest.mark.parametrize(
    ("method", "error", "expected"),
    [
        ("step", ConnectionError("the simulator is gone"), "^the simulator is gone$"),
        ("reset", KeyError("no start is left"), "^'no start is left'$"),
        ("step", None, "the reward must be finite .* with nan from environment 1 in step"),
    ],
)
def test_error_of_an_environment_is_raised_unchanged(method, error, expected):
    loop = make_loop(python=True)
    records = loop.run(10**6)
    next(records)
    fail(loop.collector.env.env.envs[1], method, error)
    with pytest.raises(type(error) if error else InvalidInput, match=expected):
        list(records)


def test_error_of_tensorflow_is_not_replaced_by_an_earlier_one():
    env = make_loop(python=True).collector.env
    env.begin(0)
    with pytest.raises(InvalidInput, match="`actions` must be 4 values"), env.errors_as_raised():
        tf.function(env.step_and_reset)((), tf.constant([0]), None, None)
    with pytest.raises(tf.errors.UnknownError, match="other"), env.errors_as_raised():
        raise tf.errors.UnknownError(None, None, "other")


LENGTH, LOST_AFTER = 7, (3, 5)


class Lives(gymnasium.Env):
    """Environment with three lives and seven steps; the reward is 1, the observation the step."""

    observation_space = gymnasium.spaces.Box(0, LENGTH, (1,), np.int64)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.array([0]), {}

    def step(self, action):
        self.steps += 1
        info = {"life_lost": self.steps in LOST_AFTER}
        return np.array([self.steps]), 1.0, self.steps == LENGTH, False, info


class StepCounter:
    """An agent whose recurrent state is the number of steps of the episode."""

    jit_compile = False

    def initial_state(self, num_envs):
        return {"steps": tf.zeros((num_envs,), tf.int32)}

    def next_state(self, memory, action, reward, over):
        return {"steps": tf.where(over, 0, memory + 1)}

    def act(self, observation, state, epsilon, seed):
        return tf.zeros_like(state["steps"]), state["steps"]

    def update(self, batch):
        error = tf.zeros(batch["observation_t"].shape[:1])
        return dict.fromkeys(("loss", "q_mean", "gradient_norm"), 0.0), error


def test_lost_life_ends_the_return_but_not_the_episode():
    agent = StepCounter()
    replay = ReplayBuffer(
        100, (1,), "int64", num_envs=1, discount=0.5, use_return_lower_bound=True,
        jit_compile=False, state={"steps": ((), "int32")},
    )  # fmt: skip
    collector = Collector(agent, PythonEnvs(SeededVectorEnv(Lives, 1, 0)), seed=0)
    numbers = {"updates_per_step": 0, "batch_size": 1, "learning_starts": 0, "seed": 0}
    loop = Loop(agent, collector, replay, epsilon=lambda _: 0.0, pauses=(LENGTH,), **numbers)
    episodes = [episode for record in loop.run(LENGTH + 2) for episode in record.episodes]
    assert episodes == [{"return": LENGTH, "length": LENGTH}]  # the environment reports no success
    state = replay.get_state()
    np.testing.assert_array_equal(state["steps"], [*range(LENGTH), 0, 1])
    terminated = np.isin(np.arange(1, LENGTH + 3), (*LOST_AFTER, LENGTH))
    np.testing.assert_array_equal(state["terminated"], terminated)
    np.testing.assert_array_equal(state["over"], terminated)
    # Steps until the next lost life; the return is 1 + 0.5 + ... over these steps.
    lengths = np.array([3, 2, 1, 2, 1, 2, 1])
    np.testing.assert_allclose(state["return_lower_bound"][:LENGTH], 2 - 0.5 ** (lengths - 1))


def record(step, updates, episodes=(), loss=None):
    sums = {} if loss is None else {"loss": loss}
    return Record(step, updates, 1, 0.5, list(episodes), sums, seconds=4.0)


def test_averages_cover_the_records_since_the_last_call():
    statistics = RolloutStatistics(window=2)
    for success in (1, 0, 0):
        episode = {"return": float(success), "length": 10 * success, "success": success}
        statistics.add(record(10, 1, [episode], loss=success))
    averages = statistics.averages()
    assert averages["rollout/success"] == 0  # the last two episodes
    assert averages["train/loss"] == pytest.approx(1 / 3)
    assert averages["time/steps_per_second"] == pytest.approx(10 / 12)
    statistics.add(record(34, 2, loss=5.0))
    averages = statistics.averages()
    assert averages["train/loss"] == 5.0
    assert averages["train/updates"] == 2
    assert averages["time/steps_per_second"] == pytest.approx(24 / 4)
    twin = RolloutStatistics(window=2)
    twin.set_state(statistics.get_state())
    twin.add(record(40, 3))
    assert twin.averages()["rollout/success"] == 0


def test_every_gradient_step_has_the_same_weight_in_the_averages():
    """With actors, one log entry covers several records."""
    statistics = RolloutStatistics()
    for new, loss in ((1, 4.0), (3, 3.0)):
        statistics.add(Record(10, 4, new, 0.5, [], {"loss": loss}, seconds=1.0))
    assert statistics.averages()["train/loss"] == 7 / 4


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_averages_stay_finite(wrong):
    statistics = RolloutStatistics()
    statistics.add(record(10, 1, [{"return": 1.0, "length": 5}]))
    episodes = [{"return": 3.0, "length": 5}, {"return": wrong, "length": 5}]
    message = f"the return of an episode must be finite.*; received {wrong}"
    with pytest.raises(InvalidInput, match=message):
        statistics.add(record(20, 1, episodes))
    with pytest.raises(InvalidInput, match=message):
        statistics.set_state(statistics.get_state() | {"episodes": episodes})
    assert statistics.averages()["rollout/return"] == 1.0


@keras.saving.register_keras_serializable()
class AutoGraphStatus(keras.layers.Layer):
    """Layer that records whether AutoGraph converts the functions that call it."""

    statuses: ClassVar[set[str]] = set()  # shared because the target network is a copy

    def call(self, inputs):
        self.statuses.add(tf.__internal__.autograph.control_status_ctx().status.name)
        return inputs


@pytest.mark.parametrize("in_graph", [False, True])
def test_autograph_converts_no_network(in_graph):
    AutoGraphStatus.statuses.clear()
    loop = make_loop(python=not in_graph, extra_layers=[AutoGraphStatus()])
    list(loop.run(150))
    make_play(loop.agent, TASK, 1, in_graph)(0, 0.0)
    assert "DISABLED" in AutoGraphStatus.statuses
    assert "ENABLED" not in AutoGraphStatus.statuses


def test_pauses_of_different_lengths_share_a_trace():
    loop = make_loop()
    assert len({record.step % 100 for record in loop.run(300)}) > 1
    assert loop._advance.experimental_get_tracing_count() == 1
