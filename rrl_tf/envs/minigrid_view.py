"""What the numbers of a MiniGrid observation mean.

An observation is uint8 and (7, 7, C), axes (x, y): C is `frames * channels`, the channels of a
frame are object, colour, state and, with a compass, the agent's direction. The agent stands at
(3, 6) and looks towards y = 0; its cell shows what it carries. MiniGrid's wrappers give views of
other sizes, and one of the whole grid, with the agent in it.
"""

from __future__ import annotations

import collections
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

VIEW_SIZE = 7
AGENT_CELL = (VIEW_SIZE // 2, VIEW_SIZE - 1)
UNSEEN = OBJECT_TO_IDX["unseen"]
AGENT = OBJECT_TO_IDX["agent"]  # only a view of the whole grid has this code

# Number of codes of object, colour, state and direction: 11, 6, 3 and 4.
CODES_PER_CHANNEL = tuple(map(len, (OBJECT_TO_IDX, COLOR_TO_IDX, STATE_TO_IDX, DIR_TO_VEC)))

ACTION_NAMES = tuple(action.name for action in Actions)
# DoorKey needs no drop and no done.
TASK_ACTIONS = tuple(
    int(Actions[name]) for name in ("left", "right", "forward", "pickup", "toggle")
)

_LABELLED = ("key", "door", "goal", "ball", "box", "lava")
_COUNTED = ("key", "door", "ball", "box")  # of lava there may be a lake


def most_in_sight(size: int) -> int:
    """How many cells of a view can be in sight in a room with walls: they hide what is behind.

    From the agent's row to a wall these are at most all rows but one, as a wall is behind it.

    Args:
        size: Side of the room in cells, walls included.

    Example:
        >>> most_in_sight(5), most_in_sight(16)
        (20, 49)
    """
    return min(size - 1, VIEW_SIZE) * min(size, VIEW_SIZE)


def object_cells(
    view: Any, channels: int = 3, coloured: bool = False
) -> dict[str, tuple[int, int]]:
    """Finds the agent and the objects it sees.

    Args:
        view: One observation, `(width, height, C)`; of stacked frames the newest counts.
        channels: Channels of one frame, 3 or, with a compass, 4.
        coloured: Name the colour of everything, also of what is the only one of its kind in view.

    Returns:
        Label -> cell (x, y), in the order agent, key, door, goal, ball, box, lava, without what is
        out of sight. Those of one kind are told apart by their colours, as `red door`; of keys,
        doors, balls and boxes that look alike each is named, with a number from the second on, as
        `red door 2`, and of the others the first. The numbers are of this view: in the next one
        another may be the second. A carried object is in the agent's cell. The entity of cell
        (x, y) is number `x * height + y`.

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
        is_named = coloured or len(set(colours.values())) > 1
        for cell, colour in colours.items():
            name = f"{colour} {label}" if is_named else label
            counts[name] += 1
            if counts[name] == 1 or label in _COUNTED:
                cells[name if counts[name] == 1 else f"{name} {counts[name]}"] = cell
    return cells


def agent_cell(view: Any) -> tuple[int, int]:
    """The cell (x, y) of the agent: the one that shows it, or below in the middle of its own view.

    Args:
        view: One frame, `(width, height, channels)`.

    Example:
        >>> agent_cell(np.zeros((5, 5, 3), "uint8"))
        (2, 4)
    """
    width, height, _ = view.shape
    shown = np.argwhere(view[..., 0] == AGENT).tolist()
    x, y = shown[0] if shown else (width // 2, height - 1)
    return x, y


def agents_picture(env: Any) -> np.ndarray:
    """What the agent of a MiniGrid environment sees, as an RGB picture with the agent below."""
    size = env.get_wrapper_attr("agent_view_size")  # a wrapper may have changed it
    grid, in_sight = env.unwrapped.gen_obs_grid(size)
    return grid.render(32, (size // 2, size - 1), agent_dir=3, highlight_mask=in_sight)


def whole_picture(env: Any) -> np.ndarray:
    """All of the grid of a MiniGrid environment, as an RGB picture."""
    return env.unwrapped.get_frame(highlight=False, tile_size=32)


def unseen_cells(view: Any, channels: int = 3) -> np.ndarray:
    """Which cells are out of sight, `(width, height)` bool with axes (x, y).

    Args:
        view, channels: As in `object_cells`.

    Example:
        >>> int(unseen_cells(np.zeros((7, 7, 3), "uint8")).sum())
        49
    """
    return np.asarray(view)[..., -channels] == UNSEEN


def of_task(channels: int, coloured: bool = False) -> dict[str, Any]:
    """Arguments of a `Task` in any MiniGrid world: what is where in a view, and how it looks.

    Args:
        channels: Channels of one frame, 3 or, with a compass, 4.
        coloured: Name colours, where things of one kind and several colours are seen one after the
            other: each keeps its name.
    """
    return {
        "entities": lambda observation: object_cells(observation, channels, coloured),
        "unseen": lambda observation: unseen_cells(observation, channels),
        "view": agents_picture,
        "rows_first": False,
    }
