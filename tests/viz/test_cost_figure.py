"""Cost figures draw every line in its panel, one colour per method."""

import numpy as np
import pytest

from rrl_tf.viz import cost_figure, figure_to_image


def test_every_line_in_its_panel():
    line = [1, 2, 4], [3.0, 4.0, 7.0]
    panels = {"slots": {"ours": line, "theirs": line}, "heads": {"theirs": line}}
    figure = cost_figure(panels, "ms")
    first, second = figure.axes
    assert [axes.get_xlabel() for axes in figure.axes] == ["slots", "heads"]
    assert [drawn.get_label() for drawn in first.lines] == ["ours", "theirs"]
    assert second.lines[0].get_color() == first.lines[1].get_color() != first.lines[0].get_color()
    np.testing.assert_array_equal(second.lines[0].get_xydata().T, line)
    assert figure_to_image(figure).ndim == 3
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["ours", "theirs"]
    colours = [line.get_color() for line in legend.get_lines()]
    assert colours == [drawn.get_color() for drawn in first.lines]


@pytest.mark.parametrize("panels", [{}, {"slots": {}}])
def test_empty_panels_raise(panels):
    with pytest.raises(ValueError, match="at least one line"):
        cost_figure(panels, "ms")


def test_a_missing_cost_raises():
    with pytest.raises(ValueError, match=r"'slots'.*'ours'.*\(2,\) and \(1, 1\)"):
        cost_figure({"slots": {"ours": ([1, 2], [1])}}, "ms")
