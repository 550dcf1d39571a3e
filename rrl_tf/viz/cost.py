"""What something costs against its size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def cost_figure(panels: Mapping[str, Mapping[str, tuple[Any, Any]]], ylabel: str) -> Figure:
    """Draw a panel for each size that is varied and a line for each contestant, both axes in logs.

    Args:
        panels: dict name of the size → dict label → `(sizes (P,), costs (P,))`, positive. A label
            keeps its colour in all panels.
        ylabel: what is measured, with its unit.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: if there is nothing to draw, or sizes and costs do not match.

    Example:
        >>> figure = cost_figure({"slots": {"ours": ([1, 2, 4], [3.0, 4.0, 7.0])}}, "ms")
        >>> figure.axes[0].get_xlabel()
        'slots'
    """
    labels = list(dict.fromkeys(label for lines in panels.values() for label in lines))
    if not labels:
        raise InvalidInput(f"panels must hold at least one line; received {panels!r}")
    figure, row = style.row_of_panels(len(panels), 0.5, 2.5, gap=0.5)
    for axes, (name, lines) in zip(row, panels.items()):
        for label, (sizes, costs) in lines.items():
            sizes, costs = np.asarray(sizes, float), np.asarray(costs, float)
            if sizes.ndim != 1 or sizes.shape != costs.shape:
                raise InvalidInput(
                    f"panels[{name!r}][{label!r}] must be (sizes, costs) of the same shape (P,); "
                    f"received shapes {sizes.shape} and {costs.shape}"
                )
            colour = style.colour(labels.index(label))
            axes.plot(sizes, costs, color=colour, lw=1.8, marker="o", ms=4, label=label)
        axes.set(xscale="log", yscale="log")
        axes.set_xticks(sizes)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_locator(NullLocator())
        style.name_axes(axes, name, ylabel if axes is row[0] else "")
    markers = {"marker": "o", "markersize": 4}
    entries = {label: style.line(style.colour(i), **markers) for i, label in enumerate(labels)}
    style.legend(figure, 0.75, 0.2, entries, len(entries))
    return figure
