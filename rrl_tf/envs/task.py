"""Define `Task` and `Level`, which describe a learning problem.

Training, evaluation, figures and export read these descriptions.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from rrl_tf.envs.checks import REWARD, TERMINATED, TRUNCATED, name_of, require_equal_spaces
from rrl_tf.errors import InvalidInput

if TYPE_CHECKING:  # `graph` loads TensorFlow
    from rrl_tf.envs.graph import GraphEnv
    from rrl_tf.envs.preprocessing import Preprocessor

Cells = Mapping[str, tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class Level:
    """One level of a curriculum, or the only level of a task without one.

    Args:
        name: short name, such as `6x6`.
        make_env: `make_env(render_mode=None)` → a new training environment. If the function does
            not accept `render_mode`, its environments cannot be rendered.
        make_test_env: `make_test_env(render_mode=None)` → a new evaluation environment; `None` uses
            `make_env`.
        resets: keyword arguments of `reset`, one mapping per evaluation episode, such as
            `{"options": {"start": start}}`. `None` evaluates the seeds 0, 1, 2, ...; training uses
            random 64-bit seeds instead.
        make_graph: `make_graph(reset_on_truncation=True)` → the training environment as TensorFlow
            operations, such as a `DoorKeyGraph`; `None` if there is none.
        make_test_graph: `make_test_graph()` → the evaluation environment as TensorFlow operations;
            `None` uses `make_graph`.

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
    make_graph: Callable[..., GraphEnv] | None = None
    make_test_graph: Callable[[], GraphEnv] | None = None


@dataclasses.dataclass(frozen=True)
class Task:
    """A learning problem: environments, levels, preprocessing and labels for figures.

    Training, evaluation, figures and export receive it as an argument. To add an environment,
    write one function that returns its `Task`; no other code has to change.

    Args:
        name: name of the task in the exported policy and in figures.
        levels: the levels of the curriculum in order. Results are reported for the last level.
        preprocessor: maps raw observations to a network's input.
        success_return: smallest return of a successful episode. An environment that reports
            `info["success"]` at the end of an episode overrides it. If it is `None` and `info` has
            no `"success"`, only returns are reported.
        action_names: one name per action. If empty, the environment's names are used or, if it has
            none, the action numbers.
        entities: function of a raw observation that returns a dict label → grid cell (indices of
            the first two axes), for attention figures. Animations show the attention from the cell
            with the label `"agent"` or, without one, from the centre and from all cells.
        unseen: function of a raw observation that returns a bool array of the grid's shape, true
            for cells that the agent does not see.
        view: function of an environment that returns an upright RGB image of the agent's view.
        rows_first: whether the grid's axes are (row, column); MiniGrid's are (x, y).
        frames: number of observations stacked along the last axis. A replay buffer stores each of
            them only once, because a step adds one and drops the oldest.
        env_actions: the environment's action for each number of an action, an int or a tuple of
            ints, which the exported policy returns; if empty, it returns the numbers.

    Raises:
        InvalidInput: if there is no level, environments differ in their spaces, the preprocessor
            does not accept their observations, the actions are not discrete from 0 to A - 1, or
            `success_return` is not finite.

    An environment or one of its wrappers can have three optional attributes:

    - `action_names` are used if the task has none.
    - `state_key()` returns a key; two states with equal keys have the same future. Evaluation uses
      the key to detect that a policy repeats itself in a loop.
    - `start` is the start of the current episode, as `GraphEnv.state_of` accepts it. Evaluation in
      the TensorFlow graph needs it.

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
    env_actions: tuple[Any, ...] = ()
    observation_space: Box = dataclasses.field(init=False)
    action_space: Discrete = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        if not self.levels:
            raise InvalidInput(
                f"`levels` of task {self.name!r} must have at least one level; received none"
            )
        if self.success_return is not None and not math.isfinite(self.success_return):
            raise InvalidInput(f"`success_return` must be finite; received {self.success_return}")
        makers = [make for level in self.levels for make in (level.make_env, level.make_test_env)]
        envs = [new_env(make) for make in makers if make]
        require_equal_spaces(f"task {self.name!r}", envs)
        observation, action = envs[0].observation_space, envs[0].action_space
        if not isinstance(action, Discrete) or action.start != 0:
            raise InvalidInput(
                f"the action space of task {self.name!r} must be Discrete and start at 0; "
                f"received {action}"
            )
        names = self.action_names or optional_attribute(envs[0], "action_names") or range(action.n)
        if len(names) != action.n:
            raise InvalidInput(
                f"`action_names` of task {self.name!r} must be {action.n} names; received "
                f"{tuple(names)}"
            )
        _check_preprocessor(self.name, self.preprocessor, observation)
        for env in envs:
            env.close()
        object.__setattr__(self, "observation_space", observation)
        object.__setattr__(self, "action_space", action)
        object.__setattr__(self, "action_names", tuple(map(str, names)))

    @property
    def num_actions(self) -> int:
        """Number of actions A."""
        return int(self.action_space.n)

    @property
    def raw_observation(self) -> tuple[Callable[[Any], Any], Any, Any]:
        """The arguments `preprocessor`, `observation_shape` and `observation_dtype` of an export.

        They describe the environment's own observations. Those of `make_env` may be packed.
        """
        if self.preprocessor.packing is None:
            return self.preprocessor, self.observation_space.shape, self.observation_space.dtype
        boxes = self.preprocessor.packing.boxes
        shapes = {name: box.shape for name, box in boxes.items()}
        dtypes = {name: box.dtype for name, box in boxes.items()}
        return self.preprocessor.encode, shapes, dtypes

    def make_env(self, level: int = -1, render_mode: str | None = None) -> gymnasium.Env:
        """Return a new training environment, with `info["success"]` if the task defines success."""
        return self._with_success(self.levels[level].make_env, render_mode)

    def make_test_env(self, level: int = -1, render_mode: str | None = None) -> gymnasium.Env:
        """Return a new evaluation environment; `info["success"]` is as in `make_env`."""
        make = self.levels[level].make_test_env or self.levels[level].make_env
        return self._with_success(make, render_mode)

    def _with_success(self, make, render_mode):
        env = new_env(make, render_mode)
        return env if self.success_return is None else ReportSuccess(env, self.success_return)

    def evaluation_resets(self, level: int = -1, at_most: int = 300) -> list[dict[str, Any]]:
        """Return keyword arguments of `reset`, one dict per evaluation episode.

        Args:
            level: index of the level.
            at_most: maximum number of episodes. If the level has more, a random subset is returned,
                which is always the same.
        """
        resets = self.levels[level].resets
        if resets is None:
            return [{"seed": seed} for seed in range(at_most)]
        chosen = np.random.default_rng(0).permutation(len(resets))[:at_most]
        return [dict(resets[i]) for i in sorted(chosen)]


class ReportSuccess(gymnasium.Wrapper):
    """Adds `info["success"]` at the end of an episode, unless the environment has set it already.

    Args:
        env: any environment.
        success_return: smallest return of a successful episode.

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
        """Reset the environment and set the return to 0."""
        self._return = 0.0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take a step and add its reward to the return."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        try:
            self._return += float(reward)
            done = bool(terminated or truncated)
        except (OverflowError, TypeError, ValueError):  # for example, an array
            self._return += REWARD.number(reward, self._place)
            done = TERMINATED.number(terminated, self._place)
            done = TRUNCATED.number(truncated, self._place) or done
        if done and "success" not in info:
            info = {**info, "success": self._return >= self.success_return}
        return observation, reward, terminated, truncated, info

    def _place(self):
        return name_of(self.env)


def new_env(make: Callable[..., gymnasium.Env], render_mode: str | None = None) -> gymnasium.Env:
    """Call `make` and return its environment; pass `render_mode` if `make` accepts it.

    Example:
        >>> new_env(lambda: gymnasium.make("CartPole-v1"), "rgb_array").render_mode
    """
    parameters = inspect.signature(make).parameters.values()
    accepts = any(p.name == "render_mode" or p.kind is p.VAR_KEYWORD for p in parameters)
    return make(render_mode=render_mode) if accepts else make()


def optional_attribute(env: gymnasium.Env, name: str) -> Any:
    """Return an attribute of an environment or its wrappers, or `None` if there is none."""
    return env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None


def _check_preprocessor(name, preprocessor, space):
    """Raise `InvalidInput` unless the preprocessor maps the space to the shape that it declares."""
    try:
        preprocessed = preprocessor(np.zeros((1, *space.shape), space.dtype))
        values = preprocessed if preprocessor.parts else {"": preprocessed}
        shapes = {name: tuple(value.shape) for name, value in values.items()}
    except Exception as error:
        raise InvalidInput(
            f"the preprocessor of task {name!r} must accept observations of {space}; it raised "
            f"{error}"
        ) from error
    shape = shapes.get("", shapes)
    if shape != (expected := preprocessor.batch_shape(1)):
        raise InvalidInput(
            f"the preprocessor of task {name!r} must return the shape {expected}; received {shape} "
            f"for one observation of shape {space.shape}"
        )
