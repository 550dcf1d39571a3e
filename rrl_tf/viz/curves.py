"""Learning curves over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from matplotlib.ticker import FuncFormatter, MaxNLocator

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
_LETTERS_IN_TWO_COLUMNS = 100
_COLUMNS = 3  # of panels


def learning_curves(
    curves: Mapping[str, tuple[Any, Any]],
    ylabel: str,
    band: str = "range",
    references: Mapping[str, float] | None = None,
    ylim: tuple[float, float] | None = None,
    xlabel: str = "environment steps",
) -> Figure:
    """Draw the mean over seeds of several agents, each with a band, in one figure.

    From the eighth on they share colours: `learning_curve_panels` keeps more of them apart.

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
        >>> steps, success = [100, 200], [[0.1, 0.6], [0.3, 0.9]]  # of two seeds
        >>> references = {"all 48 starts": 1.0}
        >>> figure = learning_curves({"fast": (steps, success)}, "success", references=references)
    """
    if band not in _BANDS:
        raise InvalidInput(f"band must be one of {sorted(_BANDS)}; received {band!r}")
    checked = _checked(curves)
    references = references or {}
    band_name, edges = _BANDS[band]
    names = _legend_names(checked, band_name)
    columns = _legend_columns(names)
    more_rows = max(0, math.ceil(len(names) / columns) - 2)  # of the legend; two have room
    top = 0.55 + 0.22 * more_rows
    figure = style.new_figure(style.FIGURE_WIDTH, 3.85 + top)
    right = max(0.3, style.references_width(references))
    axes = style.place(figure, 0.75, top, style.FIGURE_WIDTH - 0.75 - right, 3.25)
    style.plain(axes)
    style.name_axes(axes, xlabel, ylabel)
    axes.xaxis.set_major_formatter(_with_commas())
    for index, (name, (steps, values)) in enumerate(zip(names, checked.values())):
        _draw(axes, name, steps, values, edges, style.colour(index))
    axes.margins(x=0)
    if ylim is not None:
        _span([axes], *ylim)
    style.references(figure, axes, references)
    _add_legend(axes, names, columns)
    return figure


def learning_curve_panels(
    curves: Mapping[str, tuple[Any, Any]],
    ylabel: str,
    ylim: tuple[float, float] | None = None,
    xlabel: str = "environment steps",
) -> Figure:
    """Draw every seed of several agents, a panel an agent, each beside the mean of the first.

    For an ablation: the first is what the others differ from.

    Args:
        curves: dict label -> `(steps, values)`; `steps` is an array `(P,)` and `values` an array
            `(seeds, P)`. The label is the panel's title.
        ylabel: what is measured, with its unit.
        ylim: `(low, high)` of the vertical axes, which are widened where a curve would leave them;
            `None` for what the data span.
        xlabel: what steps are counted in.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: if there is no curve, or shapes do not match.

    Example:

    >>> whole, less = ([0, 1], [[0.0, 1.0], [0.2, 0.9]]), ([0, 1], [[0.0, 0.5]])
    >>> figure = learning_curve_panels({"all of it": whole, "no memory": less}, "greedy success")
    """
    checked = _checked(curves)
    first, (first_steps, first_values) = next(iter(checked.items()))
    figure, panels = style.grid_of_panels(checked, _COLUMNS, height=1.5, top=0.3)
    for axes, (steps, values) in zip(panels, checked.values(), strict=True):
        axes.xaxis.set_major_formatter(_with_commas())
        axes.xaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
        axes.margins(x=0)
        axes.plot(first_steps, first_values.mean(axis=0), color=style.MUTED, ls=style.DASHED, lw=1)
        axes.plot(steps, values.T, color=style.colour(0), linewidth=0.8, alpha=0.5)
        axes.plot(steps, values.mean(axis=0), color=style.colour(0), linewidth=2)
    if ylim is not None:
        _span(panels, *ylim)
    look: dict[str, Any] = {"size": style.LABEL_SIZE, "color": style.TEXT}
    figure.supxlabel(xlabel, y=0.1 / figure.get_figheight(), **look)
    figure.supylabel(ylabel, x=0.01, **look)
    entries = {
        "mean of seeds": style.line(style.colour(0), lw=2),
        "a seed": style.line(style.colour(0), lw=0.8, alpha=0.5),
        f"mean of: {first}": style.line(style.MUTED, style.DASHED, lw=1),
    }
    style.legend(figure, 0.75, 0, entries, len(entries))
    return figure


def _checked(curves: Mapping[str, tuple[Any, Any]]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the curves as arrays; there must be one."""
    if not curves:
        raise InvalidInput(f"curves must hold at least one curve; received {curves!r}")
    return {
        label: checked_curve(f"curves[{label!r}]", "(steps, values)", *curve)
        for label, curve in curves.items()
    }


def _with_commas() -> FuncFormatter:
    """Return what writes steps. One an axis, as it holds its axis and so a whole figure."""
    return FuncFormatter(lambda steps, _: f"{steps:,.0f}")


def _legend_names(curves: Mapping[str, tuple[np.ndarray, np.ndarray]], band_name: str) -> list[str]:
    """Return the names of the curves, and that of the band where one has several seeds."""
    seeds = {label: len(values) for label, (_, values) in curves.items()}
    names = [
        f"{label} (mean of {n})" if n > 1 else f"{label} (1 seed)" for label, n in seeds.items()
    ]
    return [*names, band_name] if max(seeds.values()) > 1 else names


def _draw(
    axes: Axes, name: str, steps: np.ndarray, values: np.ndarray, edges: Callable, colour: str
) -> None:
    """Draw the mean of a curve, and its band if there are several seeds."""
    if len(values) > 1:
        axes.fill_between(steps, *edges(values), color=colour, alpha=0.18, linewidth=0)
    axes.plot(steps, values.mean(axis=0), color=colour, linewidth=2, label=name)


def _span(panels: list[Axes], low: float, high: float) -> None:
    """Set the vertical limits, widened with some room where what is drawn would leave them."""
    lowest = min(axes.dataLim.y0 for axes in panels)
    highest = max(axes.dataLim.y1 for axes in panels)
    room = 0.02 * (max(high, highest) - min(low, lowest))
    for axes in panels:
        axes.set_ylim(
            lowest - room if lowest < low else low, highest + room if highest > high else high
        )


def _legend_columns(names: list[str]) -> int:
    """Return how many columns the legend has room for: all in one row, two, or one."""
    lengths = [len(name) for name in names]
    if sum(lengths) <= _LETTERS_IN_A_ROW:
        return len(names)
    rows = math.ceil(len(names) / 2)  # the first column is filled first
    fits = max(lengths[:rows]) + max(lengths[rows:], default=0) <= _LETTERS_IN_TWO_COLUMNS
    return 2 if fits else 1


def _add_legend(axes: Axes, names: list[str], columns: int) -> None:
    """Add the legend above the plot: the lines, and the band where it has a name, too."""
    lines, _ = axes.get_legend_handles_labels()
    if len(names) > len(lines):
        lines = [*lines, style.area()]
    axes.legend(
        lines,
        names,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=columns,
        frameon=False,
        fontsize=style.LABEL_SIZE,
        labelcolor=style.TEXT,
        borderaxespad=0.2,
        handlelength=1.6,
        columnspacing=1.6,
    )
