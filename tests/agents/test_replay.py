"""Transitions and sequences of replay buffers equal their definitions, also after a restore."""

import re

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from random_experience import expected_transitions, observed_returns, play

from rrl_tf.agents import ReplayBuffer, SequenceReplayBuffer, random
from rrl_tf.agents import replay as replays
from rrl_tf.agents.replay import _choose
from rrl_tf.errors import InvalidInput

pytestmark = pytest.mark.tf_only
ENVS = 2


@pytest.fixture(scope="module", autouse=True)
def eagerly():
    """Run functions eagerly, because compiling takes a second per buffer and changes no result."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def buffer(capacity, num_envs=1, shape=(1,), dtype="int64", **options):
    return ReplayBuffer(capacity, shape, dtype, num_envs=num_envs, **options)


def drawable(replay):
    """Return observation -> its n-step transition for every row that can be sampled."""
    state = replay.get_state()
    (rows,) = np.nonzero(state["weight"])
    return_t, discount_t, last = replay._n_steps(tf.constant(rows, tf.int32))
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
    replay = buffer(kept * num_envs, num_envs, n_step=n, discount=0.9)
    trajectory = play(replay, steps, num_envs, seed)
    found = drawable(replay)
    assert len(found) == len(replay)
    complete = trajectory[: max(0, steps - n + 1)][-(kept - n + 1) :]
    expected = expected_transitions(trajectory, n, 0.9, num_envs)
    begins = {int(o) for step in complete for o in step["observation_t"][:, 0]}
    assert found.keys() == begins & expected.keys() == begins
    for key in begins:
        np.testing.assert_allclose(found[key], expected[key], rtol=1e-5, atol=1e-6)


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 3), st.integers(4, 40))
@settings(max_examples=15, deadline=None)
def test_return_lower_bounds_are_the_returns_of_terminated_episodes(seed, n, num_envs, kept):
    replay = buffer(kept * num_envs, num_envs, n_step=n, discount=0.9, use_return_lower_bound=True)
    expected = observed_returns(play(replay, 40, num_envs, seed), 0.9, num_envs)
    state = replay.get_state()
    for observation, bound in zip(state["observation_t"], state["return_lower_bound"]):
        np.testing.assert_allclose(bound, expected[int(observation[0])], rtol=1e-5, atol=1e-5)


def test_return_lower_bounds_are_unknown_by_default():
    replay = buffer(100)
    play(replay, 40, 1, seed=0)
    assert (replay.get_state()["return_lower_bound"] == -np.inf).all()


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 40))
@settings(max_examples=20, deadline=None)
def test_sampling_frequencies_follow_the_priorities(seed, num_envs, kept):
    rng = np.random.default_rng(seed)
    replay = buffer(kept * num_envs, num_envs, priority_exponent=0.5)
    play(replay, kept, num_envs, seed)
    errors = rng.choice([0.0, 1.0, -4.0, 9.0], size=len(replay)).astype("float32")
    replay.set_priorities(tf.range(len(replay)), tf.constant(errors))
    probability = np.sqrt(np.abs(errors) + 1e-6)
    probability /= probability.sum()
    batch, index = replay.sample(20_000, (seed, 1))
    fraction = np.bincount(index, minlength=len(replay)) / 20_000
    # Five standard deviations of the sampled fraction.
    assert (np.abs(fraction - probability) < 5 * np.sqrt(probability / 20_000) + 1e-4).all()
    expected = (len(replay) * probability[index.numpy()]) ** -0.4
    np.testing.assert_allclose(batch["weight_t"], expected / expected.max(), rtol=1e-3)


def test_uniform_sampling_is_uniform_and_unweighted():
    replay = buffer(12, 2)
    play(replay, 5, 2, seed=0)
    batch, index = replay.sample(20_000, (0, 0))
    np.testing.assert_allclose(np.bincount(index) / 20_000, 0.1, atol=0.02)
    assert (batch["weight_t"].numpy() == 1).all()


def test_positive_copies_multiply_the_probability_of_positive_rewards():
    replay = buffer(10, positive_copies=50)
    for reward in (-0.01, 0.7):
        replay.add([[1]], [0], [reward], [True], [False], [[2]])
    _, index = replay.sample(5000, (0, 0))
    assert np.mean(index.numpy() == 1) == pytest.approx(50 / 51, abs=0.01)


def test_new_transitions_get_the_largest_priority_so_far():
    replay = buffer(10, priority_exponent=1.0)
    play(replay, 2, 1, seed=0, ends=0.0)
    replay.set_priorities(tf.range(2), tf.constant([1.0, 98.0]))
    play(replay, 1, 1, seed=1, ends=0.0)
    _, index = replay.sample(20_000, (0, 0))
    assert np.mean(index.numpy() == 2) == pytest.approx(98 / 197, abs=0.02)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_error_that_is_not_finite_keeps_the_priority(wrong, compiled):
    tf.config.run_functions_eagerly(not compiled)
    try:
        replay = buffer(12, priority_exponent=1.0)
        play(replay, 4, 1, seed=0, ends=0.0)
        replay.set_priorities(tf.range(4), tf.constant([2.0, 2.0, 4.0, 8.0]))
        replay.set_priorities(tf.range(4), tf.constant([wrong, 2.0, wrong, 8.0]))
        play(replay, 1, 1, seed=1, ends=0.0)  # gets the largest priority so far, 8
        batch, index = replay.sample(20_000, (0, 0))
    finally:
        tf.config.run_functions_eagerly(True)
    fraction = np.bincount(index, minlength=5) / 20_000
    np.testing.assert_allclose(fraction, np.array([2, 2, 4, 8, 8]) / 24, atol=0.02)
    assert np.isfinite(batch["weight_t"].numpy()).all()


def test_huge_errors_do_not_overflow_the_sum_of_priorities():
    replay = buffer(12, priority_exponent=1.0, positive_copies=3)
    play(replay, 4, 1, seed=0, ends=0.0)
    replay.set_priorities(tf.range(4), tf.constant([3e38, 3e38, 3e38, 1.0]))
    play(replay, 1, 1, seed=1, ends=0.0)
    batch, index = replay.sample(1000, (0, 0))
    assert set(index.numpy().tolist()) == {0, 1, 2, 4}
    assert np.isfinite(batch["weight_t"].numpy()).all()


@pytest.mark.parametrize("unit", [1e-30, 1e-9, 1.0, 1e9])
def test_the_unit_of_the_errors_has_no_effect(unit):
    replay = buffer(12, priority_exponent=1.0)
    play(replay, 4, 1, seed=0, ends=0.0)
    replay.set_priorities(tf.range(4), tf.constant(np.array([1, 2, 4, 8]) * unit, tf.float32))
    batch, index = replay.sample(20_000, (0, 0))
    fraction = np.bincount(index, minlength=4) / 20_000
    np.testing.assert_allclose(fraction, np.array([1, 2, 4, 8]) / 15, atol=0.02)
    assert np.isfinite(batch["weight_t"].numpy()).all()


@pytest.mark.parametrize(("least", "expected"), [(0.0, 1e-6), (1e-3, 1e-6), (1e-4, 1e-7)])
def test_rows_without_an_error_stay_drawable(least, expected):
    replay = buffer(12, priority_exponent=1.0)
    play(replay, 2, 1, seed=0, ends=0.0)
    replay.set_priorities(tf.range(2), tf.constant([0.0, least]))
    weight = replay.get_state()["weight"][:2]
    np.testing.assert_allclose(weight, [expected, least + expected], rtol=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
def test_weights_do_not_round_to_zero(compiled, monkeypatch):
    monkeypatch.setattr(replays, "IMPORTANCE_EXPONENT", 1.0)
    tf.config.run_functions_eagerly(not compiled)
    try:
        replay = buffer(12, priority_exponent=10.0)
        play(replay, 4, 1, seed=0, ends=0.0)
        replay.set_priorities(tf.range(4), tf.constant([0.0, 1e-5, 0.0, 1e-5]))
        batch, index = replay.sample(1000, (0, 0))
        assert set(index.numpy().tolist()) == {0, 1, 2, 3}
    finally:
        tf.config.run_functions_eagerly(True)
    assert np.isfinite(batch["weight_t"].numpy()).all()


def test_probability_that_rounds_to_zero_has_a_finite_weight(monkeypatch):
    monkeypatch.setattr(replays, "IMPORTANCE_EXPONENT", 1.0)
    replay = buffer(12, priority_exponent=1.0)
    play(replay, 2, 1, seed=0, ends=0.0)
    replay.set_priorities(tf.range(2), tf.constant([0.0, 3e38]))
    monkeypatch.setattr(random, "uniform", lambda shape, seed: tf.constant([0.0, 0.5]))
    batch, index = replay.sample(2, (0, 0))
    assert index.numpy().tolist() == [0, 1]
    np.testing.assert_allclose(batch["weight_t"], [1.0, 0.0], atol=1e-6)


def test_column_of_weight_zero_is_never_chosen():
    """XLA's cumulative sum of a long row can grow by rounding where the weight is zero."""
    rng = np.random.default_rng(0)
    weight = rng.random((64, 1000), "float32") * rng.integers(2, size=(64, 1000))
    weight = weight.astype("float32")
    tf.config.run_functions_eagerly(False)
    try:
        up_to = tf.function(tf.cumsum, jit_compile=True)(weight, axis=1).numpy()
        grows = (np.diff(up_to, axis=1) > 0) & (weight[:, 1:] == 0)
        below = up_to[np.arange(64), grows.argmax(axis=1)]
        choose = tf.function(_choose, jit_compile=True, autograph=False)
        columns = [choose(weight, each)[0] for each in (below, 0 * below, np.inf + below)]
    finally:
        tf.config.run_functions_eagerly(True)
    assert (np.take_along_axis(weight, np.stack(columns, axis=1), axis=1) > 0).all()


def prioritised(**options):
    return buffer(
        37, 2, discount=0.9, priority_exponent=0.6, use_return_lower_bound=True, **options
    )


def test_compiled_buffer_equals_the_eager_one():
    def outcome():
        replay = prioritised(n_step=3)
        play(replay, 25, 2, seed=3)
        batch, index = replay.sample(16, tf.constant((0, 1)))
        replay.set_priorities(index, batch["return_t"])
        return [*batch.values(), index, *replay.get_state().values()]

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
def test_restored_buffer_draws_the_same_transitions(seed, n, steps):
    original, restored = prioritised(n_step=n), prioritised(n_step=n)
    play(original, steps, 2, seed)
    restored.set_state(original.get_state())
    for replay in (original, restored):
        play(replay, 10, 2, seed + 1)
    outcomes = [replay.sample(20, (3, 3)) for replay in (original, restored)]
    for a, b in zip(*([*batch.values(), index] for batch, index in outcomes), strict=True):
        np.testing.assert_array_equal(a, b)


def test_new_episode_truncates_an_unfinished_one():
    """A lost actor never sends the end of its episodes."""
    replay = buffer(20, 2, n_step=2, discount=0.5)
    no = np.zeros(2, bool)
    for step, episode_step in ((1, [0, 0]), (2, [1, 1]), (3, [2, 0])):
        seen = np.full((2, 1), 10 * step)
        replay.add(seen, [0, 0], [1.0, 1.0], no, no, seen + 1, episode_step=episode_step)
    return_t, discount_t, last = replay._n_steps(tf.constant([2, 3]))
    np.testing.assert_allclose(return_t, [1.5, 1.0])
    np.testing.assert_allclose(discount_t, [0.25, 0.5])
    np.testing.assert_array_equal(last, [4, 3])


def stack_frames(replays, frames, channels, num_envs, steps, rng):
    """Add episodes of random frame stacks to every buffer."""

    def begin():
        return np.tile(rng.integers(256, size=(2, 1, channels)).astype("uint8"), frames)

    current, length = np.stack([begin() for _ in range(num_envs)]), np.zeros(num_envs, int)
    for _ in range(steps):
        newest = rng.integers(256, size=(num_envs, 2, 1, channels)).astype("uint8")
        after = np.concatenate([current[..., channels:], newest], axis=-1)
        terminated = rng.random(num_envs) < 0.2
        action, reward = rng.integers(5, size=num_envs), rng.normal(size=num_envs)
        for replay in replays:
            replay.add(
                *(current, action, reward, terminated, np.zeros(num_envs, bool), after),
                episode_step=length,
            )
        current, length = after.copy(), np.where(terminated, 0, length + 1)
        for env in np.flatnonzero(terminated):
            current[env] = begin()


@given(
    seed=st.integers(0, 1000),
    frames=st.integers(2, 4),
    channels=st.integers(1, 2),
    num_envs=st.integers(1, 3),
    kept=st.integers(8, 20),
    n=st.integers(1, 4),
    steps=st.integers(8, 40),
)
@settings(max_examples=25, deadline=None)
def test_stacks_of_single_frames_equal_whole_observations(
    seed, frames, channels, num_envs, kept, n, steps
):
    shape = (2, 1, frames * channels)
    whole, single = (
        ReplayBuffer(kept * num_envs, shape, "uint8", num_envs=num_envs, n_step=n, frames=each)
        for each in (1, frames)
    )
    stack_frames((whole, single), frames, channels, num_envs, steps, np.random.default_rng(seed))
    (rows,) = np.nonzero(single.get_state()["weight"])
    assert len(rows) == len(single) > 0
    rows = tf.constant(rows, tf.int32)
    for name in ("_observations", "_next_observations"):
        np.testing.assert_array_equal(getattr(single, name)(rows), getattr(whole, name)(rows))
    assert (
        single.get_state()["observation_t"][0].size
        == whole.get_state()["observation_t"][0].size // frames
    )


def test_state_of_another_buffer_is_rejected():
    replay, other = buffer(10), buffer(10, shape=(2,))
    play(replay, 3, 1, seed=0)
    with pytest.raises(InvalidInput, match=r"observation_t.*\(3, 2\); received .*\(3, 1\)"):
        other.set_state(replay.get_state())
    assert len(other) == 0


@pytest.mark.parametrize(
    ("name", "value", "received"),
    [
        ("reward_t", np.full(3, np.nan, "float32"), "float32(3,) with nan"),
        ("reward_t", np.zeros(3), "float64(3,)"),
        ("reward_t", np.full(3, np.inf, "float32"), "inf"),
        ("weight", np.full(3, np.inf, "float32"), "inf"),
        ("weight", "x", "<U1()"),
        ("return_lower_bound", None, "none"),
        ("added", -3, "-3"),
        ("added", 3.0, "3.0"),
    ],
)
def test_damaged_state_is_rejected(name, value, received):
    replay, other = buffer(10), buffer(10)
    play(replay, 3, 1, seed=0)
    state = replay.get_state() | {name: value}
    if value is None:
        del state[name]
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
        ("discount", float("nan")),
        ("priority_exponent", -1.0),
        ("positive_copies", 0),
        ("positive_copies", 1.5),
        ("n_step", 2.5),
        ("num_envs", 1.5),
        ("capacity", 10.5),
        ("capacity", 10**15),
        ("frames", 0),
    ],
)
def test_numbers_out_of_range_are_rejected(argument, value):
    arguments = {"capacity": 10, "num_envs": 2, "n_step": 3, argument: value}
    with pytest.raises(InvalidInput, match=f"{argument}.*received"):
        buffer(arguments.pop("capacity"), **arguments)


def test_channels_that_frames_do_not_divide_are_rejected():
    with pytest.raises(InvalidInput, match=r"multiple of `frames`=3; received \(2, 2\)"):
        buffer(20, shape=(2, 2), frames=3)


def sequences(kept, length, period, **options):
    return SequenceReplayBuffer(
        kept * ENVS,
        (),
        "int64",
        num_envs=ENVS,
        length=length,
        period=period,
        memory_size=1,
        jit_compile=False,
        **options,
    )


def add_step(replay, step):
    """Add one step; its number is also its observation and memory."""
    no, zeros = np.zeros(ENVS, bool), np.zeros(ENVS, "float32")
    observation = np.full(ENVS, step)
    state = {
        "memory": np.full((ENVS, 1), step, "float32"),
        "previous_action": np.zeros(ENVS, "int32"),
        "previous_reward": zeros,
    }
    replay.add(observation, np.zeros(ENVS, "int32"), zeros, no, no, observation + 1, state=state)


@given(
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(0, 3),
    st.sampled_from([0.0, 0.6]),
    st.integers(1, 40),
)
@settings(max_examples=25, deadline=None)
def test_sequences_are_whole_and_begin_at_multiples_of_the_period(
    length, period, more, exponent, steps
):
    kept = length + period - 1 + more
    replay = sequences(kept, length, period, priority_exponent=exponent)
    for step in range(steps):
        add_step(replay, step)
        if not len(replay):
            continue
        sequence, _ = replay.sample(8, (step, 1))
        begin = sequence["memory"].numpy()[:, 0]
        np.testing.assert_array_equal(
            sequence["observation_t"].numpy(), begin[:, None] + np.arange(length)
        )
        assert (begin % period == 0).all() and (begin > step - kept).all()
        assert np.isfinite(sequence["weight_t"].numpy()).all()


@pytest.mark.parametrize(("length", "period", "kept"), [(6, 4, 8), (5, 1, 4), (1, 3, 2)])
def test_buffer_shorter_than_a_sequence_is_rejected(length, period, kept):
    sequences(length + period - 1, length, period)
    with pytest.raises(InvalidInput, match=f"capacity` must be at least .*received {kept * ENVS}"):
        sequences(kept, length, period)


@pytest.mark.parametrize("argument", ["length", "period"])
def test_sequence_length_that_is_no_integer_is_rejected(argument):
    with pytest.raises(InvalidInput, match=f"`{argument}` must be a positive integer.*2.5"):
        sequences(20, **{"length": 4, "period": 2, argument: 2.5})
