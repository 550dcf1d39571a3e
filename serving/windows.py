"""Move the window of a Decision Transformer from step to step, with NumPy only.

A window holds the last K steps of B episodes: `states` (B, K, ...), `actions` (B, K, A),
`returns_to_go` (B, K, 1), `timesteps` (B, K) and `mask` (B, K). The newest step is the last one.
During the first K - 1 steps of an episode, the window begins with zeros; `mask` is 1 for the real
steps. The action of the newest step is zero until `set_action` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

#: The inputs of a Decision Transformer.
INPUTS = frozenset(("states", "actions", "returns_to_go", "timesteps", "mask"))


def append_step(
    window: Mapping[str, np.ndarray],
    observation: np.ndarray,
    reward: np.ndarray,
    target: np.ndarray,
) -> dict[str, np.ndarray]:
    """Return the window after a new observation; the given window is unchanged.

    Args:
        window: input name -> array. A row of zeros stands for an episode that has not begun.
        observation: The new observations (B, ...).
        reward: What to subtract from the return-to-go of the previous step, (B,): the reward of the
            last action, or 0. It is ignored in the first step of an episode.
        target: The return-to-go (B,) of the first step of an episode.
    """
    is_first = window["mask"][:, -1] == 0
    returns = window["returns_to_go"][:, -1, 0] - np.asarray(reward, np.float32)
    newest = {
        "states": observation,
        "actions": 0,
        "returns_to_go": np.where(is_first, target, returns)[:, None],
        "timesteps": np.where(is_first, 0, window["timesteps"][:, -1] + 1),
        "mask": 1,
    }
    longer = {}
    for name, values in window.items():
        longer[name] = np.empty_like(values)  # several times as fast as np.roll
        longer[name][:, :-1] = values[:, 1:]
        longer[name][:, -1] = newest[name]
    return longer


def set_action(window: Mapping[str, np.ndarray], action: np.ndarray) -> None:
    """Write the action of the newest step, (B, A), or (B,) for discrete actions, into a window."""
    if action.ndim == 1:  # the window contains a discrete action as a one-hot vector
        action = np.eye(window["actions"].shape[-1])[action]
    window["actions"][:, -1] = action
