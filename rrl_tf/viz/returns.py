"""Returns that were reached against those that were asked for."""

import numpy as np
from matplotlib.lines import Line2D

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style

_DASHES = (0, (4, 3))


def returns_figure(panels, references=None):
    """Draw a panel a data set: what a policy reached when it was asked for different returns.

    A policy that does as it is told lies on the dashed diagonal.

    Args:
        panels: dict title → dict label → `(asked (P,), reached (seeds, P))`. Every seed is a dot,
            their mean a line; a label keeps its colour in all panels.
        references: dict title → dict label → height of a dotted horizontal line, or `None`.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: if there is no panel, or shapes do not match.

    Example:

    >>> figure = returns_figure({"doorkey": {"ours": ([0.0, 0.5, 1.0], [[0.1, 0.6, 0.9]])}})
    """
    if not panels or not all(panels.values()):
        raise InvalidInput(f"every panel must hold at least one curve. Received: {panels!r}")
    labels = list(dict.fromkeys(label for curves in panels.values() for label in curves))
    gap, left, top = 0.55, 0.75, 0.85
    width = (style.FIGURE_WIDTH - left - 0.2 - gap * (len(panels) - 1)) / len(panels)
    figure = style.new_figure(style.FIGURE_WIDTH, top + 3.0 + 0.55)
    for i, (title, curves) in enumerate(panels.items()):
        axes = style.place(figure, left + i * (width + gap), top, width, 3.0)
        style.plain(axes)
        style.title(axes, title, style.SMALL_SIZE)
        for label, curve in curves.items():
            colour = style.PALETTE[labels.index(label) % len(style.PALETTE)]
            _draw(axes, _checked(title, label, *curve), colour)
        for label, height in (references or {}).get(title, {}).items():
            style.reference(axes, label, height, "dotted")
        asked = np.concatenate([np.asarray(curve[0], "float64") for curve in curves.values()])
        ends = [asked.min(), asked.max()]
        axes.plot(ends, ends, color=style.MUTED, linewidth=1, linestyle=_DASHES, zorder=1)
        axes.set_xlabel("return asked for", size=style.LABEL_SIZE, color=style.TEXT)
        if i == 0:
            axes.set_ylabel("return reached", size=style.LABEL_SIZE, color=style.TEXT)
    _legend(figure, labels, left)
    return figure


def _checked(title, label, asked, reached):
    asked, reached = np.asarray(asked, "float64"), np.asarray(reached, "float64")
    if asked.ndim != 1 or reached.ndim != 2 or reached.shape[1:] != asked.shape or not asked.size:
        raise InvalidInput(
            f"panels[{title!r}][{label!r}] must be (asked, reached) of the shapes (P,) and "
            f"(seeds, P). Received shapes: {asked.shape} and {reached.shape}"
        )
    order = np.argsort(asked)
    return asked[order], reached[:, order]


def _draw(axes, curve, colour):
    asked, reached = curve
    axes.plot(asked, reached.mean(axis=0), color=colour, linewidth=2)
    for values in reached:
        axes.plot(asked, values, "o", color=colour, markersize=4, alpha=0.6, markeredgewidth=0)


def _legend(figure, labels, left):
    """Names the curves and the diagonal, above all panels."""
    colours = [style.PALETTE[i % len(style.PALETTE)] for i in range(len(labels))]
    lines = [Line2D([], [], color=c, lw=2, marker="o", markersize=4) for c in colours]
    figure.legend(
        [*lines, Line2D([], [], color=style.MUTED, lw=1, linestyle=_DASHES)],
        [*labels, "what was asked for"],
        loc="upper left",
        bbox_to_anchor=(left / style.FIGURE_WIDTH, 1.0),
        ncols=len(labels) + 1,
        frameon=False,
        fontsize=style.SMALL_SIZE,
        labelcolor=style.TEXT,
        borderaxespad=0.2,
    )
