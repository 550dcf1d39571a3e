"""Which steps the supervised test of memories asks about."""

import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_memory import ScriptedMemory

from benchmarks.reproductions import recall

pytestmark = pytest.mark.tf_only
SHOWN = types.SimpleNamespace(shown="key")


@settings(max_examples=60)
@given(
    in_view=st.lists(st.booleans(), min_size=2, max_size=30),
    out_of_view=st.integers(1, 9),
    more=st.integers(0, 5),
)
def test_it_asks_when_the_object_was_seen_and_is_gone_for_so_long(in_view, out_of_view, more):
    room = recall.Room(13, len(in_view) + more, out_of_view, ())
    env = ScriptedMemory([(seen, False, False) for seen in in_view], SHOWN)
    rows = recall.play(room, env, np.random.default_rng(0))
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
