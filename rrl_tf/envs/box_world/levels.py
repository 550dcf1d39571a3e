"""Define the levels of Box-World and the generator that draws them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any

import numpy as np

from rrl_tf._arguments import (
    integer,
    integers_from,
    natural,
    number_from,
    one_of,
    positive_int,
)
from rrl_tf.errors import InvalidInput

# A cell is one byte. The upper three bits are its kind, the lower five its colour or 0.
FLOOR, KEY, LOCK, GEM, DISTRACTOR = range(5)
COLOUR_BITS = 5
COLOURS = 2**COLOUR_BITS - 1
"""Largest number of colours; the authors use 20."""

LARGEST_SIZE = 255
PARTS = ("all", "train", "test")
_TRIES = 1000
_COLOURINGS = 2000


def cell_code(kind: int, colour: int = 0) -> int:
    """Return the byte that encodes a cell.

    Args:
        kind: `FLOOR`, `KEY`, `LOCK`, `GEM` or `DISTRACTOR` (the lock of a distractor).
        colour: number of the colour, from 1 up; 0 is none.

    Example:
        >>> cell_code(KEY, 3) >> COLOUR_BITS == KEY, cell_code(KEY, 3) & COLOURS
        (True, 3)
    """
    return kind << COLOUR_BITS | colour


@dataclasses.dataclass(frozen=True, order=True)
class BoxWorldStart:
    """The state at the beginning of a Box-World episode.

    Args:
        size: side of the room in cells, without its walls.
        cells: `size * size` values of `cell_code` as bytes, row by row. A lock closes the cell to
            its left, which contains a key or the gem.
        agent: (row, column) of the agent, on the floor.

    Raises:
        InvalidInput: if `cells` has a wrong length or an unknown code, or the agent is not on the
            floor.

    Example:
        >>> start = BoxWorldStart(2, bytes([0, 0, cell_code(GEM), cell_code(LOCK, 1)]), (0, 0))
        >>> start.boxes
        ((1, 0, False),)
    """

    size: int
    cells: bytes
    agent: tuple[int, int]

    def __post_init__(self):
        try:
            is_possible = self._is_possible()
        except (TypeError, ValueError):  # `cells` is not bytes, or `agent` is not a pair
            is_possible = False
        if not is_possible:
            raise InvalidInput(
                "a BoxWorldStart must have size * size bytes of cells and an agent on the floor; "
                f"received {self!r}"
            )

    def _is_possible(self):
        row, column = self.agent
        return (
            isinstance(self.cells, bytes)
            and len(self.cells) == self.size**2
            and row in range(self.size)
            and column in range(self.size)
            and self.cells[row * self.size + column] == FLOOR
            and max(self.cells) < cell_code(DISTRACTOR + 1)
        )

    @property
    def max_colour(self) -> int:
        """The largest number of a colour in any cell."""
        return max(code & COLOURS for code in self.cells)

    @functools.cached_property
    def boxes(self) -> tuple[tuple[int, int, bool], ...]:
        """All boxes, as (colour of the lock, colour of the key or 0 for the gem, is_distractor)."""
        cells = np.frombuffer(self.cells, np.uint8).reshape(self.size, self.size)
        kinds, colours = np.divmod(cells, COLOURS + 1)
        behind = np.pad(colours, ((0, 0), (1, 0)))[:, :-1]  # 0 at the left end of a row
        locks = (kinds == LOCK) | (kinds == DISTRACTOR)
        wrong = kinds[locks] == DISTRACTOR
        return tuple(zip(colours[locks].tolist(), behind[locks].tolist(), wrong.tolist()))

    @property
    def pairs(self) -> frozenset[tuple[int, int]]:
        """The pairs (colour of the lock, colour of the key) of all boxes that contain a key."""
        return frozenset((lock, key) for lock, key, _ in self.boxes if key)


def held_out_pairs(num_colours: int = 20, fraction: float = 0.2, seed: int = 0) -> frozenset[Any]:
    """Return the pairs (colour of a lock, colour of the key in its box) excluded from training.

    Args:
        num_colours: number of colours C; colours are 1 to C.
        fraction: fraction of the C(C - 1) pairs of two colours to hold out.
        seed: non-negative integer that selects the pairs.

    Raises:
        InvalidInput: if a number is out of range.

    Example:
        >>> len(held_out_pairs(20)), all(lock != key for lock, key in held_out_pairs(20))
        (76, True)
    """
    number_from("num_colours", integer("num_colours", num_colours), 2, COLOURS)
    number_from("held_out_fraction", fraction, 0, 1)
    colours = range(1, num_colours + 1)
    pairs = [(lock, key) for lock in colours for key in colours if lock != key]
    rng = np.random.default_rng(natural("held_out_seed", seed))
    chosen = rng.permutation(len(pairs))[: round(fraction * len(pairs))]
    return frozenset(pairs[i] for i in chosen)


@dataclasses.dataclass(frozen=True)
class BoxWorldLevels:
    """A distribution of levels, from which `draw` samples.

    A loose key opens the first box on the way to the gem. Each of these boxes contains the key of
    the next one, and the last one contains the gem. The same keys also open other boxes, called
    distractors. Opening a distractor loses the episode, because its key opens only further
    distractors.

    Args:
        size: side of the room in cells, without its walls; at most 255.
        goal_length: number of boxes on the way to the gem, or several numbers to draw from.
        num_distractors: number of chains of distractors, or several numbers to draw from.
        distractor_length: number of boxes per chain of distractors.
        num_colours: number of colours C of locks and keys.
        part: which levels to draw: `"all"`; `"train"`, levels without any pair of `held_out_pairs`;
            or `"test"`, levels whose solution needs at least one such pair (at least two boxes).
        held_out_fraction, held_out_seed: as in `held_out_pairs`.
        area: side of the square that contains all boxes and the agent, at a random position in the
            room; `None` is the whole room. A smaller area makes levels easier.

    Attributes:
        held_out: the held-out pairs.

    Raises:
        InvalidInput: if a number is out of range.

    Example:
        >>> levels = BoxWorldLevels(size=8, goal_length=2, num_distractors=1)
        >>> len(levels.draw(np.random.default_rng(0)).boxes)
        3

    Source: the generator of github.com/google-deepmind/pycolab, by Zambaldi et al. (2018).
    """

    size: int = 12
    goal_length: int | Iterable[int] = (1, 2, 3, 4)
    num_distractors: int | Iterable[int] = (0, 1, 2, 3, 4)
    distractor_length: int = 1
    num_colours: int = 20
    part: str = "all"
    held_out_fraction: float = 0.2
    held_out_seed: int = 0
    area: int | None = None
    held_out: frozenset[Any] = dataclasses.field(init=False, repr=False)

    def __post_init__(self):
        keep = functools.partial(object.__setattr__, self)
        number_from("size", positive_int("size", self.size), 1, LARGEST_SIZE)
        area = self.size if self.area is None else positive_int("area", self.area)
        keep("area", number_from("area", area, 1, self.size))
        positive_int("distractor_length", self.distractor_length)
        pairs = held_out_pairs(self.num_colours, self.held_out_fraction, self.held_out_seed)
        keep("held_out", pairs)
        one_of("part", self.part, PARTS)
        for name, least in (("goal_length", 1), ("num_distractors", 0)):
            keep(name, integers_from(name, getattr(self, name), least))
        if self.part == "test":
            longer = tuple(length for length in self.goal_length if length > 1)
            if not longer:
                raise InvalidInput(
                    "`goal_length` must include at least 2 for part='test', because the box with "
                    f"the gem has no key; received {self.goal_length}"
                )
            keep("goal_length", longer)
        others = self.num_colours - 1 - max(self.goal_length)
        needed = min(self.distractor_length, 2) if max(self.num_distractors) > 0 else 0
        if others < needed:
            raise InvalidInput(
                f"`num_colours` must be at least {max(self.goal_length) + 1 + needed} for "
                f"goal_length={max(self.goal_length)} and these distractors; "
                f"received {self.num_colours}"
            )

        self._check_room()

    def _check_room(self):
        """Raise `InvalidInput` if the area is too small for the boxes, however they are placed.

        In two neighbouring rows, boxes are at least three columns apart, or two from the loose key.
        """
        boxes = 1 + max(self.goal_length) + max(self.num_distractors) * self.distractor_length
        most = 1 + -(-max(0, self.area - 2) // 2) * -(-max(0, self.area - 4) // 3)
        if boxes > most:
            raise InvalidInput(
                f"levels of size {self.size} with area={self.area} must have at most {most} boxes, "
                f"counting the loose key; received up to {boxes}, for which the room is too small"
            )

    def checked(self, start: Any) -> BoxWorldStart:
        """Return `start` unchanged if its size and colours fit these levels.

        Raises:
            InvalidInput: if they do not fit.
        """
        if (
            not isinstance(start, BoxWorldStart)
            or start.size != self.size
            or start.max_colour > self.num_colours
        ):
            raise InvalidInput(
                f"every start must be a BoxWorldStart of size {self.size} with colours up to "
                f"{self.num_colours}; received {start!r}"
            )
        return start

    def draw(self, rng: np.random.Generator) -> BoxWorldStart:
        """Draw a level.

        Args:
            rng: random generator, whose state determines the level.

        Raises:
            InvalidInput: if many tries find no level, because the room or the number of allowed
                pairs of colours is too small.
        """
        for _ in range(_TRIES):
            length, boxes = self._coloured(rng)
            start = self._placed(rng, length, boxes)
            if start is not None:
                return start
        raise InvalidInput(
            f"no level of size {self.size} with area={self.area} was found in {_TRIES} tries: the "
            f"`size` or `area` must be larger for these boxes; "
            f"received goal_length={self.goal_length}, "
            f"num_distractors={self.num_distractors}, "
            f"distractor_length={self.distractor_length}"
        )

    def _coloured(self, rng):
        """Return the number of boxes in the solution, and all boxes as colours (lock, key)."""
        length, boxes = self._numbered(rng)
        for _ in range(_COLOURINGS):
            colours = [0, *(1 + rng.permutation(self.num_colours)).tolist()]
            coloured = [(colours[lock], colours[key]) for lock, key in boxes]
            if self._is_of_part(coloured, length):
                return length, coloured
        raise InvalidInput(
            f"no level of part {self.part!r} was found in {_COLOURINGS} tries: `held_out_fraction` "
            "must leave enough pairs of colours for both parts; received "
            f"{self.held_out_fraction}"
        )

    def _is_of_part(self, boxes, length):
        if self.part == "train":
            return self.held_out.isdisjoint(boxes)
        return self.part == "all" or not self.held_out.isdisjoint(boxes[1 : length + 1])

    def _numbered(self, rng):
        """Return the length of the solution, and boxes (lock, key) as numbers of keys; 0 is none.

        The solution uses the keys 1, 2, ... in this order. `_coloured` replaces numbers by colours.
        """
        length = _pick(rng, self.goal_length)
        boxes = [(i, i + 1) for i in range(length)] + [(length, 0)]
        for _ in range(_pick(rng, self.num_distractors)):
            lock = 1 + int(rng.integers(length))
            for _ in range(self.distractor_length):
                key = lock
                while key == lock:
                    key = int(rng.integers(length + 1, self.num_colours))
                boxes.append((lock, key))
                lock = key
        return length, boxes

    def _placed(self, rng, length, boxes):
        """Return a start with boxes at random positions, or `None` if there is no room left.

        Every box is surrounded by floor.
        """
        size, area = self.size, self.area
        top, left = rng.integers(0, size - area + 1), rng.integers(0, size - area + 1)
        cells = np.zeros((size, size), np.uint8)
        room = np.zeros((size, size), bool)  # cells where the left cell of a box can be
        room[top + 1 : top + area - 1, left + 1 : left + area - 3] = True
        for i, (lock, key) in enumerate(boxes):
            positions = np.flatnonzero(room)
            if not len(positions):
                return None
            row, column = divmod(_pick(rng, positions), size)
            cells[row, column] = cell_code(KEY, key) if key else cell_code(GEM)
            if lock:
                cells[row, column + 1] = cell_code(DISTRACTOR if i > length else LOCK, lock)
            room[row - 1 : row + 2, max(0, column - 2) : column + (3 if lock else 2)] = False
        # In the authors' code, the agent never starts in the first or last row or last column.
        # Boxes fit only into areas with three or more other rows, where some cells stay free.
        free = np.argwhere(cells[top + 1 : top + area - 1, left : left + area - 1] == FLOOR)
        row, column = free[rng.integers(len(free))].tolist()
        return BoxWorldStart(size, cells.tobytes(), (int(top) + 1 + row, int(left) + column))


def _pick(rng, values):
    return int(values[rng.integers(len(values))])
