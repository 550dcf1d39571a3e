"""Draw graphs with the attention between their nodes in each round."""

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
    """Draw a graph once per round of attention, with the prediction for each node.

    Thin grey lines are edges. Blue lines show attention: from each node, a line leads half the way
    to every node that it attends to, and its width is proportional to the attention.

    Args:
        edges: bool array `(N, N)`, symmetric.
        marked: index of the marked node.
        connected: bool array `(N,)`, true for nodes that are connected to the marked node.
        rounds: dict title → `(attention, probability)`: attention `(H, N, N)`, which is averaged
            over heads, and the predicted probability `(N,)`, after that round, that each node is
            connected to the marked node.

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
    figure = style.new_figure(
        max(6.0, panel * len(drawn)),
        panel + 0.6,
        "A graph after each round of attention: dark nodes are predicted to be connected to the "
        "marked node, and blue lines lead to the nodes that a node attends to.",
    )
    positions = graph_layout(edges)
    row = figure.subplots(1, len(drawn), squeeze=False)[0]
    for axes, (title, (attention, probability)) in zip(row, drawn.items()):
        _draw(axes, positions, edges, attention)
        _draw_nodes(axes, positions, marked, connected, probability)
        style.title(axes, title)
    _explain(figure)
    return figure


def graph_layout(edges: Any) -> np.ndarray:
    """Return positions of nodes whose distances approximate the lengths of the shortest paths.

    The distance between nodes of different components approximates half the length of the longest
    shortest path, plus 1. The same graph always has the same layout.

    Args:
        edges: bool array `(N, N)`, symmetric.

    Returns:
        Array `(N, 2)` of positions (x, y).

    Example:

    >>> positions = graph_layout(np.eye(3, k=1) + np.eye(3, k=-1) > 0)  # 0 - 1 - 2
    >>> float(np.linalg.norm(positions[0] - positions[2]).round(2))
    2.0

    Source: the SMACOF algorithm, de Leeuw, "Applications of convex analysis to multidimensional
    scaling" (1977).
    """
    edges = np.asarray(edges, bool)
    count = len(edges)
    wanted = _paths(edges)
    positions = np.random.default_rng(0).normal(size=(count, 2)) * max(wanted.max(), 1)
    for _ in range(_ITERATIONS):
        apart = np.linalg.norm(positions[:, None] - positions[None], axis=-1)
        pull = -wanted / np.maximum(apart, 1e-9)
        np.fill_diagonal(pull, 0.0)
        positions = (pull - np.diag(pull.sum(axis=1))) @ positions / count
    return positions


def _paths(edges):
    """Return the lengths `(N, N)` of the shortest paths, and a constant if there is no path."""
    count = len(edges)
    lengths = np.where(np.eye(count, dtype=bool), 0.0, np.where(edges, 1.0, np.inf))
    for middle in range(count):
        lengths = np.minimum(lengths, lengths[:, middle, None] + lengths[None, middle])
    return np.where(np.isinf(lengths), lengths[np.isfinite(lengths)].max() / 2 + 1, lengths)


def _draw(axes, positions, edges, attention):
    """Draw the edges and, on top of them, a half line from each node to the nodes it attends to."""
    ones, others = np.nonzero(np.triu(edges))
    lines = np.stack([positions[ones], positions[others]], axis=1)
    axes.add_collection(LineCollection(list(lines), colors=style.LINE, linewidths=0.8, zorder=1))
    attending, seen = np.nonzero(attention > 1e-3)
    middles = (positions[attending] + positions[seen]) / 2
    halves = np.stack([positions[attending], middles], axis=1)
    widths = _WIDEST * attention[attending, seen]
    collection = LineCollection(list(halves), colors=style.PALETTE[0], linewidths=widths, zorder=2)
    axes.add_collection(collection)
    middle = (positions.max(0) + positions.min(0)) / 2
    reach = np.ptp(positions, axis=0).max() / 2 + 0.6
    axes.set(xlim=(middle[0] - reach, middle[0] + reach))
    axes.set(ylim=(middle[1] - reach, middle[1] + reach), aspect="equal")
    style.bare(axes)


def _draw_nodes(axes, positions, marked, connected, probability):
    """Draw the nodes: darkness is the predicted probability, the ring is the correct answer."""
    rings = [style.TEXT if yes else style.LINE for yes in connected]
    widths = [1.2] * len(rings)
    rings[marked], widths[marked] = style.ACCENT, 2.2
    options = {"s": _NODE, "cmap": style.ATTENTION_MAP, "vmin": 0, "vmax": 1, "zorder": 3}
    x, y = positions.T
    axes.scatter(x, y, c=probability, edgecolors=rings, linewidths=widths, **options)


def _explain(figure):
    """Draw the legend above the graphs."""
    dot = {"linestyle": "none", "marker": "o", "markersize": 6.5}
    yes, no = to_hex(style.ATTENTION_MAP(1.0)), "white"
    entries = {
        "marked": style.line(yes, **dot, markeredgecolor=style.ACCENT, markeredgewidth=2.2),
        "connected to it": style.line(no, **dot, markeredgecolor=style.TEXT),
        "not connected": style.line(no, **dot, markeredgecolor=style.LINE),
        "predicted connected": style.line(yes, **dot),
        "attention": style.line(style.PALETTE[0], lw=_WIDEST),
    }
    style.legend(figure, entries)


def _checked(edges, marked, connected, rounds):
    """Return the arrays of the figure after checks; attention is averaged over heads."""
    edges = shaped("edges", edges, "N", "N", dtype=bool)
    count = len(edges)
    if (edges != edges.T).any():
        raise InvalidInput("`edges` must be symmetric; received an edge in one direction only")
    if not 0 <= marked < count:
        raise InvalidInput(f"`marked` must be from 0 to {count - 1}; received {marked!r}")
    if not rounds:
        raise InvalidInput(f"`rounds` must have at least one round; received {rounds!r}")
    drawn = {
        title: (
            shaped(f"rounds[{title!r}][0]", attention, "H", count, count).mean(axis=0),
            shaped(f"rounds[{title!r}][1]", probability, count),
        )
        for title, (attention, probability) in rounds.items()
    }
    return edges, shaped("connected", connected, count, dtype=bool), drawn
