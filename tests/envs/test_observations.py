"""Preparations against numpy, validation, and where things are in a view."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from minigrid.core.actions import Actions

from rrl_tf import envs
from rrl_tf.envs import (
    PREPARATIONS,
    enumerate_starts,
    make_doorkey,
    object_cells,
    prepare_constant,
    prepare_frame_maximum,
    prepare_one_hot,
    validate_observation,
)

CODES = (11, 6, 3, 4)


def random_codes(seed, channels, frames, batch):
    rng = np.random.default_rng(seed)
    return rng.integers(0, CODES[:channels] * frames, (*batch, 7, 7, channels * frames), np.uint8)


codes = st.builds(
    random_codes,
    seed=st.integers(0, 2**32),
    channels=st.just(3),
    frames=st.integers(1, 3),
    batch=st.sampled_from([(), (1,), (3,), (2, 2)]),
)


@given(
    st.integers(0, 2**32),
    st.sampled_from([3, 4]),
    st.integers(1, 4),
    st.sampled_from([(), (3,), (2, 2)]),
)
@settings(max_examples=30, deadline=None)
def test_one_hot_and_constant_equal_numpy(seed, channels, frames, batch):
    observation = random_codes(seed, channels, frames, batch)
    planes = [observation[..., i] for i in range(channels * frames)]
    expected = [np.eye(n, dtype="float32")[p] for n, p in zip(CODES[:channels] * frames, planes)]
    result = np.asarray(prepare_one_hot(observation, channels))
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, np.concatenate(expected, axis=-1))
    expected = [p / np.float32(n - 1) for n, p in zip(CODES[:channels] * frames, planes)]
    result = np.asarray(prepare_constant(observation, channels))
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, np.stack(expected, axis=-1), rtol=1e-6)


@given(codes)
@settings(max_examples=20, deadline=None)
def test_frame_maximum_equals_numpy(observation):
    result = np.asarray(prepare_frame_maximum(observation))
    flat = observation.reshape(-1, *observation.shape[-3:])
    expected = np.stack([o.astype("float32") / max(1, o.max()) for o in flat])
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected.reshape(observation.shape), rtol=1e-6)


def test_frame_maximum_of_nothing_is_finite():
    assert not np.asarray(prepare_frame_maximum(np.zeros((2, 7, 7, 3), np.uint8))).any()


@pytest.mark.tf_only
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("name", PREPARATIONS)
def test_preparations_are_the_same_inside_a_graph(name, jit_compile):
    import tensorflow as tf

    observation = random_codes(0, 4 if name.endswith("compass") else 3, 2, (5,))
    signature = tf.TensorSpec((None, *observation.shape[1:]), tf.uint8)
    graph = tf.function(PREPARATIONS[name], [signature], jit_compile=jit_compile)
    np.testing.assert_allclose(
        graph(tf.constant(observation)), np.asarray(PREPARATIONS[name](observation)), rtol=1e-6
    )


@pytest.mark.parametrize("name", sorted(PREPARATIONS.keys() - {"frame_maximum"}))
def test_preparations_need_whole_frames(name):
    with pytest.raises(ValueError, match=r"multiple of . channels.*received shape \(7, 7, 10\)"):
        PREPARATIONS[name](np.zeros((7, 7, 10), np.uint8))
    with pytest.raises(
        ValueError, match=r"channels must be 3 \(view\) or 4 \(compass\), received 5"
    ):
        prepare_one_hot(np.zeros((7, 7, 10), np.uint8), channels=5)


@pytest.mark.parametrize(
    ("kind", "channels", "frames"), [("view", 3, 1), ("view", 3, 4), ("compass", 4, 2)]
)
def test_what_the_environment_gives_is_valid(kind, channels, frames):
    env = make_doorkey(6, observation=kind, frames=frames)
    rng = np.random.default_rng(0)
    observation, _ = env.reset(seed=0)
    shape = env.observation_space.shape
    for _ in range(300):
        assert validate_observation(observation, shape, channels) is observation
        observation, _, terminated, truncated, _ = env.step(int(rng.integers(5)))
        if terminated or truncated:
            observation, _ = env.reset()
    batch = np.stack([observation] * 3)
    assert validate_observation(batch, shape, channels) is batch


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (np.zeros((7, 7), np.uint8), r"\(7, 7, 3\).*\(B, 7, 7, 3\).*received shape \(7, 7\)"),
        (np.zeros((7, 7, 4), np.uint8), r"received shape \(7, 7, 4\) of dtype uint8"),
        (np.zeros((2, 2, 7, 7, 3), np.uint8), r"received shape \(2, 2, 7, 7, 3\)"),
        (np.zeros((7, 7, 3), np.float32), "dtype uint8, received .* dtype float32"),
        ([[["a"] * 3] * 7] * 7, "of dtype uint8, received"),
        (np.full((7, 7, 3), 3, np.uint8), "below 3 in channel 2 .*received 3 at .0, 0, 2."),
        (np.full((2, 7, 7, 3), 11, np.uint8), "below 11 in channel 0 .*received 11 at .0, 0, 0, 0"),
    ],
)
def test_what_it_cannot_give_is_refused(observation, message):
    with pytest.raises(ValueError, match=message):
        validate_observation(observation, (7, 7, 3))


def test_a_compass_has_four_directions():
    observation = np.zeros((7, 7, 8), np.uint8)
    observation[..., 7] = 4
    with pytest.raises(ValueError, match="below 4 in channel 7"):
        validate_observation(observation, (7, 7, 8), channels=4)


@pytest.mark.parametrize(("kind", "channels"), [("view", 3), ("compass", 4)])
@pytest.mark.parametrize("frames", [1, 3])
def test_object_cells_are_where_minigrid_says(kind, channels, frames):
    env = make_doorkey(6, observation=kind, frames=frames, max_steps=10_000)
    world = env.unwrapped
    rng = np.random.default_rng(1)
    seen = set()
    for start in enumerate_starts(6)[::20]:
        observation, _ = env.reset(options={"start": start})
        for _ in range(30):
            expected = {"agent": (3, 6)}
            for (x, y), label in (
                (start.key, "key"),
                ((start.wall, start.door), "door"),
                ((4, 4), "goal"),
            ):
                if label == "key" and world.carrying:
                    expected["key"] = (3, 6)
                elif tuple(world.agent_pos) != (x, y) and world.agent_sees(x, y):
                    expected[label] = tuple(int(v) for v in world.relative_coords(x, y))
            assert object_cells(observation, channels) == expected
            assert list(object_cells(observation, channels)) == list(expected)
            seen |= expected.items()
            observation, _, terminated, *_ = env.step(int(rng.choice([0, 1, 2, 2, 3, 4])))
            if terminated:
                break
    assert len(seen) > 30


def test_entities_are_numbered_x_first():
    env = make_doorkey(5)
    observation, _ = env.reset(options={"start": enumerate_starts(5)[1]})
    entities = observation.reshape(49, 3)
    for x, y in object_cells(observation).values():
        np.testing.assert_array_equal(entities[x * 7 + y], observation[x, y])


def test_actions_are_minigrids():
    assert [envs.ACTION_NAMES[a] for a in envs.TASK_ACTIONS] == [
        "left",
        "right",
        "forward",
        "pickup",
        "toggle",
    ]
    assert all(Actions[name] == code for code, name in enumerate(envs.ACTION_NAMES))
    assert envs.TASK_ACTIONS == (0, 1, 2, 3, 5)
