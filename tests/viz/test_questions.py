"""Question figures: places of maps and contents of panels."""

import numpy as np
import pytest

from rrl_tf.viz import questions_figure

IMAGES = np.ones((2, 75, 75, 3))
MAPS = {"round 1": np.random.default_rng(0).random((2, 7, 7))}


def test_a_map_lies_in_the_middle_of_its_picture():
    figure = questions_figure(IMAGES, ["one", "two"], MAPS, stride=12)
    assert len(figure.axes) == 4
    for i in range(2):
        cells, picture = figure.axes[2 * i + 1].get_images()
        np.testing.assert_array_equal(cells.get_array(), MAPS["round 1"][i])
        left, right, bottom, top = cells.get_extent()
        # With strides 3, 2 and 2, cell i is centred at pixel 12 i + 1: the last of 7 at 73.
        assert (left, right, top, bottom) == (-5, 79, -5, 79)
        assert (picture.get_array()[..., 3] == 0).all()  # white ground hides no cell


def test_objects_stay_in_sight():
    image = IMAGES.copy()
    image[0, 10:20, 10:20] = (1, 0, 0)
    figure = questions_figure(image, ["one", "two"], MAPS, stride=12)
    _, picture = figure.axes[1].get_images()
    shown = picture.get_array()
    assert shown[15, 15, 3] > 0.5 and shown[..., 3].astype(bool).sum() == 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((IMAGES[..., 0], ["one", "two"], {}, 12), r"\(2, 75, 75\)"),
        ((IMAGES, ["one"], {}, 12), "2 images need as many titles; received 1"),
        ((IMAGES, ["one", "two"], {"r": np.ones((1, 7, 7))}, 12), r"maps\['r'\].*\(1, 7, 7\)"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        questions_figure(*arguments)
