"""How a policy explores while it is recorded: what becomes of the actions it chooses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from rrl_tf.errors import InvalidInput

Policy = Callable[[Any], Any]
"""From an observation to an action."""

LARGEST_MEAN = 0.999
"""Of a tanh policy, in half intervals between the bounds: atanh of 1 is infinite."""


def random_actions(
    policy: Policy | None, space: gymnasium.Space, rng: np.random.Generator, level: float
) -> Policy:
    """A share `level` of random actions of any space; all of them where there is no policy."""
    space.seed(int(rng.integers(2**31)))

    def act(observation: Any) -> Any:
        if rng.random() < level or policy is None:
            return space.sample()
        action = policy(observation)
        if isinstance(space, Box) and np.shape(action) == space.shape:
            return _clipped(action, space)
        return action

    return act


def clipped_noise(
    policy: Policy | None, space: gymnasium.Space, rng: np.random.Generator, level: float
) -> Policy:
    """Normal noise on the action, clipped to the bounds, where many actions then sit."""
    space = _bounded(space)
    middle, half = _middle_and_half(space)

    def act(observation: Any) -> Any:
        noisy = _mean(policy, observation, middle) + rng.normal(size=middle.shape) * level * half
        return _clipped(noisy, space)

    return act


def tanh_noise(
    policy: Policy | None, space: gymnasium.Space, rng: np.random.Generator, level: float
) -> Policy:
    """Normal noise in front of a tanh that ends at the bounds, as of a SAC policy.

    An action becomes `tanh(atanh(mean) + noise)`, between the bounds.
    """
    space = _bounded(space)
    middle, half = _middle_and_half(space)

    def act(observation: Any) -> Any:
        mean = (_mean(policy, observation, middle) - middle) / np.where(half > 0, half, 1.0)
        before = np.arctanh(np.clip(mean, -LARGEST_MEAN, LARGEST_MEAN))
        noisy = np.tanh(before + rng.normal(size=middle.shape) * level)
        # A rounding error must not leave the bounds.
        return np.clip((middle + half * noisy).astype(space.dtype), space.low, space.high)

    return act


EXPLORATIONS = {"random": random_actions, "clipped": clipped_noise, "tanh": tanh_noise}
"""Name → function of a policy or None, the action space, a generator and a level, that returns the
policy which explores through one episode. `"random"` is for any space and its level a share of the
actions. The noises are for bounded vectors; their level is a standard deviation in half intervals
between the bounds, and where there is no policy they disturb the middle of the bounds."""


def _bounded(space: gymnasium.Space) -> Box:
    if not isinstance(space, Box) or len(space.shape) != 1 or not space.is_bounded():
        raise InvalidInput(f"noise is for actions of a bounded Box of vectors; received {space}")
    return space


def _middle_and_half(space: Box) -> tuple[np.ndarray, np.ndarray]:
    low, high = space.low.astype("float64"), space.high.astype("float64")
    return (low + high) / 2, (high - low) / 2


def _clipped(action: Any, space: Box) -> np.ndarray:
    """The action in the space's bounds and type, as environments take it."""
    return np.clip(action, space.low, space.high).astype(space.dtype)


def _mean(policy: Policy | None, observation: Any, middle: np.ndarray) -> np.ndarray:
    """What the policy chooses, which noise may be added to."""
    if policy is None:
        return middle
    mean = np.asarray(policy(observation))
    if mean.shape != middle.shape:
        raise InvalidInput(
            f"a policy's action must have the shape {middle.shape}; received {mean.shape}"
        )
    return mean
