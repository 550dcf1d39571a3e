"""RecurrentQNetwork: steps and sequences, resets, files, graphs and errors."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recurrent_networks import (
    ACTIONS,
    CORES,
    GRID,
    SEEN,
    SMALL,
    array,
    network,
    sequences,
    shared,
    some_memory,
)

from rrl_tf.errors import InvalidInput
from rrl_tf.models import RecurrentQNetwork

REMEMBERING = [preset for preset in CORES if preset != "none"]

LEAKY = {"hidden_activation": "leaky_relu"}

every_core = pytest.mark.parametrize("preset", CORES)


def step_by_step(model, inputs, memory, first):
    """Return Q values and memories of one `call` per step, with explicit resets."""
    q, memories = [], []
    for t in range(first.shape[1]):
        memory = model.reset_memory(memory, first[:, t])
        step = {name: value[:, t].copy() for name, value in inputs.items()}
        step["previous_action"][first[:, t]] = -1
        step["previous_reward"][first[:, t]] = 0.0
        values, memory = model(step, memory)
        q.append(array(values))
        memories.append(array(memory))
    return np.stack(q, axis=1), np.stack(memories, axis=1)


@every_core
@settings(max_examples=5, deadline=None)
@given(
    batch=st.integers(1, 3),
    times=st.integers(1, 4),
    often=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 100),
)
def test_unroll_equals_steps(preset, batch, times, often, seed):
    model = shared(preset)
    inputs = sequences(batch, times, seed)
    first = np.random.default_rng(seed).random((batch, times)) < often
    memory = some_memory(model, batch)
    q, memories = model.unroll(inputs, memory, first)
    expected_q, expected_memories = step_by_step(model, inputs, memory, first)
    np.testing.assert_allclose(array(q), expected_q, atol=1e-5)
    np.testing.assert_allclose(array(memories), expected_memories, atol=1e-5)


@every_core
def test_first_step_ignores_everything_before_it(preset):
    model, inputs = shared(preset), sequences()
    first = np.zeros((2, 5), bool)
    first[:, 2] = True
    q, memories = model.unroll(inputs, some_memory(model, 2), first)
    rest = {name: value[:, 2:].copy() for name, value in inputs.items()}
    rest["previous_action"][:, 0] = -1
    rest["previous_reward"][:, 0] = 0.0
    fresh_q, fresh_memories = model.unroll(rest)
    np.testing.assert_allclose(array(q)[:, 2:], array(fresh_q), atol=1e-6)
    np.testing.assert_allclose(array(memories)[:, 2:], array(fresh_memories), atol=1e-6)


@every_core
@pytest.mark.parametrize("name", ["observation", "previous_action", "previous_reward"])
def test_memory_makes_earlier_steps_matter(preset, name):
    model, inputs = shared(preset), sequences()
    changed = {**inputs, name: inputs[name].copy()}
    changed[name][:, 0] = sequences(seed=9)[name][:, 0]
    changed["previous_action"][:, 0] = (inputs["previous_action"][:, 0] + 2) % ACTIONS
    before, after = (array(model.unroll(x)[0]) for x in (inputs, changed))
    assert (np.abs(before - after)[:, 0].max() > 1e-4) != (name == "previous")
    assert (np.abs(before - after)[:, 3].max() > 1e-6) == (preset != "none")


def test_zero_head_gives_zero_q_values():
    model = RecurrentQNetwork.from_preset(
        "relational-memory", SEEN, head_initializer="zeros", **SMALL
    )
    assert not array(model.unroll(sequences())[0]).any()


@pytest.mark.tf_only
@pytest.mark.parametrize("activation", ["relu", "leaky_relu"])
def test_leaky_relu_keeps_a_gradient(activation):
    import tensorflow as tf

    model = RecurrentQNetwork.from_preset("lstm", SEEN, hidden_activation=activation, **SMALL)
    inputs = sequences()
    model.unroll(inputs)
    (hidden,) = model.hidden
    hidden.bias.assign(tf.fill(hidden.bias.shape, -100.0))
    with tf.GradientTape() as tape:
        q, _ = model.unroll(inputs)
        loss = tf.reduce_sum(tf.square(q))
    slope = np.abs(tape.gradient(loss, hidden.kernel.value)).max()
    leaks = activation == "leaky_relu"
    assert (array(q).std(axis=(0, 1)).max() > 1e-3, slope > 1e-3) == (leaks, leaks)


@pytest.mark.parametrize(
    ("preset", "arguments"), [*((core, {}) for core in CORES), ("lstm", LEAKY)]
)
def test_saved_network_gives_the_same_output(preset, arguments, tmp_path):
    model, inputs = network(preset, **arguments), sequences()
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for ours, theirs in zip(model.unroll(inputs), again.unroll(inputs)):
        np.testing.assert_array_equal(array(ours), array(theirs))


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("mixed_bfloat16", "float32"), pytest.param("float64", "float64", marks=pytest.mark.tf_only)],
)
def test_q_values_and_memories_have_the_variables_dtype(dtype, expected):
    """With mixed precision, variables are float32."""
    for preset in CORES:
        arguments = {**SMALL, "core_arguments": CORES[preset]}
        model = RecurrentQNetwork.from_preset(preset, SEEN, dtype=dtype, **arguments)
        q, memories = model.unroll(sequences(), first=np.ones((2, 5), bool))
        step = {name: value[:, 0] for name, value in sequences().items()}
        dtypes = {x.dtype for x in (q, memories, *model(step), model.initial_memory(1))}
        assert {keras.backend.standardize_dtype(each) for each in dtypes} == {expected}


@pytest.mark.parametrize("preset", [p for p in RecurrentQNetwork.presets if p.endswith("dense")])
def test_dense_encoder_takes_observations_of_any_shape(preset):
    for shape in ((4,), (3, 3, 5)):
        model = RecurrentQNetwork.from_preset(preset, SEEN, num_actions=2)
        inputs = {
            "observation": np.ones((2, *shape), "float32"),
            "previous_action": np.array([-1, 1]),
            "previous_reward": np.zeros(2, "float32"),
        }
        q, memory = model(inputs)
        assert (tuple(q.shape), tuple(memory.shape)) == ((2, 2), (2, model.memory_size))


@pytest.mark.tf_only
@pytest.mark.parametrize("preset", REMEMBERING)
def test_gradients_stop_at_the_first_step_of_an_episode(preset):
    import tensorflow as tf

    model, inputs = shared(preset), sequences(times=4)
    first = np.zeros((2, 4), bool)
    first[1, 2] = True
    observation = tf.constant(inputs["observation"])
    with tf.GradientTape() as tape:
        tape.watch(observation)
        q, _ = model.unroll({**inputs, "observation": observation}, first=first)
        last = tf.reduce_sum(tf.square(q[:, -1]))
    reached = np.abs(tape.gradient(last, observation)).max(axis=(2, 3, 4)) > 0
    np.testing.assert_array_equal(reached, [[True] * 4, [False, False, True, True]])


@pytest.mark.tf_only
@every_core
def test_graph_with_a_free_batch_dimension(preset):
    import tensorflow as tf

    model, inputs = shared(preset), sequences(3, 2)
    memory, first = some_memory(model, 3), np.random.default_rng(0).random((3, 2)) < 0.5
    signature = tf.nest.map_structure(
        lambda x: tf.TensorSpec((None, *x.shape[1:]), x.dtype), (inputs, memory, first)
    )
    graph = tf.function(model.unroll, input_signature=signature)
    for ours, expected in zip(graph(inputs, memory, first), model.unroll(inputs, memory, first)):
        np.testing.assert_allclose(array(ours), array(expected), atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_actions": 0}, "num_actions.*0"),
        ({"core": "gru"}, "core.*lstm.*'gru'"),
        ({"encoder": "cnn"}, "encoder.*dense.*'cnn'"),
        ({"memory_input": "cells"}, "memory_input.*entities.*'cells'"),
        ({"memory_input": "entities"}, "`memory_input` must be.*core='lstm'"),
        ({"core_arguments": {"units": 0}}, "units.*0"),
        ({"core_arguments": [1]}, r"`core_arguments` must be a dict; received \[1\]"),
        ({"encoder_arguments": "x"}, "`encoder_arguments` must be a dict; received 'x'"),
        ({"core_arguments": {"slots": 3}}, "core_arguments.*LSTMCore.*slots"),
        ({"encoder_arguments": {"filters": 3}}, "encoder_arguments.*RelationalEncoder.*filters"),
        ({"encoder_arguments": {"num_rounds": 0}}, "num_rounds.*0"),
        ({"hidden_units": (0,)}, "hidden_units.*0"),
        ({"hidden_activation": "glu"}, "hidden_activation.*leaky_relu.*'glu'"),
        ({"hidden_activation": keras.layers.PReLU()}, "hidden_activation.*PReLU"),
    ],
)
def test_bad_arguments_are_errors(arguments, message):
    with pytest.raises(InvalidInput, match=f"(?s){message}"):
        RecurrentQNetwork.from_preset("lstm", **arguments)


def without(inputs, name):
    return {key: value for key, value in inputs.items() if key != name}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: (x["observation"],), "must be a dict of .*previous_reward.*received"),
        (lambda x: (without(x, "observation"),), "must be a dict of .*received.*previous_action"),
        (lambda x: (without(x, "previous_action"),), r"received \['observation', 'previous_reward"),
        (lambda x: ({**x, "done": x["previous_reward"]},), "must be a dict of .*'done'"),
        (lambda x: ({**x, "observation": x["observation"][..., 1:]},), r"`observation`.*3, 3, 4\)"),
        (lambda x: ({**x, "previous_action": np.zeros(3, int)},), r"`previous_action`.*\(2,.*\(3,"),
        (
            lambda x: ({**x, "previous_action": np.zeros(2)},),
            "`previous_action`.*integers.*float32",
        ),
        (lambda x: ({**x, "previous_reward": np.zeros((2, 2))},), r"`previous_reward`.*\(2, 2\)"),
        pytest.param(
            lambda x: ({**x, 1: x["previous_reward"]},),
            "must be a dict of .*received",
            marks=pytest.mark.skipif(
                keras.backend.backend() == "torch", reason="Keras sorts the keys before the call"
            ),
        ),
        (lambda x: (x, np.zeros((3, 12))), r"`memory`.*\(2, 12\).*received.*\(3, 12\)"),
        (lambda x: (x, np.zeros((2, 24))), r"`memory`.*\(2, 12\).*received.*\(2, 24\)"),
        (lambda x: (x, np.zeros((2, 1, 12))), r"`memory`.*\(2, 12\).*received.*\(2, 1, 12\)"),
    ],
)
def test_bad_inputs_are_errors(change, message):
    step = {name: value[:, 0] for name, value in sequences().items()}
    with pytest.raises(InvalidInput, match=f"(?s){message}"):
        shared("lstm")(*change(step))


@pytest.mark.parametrize("shape", [(2, 4), (3, 5), (2,)])
def test_first_of_another_shape_is_an_error(shape):
    with pytest.raises(InvalidInput, match=r"(?s)`first`.*\(2, 5\).*received"):
        shared("lstm").unroll(sequences(), first=np.zeros(shape, bool))
    with pytest.raises(InvalidInput, match=r"(?s)`observation`.*received the shape"):
        shared("lstm").unroll({**sequences(), "observation": np.zeros((2, *GRID), "float32")})


@pytest.mark.parametrize(("name", "value"), [("observation", None), ("previous_reward", [0.0])])
def test_inputs_that_are_not_arrays_are_errors(name, value):
    message = f"`{name}` must be an array.*; received {type(value).__name__}"
    not_built = RecurrentQNetwork.from_preset("lstm", SEEN, **SMALL)
    for model in (not_built, shared("lstm")):
        with pytest.raises(InvalidInput, match=message):
            model.unroll({**sequences(), name: value})


def test_sequence_of_unknown_length_is_an_error():
    inputs = {
        "observation": keras.Input((None, *GRID)),
        "previous_action": keras.Input((None,), dtype="int32"),
        "previous_reward": keras.Input((None,)),
    }
    with pytest.raises(InvalidInput, match="known number of steps T"):
        shared("lstm").unroll(inputs)
    with pytest.raises(InvalidInput, match=r"at least one; .* \(2, 0\)"):
        shared("lstm").unroll({name: value[:, :0] for name, value in sequences().items()})


def test_building_for_bad_observations_is_an_error():
    with pytest.raises(InvalidInput, match="grid of known size"):
        RecurrentQNetwork.from_preset(
            "relational-memory-entities", encoder_arguments={"position_embedding": False}
        ).build({"observation": (None, None, None, 5)})
    with pytest.raises(InvalidInput, match="dense encoder must be"):
        RecurrentQNetwork.from_preset("lstm-dense").build({"observation": (None, None)})
    with pytest.raises(InvalidInput, match=r"\(B, height, width, F\)"):
        RecurrentQNetwork.from_preset("lstm").build({"observation": (None, 4)})
    with pytest.raises(InvalidInput, match="must be a dict of"):
        RecurrentQNetwork.from_preset("lstm").build((None, 4))


def test_a_preprocessor_sets_the_readout_of_the_encoder():
    model = RecurrentQNetwork.from_preset("lstm", SEEN)
    encoder = model.encoder_layer
    assert (encoder.unseen_feature, encoder.readout, encoder.readout_cell) == (0, "cell", (1, 2))
    assert RecurrentQNetwork.from_preset("lstm").encoder_layer.readout == "max"
    mine = {"readout": "flatten"}
    own = RecurrentQNetwork.from_preset("lstm", SEEN, encoder_arguments=mine)
    assert own.encoder_layer.readout == "flatten"


@pytest.mark.parametrize("preset", ["lstm-long", "relational-memory-long"])
def test_a_preprocessor_keeps_the_readout_of_a_preset(preset):
    encoder = RecurrentQNetwork.from_preset(preset, SEEN).encoder_layer
    assert (encoder.unseen_feature, encoder.readout, encoder.readout_cell) == (0, "max", None)
