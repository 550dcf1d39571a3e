"""Define the Gymnasium wrappers that several tasks use."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from rrl_tf._arguments import positive_int
from rrl_tf.envs.task import optional_attribute
from rrl_tf.errors import InvalidInput

MOST_ACTIONS = 1024
"""Largest number of combinations of a `MultiDiscrete` action, each of which gets a Q value."""


class StackFrames(gymnasium.Wrapper):
    """Concatenates the last observations along the last axis, oldest first.

    After a reset, the stack contains the first observation `frames` times.

    Args:
        env: environment whose observations are arrays, such as `(height, width, C)`.
        frames: number of observations in the stack.

    Raises:
        InvalidInput: if `frames` is not positive.
    """

    def __init__(self, env: gymnasium.Env, frames: int) -> None:
        super().__init__(env)
        self._frames = positive_int("frames", frames)
        space: Any = env.observation_space
        self._channels = space.shape[-1]
        self._repeats = (*(1 for _ in space.shape[:-1]), frames)
        self._stack: Any = None
        if env.has_wrapper_attr("state_key"):
            self.state_key = self._state_key
        low, high = (np.tile(bound, self._repeats) for bound in (space.low, space.high))
        self.observation_space = Box(low, high, dtype=space.dtype)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Fill the whole stack with the first observation."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._stack = np.tile(observation, self._repeats)
        return self._stack, info

    def step(self, action: int) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Drop the oldest observation and append the newest."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        # Callers may keep the previous stack, so this one is a new array.
        if self._frames > 1:
            recent = self._stack[..., self._channels :]
            observation = np.concatenate((recent, observation), axis=-1)
        self._stack = observation
        return observation, reward, terminated, truncated, info

    def _state_key(self) -> Hashable:
        """Return the environment's key and the stack, because a policy depends on both."""
        key = self.env.get_wrapper_attr("state_key")()
        return key if self._frames == 1 else (key, self._stack.tobytes())


class SelectActions(gymnasium.Wrapper):
    """Numbers some or all actions of an environment from 0.

    Args:
        env: environment with `Discrete`, `MultiDiscrete` or `MultiBinary` actions.
        actions: actions of the environment; the new action i is `actions[i]`. By default all of
            them, in order; the last number of a `MultiDiscrete` action changes fastest.

    Attributes:
        env_actions: tuple of the environment's actions, each an int or a tuple of ints.

    Raises:
        InvalidInput: if the environment has other actions or too many of them, or an entry is not
            an action of the environment, or is repeated.
    """

    def __init__(self, env: gymnasium.Env, actions: Iterable[Any] = ()) -> None:
        super().__init__(env)
        self.env_actions = tuple(actions) or _all_actions(env.action_space)
        are_valid = all(map(env.action_space.contains, self.env_actions))
        if not are_valid or len(set(self.env_actions)) < len(self.env_actions):
            raise InvalidInput(
                f"`actions` must be different actions of {env.action_space}; "
                f"received {self.env_actions}"
            )
        self.action_space = Discrete(len(self.env_actions))

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the selected actions, or the actions of `env` themselves if it has no names."""
        names = optional_attribute(self.env, "action_names")
        space: Any = self.env.action_space
        if names is not None and isinstance(space, Discrete):
            return tuple(names[action - int(space.start)] for action in self.env_actions)
        if names is not None and len(names) == len(self.env_actions):
            return tuple(names)
        return tuple(str(action).strip("()") for action in self.env_actions)

    def step(self, action: int) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take the environment's action `env_actions[action]`."""
        if not 0 <= action < len(self.env_actions):
            raise InvalidInput(
                f"an action must be 0 to {len(self.env_actions) - 1}; received {action!r}"
            )
        chosen = self.env_actions[action]
        if isinstance(chosen, tuple):
            chosen = np.array(chosen, self.env.action_space.dtype)
        return self.env.step(chosen)


def _all_actions(space):
    """Return all actions of a space, in order."""
    if isinstance(space, Discrete):
        return tuple(range(int(space.start), int(space.start + space.n)))
    if isinstance(space, MultiBinary):
        start, counts = np.zeros(space.shape, int), np.full(space.shape, 2)
    elif isinstance(space, MultiDiscrete):
        start, counts = space.start, space.nvec
    else:
        start = counts = np.zeros(1)  # no combinations
    if counts.ndim != 1 or not 0 < math.prod(map(int, counts)) <= MOST_ACTIONS:
        raise InvalidInput(
            "the action space must be Discrete, or a MultiDiscrete or MultiBinary vector with at "
            f"most {MOST_ACTIONS} combinations, each of which gets a Q value; received {space}"
        )
    ranges = (range(int(low), int(low + count)) for low, count in zip(start, counts))
    return tuple(itertools.product(*ranges))
