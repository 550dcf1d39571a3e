"""Define MiniGrid's KeyCorridor as an environment and a task."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import gymnasium
from minigrid.envs import KeyCorridorEnv

from rrl_tf._arguments import integers_from, number_from, optional_positive_int, positive_int
from rrl_tf.envs.minigrid_env import MiniGridStateKey, minigrid_task, wrapped
from rrl_tf.envs.task import Level, Task

SMALLEST_ROOM = 3
# All actions except `done`, which has no effect. The agent must drop the key to take the ball.
_ACTIONS = (0, 1, 2, 3, 4, 5)


def make_key_corridor(
    rows: int = 1,
    room_size: int = 3,
    frames: int = 1,
    reward: str = "success",
    max_steps: int | None = None,
    render_mode: str | None = None,
) -> gymnasium.Env:
    """Return a KeyCorridor environment, in which the agent fetches a ball from a locked room.

    A corridor has rooms on its left and right. A locked room on the right contains the ball, and a
    room on the left contains the key. Observations are MiniGrid's egocentric (7, 7, 4) uint8 image,
    axes (x, y) and channels (object, colour, state, direction of the agent). Actions are left,
    right, forward, pickup, drop and toggle.

    Args:
        rows: number of rows of rooms; a row has one room on the left and one on the right.
        room_size: side of a room in cells, walls included; at least 3.
        frames: number of observations stacked along the channels, oldest first.
        reward: reward for the ball: `"success"`, 1; or `"env"`, 1 - 0.9 * steps / max_steps.
        max_steps: time limit in steps; `None` is MiniGrid's 30 * room_size².
        render_mode: `"rgb_array"`, `"human"` or `None`.

    Returns:
        An environment with the attributes `action_names` and `state_key()`, whose `reset` accepts
        no options.

    Raises:
        InvalidInput: if a name is unknown, or a number is out of range.

    Example:
        >>> env = make_key_corridor(rows=3)  # or gymnasium.make("rrl_tf/KeyCorridorS3R3-v0")
        >>> env.reset(seed=1)[0].shape
        (7, 7, 4)
        >>> env.get_wrapper_attr("action_names")
        ('left', 'right', 'forward', 'pickup', 'drop', 'toggle')
    """
    env = KeyCorridorEnv(
        num_rows=positive_int("rows", rows),
        room_size=number_from("room_size", positive_int("room_size", room_size), SMALLEST_ROOM),
        max_steps=optional_positive_int("max_steps", max_steps),
        render_mode=render_mode,
    )
    return wrapped(MiniGridStateKey(env), frames, reward, _ACTIONS)


def key_corridor_task(
    rows: int | Sequence[int] = (1,),
    *,
    room_size: int = 3,
    frames: int = 1,
    reward: str = "success",
    max_steps: int | None = None,
) -> Task:
    """Return MiniGrid's KeyCorridor as a `Task`, evaluated on seeds that training does not use.

    Args:
        rows: numbers of rows of rooms: one level each, in the order of the curriculum.
        room_size, frames, reward, max_steps: as in `make_key_corridor`, for all levels.

    Raises:
        InvalidInput: if an argument is invalid.

    Example:
        >>> task = key_corridor_task((1, 2, 3))
        >>> task.name, task.action_names
        ('KeyCorridorS3R3', ('left', 'right', 'forward', 'pickup', 'drop', 'toggle'))
    """
    rows = integers_from("rows", rows, 1)
    make = functools.partial(
        make_key_corridor, room_size=room_size, frames=frames, reward=reward, max_steps=max_steps
    )
    return minigrid_task(
        f"KeyCorridorS{room_size}R{rows[-1]}",
        [Level(f"S{room_size}R{number}", functools.partial(make, number)) for number in rows],
        coloured=True,
        success_return=0.05,  # the reward for the ball is at least 0.1
    )
