"""Digits and robustness figures."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.contour import QuadContourSet

from rrl_tf.viz import (
    digits_figure,
    figure_to_image,
    most_attended,
    robustness_figure,
)


@given(seed=st.integers(0, 2**16), heads=st.integers(1, 3))
def test_the_largest_attention_over_heads_and_rows(seed, heads):
    scores = np.random.default_rng(seed).random((2, heads, 6, 6))
    maps = most_attended(scores, (2, 3))
    for m in range(2):
        for cell in range(6):
            expected = max(scores[m, h, n, cell] for h in range(heads) for n in range(6))
            assert maps[m, cell // 3, cell % 3] == expected
    with pytest.raises(ValueError, match=r"\(M, H, N, 9\); received"):
        most_attended(scores, (3, 3))


@pytest.mark.parametrize(("pixels", "cells", "first"), [(28, 16, 6), (28, 7, 1.5), (28, 4, 3)])
def test_a_map_lies_in_the_middle_of_its_image(pixels, cells, first):
    """`first` is the pixel in the middle of the first cell."""
    image = np.zeros((1, pixels, pixels))
    image[0, :, :2] = 1  # an edge of the line at pixel 1 + 0.6, where the image falls to 0.4
    figure = digits_figure(image, ["1"], {"round 1": np.ones((1, cells, cells))})
    _, axes = figure.axes
    [line] = [each for each in axes.get_children() if isinstance(each, QuadContourSet)]
    pitch = pixels // cells
    [path] = line.get_paths()
    np.testing.assert_allclose(path.vertices[:, 0], (1.6 - first) / pitch, atol=1e-6)
    np.testing.assert_allclose(axes.get_xlim(), (-first / pitch, (pixels - 1 - first) / pitch))


def test_images_titles_and_maps_are_drawn_in_order():
    images = np.random.default_rng(0).random((7, 8, 8))
    maps = {name: np.random.default_rng(1).random((7, 4, 4)) for name in ("round 1", "round 2")}
    titles = [str(i) for i in range(7)]
    figure = digits_figure(images, titles, maps)
    panels = [figure.axes[i : i + 3] for i in range(0, len(figure.axes), 3)]
    assert len(panels) == 7
    for i, (image, *drawn) in enumerate(panels):
        assert image.get_title(loc="left") == titles[i]
        np.testing.assert_array_equal(image.images[0].get_array(), images[i])
        for axes, each in zip(drawn, maps.values()):
            np.testing.assert_array_equal(axes.images[0].get_array(), each[i])
    assert figure_to_image(figure).dtype == np.uint8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros((2, 3)), ["a", "b"]), "images must have shape"),
        ((np.zeros((2, 3, 3)), ["a"]), "as many titles; received 1"),
        ((np.zeros((2, 3, 3)), ["a", "b"], {"m": np.zeros((1, 2, 2))}), r"maps\['m'\] must have"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        digits_figure(*arguments)


def test_robustness_lines():
    values = np.array([[0.9, 0.5], [0.7, 0.3]])
    lines = {
        "cnn · perturbed": ((0, 10), values),
        "mlp · perturbed": ((0, 10), values[:1]),
        "cnn · clean": ((0, 10), values[1:]),
    }
    figure = robustness_figure({"rotation": lines, "spots": lines}, "accuracy", {"spots": (0, 5)})
    for axes in figure.axes:
        first, second, third = axes.lines
        np.testing.assert_allclose(first.get_ydata(), [0.8, 0.4])
        assert first.get_color() == third.get_color() != second.get_color()
        assert first.get_linestyle() == second.get_linestyle() != third.get_linestyle()
    assert [axes.get_xlabel() for axes in figure.axes] == ["rotation", "spots"]
    with pytest.raises(ValueError, match="at least one line"):
        robustness_figure({"rotation": {}}, "accuracy")


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("references", [None, {"spots": (0, 5)}])
def test_the_robustness_legend_names_all_that_is_drawn(seeds, references):
    values = np.linspace(0.9, 0.5, 2 * seeds).reshape(seeds, 2)
    lines = {"cnn · perturbed": ((0, 10), values), "mlp · clean": ((0, 10), values)}
    figure = robustness_figure({"rotation": lines, "spots": lines}, "accuracy", references)
    names = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    expected = ["cnn", "mlp", "perturbed", "clean"]
    expected += ["min–max over seeds"] * (seeds > 1) + ["range in training"] * bool(references)
    assert names == expected
    figure.draw_without_rendering()
    boxes = [each.get_window_extent() for each in (*figure.legends, *figure.axes)]
    for i, box in enumerate(boxes):
        assert box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[:i])
