"""Define `EpisodeMemory`, an agent's memory in an episode, and draw when its gates are open."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style
from rrl_tf.viz._checks import shaped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    Cells = Sequence[Mapping[str, tuple[int, int]]]

VIEW = "view"
AGENT = "agent"

_PANEL, _ROW = 1.35, 0.28  # heights in inches
_SMALLEST_RANGE = 0.2
_MOST_LINES = 16
_TITLES = {
    "input": "how much is written (input gate)",
    "forget": "how much is kept (forget gate)",
}


@dataclasses.dataclass(frozen=True)
class EpisodeMemory:
    """The attention and the gates of a memory's slots in T steps.

    Args:
        slots: names of the M slots, or of other units with gates or attention, such as the units of
            an LSTM.
        gates: dict name -> array `(T, M)` of values from 0 to 1, for example means over the units
            of a slot. `"input"` is the fraction of new content that is written, `"forget"` the
            fraction of old content that is kept.
        attention: array `(T, H, M, S)`, the attention of each slot to S entities; `None` if the
            memory has no attention.
        entities: names of the S entities. With a `grid`, the name `"view"` stands for all of its
            cells.
        grid: `(width, height)` of a view whose cells are among the entities, in the order
            `x * height + y`; `None` if there are no cells.

    Raises:
        InvalidInput: if a shape does not fit, a gate has values outside of 0 to 1, or there is
            neither attention nor a gate.

    Example:

    >>> memory = EpisodeMemory(("unit 1", "unit 2"), {"input": np.full((9, 2), 0.4)})
    >>> memory.steps
    9
    """

    slots: Sequence[str]
    gates: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    attention: Any = None
    entities: Sequence[str] = ()
    grid: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.attention is None and not self.gates:
            raise InvalidInput("an EpisodeMemory must have attention or a gate; received neither")
        if self.attention is not None:
            object.__setattr__(self, "attention", self._checked_attention())
        gates = {
            name: shaped(f"gates[{name!r}]", gate, self.steps, len(self.slots))
            for name, gate in self.gates.items()
        }
        object.__setattr__(self, "gates", gates)
        for name, gate in gates.items():
            if not (gate >= 0).all() or not (gate <= 1).all():
                raise InvalidInput(
                    f"`gates[{name!r}]` must be from 0 to 1; received {gate.min()} to {gate.max()}"
                )

    def _checked_attention(self):
        if self.grid is not None and list(self.entities).count(VIEW) != 1:
            raise InvalidInput(
                f"`entities` must have {VIEW!r} once with a `grid`; received {self.entities}"
            )
        cells = 0 if self.grid is None else self.grid[0] * self.grid[1] - 1
        entities = len(self.entities) + cells
        return shaped("attention", self.attention, "T", "H", len(self.slots), entities)

    @property
    def steps(self) -> int:
        """Number of steps T."""
        return len(next(iter(self.gates.values())) if self.attention is None else self.attention)

    def to_entities(self) -> np.ndarray:
        """Return the attention averaged over heads, `(T, M, entities)`; cells of a grid are added.

        The sum over all cells is the attention to the entity `"view"`.
        """
        before, cells, after = self._parts()
        together = [] if self.grid is None else [cells.sum(axis=-1, keepdims=True)]
        return np.concatenate([before, *together, after], axis=-1)

    def to_cells(self) -> np.ndarray:
        """Return the attention to the cells of the grid, averaged over heads.

        The shape is `(T, M, height, width)`.
        """
        if self.grid is None:
            raise InvalidInput("`grid` must be set for attention to cells; received None")
        _, cells, _ = self._parts()
        return cells.reshape(*cells.shape[:2], *self.grid).swapaxes(-1, -2)

    def _parts(self):
        """Return the attention, averaged over heads, in three parts.

        These are entities before the cells of the grid, the cells, and entities after them.
        """
        mean = self.attention.mean(axis=1)
        if self.grid is None:
            return mean, mean[..., :0], mean[..., :0]
        first = list(self.entities).index(VIEW)
        return np.split(mean, [first, first + self.grid[0] * self.grid[1]], axis=-1)


def gates_figure(memory: EpisodeMemory, cells: Cells) -> Figure:
    """Draw the gates of a memory at each step, and which entities are then visible.

    Each slot is a line. If there are more than 16 slots, such as the units of an LSTM, each is a
    row of an image, and those that change most come first. Bars below show when each entity is
    visible. Dashed lines through all panels mark the steps at which an entity becomes visible, so
    that one can see whether the memory is written at these steps.

    Args:
        memory: memory of an episode of T steps, with an `"input"` gate, a `"forget"` gate or both.
        cells: T dicts label -> `(x, y)` of the visible entities, as for `film`. The label `"agent"`
            is not drawn, because the agent is always visible.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        InvalidInput: if there is no such gate, or the number of `cells` is not T.

    Example:
        >>> gates = {"input": [[0.9, 0.1], [0.2, 0.7], [0.1, 0.1]]}  # three steps of two slots
        >>> cells = [{"agent": (3, 6), "key": (2, 4)}, {"agent": (3, 6)}, {"agent": (3, 6)}]
        >>> figure = gates_figure(EpisodeMemory(("1", "2"), gates), cells)
        >>> len(figure.axes)  # the gate and the visible entities
        2
    """
    gates = {title: memory.gates[name] for name, title in _TITLES.items() if name in memory.gates}
    if not gates:
        raise InvalidInput(
            f"`memory` must have at least one gate of {[*_TITLES]}; received {[*memory.gates]}"
        )
    if len(cells) != memory.steps:
        raise InvalidInput(
            f"`cells` must be {memory.steps} dicts, one per step of the memory; "
            f"received {len(cells)}"
        )
    labels = [label for label in dict.fromkeys(x for each in cells for x in each) if label != AGENT]
    many = len(memory.slots) > _MOST_LINES
    heights = [_PANEL] * len(gates) + [_ROW * len(labels)] * bool(labels)
    height = sum(heights) + 0.4 * len(heights) + 0.6
    figure = style.new_figure(
        style.FIGURE_WIDTH,
        height,
        "Gates of the memory in every step of an episode, and the entities that are visible.",
    )
    grid = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)
    panels: list[Axes] = grid[:, 0].tolist()
    for axes in panels:
        style.plain(axes)
    if many:
        image = _draw_rows(panels, gates)
        style.colour_bar(figure, image, panels[: len(gates)], "")
    else:
        for axes, (title, gate) in zip(panels, gates.items()):
            _draw_lines(axes, gate, title)
        entries = {name: style.line(style.colour(i)) for i, name in enumerate(memory.slots)}
        style.legend(figure, entries)
    if labels:
        _draw_in_view(panels, cells, labels, style.ACCENT if many else style.MUTED)
    for axes in panels:
        style.number_steps(axes, memory.steps)
        axes.tick_params(labelbottom=axes is panels[-1])
    style.name_axes(panels[-1], "step of the episode")
    return figure


def _draw_rows(panels: Sequence[Axes], gates: Mapping[str, np.ndarray]) -> AxesImage:
    """Draw one row of squares per slot, in the same order in all panels."""
    order = np.argsort(-sum(gate.std(axis=0) for gate in gates.values()))
    for axes, (title, gate) in zip(panels, gates.items()):
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
        axes.grid(False)
        axes.set_yticks([])
        title = f"{title}: a row per unit, those that change most first"
        style.title(axes, title)
    return image


def _draw_lines(axes: Axes, gate: np.ndarray, title: str) -> None:
    """Draw one line per slot; the scale is wide enough that a nearly constant gate looks flat."""
    steps = np.arange(1, len(gate) + 1)
    for number, values in enumerate(gate.T):
        axes.plot(steps, values, color=style.colour(number), marker=".", lw=1.6)
    middle, half = (gate.max() + gate.min()) / 2, (gate.max() - gate.min()) / 2
    half = max(_SMALLEST_RANGE / 2, 1.1 * half)
    axes.set_ylim(middle - half, middle + half)
    style.title(axes, title)


def _draw_in_view(panels: Sequence[Axes], cells: Cells, labels: Sequence[str], colour: str) -> None:
    """Draw in the last panel when entities are visible, and mark in all panels when this begins."""
    axes = panels[-1]
    style.plain(axes)
    axes.grid(False)
    begins = set()
    for row, label in enumerate(labels):
        seen = np.array([False, *(label in each for each in cells), False])
        changes = np.flatnonzero(seen[1:] != seen[:-1]) + 1
        stays = changes.reshape(-1, 2).tolist()  # [first step, step after the last one]
        begins |= {begin for begin, _ in stays}
        bars = [(begin - 0.5, end - begin) for begin, end in stays]
        axes.broken_barh(bars, (row - 0.31, 0.62), color=style.BAR)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", length=0, labelcolor=style.TEXT)
    style.title(axes, "in view (dashed: something comes into view)")
    for begin in sorted(begins):
        for panel in panels:
            panel.axvline(begin, color=colour, lw=1, linestyle=style.DASHED, zorder=1)
