"""How often every step of recorded episodes ends a window, and the steps that are drawn so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rrl_tf.errors import InvalidInput

if TYPE_CHECKING:
    from rrl_tf.offline.episodes import OfflineData

SAMPLING = ("steps", "returns", "episodes")


def step_weights(
    data: OfflineData, context_length: int, sampling: str, return_power: float
) -> np.ndarray:
    """How often every step of the data ends a window, in proportion, `(steps,)`."""
    lengths = np.array([len(episode) for episode in data.episodes])
    if sampling == "steps":
        return np.ones(data.steps)
    if sampling == "returns":
        return np.repeat(_shares(data.returns()) ** return_power, lengths)
    if sampling != "episodes":
        raise InvalidInput(f"sampling must be one of {SAMPLING}; received {sampling!r}")
    first = np.minimum(lengths, context_length) - 1  # that a full window ends at
    steps = np.arange(data.steps) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.where(
        steps < np.repeat(first, lengths), 0.0, np.repeat(1 / (lengths - first), lengths)
    )


def only_early(weights: np.ndarray, first_steps: np.ndarray, within: int) -> np.ndarray:
    """Weights that draw as many windows from every episode, all from its first steps."""
    begins, lengths = first_steps[:-1], np.diff(first_steps)
    is_early = np.arange(len(weights)) - np.repeat(begins, lengths) < within
    early = np.where(is_early, weights, 0.0)
    if not early.any():  # full windows end later
        return weights
    of_episode, of_early = (np.add.reduceat(each, begins) for each in (weights, early))
    share = np.divide(of_episode, of_early, out=np.zeros_like(of_early), where=of_early > 0)
    return early * np.repeat(share, lengths)


def drawn(ends: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Numbers of the steps at places in [0, 1) of the cumulated weights."""
    return np.searchsorted(ends, place * ends[-1], side="right")


def _shares(returns: np.ndarray) -> np.ndarray:
    """Where between the worst and the best every return lies, 0 to 1; all 1 if none is better."""
    low, high = returns.min(), returns.max()
    return (returns - low) / (high - low) if high > low else np.ones_like(returns)
