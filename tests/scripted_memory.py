"""MiniGrid's Memory for the supervised tests of memories: a script says what is in view."""

import types

import numpy as np


class ScriptedMemory:
    """Tells step by step whether the room's, the upper and the lower object are in view."""

    def __init__(self, in_view, start):
        self.in_view, self.start, self.time = in_view, start, 0
        self.unwrapped = types.SimpleNamespace(height=7, agent_sees=self.sees)

    def sees(self, x, y):
        room, upper, lower = self.in_view[min(self.time, len(self.in_view) - 1)]
        return {(1, 2): room, (5, 1): upper, (5, 5): lower}[x, y]

    def get_wrapper_attr(self, name):
        return getattr(self, name)

    def reset(self, seed):
        return np.zeros(1), {}

    def step(self, action):
        self.time += 1
        return np.zeros(1), 0.0, self.time >= len(self.in_view), False, {}
