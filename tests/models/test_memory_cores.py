"""The cores of RecurrentQNetwork."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recurrent_networks import ACTIONS, CORES, GRID, array, network, sequences, shared, some_memory

from rrl_tf.errors import InvalidInput
from rrl_tf.layers import RelationalMemory
from rrl_tf.models import RecurrentQNetwork


def test_reset_returns_a_relational_memory_to_the_identity():
    model = shared("relational-memory")
    identity = np.eye(3, 8).reshape(1, 24)
    np.testing.assert_array_equal(array(model.initial_memory(2)), np.tile(identity, (2, 1)))
    memory = np.zeros((2, 24), "float32")
    back = array(model.reset_memory(memory, np.array([True, False])))
    np.testing.assert_array_equal(back, [identity[0], memory[1]])
    # A memory of zeros gives other Q values than the identity.
    q, _ = model.unroll(sequences())
    other, _ = model.unroll(sequences(), memory)
    assert np.abs(array(q) - array(other)).max() > 1e-4


def test_episode_starts_with_the_learned_start():
    model = network("relational-memory", core_arguments={"learned_start": True})
    start = array(model.core_layer.cell.initial_memory)
    np.testing.assert_array_equal(array(model.initial_memory(1))[0], start)
    first = np.ones((2, 1), bool)
    inputs = sequences(times=1)
    q, _ = model.unroll(inputs, np.zeros((2, start.size), "float32"), first)
    inputs["previous_action"][:] = -1
    inputs["previous_reward"][:] = 0
    np.testing.assert_allclose(array(q), array(model.unroll(inputs, np.tile(start, (2, 1)))[0]))


def test_window_depends_on_the_last_steps_only():
    model, inputs = shared("window"), sequences(times=7)
    changed = {**inputs, "observation": inputs["observation"].copy()}
    changed["observation"][:, 1] = 1 - changed["observation"][:, 1]
    before, after = (array(model.unroll(x)[0]) for x in (inputs, changed))
    differs = np.abs(before - after).max(axis=(0, 2)) > 1e-6
    np.testing.assert_array_equal(differs, [False, True, True, True, True, False, False])


def core_inputs(model, inputs):
    """Return the inputs `(B, T, F)` of a core that receives vectors."""
    views = inputs["observation"].reshape(-1, *GRID)
    vector = array(model.encoder_layer(views)[0]).reshape(2, 5, -1)
    action = np.eye(ACTIONS + 1)[inputs["previous_action"]][..., :ACTIONS]  # no action: -1
    return np.concatenate([vector, action, inputs["previous_reward"][..., None]], axis=-1)


def test_lstm_equals_keras_lstm():
    model, inputs = shared("lstm"), sequences()
    layer = keras.layers.LSTM(6, return_sequences=True, return_state=True)
    x = core_inputs(model, inputs).astype("float32")
    layer.build(x.shape)
    core = model.core_layer
    layer.set_weights(
        [core.input_projection.kernel, core.recurrent_projection.kernel, core.input_projection.bias]
    )
    start = some_memory(model, 2)
    hidden, _, cell = layer(x, initial_state=[start[:, :6], start[:, 6:]])
    memories = array(model.unroll(inputs, start)[1])
    np.testing.assert_allclose(memories[..., :6], array(hidden), atol=1e-5)
    np.testing.assert_allclose(memories[:, -1, 6:], array(cell), atol=1e-5)


def test_lstm_has_an_initial_forget_bias_of_1():
    model = RecurrentQNetwork.from_preset("lstm-dense", core_arguments={"units": 2})
    model.build({"observation": (None, 4)})
    bias = array(model.core_layer.input_projection.bias)
    np.testing.assert_array_equal(bias, [0, 0, 1, 1, 0, 0, 0, 0])


@settings(max_examples=4)
@given(units=st.integers(1, 30), time_scale=st.integers(3, 200))
def test_time_scale_sets_the_initial_gates_of_an_lstm(units, time_scale):
    core = {"units": units, "time_scale": time_scale}
    model = RecurrentQNetwork.from_preset("lstm-long-dense", core_arguments=core)
    model.build({"observation": (None, 4)})
    bias = array(model.core_layer.input_projection.bias)
    writes, forgets, *others = np.split(bias, 4)
    steps = 1 + np.exp(forgets)  # time constant 1 / (1 - sigmoid), of a decay to 1/e
    assert (steps >= 2 - 1e-5).all() and (steps <= time_scale + 1e-3).all()
    np.testing.assert_array_equal(writes, -forgets)
    np.testing.assert_array_equal(others, 0)
    if units >= 20 and time_scale >= 10:
        assert np.ptp(steps) > time_scale / 4


@settings(max_examples=4)
@given(
    units=st.integers(1, 30),
    time_scale=st.integers(3, 200),
    gate_style=st.sampled_from(("unit", "memory")),
)
def test_time_scale_sets_the_initial_gates_of_a_relational_memory(units, time_scale, gate_style):
    core = {"head_size": units, "num_heads": 1, "time_scale": time_scale, "gate_style": gate_style}
    model = RecurrentQNetwork.from_preset("relational-memory-long-dense", core_arguments=core)
    model.build({"observation": (None, 4)})
    cell = model.core_layer.cell
    writes, forgets = np.split(array(cell.memory_gates.bias), 2)
    steps = 1 + np.exp(forgets)
    assert len(steps) == (units if gate_style == "unit" else 1)
    assert (steps >= 2 - 1e-5).all() and (steps <= time_scale + 1e-3).all()
    np.testing.assert_array_equal(writes, -forgets)
    np.testing.assert_array_equal(array(cell.input_gates.bias), 0)
    assert cell.forget_bias == cell.input_bias == 0


@pytest.mark.parametrize("network", ["lstm-long-dense", "relational-memory-long-dense"])
@pytest.mark.parametrize("time_scale", [2, 2.5, "40"])
def test_time_scale_below_3_is_an_error(network, time_scale):
    core = {"time_scale": time_scale}
    with pytest.raises(InvalidInput, match=r"time_scale.*received"):
        RecurrentQNetwork.from_preset(network, core_arguments=core)


@pytest.mark.parametrize("bias", ["forget_bias", "input_bias"])
def test_time_scale_with_gate_biases_is_an_error(bias):
    with pytest.raises(InvalidInput, match=f"time_scale.*{bias}.*received"):
        core = {bias: 1.0}
        RecurrentQNetwork.from_preset("relational-memory-long-dense", core_arguments=core)


def test_time_scale_without_gates_is_an_error():
    with pytest.raises(InvalidInput, match="must be None without gates; received"):
        core = {"gate_style": None}
        RecurrentQNetwork.from_preset("relational-memory-long-dense", core_arguments=core)


def test_relational_memory_core_equals_the_layer():
    model, inputs = shared("relational-memory"), sequences()
    x = core_inputs(model, inputs).astype("float32")
    layer = RelationalMemory(3, 4, 2, return_sequences=True)
    layer.build(x.shape)
    layer.set_weights(model.core_layer.get_weights())
    start = some_memory(model, 2)
    expected, scores = layer(x, initial_state=start, return_attention_scores=True)
    _, memories, attention = model.unroll(inputs, start, return_attention_scores=True)
    np.testing.assert_allclose(array(memories), array(expected), atol=1e-5)
    np.testing.assert_allclose(array(attention["block_1"]), array(scores["block_1"]), atol=1e-5)


@pytest.mark.parametrize("blocks", [1, 2])
def test_memory_attends_to_visible_entities(blocks):
    """All entities are visible, so the core equals the layer without a mask."""
    core = {"mem_slots": 3, "head_size": 4, "num_blocks": blocks, "forget_bias": 1.0}
    model, inputs = network("relational-memory-entities", core_arguments=core), sequences()
    inputs["observation"][..., 0] = 0
    views = inputs["observation"].reshape(-1, *GRID)
    entities = array(model.encoder_layer(views, every_entity=True)[1]).reshape(2, 5, 9, 8)
    previous = core_inputs(model, inputs)[..., -(ACTIONS + 1) :]
    row = array(model.previous_row(previous.reshape(10, -1))).reshape(2, 5, 1, 8)
    layer = RelationalMemory(3, 4, 2, blocks, return_sequences=True)
    rows = np.concatenate([entities, row], axis=2)
    layer.build(rows.shape)
    layer.set_weights(model.core_layer.get_weights())
    expected, scores = layer(rows, return_attention_scores=True)
    _, memories, attention = model.unroll(inputs, return_attention_scores=True)
    np.testing.assert_allclose(array(memories), array(expected), atol=1e-5)
    for name, score in scores.items():
        np.testing.assert_allclose(array(attention[name]), array(score), atol=1e-5)


def test_slots_do_not_attend_to_invisible_entities():
    model, inputs = shared("relational-memory-entities"), sequences()
    unseen = inputs["observation"][..., 0].reshape(2, 5, 9) > 0
    changed = {**inputs, "observation": inputs["observation"].copy()}
    changed["observation"][..., 1:] += unseen.reshape(2, 5, 3, 3, 1)
    changed["observation"][:, :, 1, 2] = inputs["observation"][:, :, 1, 2]  # the agent's own cell
    q, memories, attention = model.unroll(inputs, return_attention_scores=True)
    np.testing.assert_allclose(array(model.unroll(changed)[1]), array(memories), atol=1e-6)
    np.testing.assert_allclose(array(model.unroll(changed)[0]), array(q), atol=1e-6)
    slots = array(attention["block_1"])[..., :3, :]  # (B, T, H, slots, 3 + 9 + 1)
    hidden = np.broadcast_to(unseen[:, :, None, None], slots[..., 3:12].shape)
    assert slots[..., 3:12][hidden].max() == 0 < slots[..., 3:12][~hidden].min()
    assert slots[..., :3].min() > 0 and slots[..., 12].min() > 0
    np.testing.assert_allclose(slots.sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("relational-memory-entities", {"input": (3, 8), "forget": (3, 8)}),
        ("relational-memory", {"input": (3, 8), "forget": (3, 8)}),
        ("lstm", {"input": (6,), "forget": (6,), "output": (6,)}),
        ("window", {}),
        ("none", {}),
    ],
)
def test_gates_are_in_0_to_1_and_do_not_change_the_output(preset, expected):
    model, inputs = shared(preset), sequences()
    q, memories, gates = model.unroll(inputs, return_gates=True)
    assert {name: tuple(gate.shape) for name, gate in gates.items()} == {
        name: (2, 5, *shape) for name, shape in expected.items()
    }
    for gate in gates.values():
        assert array(gate).min() > 0 and array(gate).max() < 1
    for result, alone in zip((q, memories), model.unroll(inputs)):
        np.testing.assert_allclose(array(result), array(alone), atol=1e-6)
    step = {name: value[:, 0] for name, value in inputs.items()}
    _, _, attention, of_step = model(step, return_attention_scores=True, return_gates=True)
    for name, gate in of_step.items():
        np.testing.assert_allclose(array(gate), array(gates[name])[:, 0], atol=1e-6)
    assert all(array(scores).shape[0] == 2 for scores in attention.values())


def test_gates_explain_the_next_memory():
    model = network("relational-memory")
    cell = model.core_layer.cell
    for dense in (cell.input_gates, cell.memory_gates):
        dense.kernel.assign(np.zeros(dense.kernel.shape))
        dense.bias.assign(np.zeros(dense.bias.shape))
    _, _, gates = model.unroll(sequences(), return_gates=True)
    np.testing.assert_allclose(array(gates["forget"]), 1 / (1 + np.exp(-1)), atol=1e-6)
    np.testing.assert_allclose(array(gates["input"]), 0.5, atol=1e-6)


@pytest.mark.parametrize("preset", ["relational-memory-entities", "lstm", "window", "none"])
def test_loop_equals_unrolled_steps(preset):
    models = [
        network(preset, core_arguments={**CORES[preset], "unroll": unroll})
        for unroll in (False, True)
    ]
    first = np.random.default_rng(2).random((2, 5)) < 0.3
    results = [model.unroll(sequences(), some_memory(model, 2), first) for model in models]
    for looped, written_out in zip(*results):
        np.testing.assert_allclose(array(looped), array(written_out), atol=1e-6)
