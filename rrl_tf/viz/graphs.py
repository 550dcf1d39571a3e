"""Attention along the edges of a graph in each round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style
from rrl_tf.viz._checks import shaped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NODE, _WIDEST = 42, 3.2  # points² and points
_ITERATIONS = 300  # of the layout


def graph_attention_figure(
    edges: Any, marked: int, connected: Any, rounds: Mapping[str, tuple[Any, Any]]
) -> Figure:
    """Draw a graph once per round, with the attention and the answers of its nodes.

    The width of the half of a line that begins at a node is the node's attention to the one at the
    other end. Thin grey lines are the edges.

    Args:
        edges: bool array `(N, N)`, symmetric.
        marked: index of the marked node.
        connected: bool array `(N,)`, true for nodes that are connected with the marked one.
        rounds: dict title → attention `(H, N, N)`, whose heads are averaged, and each node's
            predicted probability `(N,)` of being connected after that round.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        InvalidInput: if a shape differs, there is no round, or `marked` is not a node.

    Example:
        >>> edges = np.eye(3, k=1) + np.eye(3, k=-1) > 0  # 0 - 1 - 2
        >>> attention, probability = np.full((2, 3, 3), 1 / 3), np.array([1.0, 0.9, 0.6])
        >>> rounds = {"round 1": (attention, probability)}
        >>> figure = graph_attention_figure(edges, 0, np.array([True] * 3), rounds)
    """
    edges, connected, drawn = _checked(edges, marked, connected, rounds)
    panel = min(3.0, style.FIGURE_WIDTH / len(drawn))
    figure = style.new_figure(max(6.0, panel * len(drawn)), panel + 0.6)
    places = graph_layout(edges)
    row = figure.subplots(1, len(drawn), squeeze=False)[0]
    for axes, (title, (attention, probability)) in zip(row, drawn.items()):
        _draw(axes, places, edges, attention)
        _draw_nodes(axes, places, marked, connected, probability)
        style.title(axes, title)
    _explain(figure)
    return figure


def graph_layout(edges: Any) -> np.ndarray:
    """Place nodes so that their distances are the lengths of the shortest paths between them.

    Components are at a distance of one more than half of the longest path. The layout of a graph is
    deterministic.

    Args:
        edges: bool array `(N, N)`, symmetric.

    Returns:
        Array `(N, 2)`.

    Example:

    >>> places = graph_layout(np.eye(3, k=1) + np.eye(3, k=-1) > 0)  # 0 - 1 - 2
    >>> float(np.linalg.norm(places[0] - places[2]).round(2))
    2.0

    Source: the SMACOF algorithm, de Leeuw, "Applications of convex analysis to multidimensional
    scaling" (1977).
    """
    edges = np.asarray(edges, bool)
    count = len(edges)
    wanted = _paths(edges)
    places = np.random.default_rng(0).normal(size=(count, 2)) * max(wanted.max(), 1)
    for _ in range(_ITERATIONS):
        apart = np.linalg.norm(places[:, None] - places[None], axis=-1)
        pull = -wanted / np.maximum(apart, 1e-9)
        np.fill_diagonal(pull, 0.0)
        places = (pull - np.diag(pull.sum(axis=1))) @ places / count
    return places


def _paths(edges):
    """Return the lengths of the shortest paths `(N, N)`, with a constant between components."""
    count = len(edges)
    lengths = np.where(np.eye(count, dtype=bool), 0.0, np.where(edges, 1.0, np.inf))
    for middle in range(count):
        lengths = np.minimum(lengths, lengths[:, middle, None] + lengths[None, middle])
    return np.where(np.isinf(lengths), lengths[np.isfinite(lengths)].max() / 2 + 1, lengths)


def _draw(axes, places, edges, attention):
    """Draw the edges, and over them half a line for every pair of an attending node."""
    ones, others = np.nonzero(np.triu(edges))
    lines = np.stack([places[ones], places[others]], axis=1)
    axes.add_collection(LineCollection(list(lines), colors=style.LINE, linewidths=0.8, zorder=1))
    attending, seen = np.nonzero(attention > 1e-3)
    halves = np.stack([places[attending], (places[attending] + places[seen]) / 2], axis=1)
    widths = _WIDEST * attention[attending, seen]
    collection = LineCollection(list(halves), colors=style.PALETTE[0], linewidths=widths, zorder=2)
    axes.add_collection(collection)
    middle, reach = (places.max(0) + places.min(0)) / 2, np.ptp(places, axis=0).max() / 2 + 0.6
    axes.set(xlim=(middle[0] - reach, middle[0] + reach))
    axes.set(ylim=(middle[1] - reach, middle[1] + reach), aspect="equal")
    style.bare(axes)


def _draw_nodes(axes, places, marked, connected, probability):
    """Draw the nodes, as dark as their probability, in a ring that shows the correct answer."""
    rings = [style.TEXT if yes else style.LINE for yes in connected]
    widths = [1.2] * len(rings)
    rings[marked], widths[marked] = style.ACCENT, 2.2
    look = {"s": _NODE, "cmap": style.ATTENTION_MAP, "vmin": 0, "vmax": 1, "zorder": 3}
    x, y = places.T
    axes.scatter(x, y, c=probability, edgecolors=rings, linewidths=widths, **look)


def _explain(figure):
    """Draw the legend above the graphs."""
    dot = {"linestyle": "none", "marker": "o", "markersize": 6.5}
    yes, no = to_hex(style.ATTENTION_MAP(1.0)), "white"
    entries = {
        "marked": style.line(yes, **dot, markeredgecolor=style.ACCENT, markeredgewidth=2.2),
        "connected with it": style.line(no, **dot, markeredgecolor=style.TEXT),
        "not connected": style.line(no, **dot, markeredgecolor=style.LINE),
        "predicted connected": style.line(yes, **dot),
        "attention": style.line(style.PALETTE[0], lw=_WIDEST),
    }
    style.legend(figure, entries)


def _checked(edges, marked, connected, rounds):
    """Return the arrays of the figure, with attention averaged over heads."""
    edges = shaped("edges", edges, "N", "N", dtype=bool)
    count = len(edges)
    if (edges != edges.T).any():
        raise InvalidInput("edges must be symmetric; received an edge in one direction only")
    if not 0 <= marked < count:
        raise InvalidInput(f"marked must be one of {count} nodes; received {marked!r}")
    if not rounds:
        raise InvalidInput(f"rounds must hold at least one round; received {rounds!r}")
    drawn = {
        title: (
            shaped(f"rounds[{title!r}][0]", attention, "H", count, count).mean(axis=0),
            shaped(f"rounds[{title!r}][1]", probability, count),
        )
        for title, (attention, probability) in rounds.items()
    }
    return edges, shaped("connected", connected, count, dtype=bool), drawn
