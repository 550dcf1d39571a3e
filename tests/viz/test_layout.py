"""Texts of a figure do not overlap and do not leave the page."""

import numpy as np
import pytest
from matplotlib.text import Text

from rrl_tf import viz
from rrl_tf.viz.attention import initials
from rrl_tf.viz.episode_film import _Page

RNG = np.random.default_rng(0)
FRAME = np.full((40, 40, 3), 90, np.uint8)
CELLS = {
    name: (3, 6 - place)
    for place, name in enumerate(
        ("agent", "red key", "red door", "yellow door", "green ball", "blue door")
    )
}
ACTIONS = ("left", "right", "forward")


def attention(*shape):
    return RNG.dirichlet(np.ones(shape[-1]), size=shape[:-1])


def names(count):
    return tuple(f"slot {i + 1}" for i in range(count))


def gates(steps, count):
    return {name: RNG.random((steps, count)) for name in ("input", "forget")}


def memory_of_cells(count):
    scores = attention(2, 2, count, count + 50)
    entities = (*names(count), "view", "action")
    return viz.EpisodeMemory(names(count), gates(2, count), scores, entities, (7, 7))


def memory_of_vectors(count):
    scores = attention(2, 2, count, count + 1)
    return viz.EpisodeMemory(names(count), gates(2, count), scores, (*names(count), "input"))


def memory_of_window(length):
    steps = (*(f"-{k}" for k in range(length - 1, 0, -1)), "now")
    return viz.EpisodeMemory(("block 1", "block 2"), {}, attention(2, 2, 2, length), steps)


def page(heads=1, memory=None, scale=1.0, attending=("agent",)):
    """Return the figure of one step of an animation."""
    q_values = scale * np.array([[1.19, 0.02, -1.0]])
    maps = {label: np.full((1, heads, 7, 7), 1 / 49) for label in attending if heads}
    drawn = _Page(FRAME, maps, q_values, ACTIONS, "round 1", initials(CELLS), memory)
    drawn.draw_frame(FRAME, "step 1 of 1, reward 0.00")
    drawn.draw_step(0, CELLS, 0)
    drawn.freeze_layout()
    drawn.draw_step(0, CELLS, 0)
    return drawn.figure


def returns(count):
    titles = [f"{i} local walker2d/medium-expert-v0\n(Walker2d-v5)" for i in range(count)]
    references = {"mean of the data": 3280.0, "cloned, best tenth": 3300.0}
    curves = {"ours": ([0.0, 3000.0], [[1.0, 3300.0]])}
    return viz.returns_figure(dict.fromkeys(titles, curves), dict.fromkeys(titles, references))


def curves(labels):
    return viz.learning_curves({name: ([0, 1], [[0, 1], [1, 0]]) for name in labels}, "success")


def gates_over_time(count):
    cells = [{"agent": (3, 6), "key": (1, 1)}] * 9
    return viz.gates_figure(viz.EpisodeMemory(names(count), gates(9, count)), cells)


FIGURES = {
    "attention, one panel": lambda: viz.attention_figure(
        FRAME, FRAME, attention(1, 49, 49), {"agent": (3, 6)}
    ),
    "attention, many panels": lambda: viz.attention_figure(
        FRAME, FRAME, attention(3, 49, 49), CELLS
    ),
    "page, no attention": lambda: page(0, memory=memory_of_window(16)),
    "page, one head": lambda: page(1, memory=memory_of_vectors(1), scale=0.01),
    "page, centre and mean": lambda: page(2, attending=("centre", "all cells (mean)")),
    "page, eight heads": lambda: page(8, memory=memory_of_cells(9), scale=1000),
    "page, gates": lambda: page(0, memory=viz.EpisodeMemory(("LSTM",), gates(60, 1))),
    "page, long window": lambda: page(2, memory=memory_of_window(40)),
    "gates of slots": lambda: gates_over_time(9),
    "gates of units": lambda: gates_over_time(64),
    "curves, short labels": lambda: curves(["x" * 12, "y" * 12, "z" * 12]),
    "curves, long labels": lambda: curves([letter * 40 for letter in "abcnyo"]),
    "returns, one panel": lambda: returns(1),
    "returns, three panels": lambda: returns(3),
    "digits": lambda: viz.digits_figure(
        RNG.random((7, 8, 8)), list("abcdefg"), {"round 1": RNG.random((7, 4, 4))}
    ),
    "memory": lambda: viz.memory_attention_figure(
        attention(3, 2, 4, 4), ["a", "b", "c", "input"], ["x", "y", "z"]
    ),
}


def beyond(figure):
    """Return the labels of ticks outside the limits, which Matplotlib does not draw."""
    axes = [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
    limits = [(axis, sorted(axis.get_view_interval())) for axis in axes]
    return {
        label
        for axis, (low, high) in limits
        for tick in axis.get_major_ticks()
        for label in (tick.label1, tick.label2)
        if not low <= tick.get_loc() <= high
    }


@pytest.mark.parametrize("name", FIGURES)
def test_texts_do_not_overlap_and_stay_on_the_page(name):
    figure = FIGURES[name]()
    viz.figure_to_image(figure)
    unseen = beyond(figure)
    texts = [
        text
        for text in figure.findobj(Text)
        if text.get_text().strip() and text.get_visible() and text not in unseen
    ]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    boxes += [("axes", axes.get_window_extent()) for axes in figure.axes]
    for name, box in boxes:
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1, f"{name!r} leaves the page"
        assert figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1, f"{name!r} leaves the page"
    texts = [(name, box) for name, box in boxes if name != "axes"]
    for i, (name, box) in enumerate(texts):
        for other, its in texts[i + 1 :]:
            assert not box.padded(-1).overlaps(its.padded(-1)), f"{name!r} overlaps {other!r}"
