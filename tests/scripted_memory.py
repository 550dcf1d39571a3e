"""A substitute for MiniGrid's Memory with scripted views, for the supervised memory tests."""

import types

import numpy as np


class ScriptedMemory:
    """An environment whose script lists per step which objects are in view: room, upper, lower."""

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
