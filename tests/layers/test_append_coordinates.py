"""AppendCoordinates, compared with its formula, and errors of PositionEmbedding."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from rrl_tf.errors import InvalidInput
from rrl_tf.layers import AppendCoordinates, PositionEmbedding

SIZES = st.integers(1, 5)


@given(
    low=st.floats(-3, 3),
    high=st.floats(-3, 3),
    divisor=st.sampled_from(["size", "size_minus_one"]),
    height=SIZES,
    width=SIZES,
)
def test_coordinate_is_the_formula(low, high, divisor, height, width):
    grid = np.random.default_rng(0).normal(size=(2, height, width, 3)).astype("float32")
    output = ops.convert_to_numpy(AppendCoordinates(low, high, divisor)(grid))
    assert output.shape == (2, height, width, 5)
    np.testing.assert_array_equal(output[..., :3], grid)
    less = 1 if divisor == "size_minus_one" else 0
    for row in range(height):
        for column in range(width):
            x = low + (high - low) * column / max(width - less, 1)
            y = low + (high - low) * row / max(height - less, 1)
            np.testing.assert_allclose(output[0, row, column, 3:], [x, y], atol=1e-5)
            np.testing.assert_allclose(output[1, row, column, 3:], [x, y], atol=1e-5)


@given(frequencies=st.lists(st.floats(0, 9), max_size=3))
def test_waves_are_sines_and_cosines_of_the_coordinates(frequencies):
    grid = np.zeros((1, 3, 4, 1), "float32")
    output = ops.convert_to_numpy(AppendCoordinates(frequencies=frequencies)(grid))[0, ..., 1:]
    x, y, *waves = np.moveaxis(output, -1, 0)
    expected = [
        wave(w * place) for w in frequencies for wave in (np.sin, np.cos) for place in (x, y)
    ]
    assert len(waves) == 4 * len(frequencies)
    for wave, known in zip(waves, expected):
        np.testing.assert_allclose(wave, known, atol=1e-5)


def test_book_coordinates_stay_below_1_and_zambaldi_spans_minus_1_to_1():
    grid = np.zeros((1, 7, 7, 1), "float32")
    book = ops.convert_to_numpy(AppendCoordinates(0, 1, "size")(grid))[0, 0, :, 1]
    np.testing.assert_allclose(book, np.arange(7) / 7, atol=1e-6)
    zambaldi = ops.convert_to_numpy(AppendCoordinates(-1, 1, "size_minus_one")(grid))[0, 0, :, 1]
    np.testing.assert_allclose(zambaldi, np.linspace(-1, 1, 7), atol=1e-6)


def test_bad_arguments_are_errors():
    with pytest.raises(ValueError, match=r"size_minus_one.*'half'"):
        AppendCoordinates(0, 1, "half")
    with pytest.raises(ValueError, match=r"`frequencies` must be at least 0.*received -1"):
        AppendCoordinates(frequencies=(1, -1))
    with pytest.raises(ValueError, match=r"height, width.*7, 3"):
        AppendCoordinates().build((None, 7, 3))


@pytest.mark.parametrize("shape", [(2, 1, 3), (2, 6, 1), (2, 5, 3), (6, 3)])
def test_positions_of_another_size_are_an_error(shape):
    """A single entity must not be broadcast to all positions."""
    layer = PositionEmbedding()
    layer(np.ones((2, 6, 3), "float32"))
    told = rf"built for, \(6, 3\); received the shape {re.escape(str(shape))}"
    with pytest.raises(InvalidInput, match=told):
        layer(np.ones(shape, "float32"))
