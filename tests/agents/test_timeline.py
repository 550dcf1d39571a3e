import re

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from random_experience import expected_transitions, observed_returns, play

from rrl_tf.agents.timeline import Timeline, _choose
from rrl_tf.errors import InvalidInput

pytestmark = pytest.mark.tf_only


@pytest.fixture(scope="module", autouse=True)
def eagerly():
    """Compiling takes a second, and what is computed is the same."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def drawable(replay):
    """Observation -> all that is drawn of its transition, for every row that can be drawn."""
    (rows,) = np.nonzero(replay.get_state()["weight"])
    return_t, discount_t, last = replay._n_steps(tf.constant(rows, tf.int32))
    state = replay.get_state()
    return {
        int(state["observation_t"][row, 0]): (
            int(state["action_t"][row]),
            float(return_t[i]),
            float(discount_t[i]),
            int(state["observation_tp1"][last[i], 0]),
        )
        for i, row in enumerate(rows)
    }


@given(
    st.integers(0, 10_000),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(5, 20),
    st.integers(1, 50),
)
@settings(max_examples=30, deadline=None)
def test_transitions_equal_the_definition(seed, n, num_envs, kept, steps):
    replay = Timeline(kept * num_envs, (1,), "int64", num_envs=num_envs, n_step=n, discount=0.9)
    trajectory = play(replay, steps, num_envs, seed)
    found = drawable(replay)
    assert len(found) == len(replay)
    # Those of the steps that are kept and that n - 1 steps have followed.
    complete = trajectory[: max(0, steps - n + 1)][-(kept - n + 1) :]
    expected = expected_transitions(trajectory, n, 0.9, num_envs)
    begins = {int(o) for step in complete for o in step["observation_t"][:, 0]}
    assert found.keys() == begins & expected.keys() == begins
    for key in begins:
        np.testing.assert_allclose(found[key], expected[key], rtol=1e-5, atol=1e-6)


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 3), st.integers(4, 40))
@settings(max_examples=15, deadline=None)
def test_observed_returns_are_those_of_terminated_episodes(seed, n, num_envs, kept):
    replay = Timeline(
        kept * num_envs, (1,), "int64",
        num_envs=num_envs, n_step=n, discount=0.9, observe_returns=True,
    )  # fmt: skip
    expected = observed_returns(play(replay, 40, num_envs, seed), 0.9, num_envs)
    state = replay.get_state()
    for observation, floor in zip(state["observation_t"], state["floor_t"]):
        np.testing.assert_allclose(floor, expected[int(observation[0])], rtol=1e-5, atol=1e-5)


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 40))
@settings(max_examples=20, deadline=None)
def test_rows_are_drawn_as_often_as_they_weigh(seed, num_envs, kept):
    rng = np.random.default_rng(seed)
    replay = Timeline(kept * num_envs, (1,), "int64", num_envs=num_envs, priority_exponent=0.5)
    play(replay, kept, num_envs, seed)
    errors = rng.choice([0.0, 1.0, -4.0, 9.0], size=len(replay)).astype("float32")
    replay.set_priorities(tf.range(len(replay)), tf.constant(errors))
    probability = np.sqrt(np.abs(errors) + 1e-6)
    probability /= probability.sum()
    (*_, weight_t), index = replay.sample(20_000, (seed, 1))
    share = np.bincount(index, minlength=len(replay)) / 20_000
    # Five standard deviations of a share.
    assert (np.abs(share - probability) < 5 * np.sqrt(probability / 20_000) + 1e-4).all()
    expected = (len(replay) * probability[index.numpy()]) ** -0.4
    np.testing.assert_allclose(weight_t, expected / expected.max(), rtol=1e-3)


def test_uniform_draws_are_uniform_and_unweighted():
    replay = Timeline(12, (1,), "int64", num_envs=2)
    play(replay, 5, 2, seed=0)
    (*_, weight_t), index = replay.sample(20_000, (0, 0))
    np.testing.assert_allclose(np.bincount(index) / 20_000, 0.1, atol=0.02)
    assert (weight_t.numpy() == 1).all()


def test_positive_rewards_are_drawn_more_often():
    replay = Timeline(10, (1,), "int64", num_envs=1, positive_copies=50)
    for reward in (-0.01, 0.7):
        replay.add([[1]], [0], [reward], [True], [False], [[2]])
    _, index = replay.sample(5000, (0, 0))
    assert np.mean(index.numpy() == 1) == pytest.approx(50 / 51, abs=0.01)


def test_new_transitions_get_the_largest_priority_so_far():
    replay = Timeline(10, (1,), "int64", num_envs=1, priority_exponent=1.0)
    play(replay, 2, 1, seed=0, ends=0.0)
    replay.set_priorities(tf.range(2), tf.constant([1.0, 98.0]))
    play(replay, 1, 1, seed=1, ends=0.0)
    _, index = replay.sample(20_000, (0, 0))
    assert np.mean(index.numpy() == 2) == pytest.approx(98 / 197, abs=0.02)


def test_nothing_is_drawn_that_weighs_nothing():
    """XLA's sum of a long row grows by a last digit where nothing is added to it."""
    rng = np.random.default_rng(0)
    weight = rng.random((64, 1000), "float32") * rng.integers(2, size=(64, 1000))
    weight = weight.astype("float32")
    tf.config.run_functions_eagerly(False)
    try:
        up_to = tf.function(tf.cumsum, jit_compile=True)(weight, axis=1).numpy()
        # Where a sum grows for no reason, what lies just below it; and the ends.
        grows = (np.diff(up_to, axis=1) > 0) & (weight[:, 1:] == 0)
        below = up_to[np.arange(64), grows.argmax(axis=1)]
        choose = tf.function(_choose, jit_compile=True, autograph=False)
        columns = [choose(weight, each)[0] for each in (below, 0 * below, np.inf + below)]
    finally:
        tf.config.run_functions_eagerly(True)
    assert (np.take_along_axis(weight, np.stack(columns, axis=1), axis=1) > 0).all()


def test_compiled_it_computes_the_same():
    def outcome():
        replay = Timeline(
            30, (1,), "int64",
            num_envs=2, n_step=3, discount=0.9, priority_exponent=0.6, observe_returns=True,
        )  # fmt: skip
        play(replay, 25, 2, seed=3)
        batch, index = replay.sample(16, tf.constant((0, 1)))
        replay.set_priorities(index, batch[2])
        return [*batch, index, *replay.get_state().values()]

    eager = outcome()
    tf.config.run_functions_eagerly(False)
    try:
        compiled = outcome()
    finally:
        tf.config.run_functions_eagerly(True)
    for a, b in zip(eager, compiled, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@given(st.integers(0, 1000), st.integers(1, 4), st.integers(1, 60))
@settings(max_examples=10, deadline=None)
def test_a_restored_timeline_goes_on_alike(seed, n, steps):
    def new():
        return Timeline(
            37, (1,), "int64",
            num_envs=2, n_step=n, discount=0.9, priority_exponent=0.6, observe_returns=True,
        )  # fmt: skip

    original, restored = new(), new()
    play(original, steps, 2, seed)
    restored.set_state(original.get_state())
    for replay in (original, restored):
        play(replay, 10, 2, seed + 1)
    outcomes = [replay.sample(20, (3, 3)) for replay in (original, restored)]
    for a, b in zip(*([*batch, index] for batch, index in outcomes), strict=True):
        np.testing.assert_array_equal(a, b)


def test_state_of_another_timeline_is_refused():
    replay = Timeline(10, (1,), "int64", num_envs=1)
    play(replay, 3, 1, seed=0)
    other = Timeline(10, (2,), "int64", num_envs=1)
    with pytest.raises(InvalidInput, match=r"observation_t.*\(3, 2\); received .*\(3, 1\)"):
        other.set_state(replay.get_state())
    assert len(other) == 0


@pytest.mark.parametrize(
    ("name", "value", "received"),
    [
        ("reward_t", np.full(3, np.nan, "float32"), "float32(3,) with nan"),
        ("reward_t", np.zeros(3), "float64(3,)"),
        ("weight", "x", "<U1()"),
        ("floor_t", None, "none"),
        ("added", -3, "-3"),
        ("added", 3.0, "3.0"),
    ],
)
def test_a_damaged_state_is_refused(name, value, received):
    replay = Timeline(10, (1,), "int64", num_envs=1)
    play(replay, 3, 1, seed=0)
    state = replay.get_state() | {name: value}
    if value is None:
        del state[name]
    other = Timeline(10, (1,), "int64", num_envs=1)
    with pytest.raises(InvalidInput, match=rf"{name}.* must be .*; received {re.escape(received)}"):
        other.set_state(state)
    assert len(other) == 0


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("capacity", 5),  # two environments and three steps need six
        ("num_envs", 0),
        ("n_step", 0),
        ("discount", 1.5),
        ("priority_exponent", -1.0),
        ("positive_copies", 0),
        ("positive_copies", 1.5),
        ("importance_exponent", 5),
        ("n_step", 2.5),  # once, an error of the first add
        ("num_envs", 1.5),
        ("capacity", 10.5),
        ("capacity", 10**15),
    ],
)
def test_numbers_out_of_range_are_refused(argument, value):
    arguments = {"capacity": 10, "num_envs": 2, "n_step": 3, argument: value}
    capacity = arguments.pop("capacity")
    with pytest.raises(InvalidInput, match=f"{argument}.*received"):
        Timeline(capacity, (1,), "int64", **arguments)


def test_a_replay_smaller_than_its_environments_need_is_told_by_their_numbers():
    with pytest.raises(InvalidInput, match=r"3 steps .* 2 environments: at least 6; received 5"):
        Timeline(5, (1,), "int64", num_envs=2, n_step=3)
