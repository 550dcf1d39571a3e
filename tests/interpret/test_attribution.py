"""Attribution methods, compared with their definitions."""

import warnings

import numpy as np
import pytest
from interpreted_networks import ENTITIES, GRID, agent, functional, states
from recurrent_networks import array, sequences, shared

from rrl_tf.errors import InvalidInput
from rrl_tf.interpret import (
    attention_flow,
    attention_rollout,
    attributions,
    gradient_times_input,
    integrated_gradients,
    occlusion,
    trace,
)
from rrl_tf.interpret.attribution import hide, read_entity
from rrl_tf.interpret.places import outputs
from rrl_tf.models import RecurrentQNetwork


def some_rounds(count, entities=5, seed=0):
    return list(np.random.default_rng(seed).dirichlet(np.ones(entities), (count, 3, 2, entities)))


def test_rollout_of_one_round_without_residual_connection_equals_its_attention():
    [attention] = some_rounds(1)
    entity = np.array([0, 2, 4])
    found = attention_rollout([attention], entity, residual=0)
    np.testing.assert_allclose(found, attention.mean(axis=1)[range(3), entity])
    all_entities = attention_rollout([attention])
    mean = np.mean([attention_rollout([attention], np.full(3, i)) for i in range(5)], axis=0)
    np.testing.assert_allclose(all_entities, mean)


@pytest.mark.parametrize("count", [1, 2])
def test_flow_equals_the_maximum_flow_of_scipy(count):
    graph = pytest.importorskip("scipy.sparse.csgraph")
    sparse = pytest.importorskip("scipy.sparse")
    rounds, entity, scale = some_rounds(count), np.array([1, 1, 3]), 10**6
    found = attention_flow(rounds, entity)
    for b in range(3):
        edges = np.zeros((5 * (count + 1), 5 * (count + 1)), int)
        for i, attention in enumerate(rounds):
            capacity = (np.eye(5) + attention[b].mean(axis=0)) / 2 * scale
            edges[5 * i : 5 * i + 5, 5 * i + 5 : 5 * i + 10] = capacity.T
        flows = [
            graph.maximum_flow(sparse.csr_matrix(edges), m, 5 * count + entity[b]).flow_value
            for m in range(5)
        ]
        np.testing.assert_allclose(found[b], np.array(flows) / sum(flows), atol=1e-4)


def test_flow_through_three_rounds_is_rejected():
    with pytest.raises(InvalidInput, match=r"one or two.*received 3. Use `attention_rollout`"):
        attention_flow(some_rounds(3))


@pytest.mark.parametrize(("model", "shape"), [(agent, GRID), (functional, (5, 3))])
def test_integrated_gradients_sum_to_the_difference_of_the_outputs(model, shape):
    x = states(shape=shape)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = integrated_gradients(model(), x, steps=512)
    before = outputs(model(), x)
    after = outputs(model(), x, {"round_1/before": lambda entities: entities * 0})
    difference = before.max(axis=1) - after[range(4), before.argmax(axis=1)]
    np.testing.assert_allclose(found.sum(axis=1), difference, rtol=0.01)


def test_too_few_steps_warn():
    with pytest.warns(UserWarning, match=r"of 4 states differ .* more than 1% with"):
        integrated_gradients(agent(), states(), steps=1)


def test_gradient_times_input_equals_a_difference_quotient():
    x = states(shape=(5, 3))
    entities, found = trace(functional(), x)["round_1/before"], []
    before = outputs(functional(), x)
    for entity in range(5):
        changed = entities.copy()
        changed[:, entity] *= 1.001
        after = outputs(functional(), x, {"round_1/before": changed})
        found.append((after - before)[range(4), before.argmax(axis=1)] / 1e-3)
    expected = gradient_times_input(functional(), x)
    np.testing.assert_allclose(np.transpose(found), expected, atol=2e-2)


def test_occlusion_is_the_drop_without_an_entity():
    x = states()
    model, q = agent(), array(agent()(x))
    found = occlusion(model, x)
    for entity in range(ENTITIES):
        removed = np.tile(np.arange(ENTITIES) == entity, (4, 1))
        drop = (q - array(model(x, removed=removed)))[range(4), q.argmax(axis=1)]
        np.testing.assert_allclose(found[:, entity], drop, atol=1e-5)


def test_memory_does_not_attend_to_hidden_entities():
    model = shared("relational-memory-entities")
    step = {name: value[:, 0] for name, value in sequences().items()}
    removed = np.random.default_rng(0).random((2, 9)) < 0.5
    found = trace(model, step, hide(model, trace(model, step), removed))
    attention = found["block_1/attention"]
    np.testing.assert_allclose(attention.sum(axis=-1), 1, atol=1e-5)
    assert not attention[..., 3:12].transpose(0, 3, 1, 2)[removed].any()
    assert not found["round_2/attention"].transpose(0, 3, 1, 2)[removed].any()


def test_entity_that_is_read():
    x = states()
    assert read_entity(agent(), x).tolist() == [6] * 4
    marked = agent(readout_cell=None, readout="feature", readout_feature=1)
    expected = x.reshape(4, ENTITIES, -1)[..., 1].argmax(axis=1)
    assert read_entity(marked, x).tolist() == expected.tolist()
    step = {name: value[:, 0] for name, value in sequences().items()}
    assert read_entity(shared("lstm"), step).tolist() == [5, 5]
    assert read_entity(functional(), x) is None
    assert read_entity(agent(readout_cell=None, readout="max"), x) is None


@pytest.mark.filterwarnings("ignore:integrated gradients")
def test_all_methods_return_one_number_per_entity():
    found = attributions(agent(), states(), steps=4)
    assert len(found) == 5
    assert {each.shape for each in found.values()} == {(4, ENTITIES)}
    three = agent(num_rounds=3)
    assert "flow" not in attributions(three, states(), steps=4)


def test_model_without_rounds_raises_an_error():
    model = RecurrentQNetwork.from_preset("lstm-dense", num_actions=3)
    step = {name: value[:, 0] for name, value in sequences().items()}
    with pytest.raises(InvalidInput, match=r"must have rounds of attention.*'memory/before'"):
        occlusion(model, step)
    with pytest.raises(InvalidInput, match=r"one of memory/before.*received 'round_1/before'"):
        integrated_gradients(model, step)
    assert integrated_gradients(model, step, "memory/before", steps=64).shape == (2, 2)
