"""Environments as a loop in the graph wants them: DoorKey in tensors, or any in Python."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import tensorflow as tf

from rrl_tf._arguments import number_from, positive_int, stored_arrays
from rrl_tf.agents import graph_random
from rrl_tf.agents.curriculum import level_of
from rrl_tf.envs.graph import GraphEnv, choose
from rrl_tf.envs.vector import SeededVectorEnv
from rrl_tf.errors import InvalidInput


class CurriculumGraph:
    """E environments in the graph, of growing difficulty: what `CurriculumEnv` is in Python.

    Args:
        levels: `GraphEnv`s of equal observations and actions, such as `DoorKeyGraph`s, the easiest
            first.
        num_envs: E.
        current_share: share of new episodes that are of `reset_options["level"]`; the others are
            of the easier ones.

    Attributes:
        reset_options: `{"level": number}`, or `None` for the first.

    Raises:
        InvalidInput: if there is no level, their spaces differ, or a number is out of range.

    Example:
        >>> from rrl_tf.envs import DoorKeyGraph
        >>> env = CurriculumGraph([DoorKeyGraph(5), DoorKeyGraph(6)], num_envs=8)
        >>> env.reset_options = {"level": 1}
        >>> state, observation = env.begin(seed=(0, 0))
        >>> state.size.numpy()
        array([6, 5, 5, 6, 5, 6, 6, 6], dtype=int32)
    """

    jit_compile = True

    def __init__(
        self, levels: Sequence[GraphEnv], num_envs: int, current_share: float = 0.7
    ) -> None:
        spaces = {(repr(level.observation_space), repr(level.action_space)) for level in levels}
        if len(spaces) != 1:
            raise InvalidInput(
                "the levels of a curriculum must be at least one and share their spaces; received "
                f"{sorted(spaces)}"
            )
        self.levels = tuple(levels)
        self.num_envs = positive_int("num_envs", num_envs)
        self.current_share = number_from("current_share", current_share, 0, 1)
        self.reset_options: dict[str, Any] | None = None

    @property
    def level(self) -> int:
        """Number of the level that is trained on."""
        return (self.reset_options or {}).get("level", 0)

    def initial_state(self, seed: Any, level: Any) -> Any:
        """New episodes, `current_share` of them of the level, the others of easier ones."""
        seeds = graph_random.split(seed, len(self.levels) + 2)
        shape = (self.num_envs,)
        easier = graph_random.uniform(shape, seeds[-1]) * tf.cast(level, tf.float32)
        is_current = graph_random.uniform(shape, seeds[-2]) < self.current_share
        chosen = tf.where(is_current, level, tf.cast(easier, tf.int32))
        state = self.levels[0].initial_state(self.num_envs, seeds[0])
        for number, (each, own) in enumerate(zip(self.levels, seeds)):
            if number > 0:
                new = each.initial_state(self.num_envs, own)
                state = choose(chosen == number, new, state)
        return state

    def begin(self, seed: Any) -> tuple[Any, Any]:
        """E new episodes: their state, and what is seen, `(E, ...)`."""
        state = self.initial_state(seed, self.level)
        return state, self.levels[0].observe(state)

    def step_and_restart(
        self, state: Any, action: Any, seed: Any, level: Any
    ) -> tuple[Any, Any, tuple[Any, ...], Any, Any]:
        """One step of every environment; where an episode ends, one of `initial_state` begins.

        Args:
            state: of E environments.
            action: `(E,)`.
            seed: two integers or a tensor, another one at every step.
            level: number, a tensor.

        Returns:
            The state and the observation to act on next; what a replay is told, a tuple of reward,
            terminated, truncated and the observation after the action; which episodes are over, and
            which are a success, `(E,)` bool.
        """
        # What a step does depends on the state and on nothing else of a level.
        state, final_observation, reward, terminated, truncated = self.levels[0].step(state, action)
        truncated &= ~terminated
        over = terminated | truncated
        state = choose(over, self.initial_state(seed, level), state)
        outcome = (reward, terminated, truncated, final_observation)
        success = self.levels[0].succeeded(reward, terminated)
        return state, self.levels[0].observe(state), outcome, over, success

    def errors_as_raised(self) -> AbstractContextManager[None]:
        """As of `PythonEnvs`; nothing here raises in the graph."""
        return contextlib.nullcontext()

    def get_state(self, state: Any) -> dict[str, Any]:
        """The environments' state, as a dict of arrays and JSON-able values."""
        columns = {name: column.numpy() for name, column in state._asdict().items()}
        return {"reset_options": self.reset_options, **columns}

    def set_state(self, stored: Mapping[str, Any]) -> tuple[Any, Any]:
        """State and observation of what `get_state` returned.

        Raises:
            InvalidInput: if it is of another number of environments, of other ones, or of a level
                that is none.
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
    """Environments in Python, to be stepped from within the graph.

    A `GraphLoop` with them leaves the graph at every step, for any Gymnasium environment.

    Args:
        env: `SeededVectorEnv` of E environments.

    Example:
        >>> import gymnasium
        >>> env = PythonEnvs(SeededVectorEnv(lambda: gymnasium.make("CartPole-v1"), 2, seed=0))
        >>> state, observation = env.begin(seed=(0, 0))
        >>> step = tf.function(env.step_and_restart)
        >>> state, observation, (reward, *_), over, _ = step(state, [0, 1], seed=(0, 1), level=0)
        >>> reward.numpy(), over.numpy()
        (array([1., 1.], dtype=float32), array([False, False]))
    """

    jit_compile = False
    """XLA cannot call Python."""

    def __init__(self, env: SeededVectorEnv) -> None:
        self.env = env
        self.num_envs = env.num_envs
        self._error: Exception | None = None

    @property
    def reset_options(self) -> dict[str, Any] | None:
        """What new episodes are begun with."""
        return self.env.reset_options

    @reset_options.setter
    def reset_options(self, options: dict[str, Any] | None) -> None:
        self.env.reset_options = options

    @property
    def level(self) -> int:
        """Number of the level that is trained on."""
        return (self.reset_options or {}).get("level", 0)

    def begin(self, seed: Any) -> tuple[tuple[()], Any]:
        """E new episodes: no state, as they keep it themselves, and what is seen."""
        return (), tf.constant(self.env.reset()[0])

    def step_and_restart(
        self, state: tuple[()], action: Any, seed: Any, level: Any
    ) -> tuple[tuple[()], Any, tuple[Any, ...], Any, Any]:
        """As of `CurriculumGraph`; the environments draw by seeds of their own.

        Successes are float32, and nan where an environment does not tell.

        A replay is told that a lost life (`info["life_lost"]`) terminates; the episode goes on.
        """
        space = self.env.single_observation_space
        seen = (tf.as_dtype(space.dtype), (self.num_envs, *(space.shape or ())))
        reward, flag = (tf.float32, (self.num_envs,)), (tf.bool, (self.num_envs,))
        kinds = [seen, reward, flag, flag, seen, flag, reward]
        results = tf.numpy_function(self._remembered, [action], [kind for kind, _ in kinds])
        for result, (_, shape) in zip(results, kinds):
            result.set_shape(shape)
        observation, *outcome, over, success = results
        return (), observation, tuple(outcome), over, success

    def _remembered(self, action):
        try:
            return self._step(action)
        except Exception as error:
            self._error = error
            raise

    def _step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        success = np.full(self.num_envs, np.nan, np.float32)
        if "_episode" in info:
            told = info["episode"]["_success"]
            success[told] = info["episode"]["success"][told]
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
        """While this is entered, what an environment raises comes out of a graph as it was raised.

        TensorFlow raises one of its own errors in the place of it, which only quotes it.
        """
        self._error = None
        try:
            yield
        except tf.errors.OpError:
            if self._error is not None:
                raise self._error from None
            raise

    def get_state(self, state: tuple[()]) -> dict[str, Any]:
        """The environments' state, ready for JSON."""
        return self.env.get_state()

    def set_state(self, stored: Mapping[str, Any]) -> tuple[tuple[()], Any]:
        """Goes on from what `get_state` returned."""
        return (), tf.constant(self.env.set_state(stored))
