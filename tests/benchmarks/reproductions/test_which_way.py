"""Which steps the supervised test of comparing asks about, and of which networks."""

import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_memory import ScriptedMemory

from benchmarks.reproductions import which_way
from rrl_tf.envs import memory_task
from rrl_tf.models import RecurrentQNetwork

pytestmark = pytest.mark.tf_only


@settings(max_examples=60)
@given(
    in_view=st.lists(st.tuples(*[st.booleans()] * 3), min_size=2, max_size=30),
    remembered=st.booleans(),
    shown=st.sampled_from(["key", "ball"]),
    upper=st.sampled_from(["key", "ball"]),
)
def test_it_asks_where_both_ways_are_in_view(in_view, remembered, shown, upper):
    start = types.SimpleNamespace(hallway_end=4, shown=shown, upper=upper)
    rows = which_way.play(remembered, ScriptedMemory(in_view, start), np.random.default_rng(0))
    room = [first for first, *_ in in_view]
    expected = [
        t < len(in_view)
        and all(in_view[t][1:])
        and (any(room[:t]) and not room[t] if remembered else room[t])
        for t in range(which_way.STEPS)
    ]
    assert [bool(row["counted"]) for row in rows] == expected
    assert [bool(row["late"]) for row in rows] == expected
    assert {float(row["answer"]) for row in rows} == {float(shown == upper)}


@pytest.mark.parametrize("memory", which_way.MEMORIES)
@pytest.mark.parametrize("view", which_way.VIEWS)
def test_the_networks_differ_in_what_is_said(memory, view):
    preset, overrides = which_way.variant(memory, view)
    preprocessor = memory_task((which_way.SIZE,)).preprocessor
    network = RecurrentQNetwork.from_preset(preset, preprocessor, num_actions=3, **overrides)
    assert (network.encoder == "dense") == (view == "dense layers")
    if network.encoder == "relational":
        encoder = network.encoder_layer
        assert (encoder.readout == "max") == ("largest" in view)
        assert (encoder.block.get("qkv_norm") == "entity") == ("normed" in view)
