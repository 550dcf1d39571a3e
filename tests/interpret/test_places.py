"""Activations of a model are recorded and changed."""

import keras
import numpy as np
import pytest
from interpreted_networks import ENTITIES, agent, functional, states
from keras import ops
from recurrent_networks import CORES, array, sequences, shared
from recurrent_networks import GRID as SMALL_GRID

from rrl_tf.errors import InvalidInput
from rrl_tf.interpret import trace
from rrl_tf.interpret.places import entity_places
from rrl_tf.layers import MultiHeadDotProductAttention, RelationalBlock, RelationalModule
from rrl_tf.models import DecisionTransformer, MemorySequenceClassifier, MultiInputQNetwork


def test_trace_holds_what_the_model_returns():
    model, x = agent(), states()
    found = trace(model, x)
    q, attention = model(x, return_attention_scores=True)
    np.testing.assert_array_equal(found["output"], array(q))
    for name, scores in attention.items():
        np.testing.assert_array_equal(found[f"{name}/attention"], array(scores))
    np.testing.assert_array_equal(found["round_1/after"], found["round_2/before"])
    embedded = model.positions(ops.reshape(model.grid_layers[0](x), (4, ENTITIES, -1)))
    np.testing.assert_allclose(found["round_1/before"], array(embedded), atol=1e-6)
    assert entity_places(found) == ["round_1/before", "round_1/after", "round_2/after"]


def test_a_model_computes_the_same_after_a_trace():
    model, x = agent(), states()
    before = array(model(x))
    trace(model, x, {"round_1/after": lambda entities: entities * 0})
    np.testing.assert_array_equal(array(model(x)), before)
    assert not any("call" in vars(layer) for layer in model._flatten_layers())


@pytest.mark.parametrize("preset", CORES)
def test_a_step_of_a_recurrent_network_is_traced(preset):
    model = shared(preset)
    step = {name: value[:, 0] for name, value in sequences().items()}
    memory = np.random.default_rng(0).normal(size=(2, model.memory_size)).astype("float32")
    found = trace(model, {**step, "memory": memory})
    q, after, attention, gates = model(
        step, memory, return_attention_scores=True, return_gates=True
    )
    np.testing.assert_allclose(found["output"], array(q), atol=1e-5)
    for kind, expected in (("{}/attention", attention), ("gates/{}", gates)):
        for name, value in expected.items():
            np.testing.assert_allclose(found[kind.format(name)], array(value), atol=1e-5)
    if model.memory_size:
        np.testing.assert_array_equal(found["memory/before"].reshape(2, -1), memory)
        np.testing.assert_allclose(found["memory/after"].reshape(2, -1), array(after), atol=1e-5)
        zeroed = trace(model, {**step, "memory": memory}, {"memory/before": lambda m: m * 0})
        expected, *_ = model(step, memory * 0)
        np.testing.assert_allclose(zeroed["output"], array(expected), atol=1e-6)
    without = {name: value for name, value in step.items() if name != "memory"}
    expected = array(model(step)[0])
    np.testing.assert_allclose(trace(model, without)["output"], expected, atol=1e-5)


def test_attention_of_a_memory_is_changed_where_it_acts():
    model = shared("relational-memory")
    step = {name: value[:, 0] for name, value in sequences().items()}
    found = trace(model, step, {"block_1/attention": lambda scores: scores * 0})
    assert not found["block_1/attention"].any()
    assert np.abs(found["output"] - trace(model, step)["output"]).max() > 1e-3


def test_a_users_functional_model_is_traced_and_changed():
    model, x = functional(), states(shape=(5, 3))
    found = trace(model, x)
    np.testing.assert_array_equal(found["output"], array(model(x)))
    np.testing.assert_allclose(found["round_1/attention"].sum(axis=-1), 1.0, atol=1e-6)
    mean, head = found["round_1/after"].mean(axis=1), model.layers[-1]
    np.testing.assert_allclose(found["output"], array(head(mean)), atol=1e-6)
    nothing = trace(model, x, {"round_1/after": np.zeros((4, 5, 8))})["output"]
    np.testing.assert_array_equal(nothing, np.tile(array(head.bias), (4, 1)))


def test_rounds_that_share_a_block_are_numbered():
    block = RelationalBlock(num_heads=1, key_size=4)
    layer = RelationalModule(block, num_rounds=3, share_weights=True)
    entities = keras.Input((5, 3))
    found = trace(keras.Model(entities, layer(entities)), states(shape=(5, 3)))
    assert [name for name in found if name.endswith("attention")] == [
        f"round_{i}/attention" for i in (1, 2, 3)
    ]
    np.testing.assert_array_equal(found["output"], found["round_3/after"])


def test_queries_in_chunks_are_traced_together():
    entities = keras.Input((5, 3))
    layer = MultiHeadDotProductAttention(2, 4, query_chunk_size=2)
    model = keras.Model(entities, layer(entities))
    x = states(shape=(5, 3))
    found = trace(model, x)
    _, attention = layer(x, return_attention_scores=True)
    np.testing.assert_array_equal(found["round_1/attention"], array(attention))
    np.testing.assert_allclose(found["output"], array(model(x)).astype("float32"), atol=1e-5)
    nothing = trace(model, x, {"round_1/attention": lambda scores: scores * 0})
    assert not nothing["output"].any()


def test_other_models_of_the_library_are_traced():
    sequence = MemorySequenceClassifier.from_preset("nth-farthest")
    found = trace(sequence, states(shape=(4, 16)))
    assert len(found["block_1/attention"]) == 16  # four sequences of four steps
    transformer = DecisionTransformer(state_size=4, action_size=2, num_blocks=2, width=16)
    x = {"states": states(2, shape=(3, 4)), "actions": states(2, shape=(3, 2))}
    x |= {"returns_to_go": states(2, shape=(3, 1)), "timesteps": np.tile(range(3), (2, 1))}
    x["mask"] = np.ones((2, 3), bool)
    found = trace(transformer, x)
    assert found["round_2/attention"].shape == (2, 1, 9, 9)
    parts = {"a": SMALL_GRID, "b": SMALL_GRID}
    encoder = {"encoder": "relational", "conv_filters": (4,), "num_rounds": 1}
    several = MultiInputQNetwork(2, dict.fromkeys(parts, encoder))
    found = trace(several, {name: states(shape=shape) for name, shape in parts.items()})
    assert {"round_1/attention", "round_2/attention"} <= set(found)


def test_mask_of_keras_is_kept_by_a_change():
    tokens = np.array([[1, 2, 0, 0]])
    inputs = keras.Input((4,), dtype="int32")
    x = keras.layers.Embedding(3, 8, mask_zero=True)(inputs)
    model = keras.Model(inputs, RelationalBlock(num_heads=1, key_size=4)(x))
    found = trace(model, tokens, {"round_1/before": lambda entities: entities + 1})
    assert not found["round_1/attention"][..., 2:].any()


PLACES = "round_1/before, round_1/attention, round_1/after, round_2/before"


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ({"round_3/after": 0}, f"`place` must be one of {PLACES}.*received 'round_3/after'"),
        (
            {"round_1/after": np.zeros((4, 7, 8))},
            r"^the replacement at 'round_1/after' must have the shape \(4, 8, 8\).*\(4, 7, 8\)$",
        ),
    ],
)
def test_wrong_change_raises_one_error(edits, message):
    with pytest.raises(InvalidInput, match=message):
        trace(agent(), states(), edits)


def test_result_of_a_step_is_no_place_to_change():
    step = {name: value[:, 0] for name, value in sequences().items()}
    with pytest.raises(InvalidInput, match=r"one of memory/before, round_1/before.*memory/after"):
        trace(shared("lstm"), step, {"memory/after": 0})


def test_model_without_attention_raises_an_error_with_its_layers():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)], name="mlp")
    with pytest.raises(InvalidInput, match=r"must have attention .*'mlp' with the layers \['Dense"):
        trace(model, np.zeros((1, 4)))
