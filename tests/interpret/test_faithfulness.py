"""Removed entities have no effect, and the most attended ones are removed first."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops
from recurrent_networks import array, sequences, shared
from recurrent_networks import network as recurrent_network

from rrl_tf.errors import InvalidInput
from rrl_tf.interpret.faithfulness import (
    LEAST,
    MOST,
    RANDOM,
    attention_rollout,
    measure_faithfulness,
    most_relevant,
)
from rrl_tf.models import RelationalQNetwork, RelationalVQA

# Keras warns about a softmax over one entity.
pytestmark = pytest.mark.filterwarnings("ignore:You are using a softmax over axis -1")
HEIGHT, WIDTH, FEATURES = 2, 4, 5
NODES = HEIGHT * WIDTH
READ = 6
IMAGE, CELLS, BITS = (18, 27, 3), 6, 5
WIDER = {"conv_kernel_size": 2, "conv_padding": "top_left"}
SMALL = {"conv_filters": (8,), "block": {"num_heads": 2, "key_size": 4}, "hidden_units": (8,)}


@functools.cache
def network(**arguments):
    arguments = {**SMALL, "unseen_feature": 0, **arguments}
    if "readout_feature" not in arguments:
        arguments["readout_cell"] = (1, 2)
    model = RelationalQNetwork.from_preset("fast", num_actions=3, **arguments)
    model.build((None, HEIGHT, WIDTH, FEATURES))
    return with_random_weights(model)


@functools.cache
def vqa_model():
    model = RelationalVQA.from_preset(
        "fast", num_classes=4, conv_filters=(4, 8), cell_units=(8,), width=8, hidden_units=(8,)
    )
    model.build({"images": (None, *IMAGE), "questions": (None, None, BITS)})
    return with_random_weights(model)


def with_random_weights(model):
    rng = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(rng.normal(0.0, 0.5, size=weight.shape))
    return model


def some_pictures(seed, count=3):
    rng = np.random.default_rng(seed)
    images, questions = rng.random((count, *IMAGE)), rng.random((count, 1, BITS))
    return {"images": images.astype("float32"), "questions": questions.astype("float32")}


def some_views(seed, count=3):
    rng = np.random.default_rng(seed)
    views = rng.normal(size=(count, HEIGHT, WIDTH, FEATURES)).astype("float32")
    views[..., 0] = rng.random((count, HEIGHT, WIDTH)) < 0.25
    views.reshape(count, NODES, FEATURES)[:, READ, 0] = 0.0  # the agent's cell is visible
    return views


def values_of(model, view, present):
    """Return the Q values of a network that receives only the entities `present`."""
    x = view
    for layer in model.grid_layers:
        x = layer(x)
    x = model.positions(ops.reshape(x, (1, NODES, -1)))
    x = ops.convert_to_tensor(array(x)[:, present])
    x = array(model.relations(x))[:, list(present).index(READ)]
    for layer in model.hidden:
        x = layer(x)
    value, advantage = np.split(array(model.head(x)), [1], axis=1)
    return value + advantage - advantage.mean(axis=1, keepdims=True)


@pytest.mark.parametrize("arguments", [{}, WIDER, {"unseen_feature": None}])
@settings(max_examples=4)
@given(seed=st.integers(0, 99), others=st.sets(st.integers(0, NODES - 1)))
def test_removed_entities_equal_absent_ones_in_a_q_network(arguments, seed, others):
    views = some_views(seed, count=1)
    views[..., 0] = 0.0
    present = sorted({READ, *others})
    removed = ~np.isin(np.arange(NODES), present)[None]
    model = network(**arguments)
    expected = values_of(model, views, present)
    np.testing.assert_allclose(array(model(views, removed=removed)), expected, atol=1e-4)
    if "unseen_feature" not in arguments:
        bounded = network(**arguments, max_entities=len(present))
        np.testing.assert_allclose(array(bounded(views, removed=removed)), expected, atol=1e-4)


@settings(max_examples=4)
@given(seed=st.integers(0, 99))
def test_removed_cell_equals_a_cell_out_of_sight(seed):
    views, hidden = some_views(seed), some_views(seed)
    removed = np.random.default_rng(seed).random((3, NODES)) < 0.5
    removed[:, READ] = False
    hidden.reshape(3, NODES, FEATURES)[removed, 0] = 1.0
    for arguments in ({}, {"max_entities": 5}):
        found = array(network(**arguments)(views, removed=removed))
        np.testing.assert_array_equal(found, array(network(**arguments)(hidden)))


@settings(max_examples=4)
@given(seed=st.integers(0, 99), cells=st.sets(st.integers(0, CELLS - 1)))
def test_removed_cells_equal_absent_ones_in_a_vqa_model(seed, cells):
    model, inputs, present = vqa_model(), some_pictures(seed, count=1), sorted(cells)
    removed = ~np.isin(np.arange(CELLS), present)[None]
    logits, attention = model(inputs, return_attention_scores=True, removed=removed)
    x = inputs["images"]
    for layer in model.grid_layers:
        x = layer(x)
    x = ops.reshape(x, (1, CELLS, -1))
    for layer in model.cell_layers:
        x = layer(x)
    question = model.question(inputs["questions"])
    x = ops.convert_to_tensor(array(ops.concatenate([x, question], axis=1))[:, [*present, CELLS]])
    allowed = np.ones((1, 1, len(present) + 1, len(present) + 1), bool)
    allowed[..., :-1, -1] = False  # cells do not attend to the question
    x = model.relations(x, mask=allowed)[:, -1]
    for layer in [*model.hidden, model.head]:
        x = layer(x)
    np.testing.assert_allclose(array(logits)[:, 0], array(x), atol=1e-4)
    for scores in attention.values():
        assert not array(scores)[..., :CELLS][..., removed[0]].any()


def test_cells_are_removed_for_all_questions_of_one_picture_only():
    inputs = some_pictures(0)
    inputs["questions"] = inputs["questions"].repeat(2, axis=1)
    removed = np.zeros((3, CELLS), bool)
    removed[1, :4] = True
    with_all, without = array(vqa_model()(inputs)), array(vqa_model()(inputs, removed=removed))
    np.testing.assert_allclose(without[:, 0], without[:, 1], atol=1e-5)
    differs = np.abs(with_all - without).max(axis=(1, 2)) > 1e-3
    assert differs.tolist() == [False, True, False]


@settings(max_examples=2)
@given(seed=st.integers(0, 99))
def test_drop_of_a_vqa_model_is_that_of_probability_and_accuracy(seed):
    inputs, right = some_pictures(seed, count=8), np.arange(8) % 4
    found = measure_faithfulness(vqa_model(), inputs, answers=right, counts=(0, CELLS), draws=2)
    alone = vqa_model()(inputs, removed=np.ones((8, CELLS), bool))
    before, after = (array(ops.softmax(each))[:, 0] for each in (vqa_model()(inputs), alone))
    said, later = before.argmax(axis=1), after.argmax(axis=1)
    for order, drop in found.drop.items():
        np.testing.assert_allclose(drop[0], 0.0, atol=1e-6)
        np.testing.assert_allclose(drop[1], (before - after)[np.arange(8), said], atol=1e-5)
        assert found.kept[order].tolist() == [[1.0] * 8, (said == later).tolist()]
        lost = 1.0 * (said == right) - (later == right)
        assert found.accuracy_drop[order].tolist() == [[0.0] * 8, lost.tolist()]
    assert found.candidates.tolist() == [CELLS] * 8


@settings(max_examples=2)
@given(seed=st.integers(0, 99))
def test_drop_is_zero_without_removal_and_that_of_the_agent_alone_with_all_removed(seed):
    views = some_views(seed)
    found = measure_faithfulness(network(), views, counts=(0, NODES), draws=2)
    q = array(network()(views))
    alone = np.concatenate([values_of(network(), view[None], [READ]) for view in views])
    best = q.argmax(axis=1)
    for order, drop in found.drop.items():
        np.testing.assert_allclose(drop[0], 0.0, atol=1e-6)
        np.testing.assert_allclose(drop[1], (q - alone)[np.arange(3), best], atol=1e-4)
        assert found.kept[order][0].all()
        assert found.kept[order][1].tolist() == (alone.argmax(axis=1) == best).tolist()
    one = measure_faithfulness(network(), views, counts=(1,), draws=1)
    first = np.arange(NODES) == one.most_attended[:, None]
    without = array(network()(views, removed=first & (one.candidates > 0)[:, None]))
    np.testing.assert_allclose(one.drop[MOST][0], (q - without)[np.arange(3), best], atol=1e-5)
    assert found.candidates.tolist() == [int((view[..., 0] == 0).sum()) - 1 for view in views]


@given(seed=st.integers(0, 99), count=st.integers(0, NODES))
def test_most_relevant_selects_the_largest_candidates_only(seed, count):
    rng = np.random.default_rng(seed)
    relevance, candidate = rng.random((4, NODES)), rng.random((4, NODES)) < 0.6
    for row, allowed, removed in zip(
        relevance, candidate, most_relevant(relevance, candidate, count)
    ):
        assert removed.sum() == min(count, allowed.sum())
        assert not (removed & ~allowed).any()
        stays = allowed & ~removed
        assert not (removed.any() and stays.any()) or row[removed].min() > row[stays].max()


@given(seed=st.integers(0, 99), rounds=st.integers(1, 3), entity=st.integers(0, 4))
def test_attention_rollout_is_a_row_of_the_product_of_rounds(seed, rounds, entity):
    scores = np.random.default_rng(seed).dirichlet(np.ones(5), size=(rounds, 2, 3, 5))
    for b in range(2):
        product = np.eye(5)
        for attention in scores:
            product = (np.eye(5) + attention[b].mean(axis=0)) / 2 @ product
        found = attention_rollout(list(scores), np.full(2, entity))[b]
        np.testing.assert_allclose(found, product[entity], atol=1e-12)
        assert found.sum() == pytest.approx(1.0)


def test_most_attended_entity_matters_most_with_sharp_attention():
    """With queries a hundred times as large, one entity gets nearly all attention."""
    model = network(readout_feature=1)
    views = some_views(5, count=40)
    views[..., 0], views[..., 1] = 0.0, 0.0
    views.reshape(40, NODES, FEATURES)[np.arange(40), np.arange(40) % NODES, 1] = 1.0
    before = [weight.numpy() for weight in model.weights]
    for block in model.relations.rounds:
        kernel = block.attention.query_key_value.kernel
        columns = kernel.numpy().reshape(kernel.shape[0], 2, -1)
        columns[..., :4] *= 100
        kernel.assign(columns.reshape(kernel.shape))
    found = measure_faithfulness(model, views, counts=np.array([2]))
    for weight, value in zip(model.weights, before):
        weight.assign(value)
    changed = {order: np.abs(drop).mean() for order, drop in found.drop.items()}
    assert changed[LEAST] < changed[RANDOM] < changed[MOST]


def test_recurrent_network_keeps_its_memory():
    model = recurrent_network("lstm")
    rng = np.random.default_rng(0)
    views = rng.normal(size=(4, 3, 3, 5)).astype("float32")
    views[..., 0] = 0.0
    inputs = {
        "observation": views,
        "previous_action": np.array([-1, 0, 1, 2], "int32"),
        "previous_reward": np.zeros(4, "float32"),
    }
    memory = rng.normal(size=(4, model.memory_size)).astype("float32")
    found = measure_faithfulness(model, inputs, memory, counts=(8,), draws=1)
    removed = np.arange(9)[None].repeat(4, axis=0) != 5  # all but the agent's cell (1, 2)
    after, _ = model(inputs, memory, removed=removed)
    q = array(model(inputs, memory)[0])
    drop = (q - array(after))[np.arange(4), q.argmax(axis=1)]
    np.testing.assert_allclose(found.drop[MOST][0], drop, atol=1e-5)
    assert np.abs(drop).min() > 0


def test_network_that_reads_no_single_entity_is_rejected():
    book = RelationalQNetwork.from_preset("book", num_actions=3)
    with pytest.raises(InvalidInput, match="whose readout is 'cell' or 'feature'"):
        measure_faithfulness(book, np.zeros((1, 7, 7, 3), "float32"))


NAN = np.full((1, HEIGHT, WIDTH, FEATURES), np.nan, "float32")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"counts": (1.5,)},
            r"`counts` must be an integer of at least 0, or a sequence of these; received \(1.5,\)",
        ),
        ({"counts": ()}, r"`counts` must be .*received \(\)"),
        ({"counts": (-1,)}, r"`counts` must be .*received \(-1,\)"),
        ({"draws": 0}, "`draws` must be a positive integer; received 0"),
        ({"seed": -1}, "`seed` must be an integer of at least 0"),
        ({"inputs": "views"}, r"inputs must be numbers.*received 'views'"),
        ({"inputs": NAN[:0]}, r"B > 0; received the shape \(0, 2, 4, 5\)"),
        ({"inputs": NAN}, "inputs must be finite"),
        ({"inputs": {"observation": NAN}}, "an array without a `memory` .*; received dict"),
        ({"memory": np.zeros((1, 3))}, "an array without a `memory` .*; received ndarray and a"),
        ({"network": None}, "`network` must be .*received None"),
        ({"answers": np.zeros(3, int)}, "`answers` must be None for a Q network"),
    ],
)
def test_wrong_arguments_for_an_agent_raise_one_error(changes, message):
    with pytest.raises(InvalidInput, match=message):
        measure_faithfulness(**{"network": network(), "inputs": some_views(0), **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": np.zeros((3, *IMAGE))}, r'a dict {"images", "questions"}; received ndarray'),
        ({"inputs": {"images": 0}}, r"received \['images'\]"),
        ({"memory": np.zeros((3, 2))}, "`memory` must be None for a RelationalVQA"),
        ({"answers": np.zeros((3, 1), int)}, r"shape \(3,\), one per picture; received.*\(3, 1\)"),
        ({"answers": [0, 4, 1]}, "`answers` must be from 0 to 3; received 4"),
        (
            {"questions": np.zeros((3, 2, BITS))},
            r"`questions` must have shape \(B, 1, bits\).*\(3, 2, 5\)",
        ),
        ({"questions": np.zeros((2, 1, BITS))}, r"one for each of B .*\(2, 1, 5\)"),
        ({"questions": np.full((3, 1, BITS), np.inf)}, "questions must be finite"),
    ],
)
def test_wrong_arguments_for_a_vqa_model_raise_one_error(changes, message):
    inputs = {**some_pictures(0), **{n: changes.pop(n) for n in ["questions"] if n in changes}}
    with pytest.raises(InvalidInput, match=message):
        measure_faithfulness(**{"network": vqa_model(), "inputs": inputs, **changes})


def test_integer_observations_equal_float_ones():
    views = np.rint(some_views(0))
    floats, integers = (
        measure_faithfulness(network(), each, counts=1, draws=1)
        for each in (views, views.astype("int64"))
    )
    np.testing.assert_array_equal(floats.drop[MOST], integers.drop[MOST])


def recurrent_step():
    step = {name: value[:, 0] for name, value in sequences(2, 1).items()}
    memory = np.zeros((2, 12), "float32")
    return {"network": shared("lstm"), "inputs": step, "memory": memory, "counts": 1, "draws": 1}


def test_recurrent_inputs_must_be_finite_numbers():
    step = recurrent_step()
    reward = {"previous_reward": np.array([0.0, np.nan], "float32")}
    with pytest.raises(InvalidInput, match="previous_reward must be finite"):
        measure_faithfulness(**{**step, "inputs": {**step["inputs"], **reward}})
    with pytest.raises(InvalidInput, match=r"memory must be numbers.*'x'"):
        measure_faithfulness(**{**step, "memory": "x"})
    from_array, from_list = (
        measure_faithfulness(**step),
        measure_faithfulness(**{**step, "memory": [[0.0] * 12] * 2}),
    )
    np.testing.assert_array_equal(from_array.drop[MOST], from_list.drop[MOST])


@pytest.mark.parametrize("entity", [[3], [-1]])
def test_attention_rollout_rejects_an_index_out_of_range(entity):
    rounds = [np.full((1, 2, 3, 3), 1 / 3)]
    with pytest.raises(InvalidInput, match=r"for 3 entities .*received"):
        attention_rollout(rounds, np.array(entity))
    with pytest.raises(InvalidInput, match="in 0 rounds"):
        attention_rollout([], np.array(entity))
