"""What a loop or an evaluation in TensorFlow's graph asks of environments made of tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

import tensorflow as tf
from gymnasium.spaces import Box, Discrete

from rrl_tf._typing import Tensor

State = TypeVar("State")


class GraphEnv(Protocol):
    """E environments at once as pure functions of tensors, such as a `DoorKeyGraph`.

    A state is a `NamedTuple` of tensors `(E, ...)`. What a step does depends on the state alone and
    on what the levels of a curriculum share, so that one of them steps the states of all.

    Attributes:
        observation_space, action_space: of one environment.
        time_limit: steps after which an episode is truncated.
    """

    observation_space: Box
    action_space: Discrete

    @property
    def time_limit(self) -> int: ...

    def initial_state(self, num_envs: int, seed: Any) -> Any:
        """New episodes, drawn by the seed, two integers or a tensor `(2,)`."""
        ...

    def state_of(self, starts: Iterable[Any]) -> Any:
        """The state of episodes that begin at given starts."""
        ...

    def observe(self, state: Any) -> Tensor:
        """What the agents see, `(E, ...)`."""
        ...

    def step(self, state: Any, action: Any) -> tuple[Any, Tensor, Tensor, Tensor, Tensor]:
        """`(state, observation, reward, terminated, truncated)` after actions `(E,)`."""
        ...

    def succeeded(self, reward: Tensor, terminated: Tensor) -> Tensor:
        """Which of the episodes that end with this step have reached their goal, `(E,)` bool."""
        ...

    def state_key(self, state: Any) -> Tensor:
        """Numbers `(E,)` int64, equal for two states of an episode with the same future."""
        ...


def choose(condition: Tensor, new: State, old: State) -> State:
    """The state with the environments of `new` where `condition` `(E,)` is true, else of `old`.

    With it a curriculum mixes levels: `choose(is_hard, hard.initial_state(...),
    easy.initial_state(...))`.
    """

    def chosen(a, b):
        return tf.where(tf.reshape(condition, (-1, *[1] * (len(a.shape) - 1))), a, b)

    return tf.nest.map_structure(chosen, new, old)
