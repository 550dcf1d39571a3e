"""Which steps the supervised test of memories asks about."""

import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.reproductions import recall

pytestmark = pytest.mark.tf_only


class Scripted:
    """An environment that tells whether the object is in view, step by step, and then ends."""

    unwrapped = types.SimpleNamespace(height=7)

    def __init__(self, in_view):
        self.in_view, self.time = in_view, 0
        self.unwrapped.agent_sees = lambda x, y: self.in_view[min(self.time, len(in_view) - 1)]

    def get_wrapper_attr(self, name):
        return types.SimpleNamespace(shown="key")

    def reset(self, seed):
        return np.zeros(1), {}

    def step(self, action):
        self.time += 1
        return np.zeros(1), 0.0, self.time >= len(self.in_view), False, {}


@settings(max_examples=60)
@given(
    in_view=st.lists(st.booleans(), min_size=2, max_size=30),
    out_of_view=st.integers(1, 9),
    more=st.integers(0, 5),
)
def test_it_asks_when_the_object_was_seen_and_is_gone_for_so_long(in_view, out_of_view, more):
    room = recall.Room(13, len(in_view) + more, out_of_view, ())
    rows = recall.play(room, Scripted(in_view), np.random.default_rng(0))
    expected = [
        t < len(in_view)
        and any(in_view[:t])
        and t >= out_of_view
        and not any(in_view[t - out_of_view + 1 : t + 1])
        for t in range(room.length)
    ]
    assert [bool(row["late"]) for row in rows] == expected
    assert [bool(row["counted"]) for row in rows] == [
        t < len(in_view) and any(in_view[: t + 1]) for t in range(room.length)
    ]
