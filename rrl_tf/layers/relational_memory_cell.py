"""Define `RelationalMemoryCell`, one step of the Relational Memory Core."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from rrl_tf._arguments import one_of, optional_positive_int, positive_int
from rrl_tf._typing import Initializer, Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers.base import BaseLayer, dense_on_rows, make_dense, make_norm
from rrl_tf.layers.multi_head_dot_product_attention import MultiHeadDotProductAttention

GATE_STYLES = ("unit", "memory", None)
# The standard deviation of a standard normal distribution that is truncated at ±2. Keras divides by
# this factor, and Sonnet does not.
_CUT_NORMAL_DEVIATION = 0.87962566103423978


@keras.saving.register_keras_serializable(package="rrl_tf")
class RelationalMemoryCell(BaseLayer):
    """Recurrent cell whose memory has several slots, which attend to each other and to the input.

    The memory `M` is a matrix with `mem_slots` rows of `num_heads * head_size` units. A step
    projects the input to rows `x` of the same size and appends them to the memory, `z = [M; x]`.
    Each of `num_blocks` blocks computes

        z = norm(z + attention(z))
        z = norm(z + mlp(z))

    The attention scales dot products by `1 / sqrt(key_size)`. The norms are over the features of a
    row. Each block has its own attention and norms; the blocks share the dense network `mlp`.

    The first `mem_slots` rows of the result, `A`, update the memory, `M' = i * tanh(A) + f * M`.
    The input gate `i` and the forget gate `f` are `sigmoid(x W + tanh(M) U + b + bias)`. The output
    is the new memory. There is no output gate.

    Computation, sizes, defaults and initial weights equal those of DeepMind's `RelationalMemory` in
    Sonnet 1.36. `rrl_tf.convert.sonnet_relational_memory` loads its weights.

    Keras does not support a matrix as the state of a cell, so the memory is flattened row by row:
    `state_size = output_size = mem_slots * num_heads * head_size`.

    Args:
        mem_slots: number of rows of the memory.
        head_size: D, size of a value, per head; a row of the memory has `num_heads * head_size`
            units.
        num_heads: H, the number of attention heads.
        num_blocks: number of attention blocks in a step.
        forget_bias: added to the forget gate before its sigmoid.
        input_bias: added to the input gate before its sigmoid.
        gate_style: `"unit"` (a gate for every unit of the memory), `"memory"` (a gate for every
            slot) or `None` (`M' = A`, no gates).
        attention_mlp_layers: number of layers of the dense network, with ReLU between them.
        key_size: size of a query and of a key, per head. `None` means `head_size`.
        learned_start: whether the initial memory is a trainable weight, initialised to the identity
            matrix. Otherwise, the initial memory is the identity matrix.
        kernel_initializer: initialiser of every matrix. `None` means that of Sonnet: a normal
            distribution with standard deviation `1 / sqrt(inputs)`, truncated at two standard
            deviations.
        gate_bias_initializer: initialiser of `b`, `(2 * gate size,)`: first the biases of the input
            gate, then those of the forget gate.

    Call arguments:
        inputs: the input of one step: a vector `(B, F)`, or the n rows of a matrix `(B, n, F)`.
        states: a list of one memory `(B, mem_slots * H * D)`.
        return_attention_scores: whether to return the scores as well.

    Returns:
        The pair `(output, states)`: the new memory `(B, mem_slots * H * D)`, and a list that
        contains the new memory. With `return_attention_scores`, also a dict `"block_1"`,
        `"block_2"`, ... -> attention `(B, H, N, N)`, where the N rows are the slots, followed by
        the rows of the input. In the last block, the rows of the input have no effect on the
        memory, as in the original.

    Raises:
        InvalidInput: for an argument out of its range, an input of a wrong rank, or a memory of
            a wrong shape.

    Example:

    >>> cell = RelationalMemoryCell(mem_slots=4, head_size=8, num_heads=2)
    >>> output, state = cell(keras.ops.ones((1, 10)), cell.get_initial_state(batch_size=1))
    >>> tuple(output.shape)
    (1, 64)

    References:
        - [Santoro et al., 2018](https://arxiv.org/abs/1806.01822)
        - [Sonnet 1](https://github.com/google-deepmind/sonnet/tree/v1), `relational_memory.py`
    """

    def __init__(
        self,
        mem_slots: int,
        head_size: int,
        num_heads: int = 1,
        num_blocks: int = 1,
        forget_bias: float = 1.0,
        input_bias: float = 0.0,
        gate_style: str | None = "unit",
        attention_mlp_layers: int = 2,
        key_size: int | None = None,
        learned_start: bool = False,
        kernel_initializer: Initializer | None = None,
        gate_bias_initializer: Initializer = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.mem_slots = positive_int("mem_slots", mem_slots)
        self.head_size = positive_int("head_size", head_size)
        self.num_heads = positive_int("num_heads", num_heads)
        self.num_blocks = positive_int("num_blocks", num_blocks)
        self.forget_bias = _number("forget_bias", forget_bias)
        self.input_bias = _number("input_bias", input_bias)
        self.gate_style = one_of("gate_style", gate_style, GATE_STYLES)
        self.attention_mlp_layers = positive_int("attention_mlp_layers", attention_mlp_layers)
        self.key_size = optional_positive_int("key_size", key_size) or self.head_size
        self.learned_start = learned_start
        self.kernel_initializer = keras.initializers.get(
            kernel_initializer
            or keras.initializers.VarianceScaling(
                _CUT_NORMAL_DEVIATION**2, mode="fan_in", distribution="truncated_normal"
            )
        )
        self.gate_bias_initializer = keras.initializers.get(gate_bias_initializer)
        self.mem_size = self.num_heads * self.head_size
        self.state_size = self.output_size = self.mem_slots * self.mem_size
        gate_size = {"unit": self.mem_size, "memory": 1, None: 0}[self.gate_style]
        self.gates_size = 2 * gate_size  # input gate and forget gate

    def build(self, inputs_shape: Shape) -> None:
        if len(inputs_shape) not in (2, 3) or None in inputs_shape[1:]:
            raise InvalidInput(
                "`inputs` of a step must be vectors (B, F) or matrices (B, n, F) of known sizes; "
                f"received the shape {tuple(inputs_shape)}"
            )
        self.input_spec = keras.layers.InputSpec(shape=(None, *inputs_shape[1:]))
        self.is_matrix = len(inputs_shape) == 3
        self.num_rows = inputs_shape[1] if self.is_matrix else 1
        self.rows_size = self.num_rows * self.mem_size
        self.input_projection = make_dense(
            self, "input_projection", self.mem_size, inputs_shape[-1]
        )
        self.attentions, self.attention_norms, self.mlp_norms = [], [], []
        shape = (None, None, self.mem_size)
        for i in range(1, self.num_blocks + 1):
            self.attentions.append(self._attention(f"attention_{i}"))
            self.attention_norms.append(make_norm(self, f"attention_norm_{i}", shape))
            self.mlp_norms.append(make_norm(self, f"mlp_norm_{i}", shape))
        fused_size = self.num_heads * (2 * self.key_size + self.head_size)
        # Sizes of the parts of a projected input: queries, keys and values of its rows in the first
        # block, the rows, and their term of the gates. It is faster to compute the queries, keys
        # and values of a single row together with those of the slots.
        self._projection_sizes = (
            self.num_rows * fused_size if self.is_matrix else 0,
            self.rows_size if self.num_blocks > 1 or not self.is_matrix else 0,
            self.gates_size,
        )
        self.projection_size = sum(self._projection_sizes)
        activations = ["relu"] * (self.attention_mlp_layers - 1) + [None]
        self.mlp = [
            make_dense(self, f"mlp_{i}", self.mem_size, self.mem_size, activation)
            for i, activation in enumerate(activations, start=1)
        ]
        if self.gate_style is not None:
            self.input_gates = make_dense(self, "input_gates", self.gates_size, self.rows_size)
            self.memory_gates = make_dense(
                self,
                "memory_gates",
                self.gates_size,
                self.mem_size,
                bias_initializer=self.gate_bias_initializer,
            )
        if self.learned_start:
            self.initial_memory = self.add_weight(
                shape=(self.state_size,),
                initializer=lambda shape, dtype: ops.cast(self._identity(), dtype),
                name="initial_memory",
            )

    def _attention(self, name):
        attention = MultiHeadDotProductAttention(
            self.num_heads,
            self.key_size,
            self.head_size,
            qkv_norm="fused",
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name=name,
        )
        attention.build((None, self.mem_slots + self.num_rows, self.mem_size))
        return attention

    def _identity(self):
        """Return the identity matrix, cut or zero-padded to the memory's shape, flattened."""
        return ops.reshape(ops.eye(self.mem_slots, self.mem_size), (self.state_size,))

    def get_initial_state(self, batch_size: int | Tensor) -> list[Tensor]:
        """Return the memory before the first step, a list with one `(batch_size, state_size)`.

        With `learned_start`, the cell must be built.
        """
        memory = self.initial_memory if self.learned_start else self._identity()
        memory = ops.cast(memory, self.compute_dtype)
        return [ops.tile(memory[None], (batch_size, 1))]

    def call(
        self,
        inputs: Tensor,
        states: Tensor | list[Tensor] | tuple[Tensor, ...],
        return_attention_scores: bool = False,
    ) -> tuple[Tensor, list[Tensor]] | tuple[Tensor, list[Tensor], dict[str, Tensor]]:
        memory = states[0] if isinstance(states, (list, tuple)) else states
        self._check_memory(memory)
        memory, scores = self.update(
            self.project_inputs(inputs), memory, every_row=return_attention_scores
        )
        return (memory, [memory], scores) if return_attention_scores else (memory, [memory])

    def _check_memory(self, memory):
        if len(memory.shape) != 2 or memory.shape[-1] != self.state_size:
            raise InvalidInput(
                "the memory must be flat, (B, mem_slots * num_heads * head_size), here "
                f"(B, {self.state_size}); received the shape {tuple(memory.shape)}"
            )

    def project_inputs(self, inputs: Tensor) -> Tensor:
        """Return the part of a step that does not depend on the memory, `(..., projection_size)`.

        Args:
            inputs: inputs of one step, `(B, F)` or `(B, n, F)`, or of a sequence, `(B, T, F)` or
                `(B, T, n, F)`.

        Returns:
            The concatenation of up to three parts:

            - for a matrix, the queries, keys and values of its projected rows in the first block;
            - for a vector, or with several blocks, the projected rows;
            - with gates, the term `x W` of the gates.
        """
        rows = dense_on_rows(self.input_projection, inputs)
        leading = ops.shape(inputs)[: len(inputs.shape) - (2 if self.is_matrix else 1)]
        fused_size, rows_size, _ = self._projection_sizes
        parts = []
        if fused_size:
            fused = self.attentions[0].query_key_values(rows)
            parts.append(ops.reshape(fused, (*leading, fused_size)))
        rows = ops.reshape(rows, (*leading, self.rows_size))
        if rows_size:
            parts.append(rows)
        if self.gate_style is not None:
            parts.append(dense_on_rows(self.input_gates, rows))
        return ops.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0]

    def _parts(self, projected):
        """Split the result of `project_inputs` into its parts; a missing part is `None`."""
        sizes = [size for size in self._projection_sizes if size]
        # `split` instead of slices, here and below, because on TensorFlow its gradient is faster.
        places = np.cumsum(sizes)[:-1].tolist()
        parts = iter(ops.split(projected, places, axis=-1) if places else [projected])
        fused, rows, gates = (next(parts) if size else None for size in self._projection_sizes)
        if fused is not None:
            fused = ops.reshape(fused, (-1, self.num_rows, fused.shape[-1] // self.num_rows))
        if rows is not None:
            rows = ops.reshape(rows, (-1, self.num_rows, self.mem_size))
        return fused, rows, gates

    def update(
        self,
        projected: Tensor,
        memory: Tensor,
        visible: Tensor | None = None,
        every_row: bool = False,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the memory after one step and the attention of its blocks.

        Args:
            projected: result of `project_inputs`, `(B, projection_size)`.
            memory: `(B, state_size)`.
            visible: `(B, n)`, false for rows of the input that must not be attended to. `None`
                means that all rows are visible.
            every_row: whether to compute also the attention of the input's rows in the last block,
                which has no effect on the memory.

        Returns:
            The new flattened memory, and a dict block name -> attention `(B, H, N, N)`. Without
            `every_row`, the attention of the last block has only the rows of the slots.
        """
        slots = ops.reshape(memory, (-1, self.mem_slots, self.mem_size))
        fused, rows, input_gates = self._parts(projected)
        attended, scores = self._attend(slots, fused, rows, visible, every_row)
        if self.gate_style is not None:
            input_gate, forget_gate = self._gates(input_gates, slots)
            attended = input_gate * ops.tanh(attended) + forget_gate * slots
        return ops.reshape(attended, (-1, self.state_size)), scores

    def gates(self, projected: Tensor, memory: Tensor) -> dict[str, Tensor]:
        """Return the input and forget gates of the step that `update` computes.

        Returns:
            Dict with `"input"` and `"forget"`, both `(B, mem_slots, gate size)`, or an empty dict
            if the cell has no gates. The gate size is the size of a slot, or 1 with
            `gate_style="memory"`.
        """
        if self.gate_style is None:
            return {}
        slots = ops.reshape(memory, (-1, self.mem_slots, self.mem_size))
        _, _, input_gates = self._parts(projected)
        return dict(zip(("input", "forget"), self._gates(input_gates, slots)))

    def _gates(self, input_gates, slots):
        gates = dense_on_rows(self.memory_gates, ops.tanh(slots))  # (B, N, 2 * gate size)
        gates = gates + ops.expand_dims(input_gates, 1)
        input_gate, forget_gate = ops.split(gates, 2, axis=-1)
        input_gate = ops.sigmoid(input_gate + self.input_bias)
        return input_gate, ops.sigmoid(forget_gate + self.forget_bias)

    def _attend(self, slots, fused, rows, visible, every_row):
        """Return the attended memory `(B, mem_slots, mem_size)` and the attention of the blocks.

        The last block computes the rows of the memory only; those of the input are not used.
        """
        if visible is not None:
            all_slots = ops.ones_like(slots[..., 0], dtype="bool")
            visible = ops.concatenate([all_slots, ops.cast(visible, "bool")], axis=1)
        z = slots if rows is None else ops.concatenate([slots, rows], axis=1)  # (B, N, mem_size)
        scores = {}
        blocks = zip(self.attentions, self.attention_norms, self.mlp_norms)
        for i, (attention, attention_norm, mlp_norm) in enumerate(blocks, start=1):
            if i == 1 and fused is not None:
                of_slots = attention.query_key_values(slots)
                fused = ops.concatenate([of_slots, fused], axis=1)
            else:
                fused = attention.query_key_values(z)
            is_last = i == self.num_blocks
            few = self.mem_slots if is_last and not every_row else None
            heads, scores[f"block_{i}"] = attention.attend(fused, visible, few)
            if is_last:
                z, heads = self._memory_rows(z), self._memory_rows(heads)
            z = attention_norm(z + heads)
            z = mlp_norm(z + self._apply_mlp(z))
        return z, scores

    def _memory_rows(self, z):
        return z if z.shape[1] == self.mem_slots else ops.split(z, [self.mem_slots], axis=1)[0]

    def _apply_mlp(self, z):
        for dense in self.mlp:
            z = dense_on_rows(dense, z)
        return z


def _number(name, value):
    """Return `value` as a float, which may be infinite, or raise an `InvalidInput`."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number):
        raise InvalidInput(f"`{name}` must be a number; received {value!r}")
    return number
