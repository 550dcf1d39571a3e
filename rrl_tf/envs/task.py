"""A task as a value: all that training, evaluation, pictures and export know of a problem."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from rrl_tf.envs.preprocessing import Preprocessor
from rrl_tf.errors import InvalidInput

if TYPE_CHECKING:  # it loads TensorFlow
    from rrl_tf.envs.graph import GraphEnv

Cells = Mapping[str, tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class Level:
    """One step of a curriculum, or the whole of a task without one.

    Args:
        name: short, as `6x6`.
        make_env: `make_env(render_mode=None)` → a new environment to train in; without that
            argument there are no pictures.
        make_test_env: the same for the environment that is evaluated in; the training one if
            `None`.
        resets: keyword arguments of `reset`, one an evaluation episode, as
            `{"options": {"start": start}}`; `None` plays the seeds 0, 1, 2, ..., which training
            does not meet, as its seeds are random 64-bit numbers.
        make_graph: `make_graph()` → the environment to train in as operations of TensorFlow, such
            as a `DoorKeyGraph`; `None` where there is none.
        make_test_graph: the same of the environment that is evaluated in.

    Example:
        >>> from rrl_tf.envs import enumerate_starts, make_doorkey
        >>> resets = tuple({"options": {"start": start}} for start in enumerate_starts(5))
        >>> level = Level("5x5", lambda render_mode=None: make_doorkey(5), resets=resets)
        >>> len(level.resets)
        48
    """

    name: str
    make_env: Callable[..., gymnasium.Env]
    make_test_env: Callable[..., gymnasium.Env] | None = None
    resets: tuple[Mapping[str, Any], ...] | None = None
    make_graph: Callable[[], GraphEnv] | None = None
    make_test_graph: Callable[[], GraphEnv] | None = None


@dataclasses.dataclass(frozen=True)
class Task:
    """What is to be learned: passed to whoever needs to know, never looked up.

    A new environment is one function that returns such a value; nothing else has to be changed.

    Args:
        name: of the task, in the exported policy and in figures.
        levels: a curriculum from the first to the last; the last is what counts.
        preprocessor: how raw observations become a network's input.
        success_return: an episode with at least this return is a success, unless its last `info`
            says so itself under `"success"`. `None`: where `info` does not tell, only returns are
            reported.
        action_names: one name an action; their numbers if empty.
        entities: raw observation → label → cell of a grid, as indices of its first two axes: what
            attention figures name. `"agent"` is whose attention a film shows.
        unseen: raw observation → bool array of the grid's shape, cells out of sight.
        view: environment → RGB picture of what the agent sees, upright.
        rows_first: whether a grid's axes are (row, column), or (x, y) as MiniGrid's.
        frames: observations that are stacked along the last axis, of which every step adds one: a
            replay keeps each once.

    Raises:
        InvalidInput: if there is no level, the levels or what tests them differ in their spaces,
            the preprocessor does not fit them, the actions are not discrete, 0 to A - 1, or the
            return of a success is no number.

    An environment may offer two more things as attributes, which wrappers pass on:
    `action_names`, used where the task gives none, and `state_key()`, equal for two states with
    the same future, by which an evaluation notices that a policy goes round in a loop.

    Example:
        >>> from rrl_tf.envs.preprocessing import as_float
        >>> def make_env(render_mode=None):
        ...     return gymnasium.make("CartPole-v1", render_mode=render_mode)
        >>> task = Task("CartPole", (Level("", make_env),), as_float(make_env().observation_space))
        >>> task.make_env().action_space
        Discrete(2)
    """

    name: str
    levels: tuple[Level, ...]
    preprocessor: Preprocessor
    success_return: float | None = None
    action_names: tuple[str, ...] = ()
    entities: Callable[[np.ndarray], Cells] | None = None
    unseen: Callable[[np.ndarray], np.ndarray] | None = None
    view: Callable[[gymnasium.Env], np.ndarray] | None = None
    rows_first: bool = True
    frames: int = 1
    observation_space: Box = dataclasses.field(init=False)
    action_space: Discrete = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        if not self.levels:
            raise InvalidInput(f"task {self.name!r} needs at least one level; received none")
        if self.success_return is not None and not math.isfinite(self.success_return):
            raise InvalidInput(f"success_return must be finite; received {self.success_return}")
        makers = [make for level in self.levels for make in (level.make_env, level.make_test_env)]
        envs = [make() for make in makers if make]
        spaces = {(repr(env.observation_space), repr(env.action_space)) for env in envs}
        if len(spaces) > 1:
            raise InvalidInput(
                f"the levels of task {self.name!r} must share their spaces; received "
                f"{sorted(spaces)}"
            )
        observation, action = envs[0].observation_space, envs[0].action_space
        if not isinstance(action, Discrete) or action.start != 0:
            raise InvalidInput(
                f"task {self.name!r} needs a Discrete action space from 0 up; received {action}"
            )
        names = self.action_names or _attribute(envs[0], "action_names") or range(action.n)
        if len(names) != action.n:
            raise InvalidInput(
                f"task {self.name!r} has {action.n} actions; received the names {tuple(names)}"
            )
        _check_preprocessor(self.name, self.preprocessor, observation)
        for env in envs:
            env.close()
        object.__setattr__(self, "observation_space", observation)
        object.__setattr__(self, "action_space", action)
        object.__setattr__(self, "action_names", tuple(map(str, names)))

    @property
    def num_actions(self) -> int:
        """A."""
        return int(self.action_space.n)

    def make_env(self, level: int = -1, render_mode: str | None = None) -> gymnasium.Env:
        """A new environment to train in; its last `info` tells `"success"` where that is known."""
        env = new_env(self.levels[level].make_env, render_mode)
        return env if self.success_return is None else ReportSuccess(env, self.success_return)

    def make_test_env(self, level: int = -1, render_mode: str | None = None) -> gymnasium.Env:
        """The same, to be evaluated in."""
        make = self.levels[level].make_test_env or self.levels[level].make_env
        env = new_env(make, render_mode)
        return env if self.success_return is None else ReportSuccess(env, self.success_return)

    def evaluation_resets(self, level: int = -1, at_most: int = 300) -> list[dict[str, Any]]:
        """Keyword arguments of `reset`, one an evaluation episode, always the same ones.

        Args:
            level: which level.
            at_most: how many; if there are more, so many are drawn from all.
        """
        resets = self.levels[level].resets
        if resets is None:
            return [{"seed": seed} for seed in range(at_most)]
        chosen = np.random.default_rng(0).permutation(len(resets))[:at_most]
        return [dict(resets[i]) for i in sorted(chosen)]


class ReportSuccess(gymnasium.Wrapper):
    """Tells `info["success"]` at the end of an episode, by its return, where nobody else does.

    Args:
        env: any environment.
        success_return: the least return of a success.

    Example:
        >>> env = ReportSuccess(gymnasium.make("CartPole-v1"), success_return=475.0)
    """

    def __init__(self, env: gymnasium.Env, success_return: float) -> None:
        super().__init__(env)
        self.success_return = success_return
        self._return = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins to count anew."""
        self._return = 0.0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Adds the reward, and tells at the end what came of it."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._return += float(reward)
        if (terminated or truncated) and "success" not in info:
            info = {**info, "success": self._return >= self.success_return}
        return observation, reward, terminated, truncated, info


def new_env(make: Callable[..., gymnasium.Env], render_mode: str | None = None) -> gymnasium.Env:
    """An environment from a function that may take a `render_mode`, or none.

    Example:
        >>> new_env(lambda: gymnasium.make("CartPole-v1"), "rgb_array").render_mode
    """
    parameters = inspect.signature(make).parameters.values()
    takes_it = any(p.name == "render_mode" or p.kind is p.VAR_KEYWORD for p in parameters)
    return make(render_mode=render_mode) if takes_it else make()


def _check_preprocessor(name, preprocessor, space):
    """Raises `InvalidInput` unless observations of the space are prepared to the shape promised."""
    try:
        prepared = tuple(preprocessor(np.zeros((1, *space.shape), space.dtype)).shape)
    except Exception as error:
        raise InvalidInput(
            f"the preprocessor of task {name!r} cannot take observations of {space}: {error}"
        ) from error
    if prepared != (1, *preprocessor.shape):
        raise InvalidInput(
            f"the preprocessor of task {name!r} promises shape {preprocessor.shape}; received "
            f"{prepared[1:]} from observations of shape {space.shape}"
        )


def _attribute(env, name):
    """An attribute of an environment or of what it wraps; `None` where nobody has it."""
    return env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
