"""An episode's memory as arrays, in the film and as a figure of its gates."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Text

from rrl_tf.viz import EpisodeMemory, figure_to_image, film, gates_figure
from rrl_tf.viz.episode_film import _Page, _Slots, _Strip

NAMES = ("left", "right", "forward")
RNG = np.random.default_rng(0)


def slots(count):
    return tuple(f"slot {i + 1}" for i in range(count))


def attention(*shape):
    return RNG.dirichlet(np.ones(shape[-1]), size=shape[:-1])


def gates(steps, count):
    return {name: RNG.random((steps, count)) for name in ("input", "forget")}


def with_cells(steps=4, count=3, grid=(7, 7), heads=2):
    entities = (*slots(count), "view", "action")
    size = count + grid[0] * grid[1] + 1
    scores = attention(steps, heads, count, size)
    return EpisodeMemory(slots(count), gates(steps, count), scores, entities, grid)


def with_vector(steps=4, count=3):
    scores = attention(steps, 2, count, count + 1)
    return EpisodeMemory(slots(count), gates(steps, count), scores, (*slots(count), "input"))


def lstm(steps=4):
    return EpisodeMemory(("LSTM",), gates(steps, 1))


def window(steps=4, length=16):
    names = (*(f"-{k}" for k in range(length - 1, 0, -1)), "now")
    return EpisodeMemory(("block 1", "block 2"), {}, attention(steps, 2, 2, length), names)


KINDS = {"cells": with_cells, "vector": with_vector, "lstm": lstm, "window": window}


def episode(steps=4, attends=True):
    scores = attention(steps, 2, 49, 49)
    return {
        "frames": np.full((steps + 1, 40, 40, 3), 200, np.uint8),
        "scores": scores if attends else None,
        "cells": [{"agent": (3, 6), "key": (t % 7, 2)} for t in range(steps)],
        "q_values": RNG.normal(size=(steps, len(NAMES))),
        "actions": RNG.integers(len(NAMES), size=steps),
        "rewards": np.eye(steps)[-1],
        "action_names": NAMES,
    }


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_attention_is_split_into_cells_and_entities(count, width, height, heads):
    memory = with_cells(2, count, (width, height), heads)
    entities, cells = memory.to_entities(), memory.to_cells()
    mean = memory.attention.mean(axis=1)
    np.testing.assert_allclose(entities[..., :count], mean[..., :count])
    np.testing.assert_allclose(entities[..., -1], mean[..., -1])
    np.testing.assert_allclose(entities.sum(axis=-1), 1)
    for x in range(width):
        for y in range(height):
            np.testing.assert_allclose(cells[:, :, y, x], mean[..., count + x * height + y])


def beyond(figure):
    """Return the labels of ticks beyond the limits, which are not drawn."""
    axes = [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
    limits = [(axis, sorted(axis.get_view_interval())) for axis in axes]
    return {
        tick.label1
        for axis, (low, high) in limits
        for tick in axis.get_major_ticks()
        if not low <= tick.get_loc() <= high
    }


def panel_of(memory, width=7.6):
    panel = _Strip if memory.attention is None else _Slots
    return panel(memory, width, {"agent": "A"})


def assert_everything_lies_apart(figure):
    """All texts and axes are inside the figure, and no two texts overlap."""
    figure_to_image(figure)
    renderer, whole = figure.canvas.get_renderer(), figure.bbox
    texts = [text for text in figure.findobj(Text) if text.get_text().strip()]
    texts = [text for text in texts if text.get_visible() and text not in beyond(figure)]
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in texts]
    boxes += [("axes", axes.get_window_extent(renderer)) for axes in figure.axes]
    for name, box in boxes:
        assert whole.x0 <= box.x0 and box.x1 <= whole.x1, f"{name!r} leaves the page"
        assert whole.y0 <= box.y0 and box.y1 <= whole.y1, f"{name!r} leaves the page"
    texts = [(name, box) for name, box in boxes if name != "axes"]
    for i, (name, box) in enumerate(texts):
        for other, its in texts[i + 1 :]:
            assert not box.padded(-1).overlaps(its.padded(-1)), f"{name!r} lies on {other!r}"


@pytest.mark.parametrize(
    ("memory", "width"),
    [
        (with_cells(2, 1), 7.6),
        (with_cells(2, 9), 7.6),  # cells have an encoder with attention, whose page is wide
        (with_vector(2, 1), 4.6),
        (with_vector(2, 9), 4.6),
        (lstm(2), 4.6),
        (lstm(60), 7.6),
        (window(2), 4.6),
        (window(2, 40), 7.6),
    ],
)
def test_nothing_overlaps_or_is_clipped(memory, width):
    panel = panel_of(memory, width)
    for t in (0, 1):
        panel.show(t, {})
        assert_everything_lies_apart(panel.figure)


@pytest.mark.parametrize("kind", KINDS)
def test_a_film_has_the_memory_below_and_all_else_as_before(kind):
    given = episode(2, attends=kind == "cells")
    without = film(**given)
    images = film(**given, memory=KINDS[kind](2))
    assert len(images) == len(without) == 3
    assert images.shape[2] == without.shape[2]
    above = without.shape[1] - 10  # a dot up or down
    difference = np.abs(images[:, :above].astype(int) - without[:, :above])
    assert difference.mean() < 3
    below = images[:, without.shape[1] :]
    assert all((one != other).any() for one, other in itertools.pairwise(below))


@pytest.mark.parametrize("scale", [0.01, 1, 10, 1000])
def test_values_of_actions_are_next_to_their_names(scale):
    q = scale * np.array([[1.19, 0.02, -1.0]])
    nothing = np.zeros((1, 0, 1, 1))
    page = _Page(episode(1)["frames"][0], nothing, q, NAMES, "attention from agent", {})
    page.show_values(q[0], 0)
    assert_everything_lies_apart(page.figure)


def test_every_panel_shows_its_step():
    memory = with_cells()
    panel = panel_of(memory)
    figure = panel.figure
    images = [axes.get_images()[0] for axes in figure.axes if axes.get_images()]
    bars = [axes.patches for axes in figure.axes if axes.patches]
    assert (len(images), len(bars)) == (4, 2)
    for t in (2, 0):
        panel.show(t, {"agent": (3, 6)})
        for slot in range(3):
            np.testing.assert_allclose(images[slot].get_array(), memory.to_cells()[t, slot])
        np.testing.assert_allclose(images[3].get_array(), memory.to_entities()[t])
        for drawn, name in zip(bars, ("input", "forget")):
            shown = [bar.get_width() for bar in drawn]
            np.testing.assert_allclose(shown, memory.gates[name][t])
        marked = {text.get_text() for axes in figure.axes[:3] for text in axes.texts}
        assert marked == {"A"}


def test_a_step_of_a_window_is_drawn_on_its_own_scale():
    """At first only the current step is attended to; later no weight of 16 steps is near 1."""
    scores = np.zeros((3, 2, 1, 16))
    scores[0, ..., -1] = 1
    scores[1, ..., -2:] = 0.3, 0.7
    scores[2] = 1 / 16
    scores[2, ..., 3:5] = 0.5 / 16, 1.5 / 16
    names = (*(f"-{k}" for k in range(15, 0, -1)), "now")
    panel = panel_of(EpisodeMemory(("block 1",), {}, scores, names), 4.6)
    figure = panel.figure
    (image,) = figure.axes[0].get_images()
    for t, (end, even) in enumerate([(1.0, 1.0), (1.0, 0.5), (0.125, 1 / 16)]):
        panel.show(t, {})
        assert image.get_clim() == (0, end)
        (title,) = figure.texts
        assert f"in this step, 0 to {end:.2f}; even would be {even:.2f}" in title.get_text()


def test_the_strip_grows_with_the_steps():
    memory = lstm(6)
    panel = panel_of(memory)
    figure = panel.figure
    (axes,) = figure.axes
    written, kept, now = axes.lines
    for t, until in ((3, 4), (0, 1), (5, 6)):
        panel.show(t, {})
        for line, name in ((written, "input"), (kept, "forget")):
            steps, values = line.get_data()
            np.testing.assert_array_equal(steps, np.arange(1, until + 1))
            np.testing.assert_allclose(values, memory.gates[name][:until, 0])
        assert set(now.get_xdata()) == {until}


def arriving(steps=9):
    """Return cells with the key in view in steps 3, 4 and 7, and the ball in all steps."""
    cells = [{"agent": (3, 6), "ball": (0, 0)} for _ in range(steps)]
    for t in (2, 3, 6):
        cells[t]["key"] = (1, 1)
    return cells


@pytest.mark.parametrize("count", [1, 9])
def test_gates_over_time_with_what_came_into_view(count):
    steps = 9
    memory = EpisodeMemory(slots(count), gates(steps, count))
    figure = gates_figure(memory, arriving(steps))
    assert_everything_lies_apart(figure)
    written, kept, in_view = figure.axes
    for axes, name in ((written, "input"), (kept, "forget")):
        for line, values in zip(axes.lines, memory.gates[name].T):
            np.testing.assert_array_equal(line.get_xdata(), np.arange(1, steps + 1))
            np.testing.assert_allclose(line.get_ydata(), values)
        assert [line.get_xdata()[0] for line in axes.lines[count:]] == [1, 3, 7]
    assert "dashed: something comes into view" in in_view.get_title("left")
    assert [label.get_text() for label in in_view.get_yticklabels()] == ["ball", "key"]
    stays = [
        [(path.vertices[:, 0].min(), path.vertices[:, 0].max()) for path in drawn.get_paths()]
        for drawn in in_view.collections
    ]
    assert stays == [[(0.5, 9.5)], [(2.5, 4.5), (6.5, 7.5)]]


def test_many_units_are_rows_and_those_that_change_most_come_first():
    """The mean of 64 units is nearly constant, and 64 lines are unreadable."""
    values = {name: RNG.random((9, 64)) * np.linspace(0, 1, 64) for name in ("input", "forget")}
    figure = gates_figure(EpisodeMemory(slots(64), values), arriving())
    assert_everything_lies_apart(figure)
    assert not figure.legends
    written, kept = (axes for axes in figure.axes if axes.get_images())
    order = np.argsort(-sum(each.std(axis=0) for each in values.values()))
    for axes, name in ((written, "input"), (kept, "forget")):
        (image,) = axes.get_images()
        np.testing.assert_allclose(image.get_array(), values[name].T[order])
        assert image.get_clim() == (0, 1)
        assert [line.get_xdata()[0] for line in axes.lines] == [1, 3, 7]


def test_gates_alone_where_nothing_is_ever_in_view():
    figure = gates_figure(lstm(3), [{"agent": (3, 6)}] * 3)
    assert len(figure.axes) == 2
    assert_everything_lies_apart(figure)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EpisodeMemory(("a",)), "attention or a gate; received neither"),
        (
            lambda: EpisodeMemory(("a",), {"input": np.ones((3, 2))}),
            r"\(3, 1\); received shape \(3, 2\)",
        ),
        (lambda: EpisodeMemory(("a",), {"input": np.full((3, 1), 2.0)}), "0 to 1; received 2"),
        (lambda: EpisodeMemory(("a",), {"input": np.full((3, 1), np.nan)}), "received nan"),
        (
            lambda: EpisodeMemory(("a",), {}, np.ones((3, 1, 1, 5)), ("a", "view"), (2, 2)),
            None,
        ),
        (
            lambda: EpisodeMemory(("a",), {}, np.ones((3, 1, 1, 6)), ("a", "view"), (2, 2)),
            r"\(T, H, 1, 5\); received shape \(3, 1, 1, 6\)",
        ),
        (
            lambda: EpisodeMemory(("a",), {}, np.ones((3, 1, 1, 5)), ("a", "b"), (2, 2)),
            "called 'view'; received",
        ),
        (
            lambda: EpisodeMemory(("a",), {"input": np.ones((2, 1))}, np.ones((3, 1, 1, 1)), "a"),
            r"\(3, 1\); received shape \(2, 1\)",
        ),
        (lambda: film(**episode(3), memory=lstm(4)), r"memory of .* shape \(3,\); received \(4,\)"),
        (lambda: gates_figure(lstm(4), [{}] * 3), "must be 4 dicts, .* received 3"),
        (lambda: gates_figure(window(4), [{}] * 4), r"expected a gate of .*; received \[\]"),
        (lambda: lstm().to_cells(), "received grid=None"),
    ],
)
def test_invalid_input_raises(make, message):
    if message is None:
        assert make().steps == 3
        return
    with pytest.raises(ValueError, match=message):
        make()
