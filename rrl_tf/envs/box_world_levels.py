"""Box-World's levels: what a start is, and how they are drawn."""

from __future__ import annotations

import dataclasses
import functools
import itertools
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

# A cell is one byte: its kind, and in the lower five bits its colour, 0 where it has none.
FLOOR, KEY, LOCK, GEM, DISTRACTOR = range(5)
COLOUR_BITS = 5
COLOURS = 2**COLOUR_BITS - 1
"""At most so many colours; the authors have 20."""

PARTS = ("all", "train", "test")
_TRIES = 200  # as many as the authors'
_COLOURINGS = 2000
_FOUND = 10
"""`check` wants as many in the tries of one draw, which then fails once in 20,000 times or less."""
_COUNTS = {"goal_length": 1, "num_distractors": 0, "num_backward": 0}
"""Arguments that are a number or several, and the least that they may be."""


def cell_code(kind: int, colour: int = 0) -> int:
    """The byte of a cell.

    Example:
        >>> cell_code(KEY, 3) >> COLOUR_BITS == KEY, cell_code(KEY, 3) & COLOURS
        (True, 3)
    """
    return kind << COLOUR_BITS | colour


@dataclasses.dataclass(frozen=True, order=True)
class BoxWorldStart:
    """Where everything stands at the beginning of a Box-World episode.

    Args:
        size: side of the room in cells, without its walls.
        cells: `size * size` bytes of `cell_code`, row by row: floor, keys, the gem, locks, and the
            locks of distractors. A lock closes what is left of it.
        agent: (row, column) of the agent.

    Raises:
        InvalidInput: no episode starts like this.

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
        except (TypeError, ValueError):  # no bytes, no pair
            is_possible = False
        if not is_possible:
            raise InvalidInput(
                "a Box-World episode starts with size * size bytes of cells and an agent on the "
                f"floor; received {self!r}"
            )

    def _is_possible(self):
        row, column = self.agent
        inside = row in range(self.size) and column in range(self.size)
        return (
            isinstance(self.cells, bytes)
            and len(self.cells) == self.size**2
            and inside
            and self.cells[row * self.size + column] == FLOOR
            and max(self.cells) < cell_code(DISTRACTOR + 1)
        )

    @property
    def max_colour(self) -> int:
        """The largest colour of any cell, also of a key that lies free."""
        return max(code & COLOURS for code in self.cells)

    @functools.cached_property
    def boxes(self) -> tuple[tuple[int, int, bool], ...]:
        """(colour of the lock, colour of the key or 0 for the gem, whether a distractor) each."""
        cells = np.frombuffer(self.cells, np.uint8).reshape(self.size, self.size)
        kinds, colours = np.divmod(cells, COLOURS + 1)
        behind = np.pad(colours, ((0, 0), (1, 0)))[:, :-1]  # nothing at the left end of a row
        locks = (kinds == LOCK) | (kinds == DISTRACTOR)
        wrong = kinds[locks] == DISTRACTOR
        return tuple(zip(colours[locks].tolist(), behind[locks].tolist(), wrong.tolist()))

    @property
    def pairs(self) -> frozenset[tuple[int, int]]:
        """(colour of the lock, colour of the key) of all boxes, but for the gem's."""
        return frozenset((lock, key) for lock, key, _ in self.boxes if key)

    @property
    def solution_pairs(self) -> frozenset[tuple[int, int]]:
        """Those of the boxes that lead to the gem."""
        return frozenset((lock, key) for lock, key, wrong in self.boxes if key and not wrong)


def held_out_pairs(num_colours: int = 20, share: float = 0.2, seed: int = 0) -> frozenset[Any]:
    """The pairs (colour of a lock, colour of the key behind it) that training never shows.

    Args:
        num_colours: C; colours are 1 to C.
        share: of the C(C - 1) pairs of two colours.
        seed: which ones.

    Raises:
        InvalidInput: a number that is not possible.

    Example:
        >>> len(held_out_pairs(20)), all(lock != key for lock, key in held_out_pairs(20))
        (76, True)
    """
    colours = number_from("num_colours", integer("num_colours", num_colours), 2, COLOURS)
    number_from("held_out_share", share, 0, 1)
    return _held_out_pairs(colours, share, natural("held_out_seed", seed))


@functools.cache
def _held_out_pairs(num_colours, share, seed):
    colours = range(1, num_colours + 1)
    pairs = [(lock, key) for lock in colours for key in colours if lock != key]
    chosen = np.random.default_rng(seed).permutation(len(pairs))[: round(share * len(pairs))]
    return frozenset(pairs[i] for i in chosen)


@dataclasses.dataclass(frozen=True)
class BoxWorldLevels:
    """What levels there are; `draw` draws one.

    A loose key opens a box, whose key opens the next one, until the last, which holds the gem.
    Distractors are boxes whose lock a key of the solution opens as well, and then the episode is
    lost: what is in them opens at most further distractors.

    Args:
        size: side of the room in cells, without its walls.
        goal_length: how many boxes lead to the gem: a number, or those to draw from.
        num_distractors: how many branches of distractors: a number, or those to draw from.
        distractor_length: boxes of a branch.
        num_backward: how many backward distractors: boxes with a key of the solution behind a lock
            that nothing on the way opens.
        num_colours: C, of locks and keys.
        part: `"all"` levels; `"train"`, those without a pair of `held_out_pairs`; `"test"`, those
            whose solution has at least one, which takes two boxes.
        held_out_share, held_out_seed: as in `held_out_pairs`.

    Raises:
        InvalidInput: a number that is not possible.

    Example:
        >>> levels = BoxWorldLevels(size=8, goal_length=2, num_distractors=1)
        >>> len(levels.draw(np.random.default_rng(0)).boxes)
        3

    Source: the generator is that of github.com/google-deepmind/pycolab, of Zambaldi et al. (2018).
    """

    size: int = 12
    goal_length: int | Iterable[int] = (1, 2, 3, 4)
    num_distractors: int | Iterable[int] = (0, 1, 2, 3, 4)
    distractor_length: int = 1
    num_backward: int | Iterable[int] = 0
    num_colours: int = 20
    part: str = "all"
    held_out_share: float = 0.2
    held_out_seed: int = 0

    def __post_init__(self):
        keep = functools.partial(object.__setattr__, self)
        positive_int("size", self.size)
        positive_int("distractor_length", self.distractor_length)
        held_out_pairs(self.num_colours, self.held_out_share, self.held_out_seed)
        one_of("part", self.part, PARTS)
        for name, least in _COUNTS.items():
            keep(name, integers_from(name, getattr(self, name), least))
        if self.part == "test":
            longer = tuple(length for length in self.goal_length if length > 1)
            if not longer:
                raise InvalidInput(
                    "part='test' needs a goal_length of 2 or more, as the gem's box has no key; "
                    f"received {self.goal_length}"
                )
            keep("goal_length", longer)
        self._check_room()
        others = self.num_colours - 1 - max(self.goal_length)
        branches = max(self.num_distractors) > 0
        needed = max(branches * min(self.distractor_length, 2), max(self.num_backward) > 0)
        if others < needed:
            raise InvalidInput(
                f"num_colours must be at least {max(self.goal_length) + 1 + needed} for "
                f"goal_length {max(self.goal_length)} and the distractors asked for; "
                f"received {self.num_colours}"
            )

    def _check_room(self):
        """So many boxes that no room holds them would take as long to draw as there are."""
        wrong = max(self.num_distractors) * self.distractor_length + max(self.num_backward)
        cells = 2 + 2 * (max(self.goal_length) + wrong)  # the agent and the loose key; of a box two
        if cells > self.size**2:
            raise InvalidInput(
                f"boxes have no room in a grid of size {self.size}: {cells} cells would hold "
                f"something; received goal_length={self.goal_length}, "
                f"num_distractors={self.num_distractors}, "
                f"distractor_length={self.distractor_length}, num_backward={self.num_backward}"
            )

    @functools.cached_property
    def held_out(self) -> frozenset[Any]:
        """The pairs that `part` is about."""
        return held_out_pairs(self.num_colours, self.held_out_share, self.held_out_seed)

    def check(self) -> None:
        """Refuses levels that `draw` would not find, or now and then not: it takes some of either.

        Raises:
            InvalidInput: boxes have hardly room, or colours.
        """
        rng = np.random.default_rng(0)
        for extreme in (max, min):  # most pairs to be known ones; fewest, one of them held out
            numbers = {name: extreme(getattr(self, name)) for name in _COUNTS}
            hardest = dataclasses.replace(self, **numbers)
            if not _are_found(hardest._is_coloured(rng) for _ in range(_COLOURINGS)):
                raise self._no_colours()
        if not _are_found(self._placed(rng, *self._numbered(rng)) for _ in range(_TRIES)):
            raise self._no_room()

    def _is_coloured(self, rng):
        length, boxes = self._numbered(rng)
        return self._is_of_part(self._in_colours(rng, boxes), length)

    def checked(self, start: Any) -> BoxWorldStart:
        """A start that is given, of which only size and colours have to be these.

        Raises:
            InvalidInput: it is none.
        """
        if (
            not isinstance(start, BoxWorldStart)
            or start.size != self.size
            or start.max_colour > self.num_colours
        ):
            raise InvalidInput(
                f"expected a BoxWorldStart of size {self.size} with colours up to "
                f"{self.num_colours}; received {start!r}"
            )
        return start

    def draw(self, rng: np.random.Generator) -> BoxWorldStart:
        """A level drawn at random.

        Args:
            rng: what is drawn from; the same state gives the same level.

        Raises:
            InvalidInput: there is hardly a level like this: boxes have no room, or no colours.
        """
        for _ in range(_TRIES):
            length, boxes = self._coloured(rng)
            start = self._placed(rng, length, boxes)
            if start is not None:
                return start
        raise self._no_room()

    def _no_room(self):
        return InvalidInput(
            f"boxes have no room, or hardly any, in a grid of size {self.size}, in {_TRIES} tries; "
            f"received goal_length={self.goal_length}, "
            f"num_distractors={self.num_distractors}"
        )

    def _coloured(self, rng):
        """Number of the solution's boxes, and (lock, key) of all boxes in colours."""
        length, boxes = self._numbered(rng)
        for _ in range(_COLOURINGS):
            coloured = self._in_colours(rng, boxes)
            if self._is_of_part(coloured, length):
                return length, coloured
        raise self._no_colours()

    def _no_colours(self):
        return InvalidInput(
            f"no level of part {self.part!r}, or hardly any, is found in {_COLOURINGS} tries: "
            "held_out_share must leave both parts enough pairs of colours; "
            f"received {self.held_out_share}"
        )

    def _in_colours(self, rng, boxes):
        colours = [0, *(1 + rng.permutation(self.num_colours)).tolist()]
        return [(colours[lock], colours[key]) for lock, key in boxes]

    def _is_of_part(self, boxes, length):
        if self.part == "train":
            return self.held_out.isdisjoint(boxes)
        return self.part == "all" or not self.held_out.isdisjoint(boxes[1 : length + 1])

    def _numbered(self, rng):
        """The same before colours are given: 1, 2, ... along the solution; 0 is no key, no lock."""
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
        for _ in range(_pick(rng, self.num_backward)):
            key, lock = 1 + rng.integers(length), rng.integers(length + 1, self.num_colours)
            boxes.append((int(lock), int(key)))
        return length, boxes

    def _placed(self, rng, length, boxes):
        """A start with these boxes, each with floor all round it; `None` where there is no room."""
        size = self.size
        cells = np.zeros((size, size), np.uint8)
        room = np.zeros((size, size), bool)  # for the left cell of a box
        room[1 : size - 1, 1 : size - 3] = True
        for i, (lock, key) in enumerate(boxes):
            places = np.flatnonzero(room)
            if not len(places):
                return None
            row, column = divmod(_pick(rng, places), size)
            cells[row, column] = cell_code(KEY, key) if key else cell_code(GEM)
            if lock:
                kind = DISTRACTOR if i > length else LOCK
                cells[row, column + 1] = cell_code(kind, lock)
            room[row - 1 : row + 2, max(0, column - 2) : column + (3 if lock else 2)] = False
        # The authors' player never starts in the last column, the first row or the last one.
        free = np.flatnonzero(cells[1 : size - 1, : size - 1] == FLOOR)
        if not len(free):
            return None
        row, column = divmod(_pick(rng, free), size - 1)
        return BoxWorldStart(size, cells.tobytes(), (row + 1, column))


def _are_found(tries):
    """Whether enough of some tries succeed; it looks at no more of them than that takes."""
    return any(count == _FOUND for count in itertools.accumulate(map(bool, tries)))


def _pick(rng, values):
    return int(values[rng.integers(len(values))])
