"""Draw attributions, the effects of ablation and patching, probes, and removal curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style
from rrl_tf.viz._checks import shaped
from rrl_tf.viz.attention import draw_weights, initials, mark_cells, meaning

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANELS_PER_ROW = 4


def attribution_figure(
    maps: Mapping[str, Any], cells: Sequence[Mapping[str, tuple[int, int]]], titles: Sequence[str]
) -> Figure:
    """Draw the attribution to the cells of a grid, with one row per method and column per state.

    Orange cells raise the output and purple cells lower it. Each panel has its own scale: 1 is its
    largest absolute value, which is written below it.

    Args:
        maps: dict method -> `(M, rows, columns)`.
        cells: for each of M states, label -> `(x, y)` of labelled cells; may be empty.
        titles: M strings, one above each state.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        InvalidInput: if there is no method, or the numbers of states differ.

    Example:
        >>> figure = attribution_figure({"rollout": np.eye(3)[None]}, [{"key": (1, 1)}], ["state"])
    """
    if not maps or len(cells) != len(titles):
        raise InvalidInput(
            "`maps` must have a method, and `cells` one element for each of `titles`; received "
            f"{list(maps)}, {len(cells)} and {len(titles)}"
        )
    figure = style.new_figure(
        1.6 * len(titles) + 1.5,
        1.95 * len(maps) + 0.7,
        "Attribution to each cell, by method (rows) and state (columns). Orange cells raise the "
        f"output of the chosen action, purple cells lower it. {meaning(_labels(cells))}",
    )
    panels = figure.subplots(len(maps), len(titles), squeeze=False)
    letters = initials(_labels(cells))
    for row, (method, values) in zip(panels, maps.items()):
        values = shaped(f"maps[{method!r}]", values, len(titles), "rows", "columns")
        for axes, image, marked in zip(row, values, cells):
            limit = np.abs(image).max()
            drawn = draw_weights(axes, image / (limit or 1.0), 1.0)
            drawn.set(cmap="PuOr_r", clim=(-1, 1))
            axes.set_xlabel(f"1 is {limit:.2g}", size=style.SMALL_SIZE, color=style.MUTED)
            mark_cells(axes, marked, weights=np.zeros_like(image), letters=letters)
        row[0].set_ylabel(method, size=style.SMALL_SIZE, color=style.MUTED)
    for axes, title in zip(panels[0], titles):
        style.title(axes, title)
    style.colour_bar(figure, drawn, panels, "attribution")
    figure.supxlabel(meaning(_labels(cells)), size=style.SMALL_SIZE, color=style.MUTED)
    return figure


def _labels(cells):
    return list(dict.fromkeys(label for each in cells for label in each))


def dots_figure(
    rows: Mapping[str, Mapping[str, Any]], xlabel: str, reference: float = 0.0, caption: str = ""
) -> Figure:
    """Draw numbers as dots, with one line per row, such as ablations or probes.

    Args:
        rows: dict name of a row -> dict label of a dot -> number, or `(number, low, high)`, drawn
            with an interval. A label has the same colour in all rows.
        xlabel: label of the horizontal axis.
        reference: where a vertical line is drawn, such as chance.
        caption: description of the figure.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        InvalidInput: if there is no row.

    Example:
        >>> rows = {"round_1": {"trained": (0.9, 0.8, 1.0), "shuffled": 0.5}}
        >>> figure = dots_figure(rows, "accuracy", reference=0.5)
    """
    if not rows:
        raise InvalidInput(f"`rows` must have at least one row; received {rows!r}")
    labels = list(dict.fromkeys(label for row in rows.values() for label in row))
    figure = style.new_figure(style.FIGURE_WIDTH, 1.2 + 0.26 * len(rows), caption)
    axes = figure.subplots()
    style.plain(axes)
    for i, label in enumerate(labels):
        for place, row in enumerate(rows.values()):
            if label in row:
                value, *ends = np.atleast_1d(row[label])
                axes.plot(value, place, "o", color=style.colour(i), markersize=5)
                axes.plot(ends, [place] * len(ends), color=style.colour(i), lw=2, alpha=0.5)
    axes.axvline(reference, color=style.MUTED, lw=1)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    style.name_axes(axes, xlabel)
    dots = {"linestyle": "", "marker": "o"}
    style.legend(
        figure, {label: style.line(style.colour(i), **dots) for i, label in enumerate(labels)}
    )
    return figure


def patching_figure(maps: Mapping[str, Any], label: str) -> Figure:
    """Draw the effect of patching an entity, with one panel per place.

    A map is a mean over states for fixed cells. The agent and objects may be in other cells in
    other states. A note below the panels states this.

    Args:
        maps: dict place -> `(rows, columns)`, the effect for each cell of a grid; for entities
            without a grid, one row.
        label: name of the effect, for the colour bar.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        InvalidInput: if there is no place, or a map does not have two axes.

    Example:
        >>> figure = patching_figure({"round_1/after": np.eye(7)}, "change of Q")
    """
    if not maps:
        raise InvalidInput(f"`maps` must have at least one place; received {maps!r}")
    images = {place: shaped(f"maps[{place!r}]", each, "r", "c") for place, each in maps.items()}
    columns = min(len(images), _PANELS_PER_ROW)
    lines = -(-len(images) // columns)
    figure = style.new_figure(
        2.1 * columns + 0.9,
        2.2 * lines + 0.6,
        f"Activation patching: {label} if one entity (a square) gets its activation of another "
        "state, at each place (panels). The darkest square matters most. A square is a "
        "fixed cell, although the agent and objects may move between states.",
    )
    panels = figure.subplots(lines, columns, squeeze=False)
    for axes in panels.flat[len(images) :]:
        axes.set_axis_off()
    largest = max(image.max() for image in images.values()) or 1.0
    for axes, (place, image) in zip(panels.flat, images.items()):
        drawn = draw_weights(axes, image, largest)
        style.title(axes, place)
    style.colour_bar(figure, drawn, panels, label)
    figure.supxlabel(
        "mean over states for fixed cells;\nagent and objects may move between states",
        size=style.SMALL_SIZE,
        color=style.MUTED,
    )
    return figure


def removal_figure(
    fractions: Any, panels: Mapping[str, Mapping[str, tuple[Any, Any, Any]]], ylabel: str
) -> Figure:
    """Draw deletion and insertion curves with intervals, with one panel for each.

    Args:
        fractions: `(K,)`, fractions of the entities that are removed or inserted.
        panels: dict title -> dict label -> `(mean, low, high)`, each `(K,)`.
        ylabel: label of the vertical axis.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        InvalidInput: if there is no panel, or shapes do not match.

    Example:
        >>> lines = {"rollout": ([1.0, 0.5], [0.9, 0.4], [1.1, 0.6])}
        >>> figure = removal_figure([0, 1], {"deletion": lines}, "Q")
    """
    if not panels:
        raise InvalidInput(f"`panels` must have at least one panel; received {panels!r}")
    fractions = shaped("fractions", fractions, "K")
    figure = style.new_figure(
        style.FIGURE_WIDTH,
        3.4,
        "The output of the original choice while entities are removed or inserted, the most "
        "relevant first. Bands are 95 % intervals of the mean over states.",
    )
    row, entries = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0], {}
    for axes, (title, lines) in zip(row, panels.items()):
        style.plain(axes)
        style.title(axes, title)
        style.name_axes(axes, "fraction of the entities", ylabel if axes is row[0] else "")
        for i, (label, curve) in enumerate(lines.items()):
            mean, low, high = (shaped(f"panels[{title!r}]", x, len(fractions)) for x in curve)
            [entries[label]] = axes.plot(fractions, mean, color=style.colour(i), lw=2)
            axes.fill_between(fractions, low, high, color=style.colour(i), alpha=0.18, lw=0)
    style.legend(figure, entries)
    return figure
