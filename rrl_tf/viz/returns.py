"""Returns that were reached against those that were asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style
from rrl_tf.viz.checks import checked_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ASKED = "what was asked for"
_WIDEST = 5.2  # a panel, in inches
_LEGEND_LINE, _TITLE_LINE = 0.18, 0.15


def returns_figure(
    panels: Mapping[str, Mapping[str, tuple[Any, Any]]],
    references: Mapping[str, Mapping[str, float]] | None = None,
) -> Figure:
    """Draw a panel a data set: what a policy reached when it was asked for different returns.

    A policy that does as it is told lies on the dashed diagonal.

    Args:
        panels: dict title → dict label → `(asked (P,), reached (seeds, P))`. Every seed is a dot,
            their mean a line in a band from worst to best; a label keeps its colour in all panels.
        references: dict title → dict label → height of a dotted horizontal line, or `None`. A label
            keeps its colour here as well.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: if there is no panel, or shapes do not match.

    Example:

    >>> figure = returns_figure({"doorkey": {"ours": ([0.0, 0.5, 1.0], [[0.1, 0.6, 0.9]])}})
    """
    if not panels or not all(panels.values()):
        raise InvalidInput(f"every panel must hold at least one curve; received {panels!r}")
    references = {title: (references or {}).get(title, {}) for title in panels}
    curves, heights = (_labels(named) for named in (panels, references))
    colours = {label: style.colour(i) for i, label in enumerate([*curves, *heights])}
    entries = {label: style.line(colours[label], marker="o", markersize=4) for label in curves}
    entries |= {label: style.line(colours[label], "dotted") for label in heights}
    entries[_ASKED] = style.line(style.MUTED, style.DASHED, lw=1)

    width = min(style.FIGURE_WIDTH, 0.95 + _WIDEST * len(panels))
    columns = style.legend_columns(entries, width - 0.75)
    top = 0.2 + _LEGEND_LINE * -(-len(entries) // columns)
    top += _TITLE_LINE * max(title.count("\n") + 1 for title in panels)
    figure, row = style.row_of_panels(len(panels), top, 3.0, 0.55, _WIDEST)
    for axes, (title, drawn) in zip(row, panels.items()):
        style.title(axes, title, style.SMALL_SIZE)
        style.name_axes(axes, "return asked for", "return reached" if axes is row[0] else "")
        for label, height in references[title].items():
            axes.axhline(height, color=colours[label], linewidth=1.5, linestyle="dotted", zorder=1)
        _draw(axes, title, drawn, colours)
    style.legend(figure, 0.75, 0, entries, columns)
    return figure


def _labels(panels: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Return the labels of all panels, each once."""
    return list(dict.fromkeys(label for drawn in panels.values() for label in drawn))


def _draw(
    axes: Axes,
    title: str,
    curves: Mapping[str, tuple[Any, Any]],
    colours: Mapping[str, str],
) -> None:
    """Draw the seeds of every curve and their mean, and the diagonal from end to end."""
    ends = []
    for label, curve in curves.items():
        name = f"panels[{title!r}][{label!r}]"
        asked, reached = checked_curve(name, "(asked, reached)", *curve)
        order = np.argsort(asked)
        asked, reached = asked[order], reached[:, order]
        axes.plot(asked, reached.mean(axis=0), color=colours[label], linewidth=2)
        band: dict[str, Any] = {"color": colours[label], "alpha": 0.15, "linewidth": 0}
        axes.fill_between(asked, reached.min(axis=0), reached.max(axis=0), **band)
        for values in reached:
            dots: dict[str, Any] = {"color": colours[label], "markersize": 4, "markeredgewidth": 0}
            axes.plot(asked, values, "o", alpha=0.6, **dots)
        ends += [asked[0], asked[-1]]
    ends = [min(ends), max(ends)]
    line: dict[str, Any] = {"linewidth": 1, "linestyle": style.DASHED, "zorder": 1}
    if ends[0] < ends[1]:
        axes.plot(ends, ends, color=style.MUTED, **line)
    else:  # a single return was asked for
        axes.axline((ends[0], ends[0]), slope=1, color=style.MUTED, **line)
