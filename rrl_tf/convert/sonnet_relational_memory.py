"""Load weights of DeepMind's Relational Memory Core in Sonnet 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rrl_tf.convert._assign import Assignment, assign, check_built
from rrl_tf.layers import RelationalMemoryCell


def sonnet_relational_memory(
    cell: RelationalMemoryCell, variables: Mapping[str, Any], scope: str = "relational_memory"
) -> RelationalMemoryCell:
    """Fill a cell with the weights of Sonnet 1's `RelationalMemory`.

    Args:
        cell: a built `RelationalMemoryCell`, such as `layer.cell` of a `RelationalMemory` layer; it
            is filled in place. A trainable initial memory is unchanged, because the original has
            none.
        variables: mapping from the original's names to arrays (NumPy, or objects with `.numpy()`).
            Names are those of a TensorFlow 1 checkpoint, such as `"relational_memory/linear/w"`.
        scope: prefix of the original's names.

    Returns:
        `cell`.

    Raises:
        InvalidInput: if the cell is not built, or if names are missing, unknown or have a wrong
            shape. The message lists all of these names, and the cell is unchanged.

    Example:

    >>> cell = RelationalMemoryCell(mem_slots=8, head_size=32, num_heads=8)
    >>> cell.build((None, 40))
    >>> checkpoint = tf.train.load_checkpoint("rmc.ckpt")  # doctest: +SKIP
    >>> names = checkpoint.get_variable_to_shape_map()  # doctest: +SKIP
    >>> variables = {name: checkpoint.get_tensor(name) for name in names}  # doctest: +SKIP
    >>> cell = sonnet_relational_memory(cell, variables)  # doctest: +SKIP
    """
    check_built(cell, [RelationalMemoryCell], "cell.build(shape of a step's inputs)")
    assignments = [
        Assignment(variable, {f"{scope}/{name}": tuple(variable.shape)})
        for name, variable in _variables(cell).items()
    ]
    assign(variables, assignments)
    return cell


def _variables(cell):
    """Return a dict original name -> our variable.

    Sonnet numbers layers in the order in which it creates them.

    Both implementations order the columns of queries, keys and values as `[head][q | k | v]`, and
    the columns of the gates as `[input | forget]`.
    """
    linear, norms = [cell.input_projection], []
    for attention, *after in zip(cell.attentions, cell.attention_norms, cell.mlp_norms):
        linear.append(attention.query_key_value)
        norms += [attention.fused_norm, *after]
    if cell.gate_style is not None:
        linear += [cell.input_gates, cell.memory_gates]
    dense_layers = {_counted("linear", i): dense for i, dense in enumerate(linear)}
    dense_layers |= {f"mlp/linear_{i}": dense for i, dense in enumerate(cell.mlp)}
    variables = {}
    for name, dense in dense_layers.items():
        variables |= {f"{name}/w": dense.kernel, f"{name}/b": dense.bias}
    for i, norm in enumerate(norms):
        name = _counted("layer_norm", i)
        variables |= {f"{name}/gamma": norm.gamma, f"{name}/beta": norm.beta}
    return variables


def _counted(name, i):
    return f"{name}_{i}" if i else name
