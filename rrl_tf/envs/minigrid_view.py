"""MiniGrid's observations: the meaning of their codes, and a fast way to compute them.

An observation is uint8 and (7, 7, C), axes (x, y). C is `frames * channels`; the channels of a
frame are object, colour, state and, with a compass, the agent's direction. The agent is at (3, 6),
faces y = 0, and its cell shows the object that it carries. MiniGrid's wrappers return views of
other sizes, and one of the whole grid that contains the agent.
"""

from __future__ import annotations

import collections
import functools
from typing import Any

import numpy as np
from minigrid.core.actions import Actions
from minigrid.core.constants import (
    COLOR_TO_IDX,
    DIR_TO_VEC,
    IDX_TO_COLOR,
    OBJECT_TO_IDX,
    STATE_TO_IDX,
)
from minigrid.core.world_object import Wall

VIEW_SIZE = 7
AGENT_CELL = (VIEW_SIZE // 2, VIEW_SIZE - 1)
UNSEEN = OBJECT_TO_IDX["unseen"]
AGENT = OBJECT_TO_IDX["agent"]  # only a view of the whole grid has this code
EMPTY = (OBJECT_TO_IDX["empty"], 0, 0)
"""Codes of an empty cell."""

# Numbers of codes of object, colour, state and direction: 11, 6, 3 and 4.
CODES_PER_CHANNEL = tuple(map(len, (OBJECT_TO_IDX, COLOR_TO_IDX, STATE_TO_IDX, DIR_TO_VEC)))

ACTION_NAMES = tuple(action.name for action in Actions)
# DoorKey does not need drop and done.
TASK_ACTIONS = tuple(
    int(Actions[name]) for name in ("left", "right", "forward", "pickup", "toggle")
)

_LABELLED = ("key", "door", "goal", "ball", "box", "lava")
_NUMBERED = ("key", "door", "ball", "box")  # lava may fill many cells
_MARGIN = VIEW_SIZE - 1  # the view extends this far beyond the grid, where MiniGrid puts walls
_BITS = 1 << np.arange(VIEW_SIZE)
_IS_SET = (np.arange(1 << VIEW_SIZE)[:, None] & _BITS) > 0  # number -> its bits


def most_in_sight(size: int) -> int:
    """Return the largest number of visible cells in a view of a room, whose walls block sight.

    The view covers all rows of the room but the one of the wall behind the agent.

    Args:
        size: side of the room in cells, walls included.

    Example:
        >>> most_in_sight(5), most_in_sight(16)
        (20, 49)
    """
    return min(size - 1, VIEW_SIZE) * min(size, VIEW_SIZE)


def object_cells(
    view: Any, channels: int = 3, coloured: bool = False
) -> dict[str, tuple[int, int]]:
    """Return the cells of the agent and of the objects in its view.

    Args:
        view: one observation, `(width, height, C)`; of stacked frames the newest is used.
        channels: channels of one frame, 3, or 4 with a compass.
        coloured: always include the colour in labels, instead of only where objects of one kind
            differ in colour.

    Returns:
        Label → cell (x, y), in the order agent, key, door, goal, ball, box, lava, without objects
        out of sight. Objects of one kind and several colours have labels such as `red door`.
        Further keys, doors, balls and boxes with the same label are numbered, as `red door 2`; of
        goals and lava only the first is returned. Numbers hold for one view only. A carried object
        is in the agent's cell. The entity of cell (x, y) is number `x * height + y`.

    Example:
        >>> view = np.zeros((7, 7, 3), "uint8")
        >>> view[2, 5, 0] = OBJECT_TO_IDX["key"]
        >>> object_cells(view)
        {'agent': (3, 6), 'key': (2, 5)}
    """
    newest = np.asarray(view)[..., -channels:]
    cells: dict[str, Any] = {"agent": agent_cell(newest)}
    counts: collections.Counter[str] = collections.Counter()
    for label in _LABELLED:
        found = np.argwhere(newest[..., 0] == OBJECT_TO_IDX[label])
        colours = {(x, y): IDX_TO_COLOR[int(newest[x, y, 1])] for x, y in found.tolist()}
        with_colour = coloured or len(set(colours.values())) > 1
        for cell, colour in colours.items():
            name = f"{colour} {label}" if with_colour else label
            counts[name] += 1
            if counts[name] == 1 or label in _NUMBERED:
                cells[name if counts[name] == 1 else f"{name} {counts[name]}"] = cell
    return cells


def agent_cell(view: Any) -> tuple[int, int]:
    """Return the agent's cell (x, y): the one with its code, or the middle of the last row.

    Args:
        view: one frame, `(width, height, channels)`.

    Example:
        >>> agent_cell(np.zeros((5, 5, 3), "uint8"))
        (2, 4)
    """
    width, height, _ = view.shape
    marked = np.argwhere(view[..., 0] == AGENT).tolist()
    x, y = marked[0] if marked else (width // 2, height - 1)
    return x, y


def unseen_cells(view: Any, channels: int = 3) -> np.ndarray:
    """Return which cells are out of sight, `(width, height)` bool with axes (x, y).

    Args:
        view, channels: as in `object_cells`.

    Example:
        >>> int(unseen_cells(np.zeros((7, 7, 3), "uint8")).sum())
        49
    """
    return np.asarray(view)[..., -channels] == UNSEEN


def agents_picture(env: Any) -> np.ndarray:
    """Render the view of a MiniGrid agent as an RGB image with the agent at the bottom."""
    size = env.get_wrapper_attr("agent_view_size")  # a wrapper may have changed it
    grid, in_sight = env.unwrapped.gen_obs_grid(size)
    return grid.render(32, (size // 2, size - 1), agent_dir=3, highlight_mask=in_sight)


def whole_picture(env: Any) -> np.ndarray:
    """Render the whole grid of a MiniGrid environment as an RGB image."""
    return env.unwrapped.get_frame(highlight=False, tile_size=32)


class FieldOfView:
    """A grid from which views of any cell are computed as arrays.

    MiniGrid builds a view object by object, which takes 97 % of the time of a step. This class
    returns the same numbers in a fraction of it; a test compares them on random grids.

    Args:
        cells: `(width, height, 3)` uint8 codes of the whole grid, from `Grid.encode`.
    """

    def __init__(self, cells: np.ndarray) -> None:
        width, height, _ = cells.shape
        self._cells = np.empty((width + 2 * _MARGIN, height + 2 * _MARGIN, 3), np.uint8)
        self._cells[:] = Wall().encode()
        self._cells[_MARGIN:-_MARGIN, _MARGIN:-_MARGIN] = cells
        objects, states = self._cells[..., 0], self._cells[..., 2]
        is_shut = (objects == OBJECT_TO_IDX["door"]) & (states != STATE_TO_IDX["open"])
        self._transparent = (objects != OBJECT_TO_IDX["wall"]) & ~is_shut

    def look(
        self,
        position: tuple[int, int],
        direction: int,
        carrying: tuple[int, int, int] | None = None,
    ) -> np.ndarray:
        """Return the view `(7, 7, 3)` uint8 from a cell; the agent is at (3, 6) and faces y = 0.

        Args:
            position: (x, y) of the agent.
            direction: 0 right, 1 down, 2 left, 3 up.
            carrying: codes of the carried object, which replaces the agent's own cell, or `None`.
        """
        back, side = _MARGIN, _MARGIN - VIEW_SIZE // 2
        left, top = ((back, side), (side, back), (0, side), (side, 0))[direction]
        x, y = position[0] + left, position[1] + top
        window = np.s_[x : x + VIEW_SIZE, y : y + VIEW_SIZE]
        transparent = _BITS @ _turned(self._transparent[window], direction)  # one number per row
        view = _turned(self._cells[window], direction) * _visible(transparent.tolist())[..., None]
        view[AGENT_CELL] = carrying or EMPTY
        return view


def _turned(window, direction):
    """Turn a window of the grid until the agent faces y = 0; np.rot90 takes twice as long."""
    if direction == 0:
        return window[::-1].swapaxes(0, 1)
    if direction == 1:
        return window[::-1, ::-1]
    if direction == 2:
        return window[:, ::-1].swapaxes(0, 1)
    return window


def _visible(transparent):
    """Return the visible cells (x, y) of a view; bit x of `transparent[y]` is cell (x, y)."""
    rows = [0] * VIEW_SIZE
    visible = 1 << AGENT_CELL[0]
    for y in reversed(range(VIEW_SIZE)):
        rows[y], visible = _spread(visible, transparent[y])
    return _IS_SET[rows].T


@functools.cache  # a pure function of 2 × 7 bits
def _spread(visible, transparent):
    """Return the visible cells of a row, and the cells of the next row that they reveal.

    This is MiniGrid's rule (`Grid.process_vis`): a visible transparent cell reveals its left and
    right neighbours, and in the next row the cell ahead and that cell's neighbour. As in MiniGrid,
    the sweep to the right skips the last cell, and the sweep to the left the first.
    """
    ahead = 0
    for x in range(VIEW_SIZE - 1):
        if visible & transparent & 1 << x:
            visible |= 2 << x
            ahead |= 3 << x
    for x in reversed(range(1, VIEW_SIZE)):
        if visible & transparent & 1 << x:
            visible |= 1 << x >> 1
            ahead |= 3 << x >> 1
    return visible, ahead


@functools.cache
def spread_table() -> np.ndarray:
    """Return the visibility rule for all possible rows of a view, `(128, 128)` int32.

    Entry `[visible, transparent]` is for a row whose cells `visible` are revealed by the previous
    row; bit x is cell x. Its lower seven bits are the row's visible cells, the next seven bits the
    cells of the next row that they reveal.
    """
    number = range(1 << VIEW_SIZE)
    spread = np.array([[_spread(visible, clear) for clear in number] for visible in number])
    return (spread[..., 0] + (spread[..., 1] << VIEW_SIZE)).astype(np.int32)
