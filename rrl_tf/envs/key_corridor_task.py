"""MiniGrid's KeyCorridor as a task: find a key in one room to fetch a ball from another."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from rrl_tf._arguments import integers_from
from rrl_tf.envs import minigrid_view
from rrl_tf.envs.key_corridor import make_key_corridor
from rrl_tf.envs.preprocessing import one_hot
from rrl_tf.envs.task import Level, Task


def key_corridor_task(
    rows: int | Sequence[int] = (1,),
    *,
    room_size: int = 3,
    frames: int = 1,
    reward: str = "success",
    max_steps: int | None = None,
) -> Task:
    """MiniGrid's KeyCorridor as a `Task`, evaluated on seeds that training does not meet.

    Args:
        rows: rows of rooms to the left and right of the corridor, a curriculum from first to last.
        room_size, frames, reward, max_steps: as in `make_key_corridor`, for all levels.

    Raises:
        InvalidInput: if an argument is not possible.

    Example:
        >>> task = key_corridor_task((1, 2, 3))
        >>> task.name, task.action_names
        ('KeyCorridorS3R3', ('left', 'right', 'forward', 'pickup', 'drop', 'toggle'))
    """
    rows = integers_from("rows", rows, 1)
    make = functools.partial(
        make_key_corridor, room_size=room_size, frames=frames, reward=reward, max_steps=max_steps
    )
    space: Any = make(rows[0]).observation_space
    channels = space.shape[-1] // frames
    return Task(
        name=f"KeyCorridorS{room_size}R{rows[-1]}",
        levels=tuple(
            Level(f"S{room_size}R{number}", functools.partial(make, number)) for number in rows
        ),
        preprocessor=one_hot(space, frames, minigrid_view.UNSEEN, minigrid_view.AGENT_CELL),
        success_return=0.05,  # less than the least that the ball can be worth
        **minigrid_view.of_task(channels, coloured=True),
    )
