"""What a memory did in an episode, as the film and the figure of its gates take it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rrl_tf.errors import InvalidInput

VIEW = "view"


@dataclasses.dataclass(frozen=True)
class EpisodeMemory:
    """What each slot of a memory attended to in T steps, and how far its gates were open.

    Args:
        slots: names of the M slots, or of whatever is written to or attends, as an LSTM's units.
        gates: dict name -> array `(T, M)` from 0 to 1, such as the means over the units of a slot:
            `"input"` is how much of what is new is written, `"forget"` how much of the old is kept.
        attention: array `(T, H, M, S)`, what each slot attends to; `None` where nothing attends.
        entities: names of the S entities. With a `grid`, the one called `"view"` stands for all of
            its cells.
        grid: `(width, height)` of a view whose cells are among the entities; they lie there in the
            order `x * height + y`.

    Raises:
        ValueError: if a shape does not fit, a gate is not from 0 to 1, or there is neither
            attention nor a gate.

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
        # Mixed precision hands over bfloat16, which matplotlib does not draw.
        gates = {name: np.asarray(gate).astype(np.float64) for name, gate in self.gates.items()}
        object.__setattr__(self, "gates", gates)
        if self.attention is not None:
            object.__setattr__(self, "attention", np.asarray(self.attention).astype(np.float64))
        self._check()

    def _check(self):
        if self.attention is None and not self.gates:
            raise InvalidInput("an episode's memory needs attention or a gate; received neither")
        if self.attention is not None:
            self._check_attention()
        expected = (self.steps, len(self.slots))
        for name, gate in self.gates.items():
            if gate.shape != expected or 0 in gate.shape:
                raise InvalidInput(
                    f"gates[{name!r}] must have shape (T, M), here {expected}; "
                    f"received shape {gate.shape}"
                )
            if not (gate >= 0).all() or not (gate <= 1).all():
                raise InvalidInput(
                    f"gates[{name!r}] must be from 0 to 1; received {gate.min()} to {gate.max()}"
                )

    def _check_attention(self):
        if self.grid is not None and list(self.entities).count(VIEW) != 1:
            raise InvalidInput(
                f"with a grid, one of the entities is called {VIEW!r}; received {self.entities}"
            )
        cells = 0 if self.grid is None else self.grid[0] * self.grid[1] - 1
        expected = (len(self.slots), len(self.entities) + cells)
        shape = self.attention.shape
        if len(shape) != 4 or 0 in shape or shape[2:] != expected:
            raise InvalidInput(
                f"attention must have shape (T, H, {expected[0]}, {expected[1]}) for "
                f"{len(self.slots)} slots, {len(self.entities)} entities and grid {self.grid}; "
                f"received shape {shape}"
            )

    @property
    def steps(self) -> int:
        """T."""
        whole = next(iter(self.gates.values())) if self.attention is None else self.attention
        return len(whole)

    def to_entities(self) -> np.ndarray:
        """Attention of the slots, mean of the heads `(T, M, entities)`; of all cells together."""
        before, cells, after = self._parts()
        together = [] if self.grid is None else [cells.sum(axis=-1, keepdims=True)]
        return np.concatenate([before, *together, after], axis=-1)

    def to_cells(self) -> np.ndarray:
        """The same to every cell of the grid, as pictures `(T, M, height, width)`."""
        if self.grid is None:
            raise InvalidInput("this memory attends to no cells; received grid=None")
        _, cells, _ = self._parts()
        return cells.reshape(*cells.shape[:2], *self.grid).swapaxes(-1, -2)

    def _parts(self):
        """The mean of the heads before the cells, of the cells, and after them."""
        mean = self.attention.mean(axis=1)
        if self.grid is None:
            return mean, mean[..., :0], mean[..., :0]
        first = list(self.entities).index(VIEW)
        return np.split(mean, [first, first + self.grid[0] * self.grid[1]], axis=-1)
