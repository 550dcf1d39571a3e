"""The wrappers of `make_doorkey`; the order they go in is written there."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from rrl_tf.envs.observations import (
    ACTION_NAMES,
    CODES_PER_CHANNEL,
    TASK_ACTIONS,
    VIEW_SIZE,
)
from rrl_tf.errors import InvalidInput


class OnlyView(gymnasium.ObservationWrapper):
    """Keeps the egocentric image of MiniGrid's observation: (7, 7, 3) uint8."""

    channels = 3

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = _space_of_codes(self.channels)

    def observation(self, observation):
        """Drops the mission, which is always the same sentence."""
        return observation["image"]


class ViewWithCompass(gymnasium.ObservationWrapper):
    """Adds the agent's direction to the egocentric image as a constant plane: (7, 7, 4) uint8."""

    channels = 4

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = _space_of_codes(self.channels)

    def observation(self, observation):
        """Writes image and direction into one new array."""
        view = np.empty(self.observation_space.shape, np.uint8)
        view[..., :3] = observation["image"]
        view[..., 3] = observation["direction"]
        return view


class StackFrames(gymnasium.Wrapper):
    """Joins the last observations along the channels, oldest first; a reset repeats the first one.

    Args:
        env: Environment whose observations are (height, width, C) arrays.
        frames: How many observations.

    Raises:
        ValueError: Less than one frame.
    """

    def __init__(self, env, frames):
        super().__init__(env)
        if frames < 1:
            raise InvalidInput(f"frames must be at least 1, received {frames!r}.")
        self._frames = frames
        self._channels = env.observation_space.shape[-1]
        self._stack = None
        high = np.tile(env.observation_space.high, (1, 1, frames))
        self.observation_space = Box(0, high, dtype=np.uint8)

    def reset(self, *, seed=None, options=None):
        """Fills the whole stack with the first observation."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._stack = np.tile(observation, (1, 1, self._frames))
        return self._stack, info

    def step(self, action):
        """Drops the oldest observation and appends the newest."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        # A new array every time: callers may keep the one they were given.
        if self._frames > 1:
            recent = self._stack[..., self._channels :]
            observation = np.concatenate((recent, observation), axis=-1)
        self._stack = observation
        return observation, reward, terminated, truncated, info

    def state_key(self):
        """Adds the stacked frames: with them the future of a memoryless agent is the same."""
        key = self.env.get_wrapper_attr("state_key")()
        return key if self._frames == 1 else (key, self._stack.tobytes())


class SelectActions(gymnasium.Wrapper):
    """Offers some of the actions of MiniGrid, numbered from 0.

    Args:
        env: Environment with the actions of MiniGrid.
        actions: Their codes, in the order of the new numbers.
    """

    def __init__(self, env, actions):
        super().__init__(env)
        self._actions = tuple(actions)
        self.action_space = Discrete(len(self._actions))

    @property
    def action_names(self):
        """Names of the offered actions, in order."""
        return tuple(ACTION_NAMES[action] for action in self._actions)

    def step(self, action):
        """Translates the number into MiniGrid's code."""
        if not 0 <= action < len(self._actions):
            raise InvalidInput(f"Unknown action {action!r}: expected 0..{len(self._actions) - 1}.")
        return self.env.step(self._actions[action])


class ReplaceReward(gymnasium.Wrapper):
    """Passes rewards through a function (reward, terminated) -> reward."""

    def __init__(self, env, function):
        super().__init__(env)
        self._function = function

    def step(self, action):
        """Replaces the reward and nothing else."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, self._function(reward, terminated), terminated, truncated, info


def _space_of_codes(channels):
    high = np.array(CODES_PER_CHANNEL[:channels], np.uint8) - 1
    return Box(0, np.tile(high, (VIEW_SIZE, VIEW_SIZE, 1)), dtype=np.uint8)


# The choices of make_doorkey.
OBSERVATIONS = {"view": OnlyView, "compass": ViewWithCompass}
ACTIONS = {"task": TASK_ACTIONS, "all": tuple(range(len(ACTION_NAMES)))}
REWARDS = {
    "env": lambda reward, terminated: float(reward),
    "success": lambda reward, terminated: float(terminated),
    "book": lambda reward, terminated: float(reward) if terminated else -0.01,
}
