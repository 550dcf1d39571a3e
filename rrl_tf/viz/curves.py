"""Learning curves over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from matplotlib.ticker import FuncFormatter

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style
from rrl_tf.viz.checks import checked_curve

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BANDS = {
    "range": ("min–max over seeds", lambda values: (values.min(axis=0), values.max(axis=0))),
    "deviation": (
        "± 1 standard deviation over seeds",
        lambda values: (values.mean(0) - values.std(0), values.mean(0) + values.std(0)),
    ),
}

_LETTERS_IN_A_ROW = 60  # of the legend, beside its lines


def learning_curves(
    curves: Mapping[str, tuple[Any, Any]],
    ylabel: str,
    band: str = "range",
    references: Mapping[str, float] | None = None,
    ylim: tuple[float, float] | None = None,
    xlabel: str = "environment steps",
) -> Figure:
    """Draw the mean over seeds of several agents, each with a band, in one figure.

    Args:
        curves: dict label -> `(steps, values)`; `steps` is an array `(P,)` and `values` an array
            `(seeds, P)`.
        ylabel: what is measured, with its unit.
        band: `"range"` (smallest to largest seed) or `"deviation"` (mean ± one population
            standard deviation). A single seed gets no band.
        references: dict label -> height of a dashed horizontal line, or `None`.
        ylim: `(low, high)` of the vertical axis, which is widened where a curve or band would leave
            it; `None` for what the data span.
        xlabel: what steps are counted in.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: if `band` is unknown, there is no curve, or shapes do not match.

    Example:

    ```python
    curves = {"fast": (steps, success), "book": (book_steps, book_success)}
    figure = learning_curves(curves, "greedy success", references={"all 48 starts": 1.0})
    ```
    """
    if band not in _BANDS:
        raise InvalidInput(f"band must be one of {sorted(_BANDS)}; received {band!r}")
    if not curves:
        raise InvalidInput(f"curves must hold at least one curve; received {curves!r}")
    checked = {
        label: checked_curve(f"curves[{label!r}]", "(steps, values)", *curve)
        for label, curve in curves.items()
    }
    references = references or {}
    more_rows = max(0, math.ceil((len(checked) + 1) / 2) - 2)  # of the legend; two have room
    top = 0.55 + 0.22 * more_rows
    figure = style.new_figure(style.FIGURE_WIDTH, 3.85 + top)
    right = max(0.3, style.references_width(references))
    axes = style.place(figure, 0.75, top, style.FIGURE_WIDTH - 0.75 - right, 3.25)
    style.plain(axes)
    style.name_axes(axes, xlabel, ylabel)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda steps, _: f"{steps:,.0f}"))
    band_name, edges = _BANDS[band]
    for index, (label, (steps, values)) in enumerate(checked.items()):
        _draw(axes, label, steps, values, edges, style.colour(index))
    axes.margins(x=0)
    if ylim is not None:
        _span(axes, *ylim)
    style.references(figure, axes, references)
    _add_legend(axes, band_name if any(len(v) > 1 for _, v in checked.values()) else None)
    return figure


def _draw(
    axes: Axes, label: str, steps: np.ndarray, values: np.ndarray, edges: Callable, colour: str
) -> None:
    """Draw the mean of a curve, and its band if there are several seeds."""
    seeds = len(values)
    if seeds > 1:
        axes.fill_between(steps, *edges(values), color=colour, alpha=0.18, linewidth=0)
    name = f"{label} (mean of {seeds})" if seeds > 1 else f"{label} (1 seed)"
    axes.plot(steps, values.mean(axis=0), color=colour, linewidth=2, label=name)


def _span(axes: Axes, low: float, high: float) -> None:
    """Set the vertical limits, widened with some room where what is drawn would leave them."""
    drawn = axes.dataLim
    room = 0.02 * (max(high, drawn.y1) - min(low, drawn.y0))
    axes.set_ylim(
        drawn.y0 - room if drawn.y0 < low else low,
        drawn.y1 + room if drawn.y1 > high else high,
    )


def _add_legend(axes: Axes, band_name: str | None) -> None:
    """Add the legend above the plot."""
    lines, labels = axes.get_legend_handles_labels()
    if band_name is not None:
        lines, labels = [*lines, style.area()], [*labels, band_name]
    fits_one_row = sum(map(len, labels)) <= _LETTERS_IN_A_ROW
    axes.legend(
        lines,
        labels,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=len(lines) if fits_one_row else 2,
        frameon=False,
        fontsize=style.LABEL_SIZE,
        labelcolor=style.TEXT,
        borderaxespad=0.2,
        handlelength=1.6,
        columnspacing=1.6,
    )
