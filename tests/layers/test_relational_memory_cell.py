"""RelationalMemoryCell, compared with NumPy: options, gradients, and the tests of Sonnet."""

import keras
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from keras import ops
from relational_memory_oracle import Oracle, identity, random_variables

from rrl_tf.convert import sonnet_relational_memory
from rrl_tf.layers import RelationalMemoryCell

RNG = np.random.default_rng(0)
FEATURES = 3


def array(tensor):
    return ops.convert_to_numpy(tensor)


def cell_and_oracle(arguments, num_rows=None, features=FEATURES, **kwargs):
    """Return a cell and an oracle with equal random weights; `num_rows=None`: vector inputs."""
    cell = RelationalMemoryCell(**arguments)
    rows = () if num_rows is None else (num_rows,)
    cell.build((None, *rows, features))
    variables = random_variables(arguments, features, num_rows or 1, **kwargs)
    sonnet_relational_memory(cell, variables)
    return cell, Oracle(variables, **arguments)


def random_inputs(num_rows=None, steps=1, batch=2, features=FEATURES):
    rows = () if num_rows is None else (num_rows,)
    return RNG.normal(size=(batch, steps, *rows, features)).astype("float32")


@settings(max_examples=12)
@given(
    arguments=st.fixed_dictionaries(
        {
            "mem_slots": st.integers(1, 5),
            "head_size": st.integers(1, 4),
            "num_heads": st.integers(1, 3),
            "num_blocks": st.integers(1, 3),
            "forget_bias": st.sampled_from([1.0, -0.5, np.inf]),
            "input_bias": st.sampled_from([0.0, 0.7, -np.inf]),
            "gate_style": st.sampled_from(["unit", "memory", None]),
            "attention_mlp_layers": st.integers(1, 3),
            "key_size": st.one_of(st.none(), st.integers(1, 5)),
        }
    ),
    num_rows=st.sampled_from([None, 1, 3]),
    random_memory=st.booleans(),
)
@example(
    arguments={"mem_slots": 8, "head_size": 32, "num_heads": 8}, num_rows=None, random_memory=False
)
def test_step_equals_the_oracle(arguments, num_rows, random_memory):
    cell, oracle = cell_and_oracle(arguments, num_rows)
    x = random_inputs(num_rows)
    memory = array(cell.get_initial_state(batch_size=2)[0])
    if random_memory:
        memory = RNG.normal(size=memory.shape).astype("float32")
    output, (state,), scores = cell(x[:, 0], [memory], return_attention_scores=True)
    wanted, wanted_scores = oracle.run(x, memory)
    np.testing.assert_allclose(array(output), wanted[:, 0], atol=2e-5, rtol=0)
    np.testing.assert_array_equal(array(state), array(output))
    assert list(scores) == [f"block_{i + 1}" for i in range(cell.num_blocks)]
    for score, wanted_score in zip(scores.values(), wanted_scores):
        np.testing.assert_allclose(array(score), wanted_score[:, 0], atol=2e-5, rtol=0)


@pytest.mark.parametrize("gate_style", ["unit", "memory", None])
def test_forty_steps_equal_the_oracle(gate_style):
    arguments = {"mem_slots": 4, "head_size": 5, "num_heads": 2, "gate_style": gate_style}
    cell, oracle = cell_and_oracle(arguments)
    x = random_inputs(steps=40)
    wanted, wanted_scores = oracle.run(x)
    state = cell.get_initial_state(batch_size=2)
    for t in range(40):
        output, state, scores = cell(x[:, t], state, return_attention_scores=True)
        np.testing.assert_allclose(array(output), wanted[:, t], atol=5e-5, rtol=0)
        np.testing.assert_allclose(
            array(scores["block_1"]), wanted_scores[0][:, t], atol=5e-5, rtol=0
        )


@pytest.mark.tf_only
@pytest.mark.parametrize("num_rows", [None, 2])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gate_style": "memory", "num_blocks": 2, "key_size": 2},
        {"gate_style": None, "attention_mlp_layers": 3},
    ],
    ids=["unit", "memory", "no-gates"],
)
def test_gradients_equal_finite_differences_of_the_oracle(options, num_rows):
    import tensorflow as tf

    arguments = {"mem_slots": 3, "head_size": 3, "num_heads": 2, **options}
    cell, oracle = cell_and_oracle(arguments, num_rows)
    x = random_inputs(num_rows, steps=3)
    memory = RNG.normal(size=(2, cell.state_size)).astype("float32")
    weights = RNG.normal(size=(2, cell.state_size))

    tensors = [tf.constant(x), tf.constant(memory)]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        state = tensors[1:]
        for t in range(3):
            output, state = cell(tensors[0][:, t], state)
        loss = tf.reduce_sum(output * weights.astype("float32"))
    gradients = tape.gradient(loss, [*tensors, *(weight.value for weight in cell.weights)])

    values = [x.astype("float64"), memory.astype("float64")]
    values += [_array_of_oracle(oracle, weight) for weight in cell.weights]
    for i, (value, gradient) in enumerate(zip(values, gradients)):
        direction = RNG.normal(size=value.shape)
        losses = []
        for step in (1e-5, -2e-5, 1e-5):  # the last step restores the value
            value += step * direction
            losses.append((oracle.run(*values[:2])[0][:, -1] * weights).sum())
        slope = (losses[0] - losses[1]) / 2e-5
        tolerance = 1e-3 * float(np.linalg.norm(gradient) + 1e-3)
        assert (array(gradient) * direction).sum() == pytest.approx(slope, abs=tolerance), i


def _array_of_oracle(oracle, weight):
    """Return the array of the oracle that equals a weight of the cell."""
    (found,) = (
        value
        for value in oracle.variables.values()
        if value.shape == tuple(weight.shape) and np.allclose(value, array(weight))
    )
    return found


@pytest.mark.parametrize(("slots", "head_size", "heads"), [(4, 3, 2), (6, 2, 2), (4, 2, 2)])
def test_initial_memory_is_a_truncated_or_padded_identity(slots, head_size, heads):
    cell = RelationalMemoryCell(slots, head_size, heads)
    (memory,) = cell.get_initial_state(batch_size=3)
    wanted = identity(slots, head_size * heads).reshape(-1)
    np.testing.assert_array_equal(array(memory), np.stack(3 * [wanted]))


def test_learned_start_is_a_weight_initialised_to_the_identity():
    cell = RelationalMemoryCell(4, 3, learned_start=True)
    cell.build((None, FEATURES))
    np.testing.assert_array_equal(
        array(cell.get_initial_state(batch_size=2)[0])[1].reshape(4, 3), np.eye(4, 3)
    )
    cell.initial_memory.assign(np.arange(12.0))
    np.testing.assert_array_equal(
        array(cell.get_initial_state(batch_size=2)[0])[1], np.arange(12.0)
    )
    assert cell.count_params() == 12 + _parameters(RelationalMemoryCell(4, 3))


def _parameters(cell, shape=(None, FEATURES)):
    cell.build(shape)
    return cell.count_params()


def test_number_of_parameters_equals_the_original():
    assert _parameters(RelationalMemoryCell(8, 32, 8), (None, 40)) == 605_184


def test_another_block_adds_attention_and_norms_only():
    one, two = (_parameters(RelationalMemoryCell(4, 3, 2, num_blocks=n)) for n in (1, 2))
    assert two - one == (6 * 18 + 18) + 2 * (18 + 6 + 6)


@pytest.mark.parametrize("gate_style", ["unit", "memory"])
@pytest.mark.parametrize("num_rows", [None, 2])
def test_infinite_forget_bias_keeps_the_memory(gate_style, num_rows):
    cell, _ = cell_and_oracle(
        {
            "mem_slots": 4,
            "head_size": 3,
            "num_heads": 2,
            "gate_style": gate_style,
            "forget_bias": np.inf,
            "input_bias": -np.inf,
        },
        num_rows,
    )
    memory = RNG.normal(size=(2, cell.state_size)).astype("float32")
    output, _ = cell(random_inputs(num_rows)[:, 0], [memory])
    np.testing.assert_array_equal(array(output), memory)
    again = RelationalMemoryCell.from_config(cell.get_config())
    assert again.forget_bias == np.inf
    assert again.input_bias == -np.inf


def test_initial_weights_are_distributed_as_in_sonnet():
    cell = RelationalMemoryCell(4, 16, 4)
    cell.build((None, 100))
    for dense, features in ((cell.input_projection, 100), (cell.mlp[0], 64), (cell.mlp[1], 64)):
        kernel = array(dense.kernel)
        # Truncation at two standard deviations reduces the standard deviation by the factor 0.88.
        assert kernel.std() == pytest.approx(0.8796 / np.sqrt(features), rel=0.05)
        assert 1.9 < np.abs(kernel).max() * np.sqrt(features) <= 2.0001
        assert (array(dense.bias) == 0).all()
    kernels = [array(dense.kernel) for dense in (*cell.mlp, cell.attentions[0].query_key_value)]
    assert not np.allclose(kernels[0], kernels[1])
    assert 1.9 < np.abs(kernels[2]).max() * 8 <= 2.0001
    assert (array(cell.attentions[0].fused_norm.gamma) == 1).all()


def test_kernel_initializer_fills_every_matrix():
    cell = RelationalMemoryCell(4, 16, 4, kernel_initializer=keras.initializers.Constant(0.25))
    cell = RelationalMemoryCell.from_config(cell.get_config())
    cell.build((None, FEATURES))
    assert (array(cell.attentions[0].query_key_value.kernel) == 0.25).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mem_slots": 0}, "mem_slots.*positive integer.*0"),
        ({"head_size": -2}, "head_size.*positive integer.*-2"),
        ({"num_heads": 0}, "num_heads.*positive integer.*0"),
        ({"num_blocks": 0}, "num_blocks.*positive integer.*0"),
        ({"attention_mlp_layers": 0}, "attention_mlp_layers.*positive integer.*0"),
        ({"key_size": 0}, "key_size.*positive integer.*0"),
        ({"gate_style": "lstm"}, "gate_style.*unit.*'lstm'"),
        ({"forget_bias": "one"}, "forget_bias.*number.*'one'"),
        ({"input_bias": np.nan}, "input_bias.*number.*nan"),
    ],
)
def test_bad_arguments_are_errors(arguments, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        RelationalMemoryCell(**{"mem_slots": 2, "head_size": 3, **arguments})


@pytest.mark.parametrize("shape", [(3,), (None, 2, 3, 4), (None, None), (None, None, 3)])
def test_bad_shapes_are_errors(shape):
    with pytest.raises(ValueError, match=r"vectors \(B, F\) or matrices.*; received the shape"):
        RelationalMemoryCell(2, 3).build(shape)


@pytest.mark.parametrize("shape", [(2, 2, 3), (2, 5), (6,)])
def test_memory_of_another_shape_is_an_error(shape):
    cell = RelationalMemoryCell(2, 3)
    with pytest.raises(ValueError, match=r"here \(B, 6\); received the shape"):
        cell(np.ones((2, FEATURES)), [np.ones(shape)])


@settings(max_examples=4)
@given(num_blocks=st.integers(1, 3), seen=st.lists(st.booleans(), min_size=3, max_size=3))
def test_invisible_rows_equal_absent_rows(num_blocks, seen):
    arguments = {"mem_slots": 2, "head_size": 3, "num_heads": 2, "num_blocks": num_blocks}
    arguments["gate_style"] = None  # the weights of gates depend on the number of rows
    cell, _ = cell_and_oracle(arguments, num_rows=3)
    x = random_inputs(3)[:, 0]
    memory = RNG.normal(size=(2, 12)).astype("float32")
    projected, mask = cell.project_inputs(x), np.tile(seen, (2, 1))
    after, scores = cell.update(projected, memory, mask)
    full, all_scores = cell.update(projected, memory, mask, every_row=True)
    np.testing.assert_allclose(array(after), array(full), atol=1e-6)
    last = f"block_{num_blocks}"
    assert scores[last].shape == (2, 2, 2, 5)
    np.testing.assert_allclose(array(scores[last]), array(all_scores[last])[:, :, :2], atol=1e-6)
    for score in all_scores.values():
        assert not array(score)[..., 2:][..., np.logical_not(seen)].any()
    if any(seen):
        fewer = RelationalMemoryCell(**arguments)
        fewer.build((None, sum(seen), FEATURES))
        fewer.set_weights(cell.get_weights())
        expected, _ = fewer(x[:, np.array(seen)], [memory])
        np.testing.assert_allclose(array(after), array(expected), atol=1e-5)


@pytest.mark.parametrize("gate_style", ["unit", "memory", None])
def test_gates_explain_the_memory_after_a_step(gate_style):
    arguments = {"mem_slots": 2, "head_size": 3, "gate_style": gate_style}
    cell, _ = cell_and_oracle(arguments)
    memory = RNG.normal(size=(2, 6)).astype("float32")
    projected = cell.project_inputs(random_inputs()[:, 0])
    gates = {name: array(gate) for name, gate in cell.gates(projected, memory).items()}
    if gate_style is None:
        assert gates == {}
        return
    assert {gate.shape for gate in gates.values()} == {(2, 2, 3 if gate_style == "unit" else 1)}
    # The candidate memory is a tanh, so it is between -1 and 1.
    after = array(cell.update(projected, memory)[0]).reshape(2, 2, 3)
    let_in = (after - gates["forget"] * memory.reshape(2, 2, 3)) / gates["input"]
    assert np.abs(let_in).max() < 1
