"""Exploration of a policy while it is recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from rrl_tf.errors import InvalidInput

Policy = Callable[[Any], Any]
"""Function from an observation to an action."""

MAX_TANH_MEAN = 0.999
"""Largest scaled action before tanh noise, since atanh(1) is infinite."""


def random_actions(
    policy: Policy | None, space: gymnasium.Space, rng: np.random.Generator, level: float
) -> Policy:
    """Replace a fraction `level` of the actions by random actions; all if there is no policy."""
    space.seed(int(rng.integers(2**31)))

    def act(observation: Any) -> Any:
        if rng.random() < level or policy is None:
            return space.sample()
        action = policy(observation)
        if isinstance(space, Box) and np.shape(action) == space.shape:
            return np.clip(action, space.low, space.high).astype(space.dtype)
        return action

    return act


def clipped_noise(
    policy: Policy | None, space: gymnasium.Space, rng: np.random.Generator, level: float
) -> Policy:
    """Add normal noise to the action and clip it to the bounds, where many actions then are."""

    def explore(mean, middle, half):
        return mean + rng.normal(size=mean.shape) * level * half

    return _noisy(policy, space, explore)


def tanh_noise(
    policy: Policy | None, space: gymnasium.Space, rng: np.random.Generator, level: float
) -> Policy:
    """Add normal noise before a tanh that ends at the bounds, as in SAC."""

    def explore(mean, middle, half):
        scaled = (mean - middle) / np.where(half > 0, half, 1.0)
        scaled = np.arctanh(np.clip(scaled, -MAX_TANH_MEAN, MAX_TANH_MEAN))
        return middle + half * np.tanh(scaled + rng.normal(size=mean.shape) * level)

    return _noisy(policy, space, explore)


EXPLORATIONS = {"random": random_actions, "clipped": clipped_noise, "tanh": tanh_noise}
"""Name -> function of a policy or None, an action space, a generator and a level. It returns the
policy that explores through one episode. `"random"` supports any space, and its level is a fraction
of the actions. The noises support bounded vectors; their level is a standard deviation in units of
half the interval between the bounds. Without a policy, they add noise to the middle."""


def _noisy(policy: Policy | None, space: gymnasium.Space, explore: Callable) -> Policy:
    """Return a policy that applies `explore(mean, middle, half)` to its actions and clips them."""
    if not isinstance(space, Box) or len(space.shape) != 1 or not space.is_bounded():
        raise InvalidInput(f"noise needs actions of a bounded Box of vectors; received {space}")
    low, high = space.low.astype("float64"), space.high.astype("float64")
    middle, half = (low + high) / 2, (high - low) / 2

    def act(observation: Any) -> Any:
        mean = middle if policy is None else np.asarray(policy(observation))
        if mean.shape != middle.shape:
            raise InvalidInput(
                f"a policy's action must have the shape {middle.shape}; received {mean.shape}"
            )
        action = explore(mean, middle, half).astype(space.dtype)
        return np.clip(action, space.low, space.high)

    return act
