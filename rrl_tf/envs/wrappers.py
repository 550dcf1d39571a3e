"""Define the Gymnasium wrappers that several tasks use."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from rrl_tf._arguments import positive_int
from rrl_tf.envs.task import optional_attribute
from rrl_tf.errors import InvalidInput


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
    """Restricts an environment to some of its actions, numbered from 0.

    Args:
        env: environment with discrete actions.
        actions: actions of the environment; the new action i is `actions[i]`.

    Raises:
        InvalidInput: if an entry is not an action of the environment, or is repeated.
    """

    def __init__(self, env: gymnasium.Env, actions: Iterable[int]) -> None:
        super().__init__(env)
        self._actions = tuple(actions)
        are_valid = all(map(env.action_space.contains, self._actions))
        if not are_valid or len(set(self._actions)) < len(self._actions):
            raise InvalidInput(
                f"`actions` must be different actions of {env.action_space}; "
                f"received {self._actions}"
            )
        self.action_space = Discrete(len(self._actions))

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the selected actions, or their numbers in `env` if `env` has no names."""
        names = optional_attribute(self.env, "action_names")
        if names is None:
            return tuple(map(str, self._actions))
        first = int(getattr(self.env.action_space, "start", 0))
        return tuple(names[action - first] for action in self._actions)

    def step(self, action: int) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take the environment's action `actions[action]`."""
        if not 0 <= action < len(self._actions):
            raise InvalidInput(
                f"an action must be 0 to {len(self._actions) - 1}; received {action!r}"
            )
        return self.env.step(self._actions[action])
