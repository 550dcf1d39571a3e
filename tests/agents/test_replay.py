import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_experience import expected_transitions, observed_returns, play

from rrl_tf.agents import ReplayBuffer
from rrl_tf.errors import InvalidInput


def stored(replay):
    state = replay.get_state()
    return {
        int(o[0]): (int(a), float(r), float(d), int(on[0]))
        for o, a, r, d, on in zip(
            state["observation_t"],
            state["action_t"],
            state["return_t"],
            state["discount_t"],
            state["observation_tpn"],
        )
    }


@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 3), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_transitions_equal_the_definition(seed, n, num_envs, steps):
    replay = ReplayBuffer(1000, (1,), "int64", num_envs=num_envs, n_step=n, discount=0.9)
    trajectory = play(replay, steps, num_envs, seed)
    expected = expected_transitions(trajectory, n, 0.9, num_envs)
    found = stored(replay)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-6)


def test_a_time_out_is_bootstrapped_from_and_a_termination_is_not():
    replay = ReplayBuffer(10, (1,), "int64", num_envs=2, discount=0.9)
    replay.add([[1], [2]], [0, 0], [1.0, 1.0], [True, False], [False, True], [[3], [4]])
    assert stored(replay) == {1: (0, 1.0, 0.0, 3), 2: (0, 1.0, pytest.approx(0.9), 4)}


@given(st.integers(1, 30), st.integers(0, 60))
@settings(max_examples=30, deadline=None)
def test_ring_keeps_the_newest(capacity, steps):
    replay = ReplayBuffer(capacity, (1,), "int64", num_envs=1)
    play(replay, steps, 1, seed=0, ends=0.0)
    assert len(replay) == min(capacity, steps)
    assert sorted(stored(replay)) == list(range(max(0, steps - capacity), steps))


def test_sampling_frequencies_follow_the_priorities():
    replay = ReplayBuffer(4, (1,), "int64", num_envs=1, priority_exponent=0.5)
    play(replay, 4, 1, seed=0, ends=0.0)
    replay.set_priorities(np.arange(4), np.array([1.0, -4.0, 9.0, 16.0]))
    batch = replay.sample(40_000, np.random.default_rng(0))
    share = np.bincount(batch.index, minlength=4) / 40_000
    np.testing.assert_allclose(share, np.array([1, 2, 3, 4]) / 10, atol=0.01)
    # w_i = (size * P(i)) ** -0.4, divided by the largest: that of the rarest row.
    weight = {int(i): float(w) for i, w in zip(batch.index, batch.weight_t)}
    for i, p in enumerate([0.1, 0.2, 0.3, 0.4]):
        assert weight[i] == pytest.approx((p / 0.1) ** -0.4, rel=1e-4)


def test_new_transitions_get_the_largest_priority_so_far():
    replay = ReplayBuffer(10, (1,), "int64", num_envs=1, priority_exponent=1.0)
    play(replay, 2, 1, seed=0, ends=0.0)
    replay.set_priorities(np.arange(2), np.array([1.0, 98.0]))
    play(replay, 1, 1, seed=1, ends=0.0)
    index = replay.sample(20_000, np.random.default_rng(0)).index
    assert (index == 2).mean() == pytest.approx(98 / 197, abs=0.02)


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 3), st.integers(1, 60))
@settings(max_examples=40, deadline=None)
def test_observed_returns_are_those_of_terminated_episodes(seed, n, num_envs, capacity):
    replay = ReplayBuffer(
        capacity, (1,), "int64", num_envs=num_envs, n_step=n, discount=0.9, observe_returns=True
    )
    trajectory = play(replay, 40, num_envs, seed)
    expected = observed_returns(trajectory, 0.9, num_envs)
    state = replay.get_state()
    for observation, floor in zip(state["observation_t"], state["floor_t"]):
        np.testing.assert_allclose(floor, expected[int(observation[0])], rtol=1e-5, atol=1e-6)


def test_returns_are_only_observed_when_asked_for():
    replay = ReplayBuffer(100, (1,), "int64", num_envs=1)
    play(replay, 40, 1, seed=0)
    assert (replay.get_state()["floor_t"] == -np.inf).all()


def test_uniform_sampling_is_uniform_and_unweighted():
    replay = ReplayBuffer(5, (1,), "int64", num_envs=1)
    play(replay, 5, 1, seed=0, ends=0.0)
    batch = replay.sample(20_000, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(batch.index) / 20_000, 0.2, atol=0.02)
    assert (batch.weight_t == 1).all()


def test_positive_rewards_are_stored_several_times():
    replay = ReplayBuffer(200, (1,), "int64", num_envs=1, positive_copies=50)
    for reward in (-0.01, 0.7):
        replay.add([[1]], [0], [reward], [True], [False], [[2]])
    assert len(replay) == 51


@given(st.integers(0, 1000), st.integers(1, 4), st.integers(1, 60))
@settings(max_examples=20, deadline=None)
def test_a_restored_buffer_goes_on_alike(seed, n, steps):
    def new():
        return ReplayBuffer(
            37,
            (1,),
            "int64",
            num_envs=2,
            n_step=n,
            discount=0.9,
            priority_exponent=0.6,
            observe_returns=True,
        )

    original, restored = new(), new()
    play(original, steps, 2, seed)
    if len(original):
        original.set_priorities(np.arange(len(original)), np.linspace(-3, 3, len(original)))
    restored.set_state(original.get_state())
    for replay in (original, restored):
        play(replay, 10, 2, seed + 1)
    a, b = (r.sample(20, np.random.default_rng(3)) for r in (original, restored))
    for name in ("observation_t", "action_t", "return_t", "floor_t", "weight_t", "index"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def test_state_of_another_buffer_is_refused():
    replay = ReplayBuffer(10, (1,), "int64", num_envs=1)
    play(replay, 3, 1, seed=0)
    with pytest.raises(ValueError, match=r"observation_t.*\(1,\).*expected.*\(2,\)"):
        ReplayBuffer(10, (2,), "int64", num_envs=1).set_state(replay.get_state())
    state, fresh = replay.get_state(), ReplayBuffer(10, (1,), "int64", num_envs=1)
    with pytest.raises(InvalidInput, match=r"'return_t' must be float32\(3,\); .* with nan"):
        fresh.set_state(state | {"return_t": np.full(3, np.nan, "float32")})
    with pytest.raises(InvalidInput, match="'observation_t' must be 3 rows; received 2"):
        fresh.set_state(state | {"observation_t": state["observation_t"][:2]})
    with pytest.raises(ValueError, match="1 environments, expected 2"):
        ReplayBuffer(10, (1,), "int64", num_envs=2).set_state(replay.get_state())


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("capacity", 0),
        ("num_envs", 0),
        ("n_step", 0),
        ("discount", 1.5),
        ("priority_exponent", -1),
        ("priority_exponent", float("nan")),
        ("importance_exponent", float("inf")),
        ("importance_exponent", 5),
        ("discount", float("nan")),
        ("positive_copies", 0),
        ("frames", 0),
        ("n_step", 2.5),  # once, returns to the end of the episode
        ("capacity", 10.5),
        ("num_envs", 1.5),
        ("positive_copies", 1.5),
        ("frames", 1.5),
    ],
)
def test_bad_arguments_are_named(argument, value):
    arguments = {"capacity": 10, "num_envs": 1, argument: value}
    with pytest.raises(ValueError, match=rf"{argument}.*received {value}"):
        ReplayBuffer(arguments.pop("capacity"), (1,), "uint8", **arguments)


@pytest.mark.parametrize("capacity", [10**15, 10**18, 10**30])
def test_a_capacity_that_no_memory_has_is_named(capacity):
    with pytest.raises(InvalidInput, match=rf"capacity must fit in memory .*; received {capacity}"):
        ReplayBuffer(capacity, (7, 7, 3), "uint8", num_envs=1)


def test_an_empty_buffer_cannot_be_sampled():
    with pytest.raises(ValueError, match="empty"):
        ReplayBuffer(10, (1,), "uint8", num_envs=1).sample(1, np.random.default_rng(0))
