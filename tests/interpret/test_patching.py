"""Activations of one state replace those of another."""

import numpy as np
import pytest
from interpreted_networks import ENTITIES, GRID, agent, functional, states
from recurrent_networks import array, sequences, shared

from rrl_tf.errors import InvalidInput
from rrl_tf.interpret import patch, trace
from rrl_tf.interpret.places import entity_places

PLACES = ["round_1/before", "round_1/after", "round_2/after"]


def test_patching_with_itself_changes_nothing():
    found = patch(agent(), states(), states())
    assert found.names == tuple(PLACES)
    assert found.after.shape == (3, ENTITIES, 4, 3)
    np.testing.assert_array_equal(found.after, np.broadcast_to(found.before, found.after.shape))
    assert not found.table.any()


@pytest.mark.parametrize(("model", "shape"), [(agent, GRID), (functional, (5, 3))])
def test_patching_all_entities_gives_the_output_of_the_other_state(model, shape):
    x, other = states(shape=shape), states(seed=1, shape=shape)
    donor = trace(model(), other)
    for place in entity_places(donor):
        found = trace(model(), x, {place: donor[place]})
        np.testing.assert_array_equal(found["output"], donor["output"])


def test_patching_an_embedded_cell_equals_patching_the_observation():
    x, other = states(), states(seed=1)
    found = patch(agent(), x, other, ["round_1/before"])
    for entity in range(ENTITIES):
        mixed = x.reshape(4, ENTITIES, -1).copy()
        mixed[:, entity] = other.reshape(4, ENTITIES, -1)[:, entity]
        expected = array(agent()(mixed.reshape(x.shape)))
        np.testing.assert_allclose(found.after[0, entity], expected, atol=1e-5)
    table = np.abs(found.after - found.before).mean(axis=(2, 3))
    np.testing.assert_allclose(found.table, table)
    taken = found.after[0, 2].argmax(axis=-1) == found.donor.argmax(axis=-1)
    np.testing.assert_array_equal(found.taken[0, 2], taken)
    differs = found.donor.argmax(axis=-1) != found.choice
    [row] = [each for each in found.rows() if each["entity"] == 2]
    assert row["takes the donor's choice"] == pytest.approx(taken[differs].mean())


def test_each_state_can_receive_another_entity():
    x, other = states(), states(seed=1)
    to, source = np.array([[0, 1, 2, 3]]), np.array([[4, 5, 6, 7]])
    found = patch(agent(), x, other, ["round_1/after"], to, source)
    entities = trace(agent(), x)["round_1/after"]
    given = trace(agent(), other)["round_1/after"]
    entities[range(4), to[0]] = given[range(4), source[0]]
    expected = trace(agent(), x, {"round_1/after": entities})["output"]
    np.testing.assert_array_equal(found.after[0, 0], expected)


def test_slots_of_a_memory_are_patched():
    step = {name: value[:, 0] for name, value in sequences().items()}
    memory = np.random.default_rng(0).normal(size=(2, 12)).astype("float32")
    donors = {**step, "memory": memory}
    found = patch(shared("lstm"), {**step, "memory": 0 * memory}, donors, ["memory/before"])
    memory[:, :6] = 0  # patching slot 2 replaces c and keeps h
    expected, *_ = shared("lstm")(step, memory)
    np.testing.assert_allclose(found.after[0, 1], array(expected), atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"places": ["round_3/after"]}, "`place` must be one of round_1/before, round_1/after.*3"),
        ({"places": ["round_1/attention"]}, "received 'round_1/attention'"),
        ({"donors": states(3)}, r"must have the shapes of `inputs`, here \(4, 8, 8\).*\(3, 8, 8\)"),
        ({"entities": [8]}, r"`entities` must be indices .* of the 8 entities.*\[8\]"),
        ({"entities": 1}, "`entities` must be indices .*received 1"),
    ],
)
def test_wrong_arguments_raise_one_error(changes, message):
    with pytest.raises(InvalidInput, match=message):
        patch(**{"model": agent(), "inputs": states(), "donors": states(seed=1), **changes})
