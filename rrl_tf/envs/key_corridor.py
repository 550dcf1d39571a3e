"""MiniGrid KeyCorridor: the environment an agent is trained in."""

from __future__ import annotations

import gymnasium
from minigrid.envs import KeyCorridorEnv

from rrl_tf._arguments import one_of, optional_positive_int, positive_int
from rrl_tf.envs import wrappers
from rrl_tf.errors import InvalidInput

SMALLEST_ROOM = 3
REWARDS = ("success", "env")
# Who holds the key cannot take the ball, so the key must be dropped; nothing needs `done`.
_ACTIONS = (0, 1, 2, 3, 4, 5)


def make_key_corridor(
    rows: int = 1,
    room_size: int = 3,
    frames: int = 1,
    reward: str = "success",
    max_steps: int | None = None,
    render_mode: str | None = None,
) -> gymnasium.Env:
    """Builds a KeyCorridor environment: behind one of the doors lies the key of another one.

    A corridor has rooms to the left and right. In one of those to the right, which is locked, lies
    a ball that is to be picked up, and in one of those to the left the key. Observations are the
    egocentric (7, 7, 4) uint8 image of MiniGrid, axes (x, y) and channels (object, colour, state,
    direction of the agent). Actions are left, right, forward, pickup, drop and toggle.

    Args:
        rows: Rows of rooms, each with one to the left and one to the right.
        room_size: Side of a room in cells, walls included; at least 3.
        frames: Number of the last observations stacked along the channels, oldest first.
        reward: `"success"`, 1 for the ball; or `"env"`, 1 - 0.9 * steps / max_steps for it.
        max_steps: Time limit in steps; `None` is MiniGrid's 30 * room_size².
        render_mode: `"rgb_array"`, `"human"` or `None`.

    Returns:
        The environment.

    Raises:
        InvalidInput: An unknown name, or a number that is not possible.

    Example:
        >>> env = make_key_corridor(rows=3)  # or gymnasium.make("rrl_tf/KeyCorridorS3R3-v0")
        >>> env.reset(seed=1)[0].shape
        (7, 7, 4)
        >>> env.get_wrapper_attr("action_names")
        ('left', 'right', 'forward', 'pickup', 'drop', 'toggle')
    """
    positive_int("rows", rows)
    if positive_int("room_size", room_size) < SMALLEST_ROOM:
        raise InvalidInput(f"room_size must be at least {SMALLEST_ROOM}; received {room_size!r}")
    positive_int("frames", frames)
    max_steps = optional_positive_int("max_steps", max_steps)
    one_of("reward", reward, REWARDS)
    env: gymnasium.Env = KeyCorridorEnv(
        num_rows=rows, room_size=room_size, max_steps=max_steps, render_mode=render_mode
    )
    env = wrappers.MiniGridStateKey(wrappers.ViewWithCompass(env))
    env = wrappers.StackFrames(env, frames)
    env = wrappers.SelectActions(env, _ACTIONS)
    return wrappers.ReplaceReward(env, wrappers.REWARDS[reward])


# Those that MiniGrid has.
for _room_size, _rows in ((3, 1), (3, 2), (3, 3), (4, 3), (5, 3), (6, 3)):
    gymnasium.register(
        f"rrl_tf/KeyCorridorS{_room_size}R{_rows}-v0",
        "rrl_tf.envs.key_corridor:make_key_corridor",
        kwargs={"rows": _rows, "room_size": _room_size},
        disable_env_checker=True,
    )
