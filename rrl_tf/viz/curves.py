"""Figures of curves: learning curves, returns and robustness."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style
from rrl_tf.viz._checks import checked_curve

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Panels = Mapping[str, Mapping[str, tuple[Any, Any]]]
"""Title → label → a curve."""


def _range(values):
    return values.min(axis=0), values.max(axis=0)


def _deviation(values):
    mean, deviation = values.mean(axis=0), values.std(axis=0)
    return mean - deviation, mean + deviation


_BANDS = {
    "range": ("min–max over seeds", _range),
    "deviation": ("± 1 standard deviation over seeds", _deviation),
}

_LETTERS_IN_A_ROW = 60  # of the legend, next to its lines
_LETTERS_IN_TWO_COLUMNS = 100
_COLUMNS = 3  # of panels
_WIDEST = 5.2  # a panel of returns, in inches
_LEGEND_LINE, _TITLE_LINE = 0.18, 0.15


def learning_curves(
    curves: Mapping[str, tuple[Any, Any]],
    ylabel: str,
    band: str = "range",
    references: Mapping[str, float] | None = None,
    ylim: tuple[float, float] | None = None,
    xlabel: str = "environment steps",
) -> Figure:
    """Draw the mean over seeds of several agents, each with a band, in one figure.

    Colours repeat from the eighth agent on; `learning_curve_panels` separates more of them.

    Args:
        curves: dict label -> `(steps, values)`; `steps` is an array `(P,)` and `values` an array
            `(seeds, P)`.
        ylabel: name of the values, with its unit.
        band: `"range"` (smallest to largest seed) or `"deviation"` (mean ± one population
            standard deviation). A single seed gets no band.
        references: dict label -> height of a dashed horizontal line, or `None`.
        ylim: `(low, high)` of the vertical axis, which becomes wider if a curve or band exceeds
            it; `None` for the range of the data.
        xlabel: name of the steps.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        InvalidInput: if `band` is unknown, there is no curve, or shapes do not match.

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
    entries = _legend_entries(checked, band_name)
    columns = _legend_columns(list(entries))
    more_rows = max(0, math.ceil(len(entries) / columns) - 2)  # of the legend; two have room
    top = 0.55 + 0.22 * more_rows
    figure = style.new_figure(style.FIGURE_WIDTH, 3.85 + top)
    right = max(0.3, style.references_width(references))
    axes = style.place(figure, 0.75, top, style.FIGURE_WIDTH - 0.75 - right, 3.25)
    style.plain(axes)
    style.name_axes(axes, xlabel, ylabel)
    axes.xaxis.set_major_formatter(_with_commas())
    for index, (steps, values) in enumerate(checked.values()):
        _draw_mean(axes, steps, values, edges, 0.18, color=style.colour(index), linewidth=2)
    axes.margins(x=0)
    if ylim is not None:
        _span([axes], *ylim)
    style.references(figure, axes, references)
    look: dict[str, Any] = {"fontsize": style.LABEL_SIZE, "labelcolor": style.TEXT}
    look |= {"borderaxespad": 0.2, "handlelength": 1.6, "columnspacing": 1.6, "frameon": False}
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1.0), "ncols": columns}
    axes.legend(list(entries.values()), list(entries), **place, **look)
    return figure


def learning_curve_panels(
    curves: Mapping[str, tuple[Any, Any]],
    ylabel: str,
    ylim: tuple[float, float] | None = None,
    xlabel: str = "environment steps",
) -> Figure:
    """Draw every seed of several agents, one panel per agent, together with the first one's mean.

    This suits an ablation, in which the first agent is the reference.

    Args:
        curves: dict label -> `(steps, values)`; `steps` is an array `(P,)` and `values` an array
            `(seeds, P)`. The label is the panel's title.
        ylabel: name of the values, with its unit.
        ylim: `(low, high)` of the vertical axes, which become wider if a curve exceeds them;
            `None` for the range of the data.
        xlabel: name of the steps.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        InvalidInput: if there is no curve, or shapes do not match.

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


def returns_figure(
    panels: Panels, references: Mapping[str, Mapping[str, float]] | None = None
) -> Figure:
    """Draw, one panel per data set, the return of a policy against its target return.

    A policy that reaches its targets lies on the dashed diagonal.

    Args:
        panels: dict title → dict label → `(targets (P,), returns (seeds, P))`. Every seed is a dot,
            their mean a line in a band from worst to best. A label has one colour in all panels.
        references: dict title → dict label → height of a dotted horizontal line, or `None`.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        InvalidInput: if there is no panel, or shapes do not match.

    Example:

    >>> figure = returns_figure({"doorkey": {"ours": ([0.0, 0.5, 1.0], [[0.1, 0.6, 0.9]])}})
    """
    if not panels or not all(panels.values()):
        raise InvalidInput(f"every panel must hold at least one curve; received {panels!r}")
    references = {title: (references or {}).get(title, {}) for title in panels}
    curves = _labels(panels)
    heights = dict.fromkeys(label for each in references.values() for label in each)
    colours = {label: style.colour(i) for i, label in enumerate([*curves, *heights])}
    entries = {label: style.line(colours[label], marker="o", markersize=4) for label in curves}
    entries |= {label: style.line(colours[label], "dotted") for label in heights}
    entries["target"] = style.line(style.MUTED, style.DASHED, lw=1)

    width = min(style.FIGURE_WIDTH, 0.95 + _WIDEST * len(panels))
    columns = style.legend_columns(entries, width - 0.75)
    top = 0.2 + _LEGEND_LINE * -(-len(entries) // columns)
    top += _TITLE_LINE * max(title.count("\n") + 1 for title in panels)
    figure, row = style.row_of_panels(len(panels), top, 3.0, 0.55, _WIDEST)
    for axes, (title, drawn) in zip(row, panels.items()):
        style.title(axes, title, style.SMALL_SIZE)
        style.name_axes(axes, "target return", "return" if axes is row[0] else "")
        for label, height in references[title].items():
            axes.axhline(height, color=colours[label], linewidth=1.5, linestyle="dotted", zorder=1)
        ends = []
        for label, curve in drawn.items():
            targets, returns = checked_curve(f"panels[{title!r}][{label!r}]", *curve)
            order = np.argsort(targets)
            targets, returns = targets[order], returns[:, order]
            look: dict[str, Any] = {"color": colours[label], "linewidth": 2}
            _draw_mean(axes, targets, returns, _range, 0.15, **look)
            dots: dict[str, Any] = {"color": colours[label], "markersize": 4, "markeredgewidth": 0}
            axes.plot(targets, returns.T, "o", alpha=0.6, **dots)
            ends += [targets[0], targets[-1]]
        low, high = min(ends), max(ends)
        diagonal: dict[str, Any] = {"linewidth": 1, "linestyle": style.DASHED, "zorder": 1}
        if low < high:
            axes.plot([low, high], [low, high], color=style.MUTED, **diagonal)
        else:  # a single target
            axes.axline((low, low), slope=1, color=style.MUTED, **diagonal)
    style.legend(figure, 0.75, 0, entries, columns)
    return figure


def robustness_figure(
    panels: Panels,
    ylabel: str,
    references: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """Draw one panel per perturbation and one line per model, with bands over seeds.

    Args:
        panels: dict axis title → dict label → `(strengths (P,), values (seeds, P))`. Labels are
            `model · kind`: each model has one colour in all panels, and all kinds but the first are
            dashed.
        ylabel: name of the values.
        references: dict axis title → (low, high), the range of strengths in training, drawn grey.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        InvalidInput: if there is no line, or shapes do not match.

    Example:

    >>> lines = {"cnn · clean digits": ([0, 45, 90], [[0.98, 0.51, 0.14]])}
    >>> figure = robustness_figure({"rotation": lines}, "accuracy", {"rotation": (0, 30)})
    """
    labels = [label.partition(" · ") for label in _labels(panels)]
    models = list(dict.fromkeys(model for model, _, _ in labels))
    kinds = list(dict.fromkeys(kind for *_, kind in labels))
    colours = {model: style.colour(i) for i, model in enumerate(models)}
    dashes = {kind: (0, (4, 2)) if i else "solid" for i, kind in enumerate(kinds)}
    meanings: dict[str, Artist] = {kind: style.line(style.MUTED, dashes[kind]) for kind in kinds}

    figure, row = style.row_of_panels(len(panels), 0.6, 3.0, gap=0.25)
    for axes, (title, lines) in zip(row, panels.items()):
        for label, curve in lines.items():
            strengths, values = checked_curve(f"panels[{title!r}][{label!r}]", *curve)
            model, _, kind = label.partition(" · ")
            look: dict[str, Any] = {"color": colours[model], "linestyle": dashes[kind], "lw": 1.8}
            _draw_mean(axes, strengths, values, _range, 0.15, **look)
            if len(values) > 1:
                meanings["min–max over seeds"] = style.area(alpha=0.35)
        if references and title in references:
            axes.axvspan(*references[title], color=style.GRID, zorder=0, linewidth=0)
            meanings["range in training"] = style.area(style.GRID, 1)
        style.name_axes(axes, title, ylabel if axes is row[0] else "")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_ylim(0, 1.01)
        axes.margins(x=0)
        axes.tick_params(labelleft=axes is row[0])
    named = {model: style.line(colours[model]) for model in models}
    style.legend(figure, 0.75, 0, named, len(named))
    style.legend(figure, 0.75, 0.22, meanings, len(meanings))
    return figure


def _checked(curves: Mapping[str, tuple[Any, Any]]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the curves as arrays; there must be at least one."""
    if not curves:
        raise InvalidInput(f"curves must hold at least one curve; received {curves!r}")
    return {label: checked_curve(f"curves[{label!r}]", *curve) for label, curve in curves.items()}


def _legend_entries(curves, band_name):
    """Return the names of the curves with their numbers of seeds, and that of the band."""
    entries: dict[str, Artist] = {}
    for i, (label, (_, values)) in enumerate(curves.items()):
        seeds = f"mean of {len(values)}" if len(values) > 1 else "1 seed"
        entries[f"{label} ({seeds})"] = style.line(style.colour(i), lw=2)
    if any(len(values) > 1 for _, values in curves.values()):
        entries[band_name] = style.area()
    return entries


def _labels(panels: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the labels of all panels, each once."""
    labels = list(dict.fromkeys(label for lines in panels.values() for label in lines))
    if not labels:
        raise InvalidInput(f"panels must hold at least one line; received {panels!r}")
    return labels


def _draw_mean(
    axes: Axes, places: np.ndarray, values: np.ndarray, edges: Callable, alpha: float, **look: Any
) -> None:
    """Draw the mean of a curve over seeds, and its band if there are several."""
    axes.plot(places, values.mean(axis=0), **look)
    if len(values) > 1:
        axes.fill_between(places, *edges(values), color=look["color"], alpha=alpha, linewidth=0)


def _with_commas() -> FuncFormatter:
    """Return a formatter of steps; each axis needs its own, which keeps a reference to it."""
    return FuncFormatter(lambda steps, _: f"{steps:,.0f}")


def _span(panels: list[Axes], low: float, high: float) -> None:
    """Set the vertical limits, wider and with a margin if a curve exceeds them."""
    lowest = min(axes.dataLim.y0 for axes in panels)
    highest = max(axes.dataLim.y1 for axes in panels)
    room = 0.02 * (max(high, highest) - min(low, lowest))
    for axes in panels:
        axes.set_ylim(
            lowest - room if lowest < low else low, highest + room if highest > high else high
        )


def _legend_columns(names: list[str]) -> int:
    """Return the number of columns that fit: all names in one row, two, or one."""
    lengths = [len(name) for name in names]
    if sum(lengths) <= _LETTERS_IN_A_ROW:
        return len(names)
    rows = math.ceil(len(names) / 2)  # the first column is filled first
    fits = max(lengths[:rows]) + max(lengths[rows:], default=0) <= _LETTERS_IN_TWO_COLUMNS
    return 2 if fits else 1
