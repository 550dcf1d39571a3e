"""MiniGrid's KeyCorridor as a task: find a key in one room to fetch a ball from another."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import gymnasium
from minigrid.envs import KeyCorridorEnv

from rrl_tf._arguments import integers_from, one_of, optional_positive_int, positive_int
from rrl_tf.envs import minigrid_view, wrappers
from rrl_tf.envs.preparation import one_hot
from rrl_tf.envs.task import Level, Task
from rrl_tf.errors import InvalidInput

SMALLEST_ROOM = 3
# Who holds the key cannot take the ball, so the key must be dropped; nothing needs `done`.
ACTIONS = (0, 1, 2, 3, 4, 5)
REWARDS = ("success", "env")


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
        room_size: side of a room, walls included; at least 3.
        frames: observations stacked along the channels, oldest first.
        reward: `"success"`, 1 for the ball; or `"env"`, 1 - 0.9 * steps / max_steps for it.
        max_steps: time limit of an episode; `None` is MiniGrid's 30 * room_size².

    Raises:
        InvalidInput: if an argument is not possible.

    Example:
        >>> task = key_corridor_task((1, 2, 3))
        >>> task.name, task.action_names
        ('KeyCorridorS3R3', ('left', 'right', 'forward', 'pickup', 'drop', 'toggle'))
    """
    rows = integers_from("rows", rows, 1)
    if positive_int("room_size", room_size) < SMALLEST_ROOM:
        raise InvalidInput(f"room_size must be at least {SMALLEST_ROOM}; received {room_size!r}")
    positive_int("frames", frames)
    optional_positive_int("max_steps", max_steps)
    one_of("reward", reward, REWARDS)
    make = functools.partial(
        _make, room_size=room_size, frames=frames, reward=reward, max_steps=max_steps
    )
    space: Any = make(rows[0]).observation_space
    channels = space.shape[-1] // frames
    return Task(
        name=f"KeyCorridorS{room_size}R{rows[-1]}",
        levels=tuple(
            Level(f"S{room_size}R{number}", functools.partial(make, number)) for number in rows
        ),
        preparation=one_hot(space, frames, minigrid_view.UNSEEN, minigrid_view.AGENT_CELL),
        success_return=0.05,  # less than the least that the ball can be worth
        **minigrid_view.of_task(channels, coloured=True),
    )


def _make(rows, *, room_size, frames, reward, max_steps, render_mode=None):
    env: gymnasium.Env = KeyCorridorEnv(
        num_rows=rows, room_size=room_size, max_steps=max_steps, render_mode=render_mode
    )
    env = wrappers.MiniGridStateKey(wrappers.ViewWithCompass(env))
    env = wrappers.StackFrames(env, frames)
    env = wrappers.SelectActions(env, ACTIONS)
    return wrappers.ReplaceReward(env, wrappers.REWARDS[reward])
