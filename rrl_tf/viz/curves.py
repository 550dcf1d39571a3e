"""Draw learning curves, returns against target returns, and robustness curves."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import PercentFormatter, StrMethodFormatter

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style
from rrl_tf.viz._checks import shaped

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curve = tuple[Any, Any]
"""Horizontal coordinates `(P,)` and values `(seeds, P)` of a curve."""
Panels = Mapping[str, Mapping[str, Curve]]
"""Title of each panel -> label of each line -> curve."""

_BAND = "min–max over seeds"


def learning_curves(
    curves: Mapping[str, Curve],
    ylabel: str,
    references: Mapping[str, float] | None = None,
    ylim: tuple[float, float] | None = None,
    xlabel: str = "environment steps",
) -> Figure:
    """Draw one learning curve per agent: the mean over seeds, and a band from minimum to maximum.

    Args:
        curves: dict label -> `(steps, values)`; `steps` is an array `(P,)` and `values` an array
            `(seeds, P)`.
        ylabel: label of the vertical axis: name and unit of the values.
        references: dict label -> value at which a dotted horizontal line is drawn; `None` draws
            none.
        ylim: `(low, high)` of the vertical axis, which is extended if a curve or band exceeds it;
            `None` uses the range of the data.
        xlabel: label of the horizontal axis.

    Returns:
        A `matplotlib.figure.Figure`. Colours repeat after ten lines.

    Raises:
        InvalidInput: if there is no curve, or shapes do not match.

    Example:
        >>> steps, success = [100, 200], [[0.1, 0.6], [0.3, 0.9]]  # of two seeds
        >>> references = {"random play": 0.2}
        >>> figure = learning_curves({"fast": (steps, success)}, "success", references)
    """
    if not curves:
        raise InvalidInput(f"`curves` must have at least one curve; received {curves!r}")
    figure = style.new_figure(style.FIGURE_WIDTH, 4.4)
    axes = figure.subplots()
    style.plain(axes)
    style.name_axes(axes, xlabel, ylabel)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.margins(x=0)
    entries: dict[str, Artist] = {}
    for index, (label, curve) in enumerate(curves.items()):
        steps, values = _checked_curve(f"curves[{label!r}]", *curve)
        seeds = f"mean of {len(values)}" if len(values) > 1 else "1 seed"
        entries[f"{label} ({seeds})"] = style.line(style.colour(index), lw=2)
        _draw_mean(axes, steps, values, 0.18, color=style.colour(index), linewidth=2)
    if axes.collections:
        entries[_BAND] = style.area()
    references = references or {}
    colours = dict(zip(references, map(style.colour, itertools.count(len(curves)))))
    entries |= _draw_references(axes, references, colours)
    if ylim is not None:
        axes.set_ylim(min(ylim[0], axes.dataLim.y0), max(ylim[1], axes.dataLim.y1))
    style.legend(figure, entries)
    return figure


def returns_figure(
    panels: Panels, references: Mapping[str, Mapping[str, float]] | None = None
) -> Figure:
    """Draw the return of a policy against its target return, in one panel per dataset.

    A policy that reaches its targets lies on the dashed diagonal. Each seed is a dot; a line shows
    the mean over seeds, and a band the range from minimum to maximum. A label has the same colour
    in all panels.

    Args:
        panels: dict title → dict label → `(targets, returns)`; `targets` is an array `(P,)` and
            `returns` an array `(seeds, P)`.
        references: dict title → dict label → value at which a dotted horizontal line is drawn;
            `None` draws none.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        InvalidInput: if there is no panel, or shapes do not match.

    Example:

    >>> figure = returns_figure({"doorkey": {"ours": ([0.0, 0.5, 1.0], [[0.1, 0.6, 0.9]])}})
    """
    if not panels or not all(panels.values()):
        raise InvalidInput(
            f"`panels` must have at least one panel, and each at least one curve; "
            f"received {panels!r}"
        )
    references = {title: (references or {}).get(title, {}) for title in panels}
    labels = _labels(panels)
    colours = {label: style.colour(i) for i, label in enumerate(labels + _labels(references))}
    entries: dict[str, Artist] = {
        label: style.line(colours[label], marker="o", markersize=4) for label in labels
    }
    figure, row = _row_of_panels(
        len(panels),
        4.0,
        "Return that the policy reaches for each target return. A policy that reaches its targets "
        "lies on the dashed line.",
    )
    for axes, (title, drawn) in zip(row, panels.items()):
        style.title(axes, title)
        style.name_axes(axes, "target return", "return" if axes is row[0] else "")
        entries |= _draw_references(axes, references[title], colours)
        ends = []
        for label, curve in drawn.items():
            targets, returns = _checked_curve(f"panels[{title!r}][{label!r}]", *curve)
            order = np.argsort(targets)
            targets, returns = targets[order], returns[:, order]
            _draw_mean(axes, targets, returns, 0.15, color=colours[label], linewidth=2)
            dots: dict[str, Any] = {"color": colours[label], "markersize": 4, "markeredgewidth": 0}
            axes.plot(targets, returns.T, "o", alpha=0.6, **dots)
            ends += [targets[0], targets[-1]]
        low, high = min(ends), max(ends)
        diagonal: dict[str, Any] = {"linewidth": 1, "linestyle": style.DASHED, "zorder": 1}
        if low < high:
            axes.plot([low, high], [low, high], color=style.MUTED, **diagonal)
        else:  # a single target
            axes.axline((low, low), slope=1, color=style.MUTED, **diagonal)
    style.legend(figure, entries | {"return = target": style.line(style.MUTED, style.DASHED, lw=1)})
    return figure


def robustness_figure(
    panels: Panels,
    ylabel: str,
    references: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """Draw values against the strength of a perturbation, in one panel per perturbation.

    Each line is the mean over seeds, in a band from minimum to maximum.

    Args:
        panels: dict label of the horizontal axis → dict label of a line → `(strengths, values)`;
            `strengths` is an array `(P,)` and `values` an array `(seeds, P)` from 0 to 1, shown in
            percent. The label of a line is `model · kind`. All lines of a model have the same
            colour; lines of the first kind are solid, the others dashed.
        ylabel: label of the vertical axis.
        references: dict label of the horizontal axis → `(low, high)`, the range of strengths in
            training, which is drawn as a grey area; `None` draws none.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        InvalidInput: if there is no line, or shapes do not match.

    Example:

    >>> lines = {"cnn · clean digits": ([0, 45, 90], [[0.98, 0.51, 0.14]])}
    >>> figure = robustness_figure({"rotation": lines}, "accuracy", {"rotation": (0, 30)})
    """
    labels = [label.partition(" · ") for label in _labels(panels)]
    if not labels:
        raise InvalidInput(f"`panels` must have at least one line; received {panels!r}")
    models = list(dict.fromkeys(model for model, _, _ in labels))
    kinds = list(dict.fromkeys(kind for *_, kind in labels))
    colours = {model: style.colour(i) for i, model in enumerate(models)}
    dashes = {kind: (0, (4, 2)) if i else "solid" for i, kind in enumerate(kinds)}
    entries: dict[str, Artist] = {model: style.line(colours[model]) for model in models}
    entries |= {kind: style.line(style.MUTED, dashes[kind]) for kind in kinds}

    figure, row = _row_of_panels(len(panels), 4.2, "", sharey=True)
    for axes, (title, lines) in zip(row, panels.items()):
        for label, curve in lines.items():
            strengths, values = _checked_curve(f"panels[{title!r}][{label!r}]", *curve)
            model, _, kind = label.partition(" · ")
            line: dict[str, Any] = {"color": colours[model], "linestyle": dashes[kind], "lw": 1.8}
            _draw_mean(axes, strengths, values, 0.15, **line)
            if len(values) > 1:
                entries[_BAND] = style.area(alpha=0.35)
        if references and title in references:
            axes.axvspan(*references[title], color=style.GRID, zorder=0, linewidth=0)
            entries["range in training"] = style.area(style.GRID, 1)
        style.name_axes(axes, title, ylabel if axes is row[0] else "")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_ylim(0, 1.01)
        axes.margins(x=0)
    style.legend(figure, entries)
    return figure


def _row_of_panels(
    count: int, height: float, caption: str, **options: Any
) -> tuple[Figure, Sequence[Axes]]:
    """Return a figure with a row of `count` axes for plots, and these axes."""
    figure = style.new_figure(min(style.FIGURE_WIDTH, 0.95 + 5.2 * count), height, caption)
    row = figure.subplots(1, count, squeeze=False, **options)[0]
    for axes in row:
        style.plain(axes)
    return figure, row


def _checked_curve(name: str, x: Any, values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the coordinates `(P,)` and values `(seeds, P)` of a curve after a check, as floats."""
    x = shaped(f"{name}[0]", x, "P")
    return x, shaped(f"{name}[1]", values, "seeds", len(x))


def _labels(panels: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the labels of all panels without duplicates."""
    return list(dict.fromkeys(label for lines in panels.values() for label in lines))


def _draw_mean(axes: Axes, x: np.ndarray, values: np.ndarray, alpha: float, **line: Any) -> None:
    """Draw the mean over seeds and, with several seeds, a band from minimum to maximum."""
    axes.plot(x, values.mean(axis=0), **line)
    if len(values) > 1:
        edges = values.min(axis=0), values.max(axis=0)
        axes.fill_between(x, *edges, color=line["color"], alpha=alpha, linewidth=0)


def _draw_references(
    axes: Axes, heights: Mapping[str, float], colours: Mapping[str, str]
) -> dict[str, Artist]:
    """Draw dotted horizontal lines at the given heights, and return their legend entries."""
    dotted: dict[str, Any] = {"linestyle": "dotted", "lw": 1.5}
    for label, height in heights.items():
        axes.axhline(height, color=colours[label], zorder=1, **dotted)
    return {label: style.line(colours[label], **dotted) for label in heights}
