"""Returns are drawn against their targets."""

import numpy as np
import pytest

from rrl_tf.viz import returns_figure

TITLE = "local walker2d/medium-expert-v0\n(Walker2d-v5)"
CURVE = ([0.0, 3000.0], [[1.0, 3300.0]])
CLOSE = {"mean of the data": 3280.0, "cloned": 3290.0, "cloned, best tenth": 3300.0}


def test_dots_means_diagonal_and_references():
    curves = {"ours": ([3.0, 1.0, 2.0], [[30.0, 10, 20], [40, 20, 20]])}
    figure = returns_figure(
        {"easy": curves, "hard": {"theirs": ([0.0, 5.0], [[1.0, 2]])}}, {"easy": {"mean": 7.0}}
    )
    easy, hard = figure.axes
    reference, mean, *dots, diagonal = easy.lines
    np.testing.assert_array_equal(mean.get_xydata(), [[1, 15], [2, 20], [3, 35]])
    assert [line.get_ydata().tolist() for line in dots] == [[10, 20, 30], [20, 20, 40]]
    assert list(reference.get_ydata()) == [7, 7]
    np.testing.assert_array_equal(diagonal.get_xydata(), [[1, 1], [3, 3]])
    assert hard.lines[0].get_color() != mean.get_color()


def test_a_single_return_lies_above_or_below_a_diagonal_too():
    [axes] = returns_figure({"a": {"last": ([12.0], [[9.0]]), "best": ([12.0], [[15.0]])}}).axes
    diagonal = axes.lines[-1]
    assert (diagonal.get_xy1(), diagonal.get_slope()) == ((12, 12), 1)
    low, high = axes.get_ylim()
    assert low < 9 and high > 15


def test_the_legend_names_every_line():
    figure = returns_figure({"a": {"ours": CURVE}}, {"a": CLOSE})
    [axes] = figure.axes
    [legend] = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["ours", *CLOSE, "target"]
    looks = {(line.get_color(), line.get_linestyle()) for line in legend.get_lines()}
    assert len(looks) == len(names)
    named = dict(zip(names, legend.get_lines()))
    for label, height in CLOSE.items():
        [line] = [line for line in axes.lines if list(line.get_ydata()) == [height, height]]
        assert line.get_color() == named[label].get_color()
    # A name next to a line would cross curves, the grid and other names.
    assert not axes.texts


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("references", [{}, CLOSE])
def test_nothing_overlaps_or_leaves_the_figure_and_little_is_blank(count, references):
    titles = [f"{i} {TITLE}" for i in range(count)]
    figure = returns_figure(
        {title: {"ours": CURVE} for title in titles}, dict.fromkeys(titles, references)
    )
    figure.draw_without_rendering()
    legend, *panels = (
        figure.legends[0].get_window_extent(),
        *(axes.get_tightbbox() for axes in figure.axes),
    )
    page = figure.bbox
    for i, box in enumerate([legend, *panels]):
        assert page.x0 <= box.x0 and box.x1 <= page.x1
        assert page.y0 <= box.y0 and box.y1 <= page.y1
        assert not any(box.overlaps(other) for other in [legend, *panels][:i])
    blank = legend.y0 - max(box.y1 for box in panels)
    assert 0 <= blank < 0.2 * figure.dpi
    assert figure.axes[0].get_window_extent().width < 5.5 * figure.dpi


@pytest.mark.parametrize(
    ("panels", "message"),
    [
        ({}, "at least one curve"),
        ({"easy": {}}, "at least one curve"),
        ({"easy": {"ours": ([1.0, 2.0], [[1.0]])}}, r"\(seeds, 2\); received shape \(1, 1\)"),
    ],
)
def test_invalid_input_raises(panels, message):
    with pytest.raises(ValueError, match=message):
        returns_figure(panels)
