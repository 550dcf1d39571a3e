"""The memory's part of a film: where its slots attend, and how far its gates are open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rrl_tf.viz import style
from rrl_tf.viz.attention import darkest, draw_weights, even_share, mark_cells
from rrl_tf.viz.episode_memory import EpisodeMemory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARGIN, _GAP = 0.2, 0.12  # inches, as everything here
_TITLE, _HEADING = 0.26, 0.2
_SQUARE, _BAR = 0.21, 0.72
_MAPS_HEIGHT = 1.5
_STRIP_LEFT, _STRIP_HEIGHT, _STRIP_BELOW = 0.45, 0.7, 0.42
_BAR_ROOM = 1.75  # of a bar that ends at 1, for its number

GATES = {"input": "written", "forget": "kept"}
"""What an open gate does to a slot; others are not shown."""


def memory_height(memory: EpisodeMemory, width: float) -> float:
    """Return the inches that a memory takes on a page so wide."""
    if memory.attention is None:
        return _TITLE + _STRIP_HEIGHT + _STRIP_BELOW
    places = _Places.of(memory, width)
    return _TITLE + max(places.maps_height, places.matrix_height)


def add_memory(figure: Figure, memory: EpisodeMemory, top: float) -> _Panels | _Strip:
    """Draw a memory on a page, `top` inches below its upper edge; `show` fills it."""
    return (_Strip if memory.attention is None else _Panels)(figure, memory, top)


class _Places(NamedTuple):
    """Sizes in inches, and how many maps lie side by side."""

    side: float  # of a map
    columns: int
    heading: float  # above maps, matrix and bars
    square: float  # side of a square of the matrix
    matrix_left: float
    maps_height: float
    matrix_height: float

    @classmethod
    def of(cls, memory, width):
        """The squares have their size unless the page is too narrow; the maps take the rest."""
        slots, entities = len(memory.slots), len(memory.entities)
        names = _names_width(memory.slots)
        bars = (_BAR + _GAP) * len(_shown_gates(memory))
        room = width - 2 * _MARGIN - names - bars
        square = min(_SQUARE, room / entities)
        heading = _HEADING if bars or memory.grid else 0.0  # above the squares alone is nothing
        matrix_height = heading + slots * square + _names_width(memory.entities)
        if memory.grid is None:
            return cls(0.0, 0, heading, square, _MARGIN + names, 0.0, matrix_height)
        room -= entities * square + 2 * _GAP
        height = max(_MAPS_HEIGHT, matrix_height)
        columns, side = style.fill(slots, room, height, _GAP, heading)
        maps = columns * (side + _GAP) - _GAP
        rows = -(-slots // columns)
        maps_height = rows * (heading + side + _GAP)
        left = _MARGIN + maps + 2 * _GAP + names
        return cls(side, columns, heading, square, left, maps_height, matrix_height)


class _Panels:
    """A map of the view a slot, a row of squares a slot, and a bar a gate beside each row."""

    def __init__(self, figure: Figure, memory: EpisodeMemory, top: float) -> None:
        self._memory, self._top = memory, top + _TITLE
        self._places = _Places.of(memory, figure.get_figwidth())
        self._squares = memory.to_entities()
        self._cells = np.zeros((memory.steps, 0, 1, 1))
        if memory.grid is not None:
            self._cells = memory.to_cells()
        self._title = style.write(figure, _MARGIN, top, "", style.SMALL_SIZE)
        self._maps = self._add_maps(figure)
        self._matrix = self._add_matrix(figure)
        self._bars = self._add_bars(figure)
        self._marks: list = []

    def _show_scale(self, t):
        """Return the ends of the colours of cells and squares in a step.

        A step's own, as a window has little to attend to at first: no later one compares.
        """
        even = even_share(self._memory.attention[t].mean(axis=0))
        weights = self._cells[t], self._squares[t]
        cells, squares = (darkest(each, even) for each in weights)
        text = f"attention of the memory in this step, 0 to {squares:.2f}; "
        if self._memory.grid is not None:
            text += f"to single cells 0 to {cells:.2f}, "
        self._title.set_text(f"{text}even would be {even:.2f}")
        return cells, squares

    def _add_maps(self, figure):
        side, images = self._places.side, []
        for slot, weights in enumerate(self._cells[0]):
            row, column = divmod(slot, self._places.columns)
            left = _MARGIN + column * (side + _GAP)
            top = self._top + self._places.heading + row * (side + _GAP + self._places.heading)
            axes = style.place(figure, left, top, side, side)
            images.append(draw_weights(axes, weights, 1.0))
            name = self._memory.slots[slot]
            style.title(axes, name, style.SMALL_SIZE, color=style.MUTED, pad=3)
        return images

    def _add_matrix(self, figure):
        slots, entities = self._memory.slots, self._memory.entities
        width, height = (len(each) * self._places.square for each in (entities, slots))
        left, top = self._places.matrix_left, self._top + self._places.heading
        axes = style.place(figure, left, top, width, height)
        image = draw_weights(axes, self._squares[0], 1.0)
        axes.set_aspect("auto")
        axes.set_yticks(range(len(slots)), slots)
        # Of many narrow columns, every so manieth gets its name, and the last, the newest, too.
        every = int(np.ceil(0.13 / self._places.square))
        named = list(range(len(entities) - 1, -1, -every))
        axes.set_xticks(named, [entities[i] for i in named], rotation=90)
        axes.tick_params(length=0, labelsize=style.SMALL_SIZE - 1, labelcolor=style.MUTED, pad=2.5)
        return image

    def _add_bars(self, figure):
        """Return a dict gate -> its bars and their numbers."""
        slots = range(len(self._memory.slots))
        left = self._places.matrix_left + len(self._memory.entities) * self._places.square + _GAP
        added = {}
        for number, gate in enumerate(_shown_gates(self._memory)):
            place = left + number * (_BAR + _GAP), self._top + self._places.heading
            axes = style.place(figure, *place, _BAR, len(slots) * self._places.square)
            bars = axes.barh(slots, np.zeros(len(slots)), height=0.62, color=style.BAR)
            axes.set(xlim=(0, _BAR_ROOM), ylim=(len(slots) - 0.5, -0.5), xticks=[], yticks=[])
            for side, spine in axes.spines.items():
                spine.set(color=style.LINE, linewidth=0.8, visible=side == "left")
            style.title(axes, GATES[gate], style.SMALL_SIZE, color=style.MUTED, pad=3)
            look = {"size": 7.5, "va": "center_baseline", "color": style.MUTED}
            added[gate] = bars, [axes.text(0, y, "", **look) for y in slots]
        return added

    def show(
        self, t: int, cells: Mapping[str, tuple[int, int]], names: Mapping[str, str] | None = None
    ) -> None:
        """Show step number t with labelled cells, and the letters of their names."""
        for mark in self._marks:
            mark.remove()
        self._marks = []
        letters = min(style.SMALL_SIZE, 0.62 * 72 * self._places.side / self._cells.shape[-1])
        of_cells, of_squares = self._show_scale(t)
        for image, weights in zip(self._maps, self._cells[t]):
            image.set(data=weights, clim=(0, of_cells))
            scaled = weights / of_cells
            self._marks += mark_cells(image.axes, cells, None, scaled, letters, names)
        self._matrix.set(data=self._squares[t], clim=(0, of_squares))
        for gate, (bars, labels) in self._bars.items():
            for bar, label, value in zip(bars, labels, self._memory.gates[gate][t]):
                bar.set_width(value)
                label.set(text=f" {value:.2f}", x=value)


class _Strip:
    """The gates of a memory without attention as lines that grow to the present step."""

    def __init__(self, figure: Figure, memory: EpisodeMemory, top: float) -> None:
        self._values = {
            gate: memory.gates[gate].mean(axis=1) for gate in (_shown_gates(memory) or memory.gates)
        }
        self._steps = np.arange(1, memory.steps + 1)
        width = figure.get_figwidth() - _STRIP_LEFT - _MARGIN
        axes = style.place(figure, _STRIP_LEFT, top + _TITLE, width, _STRIP_HEIGHT)
        style.plain(axes)
        axes.set(ylim=(0, 1), yticks=(0, 0.5, 1))
        style.number_steps(axes, memory.steps)
        style.write(figure, _MARGIN, top, "memory, mean of its gates:", style.SMALL_SIZE)
        left = _MARGIN + 27 * style.LETTER
        self._lines = {}
        for number, gate in enumerate(self._values):
            # Not the second colour, which is that of what was chosen.
            colour = style.colour(2 * number)
            (self._lines[gate],) = axes.plot([], [], color=colour, marker=".", lw=1.6)
            text = f"{GATES.get(gate, gate)} ({gate})"
            style.write(figure, left, top, text, style.SMALL_SIZE, colour, weight="bold")
            left += (len(text) + 2) * style.LETTER * 1.08
        self._now = axes.axvline(1, color=style.ACCENT, linewidth=1.4, zorder=1)

    def show(
        self, t: int, cells: Mapping[str, tuple[int, int]], names: Mapping[str, str] | None = None
    ) -> None:
        """Show the steps up to number t."""
        until = t + 1
        for gate, line in self._lines.items():
            line.set_data(self._steps[:until], self._values[gate][:until])
        self._now.set_xdata([until, until])


def _shown_gates(memory):
    """The names of those of a memory's gates that are shown."""
    return [gate for gate in GATES if gate in memory.gates]


def _names_width(names):
    """The inches that the longest of some names takes."""
    return 0.06 + style.LETTER * max(map(len, names), default=0)
