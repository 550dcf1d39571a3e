"""Figures of digits, questions, memories and graphs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgba
from matplotlib.contour import QuadContourSet

from rrl_tf.viz import (
    digits_figure,
    figure_to_image,
    graph_attention_figure,
    graph_layout,
    memory_attention_figure,
    most_attended,
    questions_figure,
    style,
)

IMAGES = np.ones((2, 75, 75, 3))
MAPS = {"round 1": np.random.default_rng(0).random((2, 7, 7))}
PATH = np.eye(5, k=1) + np.eye(5, k=-1) > 0  # 0 - 1 - 2 - 3 - 4
PATH_BUT_LAST = PATH & ~np.eye(5, dtype=bool)[4] & ~np.eye(5, dtype=bool)[:, 4:]


@given(seed=st.integers(0, 2**16), heads=st.integers(1, 3))
def test_most_attended_is_the_largest_over_heads_and_rows(seed, heads):
    scores = np.random.default_rng(seed).random((2, heads, 6, 6))
    maps = most_attended(scores, (2, 3))
    for m in range(2):
        for cell in range(6):
            expected = max(scores[m, h, n, cell] for h in range(heads) for n in range(6))
            assert maps[m, cell // 3, cell % 3] == expected
    with pytest.raises(ValueError, match=r"\(M, H, N, 9\); received"):
        most_attended(scores, (3, 3))


@pytest.mark.parametrize(("pixels", "cells", "first"), [(28, 16, 6), (28, 7, 1.5), (28, 4, 3)])
def test_digits_figure_draws_a_map_in_the_middle_of_its_image(pixels, cells, first):
    """`first` is the pixel at the centre of the first cell."""
    image = np.zeros((1, pixels, pixels))
    image[0, :, :2] = 1  # the contour is at pixel 1.6, where the interpolated image is 0.4
    figure = digits_figure(image, ["1"], {"round 1": np.ones((1, cells, cells))})
    _, axes = figure.axes
    [line] = [each for each in axes.get_children() if isinstance(each, QuadContourSet)]
    pitch = pixels // cells
    [path] = line.get_paths()
    np.testing.assert_allclose(path.vertices[:, 0], (1.6 - first) / pitch, atol=1e-6)
    np.testing.assert_allclose(axes.get_xlim(), (-first / pitch, (pixels - 1 - first) / pitch))


def test_digits_figure_draws_images_that_are_not_square():
    image = np.zeros((1, 8, 12))
    image[0, 2:6, 3:9] = 1
    _, axes = digits_figure(image, ["1"], {"round 1": np.ones((1, 4, 6))}).axes
    assert (axes.get_xlim(), axes.get_ylim()) == ((-0.25, 5.25), (3.25, -0.25))


def test_digits_figure_draws_images_titles_and_maps_in_order():
    images = np.random.default_rng(0).random((7, 8, 8))
    maps = {name: np.random.default_rng(1).random((7, 4, 4)) for name in ("round 1", "round 2")}
    titles = [str(i) for i in range(7)]
    figure = digits_figure(images, titles, maps)
    panels = np.array(figure.axes).reshape(2, 3, 5).swapaxes(1, 2).reshape(10, 3)
    assert not any(axes.axison for axes in panels[7:].flat)
    for i, (image, *drawn) in enumerate(panels[:7]):
        assert image.get_title(loc="left") == titles[i]
        np.testing.assert_array_equal(image.images[0].get_array(), images[i])
        for axes, each in zip(drawn, maps.values()):
            np.testing.assert_array_equal(axes.images[0].get_array(), each[i])


def test_questions_figure_draws_a_map_in_the_middle_of_its_picture():
    figure = questions_figure(IMAGES, ["one", "two"], MAPS, stride=12)
    assert len(figure.axes) == 4
    for i in range(2):
        cells, picture = figure.axes[2 + i].get_images()
        np.testing.assert_array_equal(cells.get_array(), MAPS["round 1"][i])
        left, right, bottom, top = cells.get_extent()
        # With strides 3, 2 and 2, the centre of cell i is pixel 12 i + 1; the last of 7 is at 73.
        assert (left, right, top, bottom) == (-5, 79, -5, 79)
        assert (picture.get_array()[..., 3] == 0).all()  # the white background is transparent


def test_questions_figure_draws_objects_over_the_map():
    image = IMAGES.copy()
    image[0, 10:20, 10:20] = (1, 0, 0)
    figure = questions_figure(image, ["one", "two"], MAPS, stride=12)
    _, picture = figure.axes[2].get_images()
    shown = picture.get_array()
    assert shown[15, 15, 3] > 0.5 and shown[..., 3].astype(bool).sum() == 100


def random_scores(times=3, heads=2, entities=4):
    scores = np.exp(np.random.default_rng(0).normal(size=(times, heads, entities, entities)))
    return scores / scores.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("queries", [None, 3])
def test_memory_attention_figure_has_a_panel_per_step_and_head(queries):
    scores = random_scores()
    figure = memory_attention_figure(scores, ["a", "b", "c", "input"], ["x", "y", "z"], queries)
    *panels, bar = figure.axes
    assert bar.get_ylabel() == "attention"
    for (head, t), axes in np.ndenumerate(np.reshape(panels, (2, 3))):
        (image,) = axes.get_images()
        np.testing.assert_allclose(image.get_array(), scores[t, head, :queries])
        assert image.get_clim() == (0, scores[:, :, :queries].max())
        assert axes.get_title() == (["x", "y", "z"][t] if head == 0 else "")
        names = ["a", "b", "c", "input"]
        rows = [label.get_text() for label in axes.get_yticklabels() if label.get_visible()]
        columns = [label.get_text() for label in axes.get_xticklabels() if label.get_visible()]
        assert rows in (names[:queries], []) and (rows != []) == (t == 0)
        assert columns in (names, []) and (columns != []) == (head == 1)


def test_memory_attention_figure_draws_masked_steps_and_half_precision():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    scores = np.zeros((1, 1, 2, 2)).astype(ml_dtypes.bfloat16)
    assert figure_to_image(memory_attention_figure(scores, ["1", "in"], ["t"])).ndim == 3


def apart(places):
    return np.linalg.norm(places[:, None] - places[None], axis=-1)


def test_graph_layout_places_a_path_on_a_line():
    steps = np.abs(np.subtract.outer(np.arange(5), np.arange(5)))
    np.testing.assert_allclose(apart(graph_layout(PATH)), steps, atol=0.05)


def test_graph_layout_keeps_components_apart():
    distances = apart(graph_layout(PATH_BUT_LAST))
    assert distances[4, :4].min() > 1
    assert distances[~np.eye(5, dtype=bool)].min() > 0.5
    np.testing.assert_array_equal(distances, apart(graph_layout(PATH_BUT_LAST)))
    assert graph_layout(np.zeros((1, 1))).shape == (1, 2)


def figure_of(attention, probability):
    connected = np.arange(5) < 4
    rounds = {"round 1": (attention, probability), "round 2": (attention, 1 - probability)}
    return graph_attention_figure(PATH_BUT_LAST, 1, connected, rounds)


def test_width_of_half_a_line_is_the_attention_of_its_node():
    attention = np.zeros((2, 5, 5))
    attention[:, 1] = [[0.5, 0, 0.5, 0, 0], [1.0, 0, 0, 0, 0]]
    attention[:, 0, 1] = 0.1
    figure = figure_of(attention, np.linspace(0, 1, 5))
    assert len(figure.axes) == 2
    [axes, _] = figure.axes
    edges, halves, nodes = axes.collections
    places = np.asarray(nodes.get_offsets())
    assert len(edges.get_segments()) == 3  # one line per edge
    drawn = {}
    for segment, width in zip(halves.get_segments(), halves.get_linewidths(), strict=True):
        start, end = (
            int(np.abs(places - p).sum(-1).argmin())
            for p in (segment[0], 2 * segment[1] - segment[0])
        )
        drawn[start, end] = width
    assert set(drawn) == {(0, 1), (1, 0), (1, 2)}
    assert drawn[1, 0] / drawn[1, 2] == pytest.approx(0.75 / 0.25)
    assert drawn[1, 0] / drawn[0, 1] == pytest.approx(0.75 / 0.1)


def test_nodes_show_probability_and_correct_answer():
    probability = np.linspace(0, 1, 5)
    figure = figure_of(np.zeros((1, 5, 5)), probability)
    for axes, each in zip(figure.axes, (probability, 1 - probability), strict=True):
        nodes = axes.collections[-1]
        np.testing.assert_array_equal(nodes.get_array(), each)
        assert nodes.get_clim() == (0, 1)
        rings = [style.TEXT, style.ACCENT, style.TEXT, style.TEXT, style.LINE]
        np.testing.assert_allclose(nodes.get_edgecolors(), [to_rgba(ring) for ring in rings])


RIGHT = (np.zeros((2, 5, 5)), np.zeros(5))


@pytest.mark.parametrize(
    ("draw", "arguments", "message"),
    [
        (digits_figure, (np.zeros((2, 3)), ["a", "b"]), "`images` must have shape"),
        (digits_figure, (np.zeros((2, 3, 3)), ["a"]), "`titles` must be 2 strings, .*received 1"),
        (
            digits_figure,
            (np.zeros((2, 3, 3)), ["a", "b"], {"m": np.zeros((1, 2, 2))}),
            r"maps\['m'\]` must have",
        ),
        (questions_figure, (IMAGES[..., 0], ["one", "two"], {}, 12), r"\(2, 75, 75\)"),
        (
            memory_attention_figure,
            (np.ones((2, 3, 3)), "abc", "xy"),
            r"\(T, H, N, N\).*\(2, 3, 3\)",
        ),
        (memory_attention_figure, (np.ones((2, 1, 3, 4)), "abc", "xy"), r"\(T, H, N, N\)"),
        (
            memory_attention_figure,
            (np.ones((2, 1, 3, 3)), "ab", "xy"),
            "`entities` must be 3 names.*'ab'",
        ),
        (
            memory_attention_figure,
            (np.ones((2, 1, 3, 3)), "abc", "x"),
            "`steps` must be 2 names.*'x'",
        ),
        (
            memory_attention_figure,
            (np.ones((2, 1, 3, 3)), "abc", "xy", 4),
            "`queries` must be from 1 to 3.*4",
        ),
        (
            graph_attention_figure,
            (PATH[:3], 0, np.ones(5), {"r": RIGHT}),
            r"`edges` must have shape \(N, N\).*\(3, 5\)",
        ),
        (
            graph_attention_figure,
            (np.triu(PATH), 0, np.ones(5), {"r": RIGHT}),
            "`edges` must be symm",
        ),
        (
            graph_attention_figure,
            (PATH, 5, np.ones(5), {"r": RIGHT}),
            "`marked` must be from 0 to 4.* 5",
        ),
        (
            graph_attention_figure,
            (PATH, 0, np.ones(4), {"r": RIGHT}),
            r"`connected` must have .*\(4,\)",
        ),
        (graph_attention_figure, (PATH, 0, np.ones(5), {}), "at least one round"),
        (
            graph_attention_figure,
            (PATH, 0, np.ones(5), {"r": (RIGHT[0][0], RIGHT[1])}),
            r"rounds\['r'\].*received shape \(5, 5\)",
        ),
        (
            graph_attention_figure,
            (PATH, 0, np.ones(5), {"r": (RIGHT[0], np.ones(4))}),
            r"\(5,\); received shape \(4,\)",
        ),
    ],
)
def test_invalid_arguments_raise(draw, arguments, message):
    with pytest.raises(ValueError, match=message):
        draw(*arguments)
