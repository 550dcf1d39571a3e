"""Learning curves are means over seeds, with the band of the legend."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.collections import PolyCollection

from rrl_tf.viz import learning_curve_panels, learning_curves


def band_edges(axes, steps):
    """Return the lowest and highest height of the drawn band at each step."""
    (band,) = [each for each in axes.collections if isinstance(each, PolyCollection)]
    points = np.concatenate([path.vertices for path in band.get_paths()])
    heights = [points[points[:, 0] == step, 1] for step in steps]
    return np.array([each.min() for each in heights]), np.array([each.max() for each in heights])


def legend_texts(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


@given(seed=st.integers(0, 2**16), seeds=st.integers(2, 5))
@settings(max_examples=8, deadline=None)
def test_line_and_range(seed, seeds):
    steps = np.arange(0, 500, 100)
    values = np.random.default_rng(seed).normal(size=(seeds, 5))
    (axes,) = learning_curves({"ours": (steps, values)}, "success").axes
    mean = [sum(column) / seeds for column in values.T]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), mean)
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), steps)
    low, high = band_edges(axes, steps)
    np.testing.assert_allclose(low, [min(column) for column in values.T])
    np.testing.assert_allclose(high, [max(column) for column in values.T])


def test_deviation():
    steps, values = np.arange(3), np.array([[1.0, 2, 4], [3, 2, 0]])
    (axes,) = learning_curves({"ours": (steps, values)}, "return", band="deviation").axes
    low, high = band_edges(axes, steps)
    np.testing.assert_allclose(low, [1, 2, 0])
    np.testing.assert_allclose(high, [3, 2, 4])


def test_legend_names_curves_seeds_and_band():
    steps = np.arange(4)
    curves = {"fast": (steps, np.zeros((3, 4))), "book": (steps[:2], np.ones((1, 2)))}
    (axes,) = learning_curves(curves, "success").axes
    assert legend_texts(axes) == ["fast (mean of 3)", "book (1 seed)", "min–max over seeds"]
    (axes,) = learning_curves(curves, "success", band="deviation").axes
    assert legend_texts(axes)[-1] == "± 1 standard deviation over seeds"
    colours = {line.get_color() for line in axes.lines}
    assert len(colours) == 2


def test_one_seed_has_no_band():
    (axes,) = learning_curves({"ours": (np.arange(3), np.zeros((1, 3)))}, "success").axes
    assert not axes.collections
    assert legend_texts(axes) == ["ours (1 seed)"]


def test_references_labels_and_limits():
    curve = {"ours": (np.arange(3), np.zeros((1, 3)))}
    figure = learning_curves(curve, "success", references={"random play": 0.29}, ylim=(0, 1.05))
    (axes,) = figure.axes
    assert list(axes.lines[-1].get_ydata()) == [0.29, 0.29]
    assert axes.get_ylim() == (0, 1.05)
    assert axes.get_ylabel() == "success"
    assert axes.get_xlabel() == "environment steps"


@given(
    heights=st.lists(st.floats(0, 1), min_size=1, max_size=4), ylim=st.sampled_from([None, (0, 1)])
)
@settings(max_examples=10, deadline=None)
def test_names_of_references_are_next_to_the_axes_and_apart(heights, ylim):
    references = {f"floor {i} of several": height for i, height in enumerate(heights)}
    curve = {"ours": (np.arange(3), np.zeros((1, 3)))}
    figure = learning_curves(curve, "success", references=references, ylim=ylim)
    figure.draw_without_rendering()
    [axes] = figure.axes
    assert {text.get_text() for text in axes.texts} == set(references)
    boxes = [text.get_window_extent() for text in axes.texts]
    for i, box in enumerate(boxes):
        assert axes.bbox.x1 < box.x0 and box.x1 <= figure.bbox.x1  # no gridline and no curve there
        assert not any(box.overlaps(other) for other in boxes[:i])
    lines = {name: axes.transData.transform((0, y))[1] for name, y in references.items()}
    for text, box in zip(axes.texts, boxes):
        name, middle = text.get_text(), (box.y0 + box.y1) / 2
        assert middle > lines[name] - 1
        others = [y for other, y in lines.items() if other != name]
        if all(abs(lines[name] - y) > box.height * len(lines) for y in others):  # nothing to avoid
            assert middle == pytest.approx(lines[name], abs=2)


@given(
    seed=st.integers(0, 2**16),
    seeds=st.integers(1, 3),
    band=st.sampled_from(["range", "deviation"]),
)
@settings(max_examples=15, deadline=None)
def test_no_curve_and_no_band_leaves_the_axes(seed, seeds, band):
    values = np.random.default_rng(seed).normal(scale=2, size=(seeds, 4))
    figure = learning_curves({"ours": (np.arange(4), values)}, "loss", band=band, ylim=(0, 1))
    [axes] = figure.axes
    low, high = axes.get_ylim()
    heights = axes.lines[0].get_ydata()
    if seeds > 1:
        heights = np.concatenate([heights, *band_edges(axes, np.arange(4))])
    assert low <= min(0, heights.min()) and max(1, heights.max()) <= high
    assert (low, high) == (0, 1) or heights.min() < 0 or heights.max() > 1


@pytest.mark.parametrize(
    ("curves", "band", "message"),
    [
        ({}, "range", "at least one curve"),
        (
            {"a": (np.arange(3), np.zeros((2, 4)))},
            "range",
            r"'a'.*\(seeds, 3\); received shape \(2, 4\)",
        ),
        ({"a": (np.arange(3), np.zeros(3))}, "range", r"\(seeds, 3\); received shape \(3,\)"),
        ({"a": (np.arange(3), np.zeros((1, 3)))}, "quartile", "deviation.*quartile"),
    ],
)
def test_invalid_input_raises(curves, band, message):
    with pytest.raises(ValueError, match=message):
        learning_curves(curves, "success", band=band)


@pytest.mark.parametrize(
    "labels",
    [
        ["ours"],
        ["a" * 28, "b" * 28, "c" * 28],
        ["x" * 12] * 3,
        ["y" * 22] * 7,
        ["n" * 44, "m" * 20] * 3,
    ],
)
def test_the_legend_stays_inside_the_figure(labels):
    steps, values = np.arange(3), np.zeros((3, 3))
    figure = learning_curves(
        {f"{label}{i}": (steps, values) for i, label in enumerate(labels)}, "y"
    )
    figure.canvas.draw()
    [axes] = figure.axes
    box, page = axes.get_legend().get_window_extent(), figure.bbox
    assert page.x0 <= box.x0 and box.x1 <= page.x1
    assert page.y0 <= box.y0 and box.y1 <= page.y1


def test_learning_curve_panels_have_one_panel_per_agent():
    steps, rng = np.arange(0, 500, 100), np.random.default_rng(0)
    curves = {f"agent {i}": (steps, rng.normal(size=(3, 5))) for i in range(8)}
    panels = learning_curve_panels(curves, "success", ylim=(0, 1)).axes
    assert [axes.get_title("left") for axes in panels] == list(curves)
    first = curves["agent 0"][1].mean(axis=0)
    for axes, (_, values) in zip(panels, curves.values(), strict=True):
        beside, *seeds, mean = (line.get_ydata() for line in axes.lines)
        np.testing.assert_allclose(beside, first)
        np.testing.assert_array_equal(seeds, values)
        np.testing.assert_allclose(mean, values.mean(axis=0))
        low, high = axes.get_ylim()  # one scale, which holds what is drawn anywhere
        assert low < min(v.min() for _, v in curves.values())
        assert high > max(v.max() for _, v in curves.values())
    assert {axes.get_xlim() for axes in panels} == {(0, 400)}


def test_panels_keep_the_limits_that_hold_what_is_drawn():
    curves = {"a": ([0, 1], [[0.1, 0.2]]), "b": ([0, 1, 2], [[0.3, 0.4, 1.0]])}
    panels = learning_curve_panels(curves, "success", ylim=(-0.02, 1.02)).axes
    assert {axes.get_ylim() for axes in panels} == {(-0.02, 1.02)}
    assert {axes.get_xlim() for axes in panels} == {(0, 2)}


@pytest.mark.parametrize("draw", [learning_curves, learning_curve_panels])
def test_invalid_curves_raise(draw):
    with pytest.raises(ValueError, match=r"curves must hold at least one curve; received \{\}"):
        draw({}, "success")
    with pytest.raises(ValueError, match=r"curves\['a'\].* must have shape .* received shape"):
        draw({"a": ([0, 1], [[1.0, 2.0, 3.0]])}, "success")
