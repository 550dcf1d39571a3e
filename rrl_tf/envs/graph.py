"""Define `GraphEnv`, the interface of environments whose steps are TensorFlow operations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

import tensorflow as tf
from gymnasium.spaces import Box, Discrete

from rrl_tf._typing import Tensor

State = TypeVar("State")


class GraphEnv(Protocol):
    """A batch of E environments as pure functions of tensors, such as a `DoorKeyGraph`.

    A state is a `NamedTuple` of tensors `(E, ...)`. A step depends only on the state and on
    settings that all levels of a curriculum have in common, so one environment can step states of
    every level. Methods are traced without AutoGraph, so a condition on a tensor needs `tf.where`
    or `tf.cond`.

    Attributes:
        observation_space, action_space: spaces of one environment.
        time_limit: number of steps after which an episode is truncated.
    """

    observation_space: Box
    action_space: Discrete

    @property
    def time_limit(self) -> int: ...

    def initial_state(self, num_envs: int, seed: Any) -> Any:
        """Return the state of `num_envs` new episodes; `seed` is two integers or a tensor."""
        ...

    def state_of(self, starts: Iterable[Any]) -> Any:
        """Return the state of episodes that begin at the given starts."""
        ...

    def observe(self, state: Any) -> Tensor:
        """Return the observations `(E, ...)`."""
        ...

    def step(self, state: Any, action: Any) -> tuple[Any, Tensor, Tensor, Tensor, Tensor]:
        """Return `(state, observation, reward, terminated, truncated)` for actions `(E,)`."""
        ...

    def succeeded(self, reward: Tensor, terminated: Tensor) -> Tensor:
        """Return, `(E,)` bool, whether each environment's step ends an episode successfully."""
        ...

    def state_key(self, state: Any) -> Tensor:
        """Return an int64 that identifies each environment's state, `(E,)`.

        If two states of the same episode have the same identifier, they have the same future.
        Evaluation uses this to detect that a policy repeats its actions in a loop.
        """
        ...


def choose(condition: Tensor, new: State, old: State) -> State:
    """Return the state of `new` where `condition` `(E,)` is true, and of `old` elsewhere.

    A curriculum can mix levels this way: `choose(is_hard, hard.initial_state(...),
    easy.initial_state(...))`.
    """

    def select(a, b):
        return tf.where(tf.reshape(condition, (-1, *[1] * (len(a.shape) - 1))), a, b)

    return tf.nest.map_structure(select, new, old)
