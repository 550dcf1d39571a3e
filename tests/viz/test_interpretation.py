"""Figures of attribution, ablation, patching, probes and removal curves."""

import numpy as np
import pytest

from rrl_tf import viz
from rrl_tf.errors import InvalidInput


def test_attribution_marks_cells_in_every_map():
    maps = {"rollout": np.full((2, 3, 4), 3.0), "occlusion": -np.eye(4)[None, :3].repeat(2, axis=0)}
    figure = viz.attribution_figure(maps, [{"key": (3, 2)}, {}], ["a", "b"])
    *panels, bar = figure.axes
    assert bar.get_ylabel() == "attribution" and bar.get_ylim() == (-1, 1)
    assert figure.get_supxlabel() == "K key"
    assert [axes.get_title("left") for axes in panels] == ["a", "b", "", ""]
    assert [axes.get_ylabel() for axes in panels] == ["rollout", "", "occlusion", ""]
    assert [text.get_text() for text in panels[2].texts] == ["K"]
    assert panels[3].images[0].get_clim() == (-1, 1)
    assert [axes.get_xlabel() for axes in panels] == ["1 is 3"] * 2 + ["1 is 1"] * 2
    np.testing.assert_array_equal(panels[0].images[0].get_array(), np.ones((3, 4)))
    viz.figure_to_image(figure)


def test_dots_have_intervals_and_one_colour_per_label():
    rows = {"head 1": {"a": (0.5, 0.4, 0.7), "b": 0.1}, "head 2": {"b": (0.2, 0.1, 0.3)}}
    figure = viz.dots_figure(rows, "drop", reference=0.5)
    [axes] = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == list(rows)
    drawn = {(tuple(line.get_xdata()), line.get_color()) for line in axes.lines}
    first, second = viz.style.colour(0), viz.style.colour(1)
    assert {((0.5,), first), ((0.4, 0.7), first), ((0.1,), second), ((0.2,), second)} <= drawn
    viz.figure_to_image(figure)


def test_patching_has_one_panel_per_place_on_one_scale():
    maps = {f"round_{i}/after": np.full((1, 6), 0.1 * i) for i in range(1, 6)}
    figure = viz.patching_figure(maps, "change of Q")
    panels = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title("left") for axes in panels] == list(maps)
    assert {axes.images[0].get_clim() for axes in panels} == {(0, 0.5)}
    assert "fixed cells" in figure.get_supxlabel()
    viz.figure_to_image(figure)


def test_removal_curves_have_bands():
    lines = {"rollout": ([1, 0.5, 0], [0.9, 0.4, 0], [1.1, 0.6, 0])}
    figure = viz.removal_figure([0, 0.5, 1], {"deletion": lines, "insertion": lines}, "Q")
    assert [axes.get_title("left") for axes in figure.axes] == ["deletion", "insertion"]
    assert figure.axes[0].collections and figure.axes[0].lines[0].get_ydata().tolist() == [
        1,
        0.5,
        0,
    ]
    viz.figure_to_image(figure)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: viz.attribution_figure({}, [], []), "`maps` must have a method"),
        (lambda: viz.attribution_figure({"a": np.ones((1, 2, 2))}, [{}], ["a", "b"]), "1 and 2"),
        (lambda: viz.dots_figure({}, ""), "`rows` must have at least one row"),
        (lambda: viz.patching_figure({}, ""), "`maps` must have at least one place"),
        (lambda: viz.patching_figure({"a": np.ones(3)}, ""), r"must have shape \(r, c\)"),
        (lambda: viz.removal_figure([0, 1], {}, ""), "`panels` must have at least one panel"),
    ],
)
def test_wrong_arguments_raise_one_error(draw, message):
    with pytest.raises(InvalidInput, match=message):
        draw()
