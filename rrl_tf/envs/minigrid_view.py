"""Interpret the codes of MiniGrid's observations, and compute observations fast.

An observation is a uint8 array (7, 7, C) with axes (x, y) and C = `frames * channels`. The channels
of a frame are object, colour, state and, with a compass, the agent's direction. The agent is at
(3, 6) and faces y = 0; its cell contains the object that it carries. Wrappers of MiniGrid can
change the size of the view, or return the whole grid with the agent in it.
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

# How many codes the channels object, colour, state and direction have: 11, 6, 3 and 4.
CODES_PER_CHANNEL = tuple(map(len, (OBJECT_TO_IDX, COLOR_TO_IDX, STATE_TO_IDX, DIR_TO_VEC)))

ACTION_NAMES = tuple(action.name for action in Actions)
# DoorKey does not need MiniGrid's other two actions, drop and done.
TASK_ACTIONS = tuple(
    int(Actions[name]) for name in ("left", "right", "forward", "pickup", "toggle")
)

_LABELLED = ("key", "door", "goal", "ball", "box", "lava")
_NUMBERED = ("key", "door", "ball", "box")  # not lava, which may fill many cells
_MARGIN = VIEW_SIZE - 1  # how far a view can extend beyond the grid, where MiniGrid adds walls
_BITS = 1 << np.arange(VIEW_SIZE)
_IS_SET = (np.arange(1 << VIEW_SIZE)[:, None] & _BITS) > 0  # row n has the bits of n


def most_in_sight(size: int) -> int:
    """Return how many cells an agent can see at most in a closed room.

    The agent sees no cell beyond the walls, and never the wall behind it.

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
        view: one observation, `(width, height, C)`; if frames are stacked, the newest is used.
        channels: number of channels of one frame: 3, or 4 with a compass.
        coloured: whether labels always include the colour. By default, they include it only for
            kinds of objects that are visible in several colours, such as `red door`.

    Returns:
        Label → cell (x, y) of visible objects, in the order agent, key, door, goal, ball, box,
        lava.

        - If several keys, doors, balls or boxes have the same label, the second is `red door 2` and
          so on. These numbers can change from one view to the next.
        - Only the first of several goals or lava cells is returned.
        - A carried object is in the agent's cell.
        - Networks number the cell (x, y) as entity `x * height + y`.

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
    """Return the cell (x, y) with the agent's code or, without one, the middle of the last row.

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
    """Return a bool array `(width, height)` with axes (x, y), true for cells that are not visible.

    Args:
        view, channels: as in `object_cells`.

    Example:
        >>> int(unseen_cells(np.zeros((7, 7, 3), "uint8")).sum())
        49
    """
    return np.asarray(view)[..., -channels] == UNSEEN


def agents_picture(env: Any) -> np.ndarray:
    """Render the view of a MiniGrid agent as an RGB image in which the agent is at the bottom."""
    size = env.get_wrapper_attr("agent_view_size")  # a wrapper may have changed it
    grid, in_sight = env.unwrapped.gen_obs_grid(size)
    return grid.render(32, (size // 2, size - 1), agent_dir=3, highlight_mask=in_sight)


def whole_picture(env: Any) -> np.ndarray:
    """Render the whole grid of a MiniGrid environment as an RGB image."""
    return env.unwrapped.get_frame(highlight=False, tile_size=32)


class FieldOfView:
    """Computes the views from any cell of a grid with array operations.

    MiniGrid builds a view object by object, which takes 97 % of the time of a step. This class
    returns the same arrays much faster; a test compares both on random grids.

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
        """Return the view of an agent, `(7, 7, 3)` uint8; it is at (3, 6) and faces y = 0.

        Args:
            position: (x, y) of the agent in the grid.
            direction: direction of the agent in the grid: 0 right, 1 down, 2 left, 3 up.
            carrying: codes of the carried object, which the agent's cell then contains; `None` if
                the agent carries nothing.
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
    """Turn a window of the grid so that the agent faces y = 0; `np.rot90` takes twice as long."""
    if direction == 0:
        return window[::-1].swapaxes(0, 1)
    if direction == 1:
        return window[::-1, ::-1]
    if direction == 2:
        return window[:, ::-1].swapaxes(0, 1)
    return window


def _visible(transparent):
    """Return a mask `(7, 7)` of the visible cells; bit x of `transparent[y]` is cell (x, y)."""
    rows = [0] * VIEW_SIZE
    visible = 1 << AGENT_CELL[0]
    for y in reversed(range(VIEW_SIZE)):
        rows[y], visible = _spread(visible, transparent[y])
    return _IS_SET[rows].T


@functools.cache  # 128 x 128 possible arguments
def _spread(visible, transparent):
    """Return the visible cells of a row, and the cells of the next row that they reveal.

    Both arguments and both results are integers whose bit x is cell x. The rule is that of
    MiniGrid's `Grid.process_vis`. A sweep to the right extends visibility from each visible and
    transparent cell to its right neighbour, and in the next row to the cell ahead and its right
    neighbour. A sweep to the left does the same with left neighbours. As in MiniGrid, the first
    sweep skips the last cell, and the second sweep skips the first cell.
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
    """Return a table of the visibility rule for all possible rows of a view, `(128, 128)` int32.

    The first index encodes the cells of a row that the previous row reveals, the second index its
    transparent cells; bit x is cell x. The lower seven bits of an entry encode the visible cells of
    this row. The next seven bits encode the cells of the next row that these reveal.
    """
    number = range(1 << VIEW_SIZE)
    spread = np.array([[_spread(visible, clear) for clear in number] for visible in number])
    return (spread[..., 0] + (spread[..., 1] << VIEW_SIZE)).astype(np.int32)
