"""Define `gymnasium_task`, which makes a task of any environment with discrete actions."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from minigrid.minigrid_env import MiniGridEnv

from rrl_tf._arguments import optional_positive_int
from rrl_tf._observations import named_parts
from rrl_tf.envs.minigrid_env import MiniGridStateKey, MissionObservation, minigrid_task
from rrl_tf.envs.packing import Packing, PackObservation, packed_preprocessor, with_channels
from rrl_tf.envs.preprocessing import as_float, one_hot, one_hot_vector, scaled
from rrl_tf.envs.task import Level, Task, new_env, optional_attribute
from rrl_tf.envs.wrappers import SelectActions, StackFrames
from rrl_tf.errors import InvalidInput

MOST_CODES = 64
"""A grid of integers with codes below this number is one-hot encoded; any other is an image."""

_MINIGRID_SUCCESS = 0.05  # MiniGrid's reward for a success, 1 - 0.9 * steps / max_steps, is larger


def gymnasium_task(
    env: str | Callable[..., gymnasium.Env],
    *,
    test_env: str | Callable[..., gymnasium.Env] | None = None,
    curriculum: Sequence[str | Callable[..., gymnasium.Env]] | None = None,
    success_return: float | None = None,
    max_steps: int | None = None,
    frames: int = 1,
    actions: Sequence[int] = (),
) -> Task:
    """Return a Gymnasium environment as a `Task`.

    The observation space selects the preprocessing:

    | observation space | preprocessing |
    |---|---|
    | MiniGrid's `Dict` | one-hot codes of view, direction and variable words of the mission |
    | `Box` of integers 0 to 63 (height, width, channels) | one-hot codes of a grid |
    | any other `Box` with three axes and finite bounds | divided by the largest bound |
    | any other `Box` of uint8 | divided by 255 |
    | any other `Box` | cast to float32 |
    | `Discrete`, `MultiDiscrete` | one-hot vectors; a `MultiDiscrete` matrix is a grid of codes |
    | `MultiBinary` | cast to float32; a matrix is a grid of codes |
    | `Dict`, `Tuple` | a dict; each part by its own space |

    Observations are packed in bytes unless the space is a `Box` with a last axis for channels; see
    `rrl_tf.envs.packing`. The exported policy accepts the environment's own observations.

    `MultiDiscrete` and `MultiBinary` actions are numbered; see `SelectActions`. Unless `actions`
    selects some, the exported policy returns the environment's own actions.

    The environment, or one of its wrappers, can have these optional attributes:

    | attribute | use |
    |---|---|
    | `action_names`, `state_key()` | as in `Task` |
    | `entities(observation)` | as in `Task`; labels these cells in attention figures |
    | `agent_code`, `unseen_code` | as in `preprocessing.one_hot`; for the first grid of codes |

    Args:
        env: id of a registered environment, such as `CartPole-v1` or `module:Name-v0`, which
            imports the module first; or a function `make(render_mode=None)` → environment.
        test_env: the evaluation environment in the same form; `None` uses `env`.
        curriculum: easier environments in the same form, the easiest first; each is a level before
            `env`. Their spaces must equal those of `env`.
        success_return: as in `Task`. `None` uses the registered reward threshold; in MiniGrid,
            every episode with a reward is then a success.
        max_steps: time limit of an episode in steps; `None` keeps the environment's own. If `env`
            is a function, `max_steps` can shorten the environment's limit but not extend it.
        frames: number of observations stacked along their last axis.
        actions: the environment's actions that the agent may choose, each once; all if empty.

    Returns:
        A `Task` whose last level is `env`.

    Raises:
        InvalidInput: if there is no such environment, a space is not supported, levels differ in
            their spaces, a number is out of range, or `agent_code` or `unseen_code` is not a code
            of the observations.

    Example:
        >>> task = gymnasium_task("CartPole-v1")
        >>> task.success_return, task.preprocessor.shape
        (475.0, (4,))
        >>> easier = [f"MiniGrid-DoorKey-{size}x{size}-v0" for size in (5, 6)]
        >>> len(gymnasium_task("MiniGrid-Unlock-v0", curriculum=easier).levels)
        3
    """
    max_steps = optional_positive_int("max_steps", max_steps)

    def maker(env):
        return functools.partial(_make, env, max_steps, frames, actions)

    names = (*map(_name, curriculum), _name(env)) if curriculum else ("",)
    makers = map(maker, (*(curriculum or ()), env))
    tests = (*(None for _ in names[1:]), maker(test_env) if test_env else None)
    levels = tuple(map(Level, names, makers, tests))
    example = levels[-1].make_env()
    if success_return is None:
        registered = getattr(example.spec, "reward_threshold", None)
        success_return = _MINIGRID_SUCCESS if _is_minigrid(example) else registered
    name = _name(env)
    if _is_minigrid(example) and example.has_wrapper_attr("channels"):
        return minigrid_task(name, levels, success_return=success_return, frames=frames)
    preprocessor = _preprocessor(example, frames)
    entities = optional_attribute(example, "entities")
    return Task(
        name=name,
        levels=levels,
        preprocessor=preprocessor,
        success_return=success_return,
        entities=entities and _of_raw(entities, preprocessor.packing),
        frames=frames,
        env_actions=() if actions else optional_attribute(example, "env_actions") or (),
    )


def _of_raw(entities, packing):
    """Return the function `entities` of an environment for observations that may be packed."""
    if packing is None:
        return entities

    def of_packed(packed):
        parts = {name: np.asarray(part) for name, part in packing.unpack(packed).items()}
        if not isinstance(packing.space, spaces.Dict):
            parts = tuple(parts.values()) if len(parts) > 1 else parts["observation"]
        return entities(parts)

    return of_packed


def _name(env):
    """Return a short name: the id without its module, or the function's name."""
    name = env if isinstance(env, str) else getattr(env, "__name__", "environment")
    return name.rpartition(":")[2]


def _make(env, max_steps, frames, actions, render_mode=None):
    return _wrapped(_made(env, render_mode, max_steps), frames, actions)


def _is_minigrid(env):
    return isinstance(env.unwrapped, MiniGridEnv)


def _made(env, render_mode, max_steps):
    """Return the environment before this module wraps it."""
    if not isinstance(env, str):
        own = new_env(env, render_mode)
        return own if max_steps is None else TimeLimit(own, max_steps)
    # Pass `render_mode` only if one is set, because some environments do not accept it.
    rendering = {} if render_mode is None else {"render_mode": render_mode}
    try:
        made = gymnasium.make(env, max_episode_steps=max_steps, **rendering)
    except (gymnasium.error.Error, ImportError, ValueError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if isinstance(error, ModuleNotFoundError):
            folder = os.getcwd() if "" in sys.path else sys.path[0]
            first += f" Modules are searched in {folder} and in the folders of PYTHONPATH."
        raise InvalidInput(f"cannot make the environment {env!r}: {first}") from error
    if max_steps is not None and isinstance(made.unwrapped, MiniGridEnv):
        # MiniGrid also counts steps itself; its own limit must not be smaller.
        made.unwrapped.max_steps = max(made.unwrapped.max_steps, max_steps)
    return made


def _wrapped(env, frames, actions):
    """Return the environment with observations in one array and actions from 0 up."""
    space = env.observation_space
    # A wrapper of the caller may already have replaced MiniGrid's dict with an array.
    if _is_minigrid(env) and isinstance(space, spaces.Dict):
        env = MissionObservation(env)
    elif not isinstance(space, spaces.Box) or len(space.shape) in (0, 2):
        env = PackObservation(env)
    if _is_minigrid(env) and not env.has_wrapper_attr("state_key"):
        env = MiniGridStateKey(env)
    if frames != 1:
        env = StackFrames(env, frames)
    action_space = env.action_space
    if actions or not isinstance(action_space, spaces.Discrete) or action_space.start != 0:
        env = SelectActions(env, actions)
    return env


def _preprocessor(env, frames):
    """Return the preprocessor of the environment's observations, which may be packed."""
    boxes, packing = {"": env.observation_space}, optional_attribute(env, "packing")
    categorical = set()
    if packing is not None:
        packing = Packing(packing.space, frames)
        boxes = packing.boxes
        kinds = (spaces.Discrete, spaces.MultiDiscrete)
        parts = named_parts(packing.space)
        categorical = {name for name, space in parts.items() if isinstance(space, kinds)}
    boxes = {name: with_channels(box) for name, box in boxes.items()}
    grids = [name for name, box in boxes.items() if _is_code_grid(box)]
    codes = {name: optional_attribute(env, name) for name in ("unseen_code", "agent_code")}
    for name, code in codes.items():
        if code is not None and not grids:
            raise InvalidInput(
                f"an environment with the attribute `{name}` must observe a grid of codes below "
                f"{MOST_CODES}; received {packing.space if packing else env.observation_space}"
            )
    preprocessors = {
        name: one_hot(box, frames, **codes if name in grids[:1] else {})
        if name in grids
        else _of_box(box, name in categorical)
        for name, box in boxes.items()
    }
    return packed_preprocessor(packing, preprocessors) if packing else preprocessors[""]


def _is_code_grid(space):
    few_codes = space.dtype.kind in "iu" and space.low.min() >= 0 and space.high.max() < MOST_CODES
    return len(space.shape) == 3 and few_codes


def _of_box(space, is_categorical):
    """Return the preprocessor of any `Box` but a grid of codes."""
    if is_categorical and len(space.shape) == 1:
        return one_hot_vector(space)
    # Some environments, such as CartPole, declare the largest float32 in place of infinity.
    is_bounded = max(-float(space.low.min()), float(space.high.max())) < np.finfo(np.float32).max
    if space.dtype == np.uint8 or (len(space.shape) == 3 and is_bounded):
        return scaled(space)
    return as_float(space)
