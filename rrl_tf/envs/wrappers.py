"""The wrappers of `make_doorkey` and `gymnasium_task`; the order they go in is written there."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from rrl_tf._arguments import positive_int
from rrl_tf.envs.minigrid_view import ACTION_NAMES, CODES_PER_CHANNEL, TASK_ACTIONS
from rrl_tf.errors import InvalidInput


class OnlyView(gymnasium.ObservationWrapper):
    """Keeps the egocentric image of MiniGrid's observation: (7, 7, 3) uint8."""

    channels = 3

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.observation_space = _space_of_codes(env, self.channels)

    def observation(self, observation: dict[str, Any]) -> np.ndarray:
        """Drops the mission, which is always the same sentence."""
        return observation["image"]


class ViewWithCompass(gymnasium.ObservationWrapper):
    """Adds the agent's direction to the egocentric image as a constant plane: (7, 7, 4) uint8."""

    channels = 4

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.observation_space = _space_of_codes(env, self.channels)

    def observation(self, observation: dict[str, Any]) -> np.ndarray:
        """Writes image and direction into one new array."""
        view = np.empty((*observation["image"].shape[:2], self.channels), np.uint8)
        view[..., :3] = observation["image"]
        view[..., 3] = observation["direction"]
        return view


class StackFrames(gymnasium.Wrapper):
    """Joins the last observations along the last axis, oldest first; a reset repeats the first one.

    Args:
        env: Environment whose observations are arrays, such as (height, width, C).
        frames: How many observations.

    Raises:
        ValueError: Less than one frame.
    """

    def __init__(self, env: gymnasium.Env, frames: int) -> None:
        super().__init__(env)
        self._frames = positive_int("frames", frames)
        space: Any = env.observation_space
        self._channels = space.shape[-1]
        self._repeats = (*(1 for _ in space.shape[:-1]), frames)
        self._stack: Any = None
        if env.has_wrapper_attr("state_key"):  # what the environment does not tell, this cannot
            self.state_key = self._state_key
        low, high = (np.tile(bound, self._repeats) for bound in (space.low, space.high))
        self.observation_space = Box(low, high, dtype=space.dtype)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Fills the whole stack with the first observation."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._stack = np.tile(observation, self._repeats)
        return self._stack, info

    def step(self, action: int) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Drops the oldest observation and appends the newest."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        # A new array every time: callers may keep the one they were given.
        if self._frames > 1:
            recent = self._stack[..., self._channels :]
            observation = np.concatenate((recent, observation), axis=-1)
        self._stack = observation
        return observation, reward, terminated, truncated, info

    def _state_key(self) -> Hashable:
        """Adds the stacked frames: with them the future of a memoryless agent is the same."""
        key = self.env.get_wrapper_attr("state_key")()
        return key if self._frames == 1 else (key, self._stack.tobytes())


class MiniGridStateKey(gymnasium.Wrapper):
    """Tells the state of any MiniGrid environment, so that loops can be noticed."""

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the actions there are; some worlds offer the first few only."""
        space: Any = self.action_space
        return ACTION_NAMES[: int(space.n)]

    def state_key(self) -> Hashable:
        """Returns a tuple that is equal for two states with the same future.

        The state of the random generator belongs to it: where the world moves by itself, no state
        comes back.
        """
        world: Any = self.unwrapped
        return (
            world.grid.encode().tobytes(),
            tuple(map(int, world.agent_pos)),
            int(world.agent_dir),
            world.carrying.encode() if world.carrying else None,
            tuple(world.np_random.bit_generator.state["state"].values()),
        )


class SelectActions(gymnasium.Wrapper):
    """Offers some of an environment's actions, numbered from 0.

    Args:
        env: Environment with discrete actions.
        actions: Their codes, in the order of the new numbers.

    Raises:
        InvalidInput: One of them is no action of the environment, or is there twice.
    """

    def __init__(self, env: gymnasium.Env, actions: Iterable[int]) -> None:
        super().__init__(env)
        self._actions = tuple(actions)
        for action in self._actions:
            if not env.action_space.contains(action):
                raise InvalidInput(
                    f"actions must be of the space {env.action_space}; received {action!r}"
                )
        if len(set(self._actions)) < len(self._actions):
            raise InvalidInput(f"actions must be different ones; received {self._actions}")
        self.action_space = Discrete(len(self._actions))

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the offered actions, in order; their codes where they have no names."""
        if not self.env.has_wrapper_attr("action_names"):
            return tuple(map(str, self._actions))
        names, space = self.env.get_wrapper_attr("action_names"), self.env.action_space
        first = int(getattr(space, "start", 0))
        return tuple(names[action - first] for action in self._actions)

    def step(self, action: int) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Translates the number into the environment's code."""
        if not 0 <= action < len(self._actions):
            raise InvalidInput(f"Unknown action {action!r}: expected 0..{len(self._actions) - 1}.")
        return self.env.step(self._actions[action])


class ReplaceReward(gymnasium.Wrapper):
    """Passes rewards through a function (reward, terminated) -> reward."""

    def __init__(self, env: gymnasium.Env, function: Callable[[Any, bool], float]) -> None:
        super().__init__(env)
        self._function = function

    def step(self, action: int) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Replaces the reward and nothing else."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, self._function(reward, terminated), terminated, truncated, info


def _space_of_codes(env, channels):
    high = np.array(CODES_PER_CHANNEL[:channels], np.uint8) - 1
    width, height, _ = env.observation_space["image"].shape
    return Box(0, np.tile(high, (width, height, 1)), dtype=np.uint8)


# The choices of make_doorkey.
OBSERVATIONS = {"view": OnlyView, "compass": ViewWithCompass}
ACTIONS = {"task": TASK_ACTIONS, "all": tuple(range(len(ACTION_NAMES)))}
REWARDS = {
    "env": lambda reward, terminated: float(reward),
    "success": lambda reward, terminated: float(terminated),
    "book": lambda reward, terminated: float(reward) if terminated else -0.01,
}
