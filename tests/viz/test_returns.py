"""Returns reached are drawn where they were asked for."""

import numpy as np
import pytest

from rrl_tf.viz import returns_figure


def test_dots_means_diagonal_and_references():
    curves = {"ours": ([3.0, 1.0, 2.0], [[30.0, 10, 20], [40, 20, 20]])}
    figure = returns_figure(
        {"easy": curves, "hard": {"theirs": ([0.0, 5.0], [[1.0, 2]])}}, {"easy": {"mean": 7.0}}
    )
    easy, hard = figure.axes
    mean, *dots, reference, diagonal = easy.lines
    np.testing.assert_array_equal(mean.get_xydata(), [[1, 15], [2, 20], [3, 35]])
    assert [line.get_ydata().tolist() for line in dots] == [[10, 20, 30], [20, 20, 40]]
    assert list(reference.get_ydata()) == [7, 7]
    np.testing.assert_array_equal(diagonal.get_xydata(), [[1, 1], [3, 3]])
    assert hard.lines[0].get_color() != mean.get_color()
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["ours", "theirs", "what was asked for"]


@pytest.mark.parametrize(
    ("panels", "message"),
    [
        ({}, "at least one curve"),
        ({"easy": {}}, "at least one curve"),
        ({"easy": {"ours": ([1.0, 2.0], [[1.0]])}}, r"\(2,\) and \(1, 1\)"),
    ],
)
def test_mistakes(panels, message):
    with pytest.raises(ValueError, match=message):
        returns_figure(panels)
