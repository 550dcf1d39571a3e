"""Accuracy against how far the input was perturbed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from matplotlib.ticker import PercentFormatter

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style
from rrl_tf.viz.checks import checked_curve

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

_DASHES = {False: "solid", True: (0, (4, 2))}


def robustness_figure(
    panels: Mapping[str, Mapping[str, tuple[Any, Any]]],
    ylabel: str,
    references: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """Draw a panel a perturbation and a line a model, with bands over seeds.

    Args:
        panels: dict axis title → dict label → `(strengths (P,), values (seeds, P))`. A label keeps
            its colour in all panels. Labels are `model · kind`: a colour a model, and all kinds but
            the first are dashed.
        ylabel: what is measured.
        references: dict axis title → (low, high), the strengths met in training; drawn grey.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: if there is nothing to draw, or shapes do not match.

    Example:

    >>> lines = {"cnn · clean digits": ([0, 45, 90], [[0.98, 0.51, 0.14]])}
    >>> figure = robustness_figure({"rotation": lines}, "accuracy", {"rotation": (0, 30)})
    """
    labels = list(dict.fromkeys(label for lines in panels.values() for label in lines))
    if not labels:
        raise InvalidInput(f"panels must hold at least one line; received {panels!r}")
    models = list(dict.fromkeys(label.partition(" · ")[0] for label in labels))
    kinds = list(dict.fromkeys(label.partition(" · ")[2] for label in labels))
    colours = {model: style.colour(i) for i, model in enumerate(models)}
    dashes = {kind: _DASHES[i > 0] for i, kind in enumerate(kinds)}
    meanings: dict[str, Artist] = {kind: style.line(style.MUTED, dashes[kind]) for kind in kinds}

    figure, row = style.row_of_panels(len(panels), 0.6, 3.0, gap=0.25)
    for axes, (title, lines) in zip(row, panels.items()):
        for label, curve in lines.items():
            name = f"panels[{title!r}][{label!r}]"
            strengths, values = checked_curve(name, "(strengths, values)", *curve)
            model, _, kind = label.partition(" · ")
            look: dict[str, Any] = {"color": colours[model], "linestyle": dashes[kind], "lw": 1.8}
            axes.plot(strengths, values.mean(0), **look)
            if len(values) > 1:
                band: dict[str, Any] = {"color": colours[model], "alpha": 0.15, "linewidth": 0}
                axes.fill_between(strengths, values.min(0), values.max(0), **band)
                meanings["min–max over seeds"] = style.area(alpha=0.35)
        if references and title in references:
            axes.axvspan(*references[title], color=style.GRID, zorder=0, linewidth=0)
            meanings["met in training"] = style.area(style.GRID, 1)
        style.name_axes(axes, title, ylabel if axes is row[0] else "")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_ylim(0, 1.01)
        axes.margins(x=0)
        axes.tick_params(labelleft=axes is row[0])
    named = {model: style.line(colours[model]) for model in models}
    style.legend(figure, 0.75, 0, named, len(named))
    style.legend(figure, 0.75, 0.22, meanings, len(meanings))
    return figure
