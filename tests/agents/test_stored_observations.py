"""Frames that are kept once give the same observations as those that are kept whole."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rrl_tf.agents import ReplayBuffer
from rrl_tf.errors import InvalidInput


def replays(frames, channels, num_envs, capacity, n):
    shape = (2, 1, frames * channels)
    made = [
        ReplayBuffer(capacity, shape, "uint8", num_envs=num_envs, n_step=n, frames=each)
        for each in (1, frames)
    ]
    return made, shape


def play(replays, shape, frames, num_envs, steps, rng):
    """Feeds random stacks that follow each other in episodes; returns how many began."""
    channels = shape[-1] // frames

    def begin():
        first = rng.integers(256, size=(*shape[:-1], channels)).astype("uint8")
        return np.tile(first, frames)

    current, begun = np.stack([begin() for _ in range(num_envs)]), num_envs
    for _ in range(steps):
        newest = rng.integers(256, size=(num_envs, *shape[:-1], channels)).astype("uint8")
        after = np.concatenate([current[..., channels:], newest], axis=-1)
        terminated = rng.random(num_envs) < 0.2
        action, reward = rng.integers(5, size=num_envs), rng.normal(size=num_envs)
        for replay in replays:
            replay.add(current, action, reward, terminated, np.zeros(num_envs, bool), after)
        current = after.copy()
        after[:] = 0  # whoever was given it must not have kept it
        for env in np.flatnonzero(terminated):
            current[env] = begin()
            begun += 1
    return begun


def assert_same_samples(whole, shared):
    a, b = (replay.sample(20, np.random.default_rng(1)) for replay in (whole, shared))
    for name, column in vars(a).items():
        np.testing.assert_array_equal(column, getattr(b, name))
        assert column.dtype == getattr(b, name).dtype


@given(
    seed=st.integers(0, 1000),
    frames=st.integers(2, 4),
    channels=st.integers(1, 2),
    num_envs=st.integers(1, 3),
    capacity=st.integers(5, 60),
    n=st.integers(1, 4),
    steps=st.integers(6, 40),
)
@settings(max_examples=40, deadline=None)
def test_shared_frames_are_the_same_observations(
    seed, frames, channels, num_envs, capacity, n, steps
):
    (whole, shared), shape = replays(frames, channels, num_envs, capacity, n)
    rng = np.random.default_rng(seed)
    begun = play((whole, shared), shape, frames, num_envs, steps, rng)
    assert_same_samples(whole, shared)
    # A frame a step, and those of the first observations of episodes.
    assert len(shared.get_state()["frames"]) <= steps * num_envs + begun * frames

    (_, restored), _ = replays(frames, channels, num_envs, capacity, n)
    restored.set_state(shared.get_state())
    play((whole, restored), shape, frames, num_envs, 5, rng)
    assert_same_samples(whole, restored)


def test_frames_of_forgotten_transitions_are_forgotten():
    (_, shared), shape = replays(4, 1, 1, 10, 1)
    play((shared,), shape, 4, 1, 300, np.random.default_rng(0))
    assert len(shared.get_state()["frames"]) <= 10 * 2 * 4


def test_observations_must_hold_whole_frames():
    with pytest.raises(InvalidInput, match=r"each of 4 frames.*received shape \(2, 6\)"):
        ReplayBuffer(10, (2, 6), "uint8", num_envs=1, frames=4)


def test_a_state_of_other_frames_is_refused():
    (whole, shared), shape = replays(4, 1, 1, 10, 1)
    play((whole, shared), shape, 4, 1, 8, np.random.default_rng(0))
    (_, fewer), _ = replays(2, 2, 1, 10, 1)
    with pytest.raises(InvalidInput, match=r"'frames' is uint8\(2, 1, 1\) a row, expected uint8"):
        fewer.set_state(shared.get_state())
    assert len(fewer) == 0
