"""RandomShift shifts every image separately and fills with border pixels."""

import numpy as np
import pytest
from keras import ops

from rrl_tf.errors import InvalidInput
from rrl_tf.layers import RandomShift


def moved(picture, dy, dx):
    """Return the image, padded with its border pixels and cropped at an offset."""
    height, width, _ = picture.shape
    padded = np.pad(picture, ((3, 3), (3, 3), (0, 0)), mode="edge")
    return padded[3 + dy : 3 + dy + height, 3 + dx : 3 + dx + width]


def test_every_image_gets_one_of_all_shifts():
    pictures = np.random.default_rng(0).random((400, 5, 6, 2)).astype("float32")
    shifted = ops.convert_to_numpy(RandomShift(2, seed=1)(pictures, training=True))
    shifts = [(dy, dx) for dy in range(-2, 3) for dx in range(-2, 3)]
    found = [
        [shift for shift in shifts if np.array_equal(moved(picture, *shift), after)]
        for picture, after in zip(pictures, shifted)
    ]
    assert all(len(each) == 1 for each in found)
    assert {each[0] for each in found} == {*shifts}


def test_images_do_not_shift_outside_training():
    pictures = np.random.default_rng(0).random((3, 5, 6, 2)).astype("float32")
    np.testing.assert_array_equal(RandomShift(2)(pictures), pictures)


@pytest.mark.parametrize("cells", [0, -1, 1.5])
def test_bad_arguments_are_errors(cells):
    with pytest.raises(InvalidInput, match=f"`cells`.*received {cells}"):
        RandomShift(cells)


def test_bad_shapes_are_errors():
    with pytest.raises(InvalidInput, match=r"images.*\(2, 3, 4\)"):
        RandomShift(1).build((2, 3, 4))
