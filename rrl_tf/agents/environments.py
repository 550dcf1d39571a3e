"""Define training environments with a curriculum, in Python or in the TensorFlow graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf

from rrl_tf._arguments import (
    integer,
    number_from,
    positive_int,
    reset_option,
    stored_arrays,
)
from rrl_tf.agents import random
from rrl_tf.envs.checks import require_equal_spaces
from rrl_tf.envs.graph import GraphEnv, choose
from rrl_tf.envs.task import Task
from rrl_tf.envs.vector import SeededVectorEnv

CURRENT_FRACTION = 0.7
"""Probability that a new episode has the current level of the curriculum."""
PROMOTE_AT = 0.9
"""Minimum success rate in an evaluation to advance to the next level of the curriculum."""


class CurriculumEnv(gymnasium.Wrapper):
    """Combines environments of increasing difficulty; each reset selects one of these levels.

    With probability `CURRENT_FRACTION` an episode has the level `options["level"]`. Otherwise it
    has a random easier level, so that the agent does not forget the easier levels.

    Args:
        envs: list of environments with equal observation and action spaces, the easiest first.

    Raises:
        InvalidInput: if there is no environment, or their spaces differ.

    Example:
        >>> from rrl_tf.envs import make_doorkey
        >>> env = CurriculumEnv([make_doorkey(5), make_doorkey(6)])
        >>> observation, info = env.reset(seed=1, options={"level": 1})
        >>> env.unwrapped.width  # 6 in most episodes, else 5
        6

    Source: Bengio et al., "Curriculum learning" (2009).
    """

    def __init__(self, envs: Sequence[gymnasium.Env]) -> None:
        require_equal_spaces("`envs`", envs)
        super().__init__(envs[0])
        self.envs = tuple(envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Select a level and begin an episode of it; `options["level"]` is 0 by default.

        Raises:
            InvalidInput: if the level does not exist, or `options` contains an unknown key.
        """
        level = level_of(options, len(self.envs))
        # A separate generator, so that selecting a level does not change the environment's draws.
        rng = np.random.default_rng(None if seed is None else (seed, 1))
        if level > 0 and rng.random() >= CURRENT_FRACTION:
            level = int(rng.integers(level))
        self.env = self.envs[level]
        return self.env.reset(seed=seed)

    def close(self) -> None:
        """Close the environments of all levels."""
        for env in self.envs:
            env.close()


def training_env(
    task: Task, num_envs: int, seed: int, reset_on_truncation: bool = True
) -> SeededVectorEnv:
    """Return parallel training environments, each a `CurriculumEnv` of the task's levels.

    Args:
        task: task to train on.
        num_envs, seed, reset_on_truncation: as for `SeededVectorEnv`.

    Example:
        >>> from rrl_tf.envs import doorkey_task
        >>> env = training_env(doorkey_task((5, 6)), num_envs=4, seed=0)
        >>> env.reset_options = {"level": 1}
        >>> observation, info = env.reset()
        >>> observation.shape
        (4, 7, 7, 4)
    """

    def make_env():
        return CurriculumEnv([task.make_env(level) for level in range(len(task.levels))])

    return SeededVectorEnv(make_env, num_envs, seed, reset_on_truncation)


class GraphEnvs:
    """E environments with a curriculum that run in the TensorFlow graph, like `CurriculumEnv`.

    A new episode has the level `reset_options["level"]` with probability `CURRENT_FRACTION`, and
    otherwise a random easier level.

    Args:
        levels: `GraphEnv`s with equal observation and action spaces, the easiest first.
        num_envs: E, number of parallel environments.

    Attributes:
        reset_options: `{"level": number}`, or `None` for the first level.

    Raises:
        InvalidInput: if there is no level, the spaces differ, or a number is out of range.

    Example:
        >>> from rrl_tf.envs import DoorKeyGraph
        >>> env = GraphEnvs([DoorKeyGraph(5), DoorKeyGraph(6)], num_envs=8)
        >>> env.reset_options = {"level": 1}
        >>> state, observation = env.begin(seed=(0, 0))
        >>> state.size.numpy()
        array([6, 5, 5, 6, 5, 6, 6, 6], dtype=int32)
    """

    jit_compile = True

    def __init__(self, levels: Sequence[GraphEnv], num_envs: int) -> None:
        require_equal_spaces("`levels`", levels)
        self.levels = tuple(levels)
        self.num_envs = positive_int("num_envs", num_envs)
        self.reset_options: dict[str, Any] | None = None

    def initial_state(self, seed: Any, level: Any) -> Any:
        """Return the state of E new episodes, each of `level` or of an easier level."""
        seeds = random.split(seed, len(self.levels) + 2)
        shape = (self.num_envs,)
        easier = random.uniform(shape, seeds[-1]) * tf.cast(level, tf.float32)
        is_current = random.uniform(shape, seeds[-2]) < CURRENT_FRACTION
        chosen = tf.where(is_current, level, tf.cast(easier, tf.int32))
        state = self.levels[0].initial_state(self.num_envs, seeds[0])
        for number, (each, own) in enumerate(zip(self.levels, seeds)):
            if number > 0:
                new = each.initial_state(self.num_envs, own)
                state = choose(chosen == number, new, state)
        return state

    def begin(self, seed: Any) -> tuple[Any, Any]:
        """Return the state of E new episodes and their observations `(E, ...)`."""
        level = level_of(self.reset_options, len(self.levels))
        state = self.initial_state(seed, level)
        return state, self.levels[0].observe(state)

    def step_and_reset(
        self, state: Any, action: Any, seed: Any, level: Any
    ) -> tuple[Any, Any, dict[str, Any], Any, Any]:
        """Step every environment, and reset those whose episode is done.

        Args:
            state: state of E environments.
            action: `(E,)` actions.
            seed: two integers or a tensor `(2,)`; use a different seed at every step.
            level: tensor, current level of the curriculum for new episodes.

        Returns:
            A tuple of the next state; the next observation; a dict of `reward_t`, `terminated`,
            `truncated` and `observation_tp1`, `(E, ...)` each; `(E,)` bool, which episodes are
            done; and `(E,)` bool, which of them succeeded.
        """
        # Levels differ only in their initial states, so the first level can step all of them.
        state, final_observation, reward, terminated, truncated = self.levels[0].step(state, action)
        truncated &= ~terminated
        done = terminated | truncated
        state = choose(done, self.initial_state(seed, level), state)
        outcome = {
            "reward_t": reward,
            "terminated": terminated,
            "truncated": truncated,
            "observation_tp1": final_observation,
        }
        success = self.levels[0].succeeded(reward, terminated)
        return state, self.levels[0].observe(state), outcome, done, success

    def errors_as_raised(self) -> AbstractContextManager[None]:
        """Return a context that does nothing; see `PythonEnvs.errors_as_raised`."""
        return contextlib.nullcontext()

    def get_state(self, state: Any) -> dict[str, Any]:
        """Return the state of the environments as a dict of arrays and JSON-serialisable values."""
        columns = {name: column.numpy() for name, column in state._asdict().items()}
        return {"reset_options": self.reset_options, **columns}

    def set_state(self, stored: Mapping[str, Any]) -> tuple[Any, Any]:
        """Restore a state from `get_state`; return it as tensors, and its observation.

        Raises:
            InvalidInput: if the state is of different environments or of another number of them, or
                its level does not exist.
        """
        example = self.initial_state((0, 0), 0)
        expected = {
            name: (tuple(column.shape), column.dtype.as_numpy_dtype)
            for name, column in example._asdict().items()
        }
        arrays = stored_arrays("environment", stored, expected)
        level_of(stored["reset_options"], len(self.levels))
        self.reset_options = stored["reset_options"]
        state = type(example)(**{name: tf.constant(array) for name, array in arrays.items()})
        return state, self.levels[0].observe(state)


class PythonEnvs:
    """Lets the TensorFlow graph step Gymnasium environments.

    A step calls Python once for all environments together. If a life is lost
    (`info["life_lost"]`), the stored transition is terminal, but the episode continues.

    Args:
        env: `SeededVectorEnv` of E environments.

    Example:
        >>> import gymnasium
        >>> env = PythonEnvs(SeededVectorEnv(lambda: gymnasium.make("CartPole-v1"), 2, seed=0))
        >>> state, observation = env.begin(seed=(0, 0))
        >>> step = tf.function(env.step_and_reset)
        >>> state, observation, outcome, done, _ = step(state, [0, 1], seed=(0, 1), level=0)
        >>> outcome["reward_t"].numpy(), done.numpy()
        (array([1., 1.], dtype=float32), array([False, False]))
    """

    jit_compile = False  # XLA cannot call Python

    def __init__(self, env: SeededVectorEnv) -> None:
        self.env = env
        self.num_envs = env.num_envs
        self._error: Exception | None = None

    @property
    def reset_options(self) -> dict[str, Any] | None:
        """The `options` of `env.reset` for new episodes."""
        return self.env.reset_options

    @reset_options.setter
    def reset_options(self, options: dict[str, Any] | None) -> None:
        self.env.reset_options = options

    def begin(self, seed: Any) -> tuple[tuple[()], Any]:
        """Reset the environments; return observations `(E, ...)` after an empty state.

        The state is an empty tuple because the environments keep their state themselves.
        """
        return (), tf.constant(self.env.reset()[0])

    def step_and_reset(
        self, state: tuple[()], action: Any, seed: Any, level: Any
    ) -> tuple[tuple[()], Any, dict[str, Any], Any, Any]:
        """Step every environment; see `GraphEnvs.step_and_reset`.

        `seed` and `level` are not used, because the environments have their own seeds and options.
        Successes are float32, with nan for environments that do not report success.
        """
        space = self.env.single_observation_space
        view = (tf.as_dtype(space.dtype), (self.num_envs, *(space.shape or ())))
        number, flag = (tf.float32, (self.num_envs,)), (tf.bool, (self.num_envs,))
        kinds = [view, number, flag, flag, view, flag, number]
        results = tf.numpy_function(
            self._step_and_keep_error, [action], [kind for kind, _ in kinds]
        )
        for result, (_, shape) in zip(results, kinds):
            result.set_shape(shape)
        observation, *outcome, done, success = results
        names = ("reward_t", "terminated", "truncated", "observation_tp1")
        return (), observation, dict(zip(names, outcome)), done, success

    def _step_and_keep_error(self, action):
        try:
            return self._step(action)
        except Exception as error:
            self._error = error
            raise

    def _step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        success = np.full(self.num_envs, np.nan, np.float32)
        if "_episode" in info:
            reported = info["episode"]["_success"]
            success[reported] = info["episode"]["success"][reported]
        return (
            observation.copy(),
            np.asarray(reward, np.float32),
            np.asarray(terminated | info.get("life_lost", False), bool),
            np.asarray(truncated, bool),
            np.asarray(info["final_obs"], observation.dtype),
            np.asarray(terminated | truncated, bool),
            success,
        )

    @contextlib.contextmanager
    def errors_as_raised(self) -> Iterator[None]:
        """Raise an environment's own exception instead of the TensorFlow error that wraps it."""
        self._error = None
        try:
            yield
        except tf.errors.OpError:
            if self._error is not None:
                raise self._error from None
            raise

    def get_state(self, state: tuple[()]) -> dict[str, Any]:
        """Return the state of the environments as a JSON-serialisable dict."""
        return self.env.get_state()

    def set_state(self, stored: Mapping[str, Any]) -> tuple[tuple[()], Any]:
        """Restore a state from `get_state`; return the (empty) state and the observation."""
        return (), tf.constant(self.env.set_state(stored))


class Curriculum:
    """Tracks the current level, and advances to the next one when the agent masters it.

    Args:
        levels: number of levels.

    Raises:
        InvalidInput: if `levels` is not positive.

    Example:
        >>> curriculum = Curriculum(levels=2)
        >>> curriculum.report(0.99), curriculum.level
        (True, 1)
    """

    def __init__(self, levels: int) -> None:
        self.levels = positive_int("levels", levels)
        self.level = 0

    def report(self, success: float) -> bool:
        """Take the success rate on the current level; return whether this advances the level."""
        promoted = success >= PROMOTE_AT and self.level + 1 < self.levels
        self.level += promoted
        return promoted

    def get_state(self) -> dict[str, Any]:
        """Return the level as a JSON-serialisable dict."""
        return {"level": self.level}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state from `get_state`.

        Raises:
            InvalidInput: if the level does not exist.
        """
        self.level = _checked_level(state["level"], self.levels)


def level_of(options: Mapping[str, Any] | None, levels: int) -> int:
    """Return the level in the `options` of `env.reset`, 0 by default.

    Raises:
        InvalidInput: if the level does not exist, or `options` contains an unknown key.

    Example:
        >>> level_of({"level": 1}, levels=2), level_of(None, levels=2)
        (1, 0)
    """
    level = reset_option("level", options)
    return 0 if level is None else _checked_level(level, levels)


def _checked_level(level, levels):
    return int(number_from("level", integer("level", level), 0, levels - 1))
