"""Figures of curves over seeds: learning, returns and robustness."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.collections import PolyCollection

from rrl_tf.viz import learning_curves, returns_figure, robustness_figure


def band_edges(axes, steps):
    """Return the lower and upper edge of the band at each step."""
    (band,) = [each for each in axes.collections if isinstance(each, PolyCollection)]
    points = np.concatenate([path.vertices for path in band.get_paths()])
    heights = [points[points[:, 0] == step, 1] for step in steps]
    return np.array([each.min() for each in heights]), np.array([each.max() for each in heights])


def legend_texts(figure):
    [legend] = figure.legends
    return [text.get_text() for text in legend.get_texts()]


@given(seed=st.integers(0, 2**16), seeds=st.integers(2, 5))
@settings(max_examples=8, deadline=None)
def test_learning_curves_draw_mean_and_range(seed, seeds):
    steps = np.arange(0, 500, 100)
    values = np.random.default_rng(seed).normal(size=(seeds, 5))
    (axes,) = learning_curves({"ours": (steps, values)}, "success").axes
    mean = [sum(column) / seeds for column in values.T]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), mean)
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), steps)
    low, high = band_edges(axes, steps)
    np.testing.assert_allclose(low, [min(column) for column in values.T])
    np.testing.assert_allclose(high, [max(column) for column in values.T])


def test_learning_curves_legend_names_curves_seeds_and_band():
    steps = np.arange(4)
    curves = {"fast": (steps, np.zeros((3, 4))), "book": (steps[:2], np.ones((1, 2)))}
    figure = learning_curves(curves, "success")
    assert legend_texts(figure) == ["fast (mean of 3)", "book (1 seed)", "min–max over seeds"]
    assert len({line.get_color() for line in figure.axes[0].lines}) == 2
    figure = learning_curves({"ours": (steps, np.zeros((1, 4)))}, "success")
    assert legend_texts(figure) == ["ours (1 seed)"]
    assert not figure.axes[0].collections


def test_learning_curves_draw_references_labels_and_limits():
    curve = {"ours": (np.arange(3), np.zeros((1, 3)))}
    references = {"random play": 0.29, "published": 0.8}
    figure = learning_curves(curve, "success", references, ylim=(0, 1.05))
    (axes,) = figure.axes
    _, *lines = axes.lines
    assert [list(line.get_ydata()) for line in lines] == [[0.29, 0.29], [0.8, 0.8]]
    assert len({line.get_color() for line in axes.lines}) == 3
    assert legend_texts(figure) == ["ours (1 seed)", *references]
    assert axes.get_ylim() == (0, 1.05)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("environment steps", "success")


@given(seed=st.integers(0, 2**16), seeds=st.integers(1, 3))
@settings(max_examples=8, deadline=None)
def test_no_curve_and_no_band_leaves_the_axes(seed, seeds):
    values = np.random.default_rng(seed).normal(scale=2, size=(seeds, 4))
    figure = learning_curves({"ours": (np.arange(4), values)}, "loss", ylim=(0, 1))
    [axes] = figure.axes
    low, high = axes.get_ylim()
    heights = axes.lines[0].get_ydata()
    if seeds > 1:
        heights = np.concatenate([heights, *band_edges(axes, np.arange(4))])
    assert low <= min(0, heights.min()) and max(1, heights.max()) <= high
    assert (low, high) == (0, 1) or heights.min() < 0 or heights.max() > 1


CURVE = ([0.0, 3000.0], [[1.0, 3300.0]])
CLOSE = {"mean of the data": 3280.0, "cloned": 3290.0, "cloned, best tenth": 3300.0}


def test_returns_figure_draws_dots_means_diagonal_and_references():
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


def test_ten_lines_and_references_have_different_colours():
    """Regression: the eighth label had the colour of the first."""
    curves = {f"agent {i}": CURVE for i in range(5)}
    references = {f"reference {i}": float(i) for i in range(5)}
    figure = returns_figure({"a": curves}, {"a": references})
    lines = figure.legends[0].get_lines()[:-1]  # the last line is the diagonal
    assert len({line.get_color() for line in lines}) == 10


def test_returns_figure_of_a_single_target_has_a_diagonal():
    [axes] = returns_figure({"a": {"last": ([12.0], [[9.0]]), "best": ([12.0], [[15.0]])}}).axes
    diagonal = axes.lines[-1]
    assert (diagonal.get_xy1(), diagonal.get_slope()) == ((12, 12), 1)
    low, high = axes.get_ylim()
    assert low < 9 and high > 15


def test_returns_figure_legend_names_every_line():
    figure = returns_figure({"a": {"ours": CURVE}}, {"a": CLOSE})
    [axes] = figure.axes
    [legend] = figure.legends
    names = legend_texts(figure)
    assert names == ["ours", *CLOSE, "return = target"]
    looks = {(line.get_color(), line.get_linestyle()) for line in legend.get_lines()}
    assert len(looks) == len(names)
    named = dict(zip(names, legend.get_lines()))
    for label, height in CLOSE.items():
        [line] = [line for line in axes.lines if list(line.get_ydata()) == [height, height]]
        assert line.get_color() == named[label].get_color()


def test_robustness_figure_draws_models_in_colours_and_kinds_in_dashes():
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


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("references", [None, {"spots": (0, 5)}])
def test_robustness_figure_legend_names_all_that_is_drawn(seeds, references):
    values = np.linspace(0.9, 0.5, 2 * seeds).reshape(seeds, 2)
    lines = {"cnn · perturbed": ((0, 10), values), "mlp · clean": ((0, 10), values)}
    figure = robustness_figure({"rotation": lines, "spots": lines}, "accuracy", references)
    expected = ["cnn", "mlp", "perturbed", "clean"]
    expected += ["min–max over seeds"] * (seeds > 1) + ["range in training"] * bool(references)
    assert legend_texts(figure) == expected


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: learning_curves({}, "y"), r"`curves` must have at least one curve; received \{\}"),
        (
            lambda: learning_curves({"a": (np.arange(3), np.zeros((2, 4)))}, "y"),
            r"curves\['a'\].*\(seeds, 3\); received shape \(2, 4\)",
        ),
        (
            lambda: learning_curves({"a": (np.arange(3), np.zeros(3))}, "y"),
            r"\(seeds, 3\); received shape \(3,\)",
        ),
        (lambda: returns_figure({}), "at least one curve"),
        (lambda: returns_figure({"easy": {}}), "at least one curve"),
        (
            lambda: returns_figure({"easy": {"ours": ([1.0, 2.0], [[1.0]])}}),
            r"\(seeds, 2\); received shape \(1, 1\)",
        ),
        (lambda: robustness_figure({"rotation": {}}, "accuracy"), "at least one line"),
    ],
)
def test_invalid_curves_raise(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()
