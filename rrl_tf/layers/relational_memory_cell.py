"""One step of the Relational Memory Core."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from rrl_tf._arguments import one_of, optional_positive_int, positive_int
from rrl_tf._typing import Initializer, Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers._layer_norm import LayerNormalization
from rrl_tf.layers._shapes import dense_on_rows
from rrl_tf.layers.multi_head_dot_product_attention import MultiHeadDotProductAttention

GATE_STYLES = ("unit", "memory", None)
_NORM_EPSILON = 1e-5
# A normal distribution cut at two standard deviations keeps this part of its own. Keras makes up
# for it and Sonnet does not.
_CUT_NORMAL_DEVIATION = 0.87962566103423978


@keras.saving.register_keras_serializable(package="rrl_tf")
class RelationalMemoryCell(keras.layers.Layer):
    """A memory of several slots that attend to each other and to the input at every step.

    The memory `M` is a matrix of `mem_slots` rows of `num_heads * head_size` units. A step projects
    the input to rows `x` of that size and puts them after the memory, `z = [M; x]`. Each of
    `num_blocks` blocks then computes, with dot products scaled by `1 / sqrt(key_size)` and a norm
    over the features of a row,

        z = norm(z + attention(z))
        z = norm(z + mlp(z))

    and the rows of the memory are kept, `A`. The blocks have their own attention and norms and
    share the dense network. Input and forget gates, `sigmoid(x W + tanh(M) U + b + bias)`, mix old
    and new: `M' = i * tanh(A) + f * M`. The output is the new memory, and there is no output gate.

    The computation, the sizes, the defaults and the initial weights are those of DeepMind's
    `RelationalMemory` in Sonnet 1.36; its weights go in with
    `rrl_tf.convert.sonnet_relational_memory`.

    Keras cannot describe a state that is a matrix, so memories go in and out flat, slot by slot:
    `state_size = output_size = mem_slots * num_heads * head_size`.

    Args:
        mem_slots: number of rows of the memory.
        head_size: D, size of a value, per head; the memory's rows are `num_heads` times as long.
        num_heads: H, the number of attention heads.
        num_blocks: how often a step attends.
        forget_bias: added to the forget gate before its sigmoid.
        input_bias: added to the input gate before its sigmoid.
        gate_style: `"unit"` (a gate for every number of the memory), `"memory"` (one for every
            slot) or `None` (`M' = A`, no gates).
        attention_mlp_layers: number of layers of the dense network, with ReLU between them.
        key_size: size of a query and of a key, per head. `None` is `head_size`.
        learned_start: whether the initial memory is a weight. It starts as the identity, which it
            otherwise stays.
        kernel_initializer: initialiser of every matrix. `None` is Sonnet's: normal, of standard
            deviation `1 / sqrt(inputs)`, cut at two of them.
        gate_bias_initializer: initialiser of b, `(2 * gate size,)`: the input gate's, then the
            forget gate's.

    Call arguments:
        inputs: what one step sees: a vector `(B, F)`, or the n rows of a matrix `(B, n, F)`.
        states: the memory `(B, mem_slots * H * D)`, alone in a list.
        return_attention_scores: whether to return the scores as well.

    Returns:
        The new memory, twice: as the output `(B, mem_slots * H * D)` and as the state, alone in a
        list. With `return_attention_scores`, third, a dict of the attention of the blocks,
        `"block_1"` and so on, `(B, H, N, N)`: N is `mem_slots` and after them the rows of the
        input. What the input's rows attend to in the last block goes nowhere, in the original too.

    Raises:
        InvalidInput: for an argument out of its range, an input of another rank, or a memory of
            another shape.

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
        self.forget_bias = _bias("forget_bias", forget_bias)
        self.input_bias = _bias("input_bias", input_bias)
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
        self.gates_size = 2 * gate_size  # the input gate's and the forget gate's

    def build(self, inputs_shape: Shape) -> None:
        if len(inputs_shape) not in (2, 3) or None in inputs_shape[1:]:
            raise InvalidInput(
                "A step's `inputs` must be vectors (B, F) or matrices (B, n, F) of known sizes; "
                f"received the shape {tuple(inputs_shape)}"
            )
        self.input_spec = keras.layers.InputSpec(shape=(None, *inputs_shape[1:]))
        self.is_matrix = len(inputs_shape) == 3
        self.num_rows = inputs_shape[1] if self.is_matrix else 1
        self.rows_size = self.num_rows * self.mem_size
        self.input_projection = self._dense("input_projection", self.mem_size, inputs_shape[-1])
        self.attentions, self.attention_norms, self.mlp_norms = [], [], []
        for i in range(1, self.num_blocks + 1):
            self.attentions.append(self._attention(f"attention_{i}"))
            self.attention_norms.append(self._norm(f"attention_norm_{i}"))
            self.mlp_norms.append(self._norm(f"mlp_norm_{i}"))
        fused_size = self.num_heads * (2 * self.key_size + self.head_size)
        # A step's queries, keys and values in the first block, rows, and gates. One row is sooner
        # projected together with the slots.
        self._projection_sizes = (
            self.num_rows * fused_size if self.is_matrix else 0,
            self.rows_size if self.num_blocks > 1 or not self.is_matrix else 0,
            self.gates_size,
        )
        self.projection_size = sum(self._projection_sizes)
        self.mlp = [
            self._dense(f"mlp_{i}", self.mem_size, self.mem_size, "relu" if not_last else None)
            for i, not_last in enumerate(reversed(range(self.attention_mlp_layers)), start=1)
        ]
        if self.gate_style is not None:
            self.input_gates = self._dense("input_gates", self.gates_size, self.rows_size)
            self.memory_gates = self._dense(
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

    def _dense(self, name, units, features, activation=None, bias_initializer="zeros"):
        dense = keras.layers.Dense(
            units,
            activation=activation,
            # A clone, as one unseeded initialiser gives the same numbers at every use.
            kernel_initializer=self.kernel_initializer.clone(),
            bias_initializer=bias_initializer,
            dtype=self.dtype_policy,
            name=name,
        )
        dense.build((None, features))
        return dense

    def _attention(self, name):
        attention = MultiHeadDotProductAttention(
            self.num_heads,
            self.key_size,
            self.head_size,
            qkv_norm="fused",
            kernel_initializer=self.kernel_initializer.clone(),
            norm_epsilon=_NORM_EPSILON,
            dtype=self.dtype_policy,
            name=name,
        )
        attention.build((None, self.mem_slots + self.num_rows, self.mem_size))
        return attention

    def _norm(self, name):
        norm = LayerNormalization(epsilon=_NORM_EPSILON, dtype=self.dtype_policy, name=name)
        norm.build((None, None, self.mem_size))
        return norm

    def _identity(self):
        """The identity matrix, cut or padded with zeros to the memory's shape, flat."""
        return ops.reshape(ops.eye(self.mem_slots, self.mem_size), (self.state_size,))

    def get_initial_state(self, batch_size: int | Tensor) -> list[Tensor]:
        """The memory before the first step, `(batch_size, state_size)`, alone in a list.

        A learned start is a weight of the cell, which has to be built.
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
                "A memory is flat, (B, mem_slots * num_heads * head_size), here "
                f"(B, {self.state_size}); received the shape {tuple(memory.shape)}"
            )

    def project_inputs(self, inputs: Tensor) -> Tensor:
        """What a step needs of its input and no memory changes: `(..., projection_size)`.

        A sequence of inputs goes through at once, `(B, T, F)` or `(B, T, n, F)`. The result holds,
        of a matrix, the queries, keys and values of its projected rows in the first block; of a
        vector, or if there are more blocks, the rows; and if there are gates, their part in these.
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
        """`project_inputs`' result, taken apart again; `None` for what it does not hold."""
        sizes = [size for size in self._projection_sizes if size]
        # A split, here and below: the gradient of a slice takes longer on TensorFlow.
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
        seen: Tensor | None = None,
        every_row: bool = False,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """One step from `project_inputs`' result `(B, projection_size)` and the flat memory.

        Args:
            projected: `(B, projection_size)`.
            memory: `(B, state_size)`.
            seen: `(B, n)`, true for the rows of the input that may be attended to; all, if left
                out.
            every_row: whether the input's rows attend in the last block too, where it goes
                nowhere.

        Returns:
            The new flat memory, and the attention of the blocks as a dict, `(B, H, N, N)`; without
            `every_row`, the last one's has the rows of the memory only.
        """
        slots = ops.reshape(memory, (-1, self.mem_slots, self.mem_size))
        fused, rows, input_gates = self._parts(projected)
        attended, scores = self._attend(slots, fused, rows, seen, every_row)
        if self.gate_style is not None:
            input_gate, forget_gate = self._gates(input_gates, slots)
            attended = input_gate * ops.tanh(attended) + forget_gate * slots
        return ops.reshape(attended, (-1, self.state_size)), scores

    def gates(self, projected: Tensor, memory: Tensor) -> dict[str, Tensor]:
        """How much of what is new the step of `update` lets in, and how much of the old it keeps.

        Returns:
            Dict of `"input"` and `"forget"`, `(B, mem_slots, gate size)`; empty without gates. A
            gate's size is that of a slot, or 1 where `gate_style="memory"`.
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

    def _attend(self, slots, fused, rows, seen, every_row):
        """The attended memory `(B, mem_slots, mem_size)`, and the attention of the blocks.

        Nothing reads the input's rows after the last block, so only the memory's are computed.
        """
        if seen is not None:
            seen = ops.cast(seen, "bool")
            seen = ops.concatenate([ops.ones_like(slots[..., 0], dtype="bool"), seen], axis=1)
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
            heads, scores[f"block_{i}"] = attention.attend(fused, seen, few)
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

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "mem_slots": self.mem_slots,
            "head_size": self.head_size,
            "num_heads": self.num_heads,
            "num_blocks": self.num_blocks,
            "forget_bias": self.forget_bias,
            "input_bias": self.input_bias,
            "gate_style": self.gate_style,
            "attention_mlp_layers": self.attention_mlp_layers,
            "key_size": self.key_size,
            "learned_start": self.learned_start,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "gate_bias_initializer": keras.initializers.serialize(self.gate_bias_initializer),
        }


def _bias(name, value):
    """Returns `value` as a float, infinities too, or raises an `InvalidInput`."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number):
        raise InvalidInput(f"`{name}` must be a number; received {value!r}")
    return number
