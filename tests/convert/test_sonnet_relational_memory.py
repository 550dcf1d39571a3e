"""Converted weights of Sonnet 1.36 give the outputs that Sonnet computed."""

import json
from pathlib import Path

import numpy as np
import pytest
from keras import ops
from relational_memory_oracle import Oracle, random_variables

from rrl_tf.convert import sonnet_relational_memory
from rrl_tf.layers import RelationalMemory, RelationalMemoryCell

RECORDED = json.loads(Path(__file__).with_suffix(".json").read_text())["cases"]
recorded = pytest.mark.parametrize("case", RECORDED, ids=["two-blocks", "matrices", "no-gates"])

ARGUMENTS = {"mem_slots": 3, "head_size": 2, "num_heads": 2}


def built_cell(features=5, **overrides):
    cell = RelationalMemoryCell(**{**ARGUMENTS, **overrides})
    cell.build((None, features))
    return cell


def arrays(case):
    """Return the variables, inputs `(B, T, F)` and outputs of a recorded case."""
    variables = {name: np.array(value, "float32") for name, value in case["variables"].items()}
    inputs, outputs = np.array(case["inputs"], "float32"), np.array(case["outputs"])
    return variables, np.swapaxes(inputs, 0, 1), np.swapaxes(outputs, 0, 1)


@recorded
def test_layer_equals_sonnet(case):
    variables, inputs, outputs = arrays(case)
    layer = RelationalMemory(**case["arguments"], return_sequences=True)
    layer.build(inputs.shape)
    sonnet_relational_memory(layer.cell, variables)
    np.testing.assert_allclose(ops.convert_to_numpy(layer(inputs)), outputs, atol=5e-6)


@recorded
def test_oracle_equals_sonnet(case):
    variables, inputs, outputs = arrays(case)
    np.testing.assert_allclose(
        Oracle(variables, **case["arguments"]).run(inputs)[0], outputs, atol=5e-6
    )


def test_every_weight_is_filled():
    cell = built_cell(num_blocks=2)
    variables = random_variables({**ARGUMENTS, "num_blocks": 2}, 5)
    before = cell.get_weights()
    sonnet_relational_memory(cell, variables)
    assert len(variables) == len(before)
    for old, new in zip(before, cell.get_weights()):
        assert not np.isclose(new, old).any()


def test_learned_start_does_not_change():
    cell = built_cell(learned_start=True)
    start = ops.convert_to_numpy(cell.initial_memory)
    sonnet_relational_memory(cell, random_variables(ARGUMENTS, 5))
    np.testing.assert_array_equal(ops.convert_to_numpy(cell.initial_memory), start)


def test_scope_is_the_prefix_of_the_names():
    variables = random_variables(ARGUMENTS, 5)
    renamed = {f"agent/core/{name.split('/', 1)[1]}": v for name, v in variables.items()}
    cells = [
        sonnet_relational_memory(built_cell(), variables),
        sonnet_relational_memory(built_cell(), renamed, scope="agent/core"),
    ]
    for one, other in zip(*(cell.get_weights() for cell in cells)):
        np.testing.assert_array_equal(one, other)


def test_error_lists_every_misfit_and_assigns_nothing():
    variables = random_variables(ARGUMENTS, 5)
    del variables["relational_memory/layer_norm_2/gamma"]
    variables["relational_memory/linear/w"] = variables["relational_memory/linear/w"].T
    variables["relational_memory/linear_4/w"] = np.zeros((4, 8))
    cell = built_cell()
    before = cell.get_weights()
    with pytest.raises(ValueError) as error:
        sonnet_relational_memory(cell, variables)
    for line in (
        "missing: relational_memory/layer_norm_2/gamma with shape (4,)",
        "wrong shape: relational_memory/linear/w is (4, 5), expected (5, 4)",
        "unknown: relational_memory/linear_4/w with shape (4, 8)",
    ):
        assert line in str(error.value)
    assert len(str(error.value).splitlines()) == 4
    for old, new in zip(before, cell.get_weights()):
        np.testing.assert_array_equal(new, old)


def test_cell_of_other_sizes_is_an_error():
    with pytest.raises(ValueError, match=r"linear_2/w is \(4, 8\), expected \(4, 2\)"):
        sonnet_relational_memory(built_cell(gate_style="memory"), random_variables(ARGUMENTS, 5))


def test_unbuilt_or_other_layers_are_errors():
    with pytest.raises(ValueError, match="must be built first"):
        sonnet_relational_memory(RelationalMemoryCell(**ARGUMENTS), {})
    with pytest.raises(ValueError, match="a RelationalMemoryCell; received <RelationalMemory "):
        sonnet_relational_memory(RelationalMemory(**ARGUMENTS), {})
