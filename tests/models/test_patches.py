"""RelationalQNetwork on images, whose entities are patches."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from rrl_tf.errors import InvalidInput
from rrl_tf.models import RelationalQNetwork


def array(tensor):
    return ops.convert_to_numpy(tensor)


def observation(shape):
    return np.random.default_rng(0).random((2, *shape)).astype("float32")


@given(
    kernel=st.integers(1, 4),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    pool=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    side=st.integers(40, 44),
)
@settings(max_examples=10, deadline=None)
def test_number_of_patches_follows_convolutions_and_pooling(kernel, strides, pool, side):
    model = RelationalQNetwork(
        3, (2, 4), conv_kernel_size=kernel, conv_strides=strides, conv_pool=pool
    )
    model.build((None, side, side + 3, 1))
    grid = (side, side + 3)
    for step, edge in zip(strides, pool):
        grid = tuple(((size - kernel) // step + 1) // edge for size in grid)
    assert model.grid_shape((None, side, side + 3, 1)) == grid
    _, scores = model(observation((side, side + 3, 1)), return_attention_scores=True)
    assert scores["round_1"].shape[1:] == (2, grid[0] * grid[1], grid[0] * grid[1])


def test_random_shift_acts_in_training_only():
    model = RelationalQNetwork.from_preset("atari", num_actions=3)
    model.build((None, 36, 36, 4))
    seen = observation((36, 36, 4))
    np.testing.assert_array_equal(array(model(seen)), array(model(seen)))
    assert not np.allclose(array(model(seen, training=True)), array(model(seen)))


@pytest.mark.parametrize(
    "arguments",
    [
        {"conv_strides": (1, 2, 3)},
        {"conv_strides": 0},
        {"conv_pool": (1, 0)},
        {"conv_kernel_size": (1, 2, 3)},
        {"random_shift": -1},
    ],
)
def test_bad_convolutions_are_errors(arguments):
    [name] = arguments
    with pytest.raises(InvalidInput, match=rf"\b{name}\b"):
        RelationalQNetwork(3, (2, 4), **arguments)
