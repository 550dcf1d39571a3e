"""When a memory was written, beside what was in view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style
from rrl_tf.viz.episode_memory import EpisodeMemory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_TOP, _RIGHT, _BOTTOM = 0.62, 0.2, 0.55
_PANEL, _GAP, _ROW = 1.35, 0.42, 0.24
_LEGEND, _COLOUR_BAR = 0.3, 0.65
_LEAST_RANGE = 0.2
_MOST_LINES = 16
_TITLES = {
    "input": "how much is written (input gate)",
    "forget": "how much is kept (forget gate)",
}


def gates_figure(
    memory: EpisodeMemory, cells: Sequence[Mapping[str, tuple[int, int]]], source: str = "agent"
) -> Figure:
    """Draw how far the gates of a memory were open at each step, and what was in view then.

    A line a slot; of more than 16, as of an LSTM's units, a row of a picture each, and those that
    change most come first. Below, a bar for as long as an entity is in view. A dashed line marks
    through all panels where one comes into view, so one sees whether the memory is written then.

    Args:
        memory: of an episode of T steps, with an `"input"` gate, a `"forget"` gate or both.
        cells: T dicts label -> `(x, y)` of the entities in view, as `film` takes them.
        source: label of the agent itself, which is always in view.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: if there is no such gate, or `cells` are not T.

    Example:
        >>> gates = {"input": [[0.9, 0.1], [0.2, 0.7], [0.1, 0.1]]}  # three steps of two slots
        >>> cells = [{"agent": (3, 6), "key": (2, 4)}, {"agent": (3, 6)}, {"agent": (3, 6)}]
        >>> figure = gates_figure(EpisodeMemory(("1", "2"), gates), cells)
        >>> len(figure.axes)  # the gate, and what is in view
        2
    """
    gates = _checked_gates(memory, cells)
    labels = [
        label for label in dict.fromkeys(x for each in cells for x in each) if label != source
    ]
    many = len(memory.slots) > _MOST_LINES
    left = max(0.75, 0.25 + style.LETTER * max(map(len, labels), default=0))
    width = style.FIGURE_WIDTH - left - _RIGHT - (_COLOUR_BAR if many else 0.0)
    in_view = _GAP + _ROW * len(labels) if labels else 0.0
    top = _TOP - (_LEGEND if many else 0.0)
    height = top + len(gates) * (_PANEL + _GAP) - _GAP + in_view + _BOTTOM
    figure = style.new_figure(style.FIGURE_WIDTH, height)
    panels = []
    for _ in gates:
        panels.append(style.place(figure, left, top, width, _PANEL))
        top += _PANEL + _GAP
    if many:
        image = _draw_rows(panels, gates)
        style.colour_bar(figure, image, left + width + 0.12, _TOP - _LEGEND, _PANEL, "")
    else:
        for axes, (name, gate) in zip(panels, gates.items()):
            _draw_gate(axes, gate, _TITLES[name])
        entries = {name: style.line(style.colour(i)) for i, name in enumerate(memory.slots)}
        style.legend(figure, left, 0.08, entries, style.legend_columns(entries, width))
    if labels:
        panels.append(style.place(figure, left, top, width, _ROW * len(labels)))
        _draw_in_view(panels[-1], cells, labels)
        _mark_arrivals(panels, cells, labels, style.ACCENT if many else style.MUTED)
    for axes in panels:
        style.number_steps(axes, memory.steps)
        axes.tick_params(labelbottom=axes is panels[-1])
    style.name_axes(panels[-1], "step of the episode")
    return figure


def _checked_gates(
    memory: EpisodeMemory, cells: Sequence[Mapping[str, tuple[int, int]]]
) -> dict[str, np.ndarray]:
    """Return those gates of a memory that are drawn."""
    gates = {name: memory.gates[name] for name in _TITLES if name in memory.gates}
    if not gates:
        raise InvalidInput(f"expected a gate of {[*_TITLES]}; received {[*memory.gates]}")
    if len(cells) != memory.steps:
        raise InvalidInput(
            f"cells must be {memory.steps}, one dict a step of the memory; received {len(cells)}"
        )
    return gates


def _draw_rows(panels: Sequence[Axes], gates: Mapping[str, np.ndarray]) -> AxesImage:
    """Draw a row of squares a slot; a slot has the same row in all panels."""
    order = np.argsort(-sum(gate.std(axis=0) for gate in gates.values()))
    for axes, (name, gate) in zip(panels, gates.items()):
        steps, units = gate.shape
        image = axes.imshow(
            gate.T[order],
            style.ATTENTION_MAP,
            vmin=0,
            vmax=1,
            aspect="auto",
            interpolation="nearest",
            extent=(0.5, steps + 0.5, units + 0.5, 0.5),
        )
        style.plain(axes)
        axes.grid(False)
        axes.set_yticks([])
        title = f"{_TITLES[name]}: a row a unit, those that change most first"
        style.title(axes, title, style.SMALL_SIZE)
    return image


def _draw_gate(axes: Axes, gate: np.ndarray, title: str) -> None:
    style.plain(axes)
    steps = np.arange(1, len(gate) + 1)
    for number, values in enumerate(gate.T):
        axes.plot(steps, values, color=style.colour(number), marker=".", lw=1.6)
    # A gate that hardly moves looks like it.
    middle, half = (gate.max() + gate.min()) / 2, (gate.max() - gate.min()) / 2
    half = max(_LEAST_RANGE / 2, 1.1 * half)
    axes.set_ylim(middle - half, middle + half)
    style.title(axes, title, style.SMALL_SIZE)


def _draw_in_view(
    axes: Axes, cells: Sequence[Mapping[str, tuple[int, int]]], labels: Sequence[str]
) -> None:
    style.plain(axes)
    axes.grid(False)
    for row, label in enumerate(labels):
        stays = [(begin - 0.5, end - begin) for begin, end in _stays(cells, label)]
        axes.broken_barh(stays, (row - 0.31, 0.62), color=style.BAR)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", length=0, labelcolor=style.TEXT)
    style.title(axes, "in view (dashed: something comes into view)", style.SMALL_SIZE)


def _mark_arrivals(
    panels: Sequence[Axes],
    cells: Sequence[Mapping[str, tuple[int, int]]],
    labels: Sequence[str],
    colour: str,
) -> None:
    for begin in sorted({begin for label in labels for begin, _ in _stays(cells, label)}):
        for axes in panels:
            axes.axvline(begin, color=colour, lw=1, linestyle=style.DASHED, zorder=1)


def _stays(cells: Sequence[Mapping[str, tuple[int, int]]], label: str) -> Iterator[tuple[int, int]]:
    """Yield (first step, step after the last) of each time that an entity is in view."""
    seen = np.array([False, *(label in each for each in cells), False])
    changes = np.flatnonzero(seen[1:] != seen[:-1]) + 1
    yield from zip(changes[::2].tolist(), changes[1::2].tolist())
