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

_TOP, _RIGHT, _BOTTOM = 0.62, 0.2, 0.55
_PANEL, _GAP, _ROW = 1.35, 0.42, 0.24
_LEAST_RANGE = 0.2
_TITLES = {
    "input": "how much is written (input gate)",
    "forget": "how much is kept (forget gate)",
}


def gates_figure(
    memory: EpisodeMemory, cells: Sequence[Mapping[str, tuple[int, int]]], source: str = "agent"
) -> Figure:
    """Draw how far the gates of a memory were open at each step, and what was in view then.

    A line a slot; below, a bar for as long as an entity is in view. A thin line marks through all
    panels where one comes into view, so one sees whether the memory is written then.

    Args:
        memory: of an episode of T steps, with an `"input"` gate, a `"forget"` gate or both.
        cells: T dicts label -> `(x, y)` of the entities in view, as `film` takes them.
        source: label of the agent itself, which is always in view.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: if there is no such gate, or `cells` are not T.

    Example:

    ```python
    memory = EpisodeMemory(("1", "2"), {"input": input_gates, "forget": forget_gates})
    save_figure(gates_figure(memory, cells), "memory.png")
    ```
    """
    gates = {name: memory.gates[name] for name in _TITLES if name in memory.gates}
    if not gates:
        raise InvalidInput(f"expected a gate of {[*_TITLES]}; received {[*memory.gates]}")
    if len(cells) != memory.steps:
        raise InvalidInput(
            f"cells must be {memory.steps}, one dict a step of the memory; received {len(cells)}"
        )
    labels = [
        label for label in dict.fromkeys(x for each in cells for x in each) if label != source
    ]
    left = max(0.75, 0.25 + style.LETTER * max(map(len, labels), default=0))
    width = style.FIGURE_WIDTH - left - _RIGHT
    in_view = _GAP + _ROW * len(labels) if labels else 0.0
    height = _TOP + len(gates) * (_PANEL + _GAP) - _GAP + in_view + _BOTTOM
    figure = style.new_figure(style.FIGURE_WIDTH, height)
    entries = {name: style.line(style.colour(i)) for i, name in enumerate(memory.slots)}
    columns = style.legend_columns(entries, width)
    style.legend(figure, left, 0.08, entries, columns)
    top, panels = _TOP, []
    for name, gate in gates.items():
        panels.append(style.place(figure, left, top, width, _PANEL))
        _draw_gate(panels[-1], gate, _TITLES[name])
        top += _PANEL + _GAP
    if labels:
        panels.append(style.place(figure, left, top, width, _ROW * len(labels)))
        _draw_in_view(panels[-1], cells, labels)
        _mark_arrivals(panels, cells, labels)
    for axes in panels:
        style.number_steps(axes, memory.steps)
        axes.tick_params(labelbottom=axes is panels[-1])
    style.name_axes(panels[-1], "step of the episode")
    return figure


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
    style.title(axes, "in view", style.SMALL_SIZE)


def _mark_arrivals(
    panels: Sequence[Axes],
    cells: Sequence[Mapping[str, tuple[int, int]]],
    labels: Sequence[str],
) -> None:
    for begin in sorted({begin for label in labels for begin, _ in _stays(cells, label)}):
        for axes in panels:
            axes.axvline(begin, color=style.MUTED, lw=1, linestyle=style.DASHED, zorder=1)


def _stays(cells: Sequence[Mapping[str, tuple[int, int]]], label: str) -> Iterator[tuple[int, int]]:
    """Yield (first step, step after the last) of each time that an entity is in view."""
    seen = np.array([False, *(label in each for each in cells), False])
    changes = np.flatnonzero(seen[1:] != seen[:-1]) + 1
    yield from zip(changes[::2].tolist(), changes[1::2].tolist())
