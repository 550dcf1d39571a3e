"""A task from any Gymnasium environment with discrete actions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from minigrid.minigrid_env import MiniGridEnv

from rrl_tf._arguments import optional_positive_int
from rrl_tf.envs import minigrid_view, wrappers
from rrl_tf.envs.preprocessing import Preprocessor, as_float, one_hot, scaled
from rrl_tf.envs.task import Level, Task, new_env
from rrl_tf.errors import InvalidInput

MOST_CODES = 64
"""An integer grid with more values than this in a channel is taken for pixels."""

# What MiniGrid pays at the goal is 1 - 0.9 * steps / max_steps, and nothing elsewhere.
_LEAST_MINIGRID_REWARD = 0.05


def gymnasium_task(
    env: str | Callable[..., gymnasium.Env],
    *,
    test_env: str | Callable[..., gymnasium.Env] | None = None,
    success_return: float | None = None,
    max_steps: int | None = None,
    frames: int = 1,
    actions: Sequence[int] = (),
) -> Task:
    """Describes an environment as a `Task`, by what its spaces and attributes tell.

    | observations | prepared as |
    |---|---|
    | MiniGrid's dict | one-hot codes of view and direction, without the mission |
    | a `Box` of integers (height, width, channels) with few values | one-hot codes, a grid |
    | any other `Box` of three axes, with bounds | divided by the larger one: pixels to 0..1 |
    | a `Box` of bytes | divided by 255 |
    | any other `Box` | float32, as it is |
    | `Dict`, `Tuple`, `Discrete`, ... | flattened to a vector |

    Args:
        env: id of a registered environment, as `CartPole-v1` or `module:Name-v0`, which imports
            the module first; or a function `make(render_mode=None)` → environment.
        test_env: the same for the environment to be evaluated in, if it is another one.
        success_return: as in `Task`; by default what the environment is registered with, and any
            reward at all in MiniGrid.
        max_steps: time limit of an episode; by default the environment's own. One that a function
            has set for itself can only be shortened.
        frames: observations stacked along their last axis.
        actions: those to choose from, each once; all if empty.

    Returns:
        A `Task` of one level.

    Raises:
        InvalidInput: if there is no such environment, or it or a number cannot be worked with.

    Example:
        >>> task = gymnasium_task("CartPole-v1")
        >>> task.success_return, task.preprocessor.shape
        (475.0, (4,))
    """
    max_steps = optional_positive_int("max_steps", max_steps)
    make = functools.partial(_make, env, max_steps, frames, actions)
    make_test = functools.partial(_make, test_env, max_steps, frames, actions)
    made = _made(env, None, max_steps)
    example = _wrapped(made, frames, actions)
    if success_return is None:
        registered = getattr(example.spec, "reward_threshold", None)
        success_return = _LEAST_MINIGRID_REWARD if _is_minigrid(made) else registered
    level = Level("", make, make_test if test_env else None)
    named = {"name": _name(env), "frames": frames, "success_return": success_return}
    if _shows_cells(made):
        return _minigrid_task(level, example, frames, named)
    return Task(
        levels=(level,),
        preprocessor=_preprocessor(example.observation_space, frames),
        entities=_method(example, "entities"),
        **named,
    )


def _name(env):
    """The id of an environment without its module, or the name of the function that makes it."""
    name = env if isinstance(env, str) else getattr(env, "__name__", "environment")
    return name.rpartition(":")[2]


def _make(env, max_steps, frames, actions, render_mode=None):
    return _wrapped(_made(env, render_mode, max_steps), frames, actions)


def _is_minigrid(env):
    return isinstance(env.unwrapped, MiniGridEnv)


def _shows_cells(env):
    """Whether it gives MiniGrid's own dict; a wrapper may have made an array of it."""
    return _is_minigrid(env) and isinstance(env.observation_space, spaces.Dict)


def _minigrid_task(level, example, frames, named):
    channels = wrappers.ViewWithCompass.channels
    view = example.reset(seed=0)[0][..., -channels:]
    whole = bool((view[..., 0] == minigrid_view.AGENT).any())
    agent: Any = {"agent_cell": minigrid_view.agent_cell(view)}
    described = minigrid_view.of_task(channels)
    if whole:  # the agent goes about in it
        agent = {"agent_code": minigrid_view.AGENT}
        described["view"] = minigrid_view.whole_picture
    space = example.observation_space
    return Task(
        levels=(level,),
        preprocessor=one_hot(space, frames, minigrid_view.UNSEEN, **agent),
        **described,
        **named,
    )


def _made(env, render_mode, max_steps):
    """The environment as its author made it."""
    if not isinstance(env, str):
        own = new_env(env, render_mode)
        return own if max_steps is None else gymnasium.wrappers.TimeLimit(own, max_steps)
    # Who draws nothing need not take the argument.
    drawn = {} if render_mode is None else {"render_mode": render_mode}
    try:
        made = gymnasium.make(env, max_episode_steps=max_steps, **drawn)
    except (gymnasium.error.Error, ImportError, ValueError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InvalidInput(f"cannot make the environment {env!r}: {first}") from error
    if max_steps is not None and isinstance(made.unwrapped, MiniGridEnv):
        # It counts for itself, and would end an episode sooner.
        made.unwrapped.max_steps = max(made.unwrapped.max_steps, max_steps)
    return made


def _wrapped(env, frames, actions):
    """The environment with observations in one array and actions from 0 up."""
    if not isinstance(env.action_space, spaces.Discrete):
        raise InvalidInput(
            f"a double DQN needs discrete actions; received the action space {env.action_space}"
        )
    if _shows_cells(env):
        env = wrappers.ViewWithCompass(env)
    elif not isinstance(env.observation_space, spaces.Box):
        try:
            env = gymnasium.wrappers.FlattenObservation(env)
        except (NotImplementedError, ValueError, TypeError) as error:
            raise InvalidInput(
                f"observations of {env.observation_space} cannot be made one array ({error})"
            ) from error
        if not isinstance(env.observation_space, spaces.Box):
            raise InvalidInput(
                "observations must have a fixed size; received the space "
                f"{env.unwrapped.observation_space}"
            )
    if _is_minigrid(env) and not env.has_wrapper_attr("state_key"):
        env = wrappers.MiniGridStateKey(env)
    if len(env.observation_space.shape) == 0:
        env = gymnasium.wrappers.ReshapeObservation(env, (1,))
    if len(env.observation_space.shape) == 2:
        env = gymnasium.wrappers.ReshapeObservation(env, (*env.observation_space.shape, 1))
    if frames != 1:
        env = wrappers.StackFrames(env, frames)
    start, count = int(env.action_space.start), int(env.action_space.n)
    if start or actions:
        env = wrappers.SelectActions(env, tuple(actions) or tuple(range(start, start + count)))
    return env


def _preprocessor(space: spaces.Box, frames: int) -> Preprocessor:
    is_grid = len(space.shape) == 3
    few_codes = space.dtype.kind in "iu" and space.low.min() >= 0 and space.high.max() < MOST_CODES
    if is_grid and few_codes:
        return one_hot(space, frames)
    if space.dtype == np.uint8 or (is_grid and _is_bounded(space)):
        return scaled(space)
    return as_float(space)


def _is_bounded(space):
    """Whether it has bounds; the largest float32 stands for none."""
    return max(-float(space.low.min()), float(space.high.max())) < np.finfo(np.float32).max


def _method(env: gymnasium.Env, name: str) -> Any:
    """A method of an environment or of what it wraps; `None` where nobody has it."""
    return env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
