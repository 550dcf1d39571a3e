"""Episodes whose numbers encode their episode and step."""

import dataclasses
import signal

import gymnasium
import numpy as np
from hypothesis import strategies as st

from rrl_tf.offline import Episode, OfflineData

ENDS = {
    "finished": lambda: None,
    "error": lambda: 1 / 0,
    "Ctrl-C": lambda: signal.raise_signal(signal.SIGINT),
}
"""How a training ends -> function that a callback of the training calls."""
BOX = gymnasium.spaces.Box(-2.0, 4.0, (2,))


def episode(steps, start=0.0, discrete=False):
    """Return an episode: states count up from `start`, rewards are 1, 2, 3 and so on."""
    states = start + np.arange(steps + 1, dtype="float32")
    actions = np.arange(steps) % 3
    if not discrete:
        actions = np.stack([np.full(steps, 1.0), actions - 1.0], axis=1).astype("float32")
    rewards = np.arange(1, steps + 1, dtype="float32")
    return Episode(np.stack([states, -states], axis=1), actions, rewards, True, False)


def offline(lengths, discrete=False):
    """Return data in which episode i starts at state 100 i."""
    space = gymnasium.spaces.Discrete(3) if discrete else BOX
    episodes = tuple(episode(n, 100.0 * i, discrete) for i, n in enumerate(lengths))
    return OfflineData("test", episodes, space, "none")


def with_open_envs(data):
    """Return the data with an environment, and a list of those that are not closed."""
    opened = []

    class Watched(gymnasium.Wrapper):
        def __init__(self):
            super().__init__(data.make_env())
            opened.append(self)

        def close(self):
            opened.remove(self)
            super().close()

    return dataclasses.replace(data, make_env=Watched), opened


lengths = st.lists(st.integers(1, 12), min_size=1, max_size=4)
"""Hypothesis strategy for the lengths of episodes."""
