"""Preprocessors equal NumPy versions, also in graphs, and describe their features."""

import numpy as np
import pytest
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st

from rrl_tf.envs import doorkey_task, make_doorkey
from rrl_tf.envs.preprocessing import as_float, codes_per_channel, frame_maximum, one_hot, scaled
from rrl_tf.errors import InvalidInput


def grid(codes, frames=1, size=(5, 4)):
    """Return the space of a grid; `codes` are the numbers of codes per channel."""
    high = np.tile(np.array(codes) - 1, frames)
    return Box(0, np.tile(high, (*size, 1)).astype("uint8"), dtype=np.uint8)


def draw(seed, space, batch=()):
    """Return random codes of a space."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, space.high.astype(int) + 1, (*batch, *space.shape)).astype(space.dtype)


spaces = st.builds(
    grid,
    codes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    frames=st.just(1),
    size=st.tuples(st.integers(1, 5), st.integers(1, 5)),
)


@given(st.integers(0, 2**32), spaces, st.integers(1, 3), st.sampled_from([(), (3,), (2, 2)]))
@settings(max_examples=30, deadline=None)
def test_one_hot_and_scaled_equal_numpy(seed, space, frames, batch):
    codes = codes_per_channel(space)
    stacked = grid(codes, frames, space.shape[:2])
    observation = draw(seed, stacked, batch)
    planes = [observation[..., i] for i in range(observation.shape[-1])]
    expected = [np.eye(n, dtype="float32")[p] for n, p in zip(codes * frames, planes)]
    prepare = one_hot(stacked, frames)
    result = np.asarray(prepare(observation))
    assert result.dtype == np.float32
    assert result.shape == (*batch, *prepare.shape)
    np.testing.assert_array_equal(result, np.concatenate(expected, axis=-1))
    result = np.asarray(scaled(stacked)(observation))
    assert result.dtype == np.float32
    expected = [p / np.float32(max(n - 1, 1)) for n, p in zip(codes * frames, planes)]
    np.testing.assert_allclose(result, np.stack(expected, axis=-1), rtol=1e-6)


@given(low=st.floats(-300, 0, width=32), high=st.floats(0, 300, width=32))
def test_floats_are_scaled_by_the_larger_bound(low, high):
    observation = np.linspace(low, high, 24, dtype="float32").reshape(2, 4, 3)
    result = np.asarray(scaled(Box(low, high, (2, 4, 3)))(observation))
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, observation / max(1.0, high, -low), rtol=1e-6)


@given(st.integers(0, 2**32), spaces, st.sampled_from([(), (3,), (2, 2)]))
@settings(max_examples=20, deadline=None)
def test_frame_maximum_equals_numpy(seed, space, batch):
    observation = draw(seed, space, batch)
    flat = observation.reshape(-1, *space.shape)
    expected = np.stack([o.astype("float32") / max(1, o.max()) for o in flat])
    result = np.asarray(frame_maximum(space)(observation))
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected.reshape(observation.shape), rtol=1e-6)


@pytest.mark.tf_only
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("make", [one_hot, scaled, frame_maximum, as_float])
def test_preprocessors_are_the_same_inside_a_graph(make, jit_compile):
    import tensorflow as tf

    space = grid((11, 6, 3, 4))
    prepare, observation = make(space), draw(0, space, (5,))
    graph = tf.function(
        prepare, [tf.TensorSpec((None, *space.shape), tf.uint8)], jit_compile=jit_compile
    )
    np.testing.assert_allclose(
        graph(tf.constant(observation)), np.asarray(prepare(observation)), rtol=1e-6
    )


@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("observation", ["view", "compass"])
def test_only_one_hot_has_an_unseen_feature(observation, frames):
    space = make_doorkey(6, observation=observation, frames=frames).observation_space
    task = doorkey_task((6,), observation=observation, frames=frames)
    prepare = task.preprocessor
    env = task.make_env()
    for seed in range(5):
        seen, _ = env.reset(seed=seed)
        for action in (2, 0, 2):
            seen, *_ = env.step(action)
        np.testing.assert_array_equal(
            np.asarray(prepare(seen))[..., prepare.unseen_feature] > 0.5, task.unseen(seen)
        )
    assert prepare.agent_cell == (3, 6)
    for other in ("constant", "frame_maximum"):
        # Their features are magnitudes of codes: feature 0 would hide the key and the goal.
        prepare = doorkey_task(
            (6,), observation=observation, frames=frames, preprocessor=other
        ).preprocessor
        assert prepare.unseen_feature is None
        assert prepare.shape == space.shape


@pytest.mark.parametrize(
    ("space", "frames", "message"),
    [
        (Box(0, 1, (4, 4, 3)), 1, "integer codes .*received Box"),
        (Box(0, 1, (4,), np.uint8), 1, "height, width, channels"),
        (Box(-1, 1, (4, 4, 1), np.int8), 1, "non-negative integer codes"),
        (Box(0, 1, (4, 4, 3), np.uint8), 2, r"2 frames divide evenly; received shape \(4, 4, 3\)"),
        (Box(0, 1, (4, 4, 3), np.uint8), 0, "0 frames divide evenly"),
    ],
)
def test_spaces_without_codes_raise(space, frames, message):
    with pytest.raises(ValueError, match=message):
        one_hot(space, frames)


@pytest.mark.parametrize(("bound", "dtype"), [(np.inf, "float32"), (1e300, "float64")])
def test_pixels_without_a_bound_raise(bound, dtype):
    with pytest.raises(ValueError, match="bounds that are finite in float32"):
        scaled(Box(-bound, bound, (4, 4, 3), dtype))


@pytest.mark.parametrize("name", ["unseen_code", "agent_code"])
@pytest.mark.parametrize("code", [-1, 4])
def test_a_code_outside_of_the_first_channel_is_refused(name, code):
    """Regression: a code of 4 selected a feature of the second channel."""
    space = Box(0, np.tile(np.uint8([3, 1]), (7, 7, 1)), dtype=np.uint8)
    with pytest.raises(InvalidInput, match=f"`{name}` must be from 0 to 3; received {code}"):
        one_hot(space, **{name: code})
