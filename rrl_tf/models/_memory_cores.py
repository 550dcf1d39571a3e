"""Define the cores of recurrent Q networks: Relational Memory, LSTM, transformer, no memory."""

from __future__ import annotations

import functools
from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import integer, number_from, positive_int
from rrl_tf._typing import Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers import CausalTransformerBlock, PositionEmbedding
from rrl_tf.layers.base import LayerNormalization, dense_on_rows
from rrl_tf.layers.relational_memory_cell import RelationalMemoryCell


class MemoryCore(keras.layers.Layer):
    """Base class of layers that process a sequence step by step with a memory.

    The memory is an argument and a result of a call. Only `advance`, which depends on the memory,
    runs step by step. `project` processes the inputs of all steps before that loop. `read`
    computes the outputs, the attention and the gates of all steps after it.

    Args:
        unroll: whether to unroll the loop over the steps. A `while` loop is traced much faster.
            Unrolled steps run faster if they have few operations, and XLA can compute their
            gradient.

    Call arguments:
        inputs: `(B, T, ...)` with a known T.
        memory: `(B, memory_size)`, the memory before the first step.
        first: `(B, T)` bool, true for steps before which the memory is reset. `None` means no
            resets.
        visible: `(B, T, n)` bool, false for rows of the inputs that must not be attended to. `None`
            means that all rows are visible.
        return_details: whether to return attention and gates.

    Returns:
        A tuple of the outputs `(B, T, output_size)`, the memory after every step
        `(B, T, memory_size)`, a dict of attention `(B, T, H, N, S)` and a dict of gates
        `(B, T, ..., units)`. Without `return_details`, the dicts are empty.
    """

    memory_size: int
    output_size: int

    def __init__(self, unroll: bool, dtype: Any = None, name: str | None = None) -> None:
        super().__init__(dtype=dtype, name=name)
        self.unroll = unroll

    def call(
        self,
        inputs: Tensor,
        memory: Tensor,
        first: Tensor | None = None,
        visible: Tensor | None = None,
        return_details: bool = False,
    ) -> tuple[Tensor, Tensor, dict[str, Tensor], dict[str, Tensor]]:
        steps = self.project(inputs, visible)  # (B, T, size of a step)
        before, after = self._scan(steps, memory, first)
        outputs, attention, gates = self.read(steps, before, after, return_details)
        return outputs, after, attention, gates

    def _scan(self, steps, memory, first):
        """Return the memory before and after every step, each `(B, T, memory_size)`."""
        initial = self.initial_memory(ops.shape(memory)[0])

        def advance(memory, inputs):
            step = inputs
            if first is not None:
                step, is_first = inputs
                memory = ops.where(is_first[:, None], initial, memory)
            memory = self.advance(step, memory)
            return memory, memory

        scan = _unrolled if self.unroll or steps.shape[1] == 1 else _looped
        after = scan(advance, memory, steps if first is None else (steps, first))
        before = ops.concatenate([memory[:, None], after[:, :-1]], axis=1)
        if first is not None:
            before = ops.where(first[..., None], initial[:, None], before)
        return before, after

    def initial_memory(self, batch_size: int | Tensor) -> Tensor:
        """Return the memory at the start of an episode, `(batch_size, memory_size)`."""
        return ops.zeros((batch_size, self.memory_size), self.compute_dtype)

    def project(self, inputs: Tensor, visible: Tensor | None) -> Tensor:
        """Compute what does not depend on the memory, for all steps: `(B, T, step size)`."""
        raise NotImplementedError

    def advance(self, step: Tensor, memory: Tensor) -> Tensor:
        """Return the memory after a step.

        Args:
            step: result of `project` for this step.
            memory: memory before the step.
        """
        raise NotImplementedError

    def read(
        self, steps: Tensor, before: Tensor, after: Tensor, return_details: bool
    ) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        """Return the outputs, the attention and the gates of all steps, as `call` does.

        Args:
            steps: result of `project`.
            before: memory before every step, `(B, T, memory_size)`.
            after: memory after every step, `(B, T, memory_size)`.
            return_details: whether to compute attention and gates.
        """
        raise NotImplementedError


class RelationalMemoryCore(MemoryCore):
    """A Relational Memory Core for vectors `(B, T, F)` or matrices of n rows `(B, T, n, F)`.

    Args:
        time_scale: as in `LSTMCore`. It replaces `forget_bias` and `input_bias`.
        unroll: as in `MemoryCore`.
        **arguments: arguments of `RelationalMemoryCell`.
    """

    def __init__(
        self,
        time_scale: int | None = None,
        unroll: bool = False,
        dtype: Any = None,
        name: str | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(unroll, dtype, name)
        if time_scale is not None:
            biases = {"forget_bias": 0.0, "input_bias": 0.0}
            if given := sorted(biases.keys() & arguments.keys()):
                raise InvalidInput(
                    f"`time_scale` must be None if {given} are given, because it replaces them; "
                    f"received {time_scale!r}"
                )
            if arguments.get("gate_style", "unit") is None:
                raise InvalidInput(
                    f"`time_scale` must be None without gates; received {time_scale!r}"
                )
            initializer = functools.partial(_long_gates, time_scale=_time_scale(time_scale))
            arguments |= {**biases, "gate_bias_initializer": initializer}
        self.cell = RelationalMemoryCell(**arguments, dtype=self.dtype_policy, name="cell")
        self.memory_size = self.output_size = self.cell.state_size

    def build(self, inputs_shape: Shape) -> None:
        self.cell.build((None, *inputs_shape[2:]))

    def initial_memory(self, batch_size: int | Tensor) -> Tensor:
        return self.cell.get_initial_state(batch_size)[0]

    def project(self, inputs: Tensor, visible: Tensor | None) -> Tensor:
        steps = self.cell.project_inputs(inputs)
        if visible is None:
            return steps
        # `visible` is appended to the steps as numbers, because the loop takes a single array.
        return ops.concatenate([steps, ops.cast(visible, steps.dtype)], axis=-1)

    def _split(self, step):
        """Split a step into the cell's projected input and the mask of visible rows, or None."""
        if step.shape[-1] == self.cell.projection_size:
            return step, None
        step, visible = ops.split(step, [self.cell.projection_size], axis=-1)
        return step, visible > 0.5

    def advance(self, step: Tensor, memory: Tensor) -> Tensor:
        step, visible = self._split(step)
        return self.cell.update(step, memory, visible)[0]

    def read(
        self, steps: Tensor, before: Tensor, after: Tensor, return_details: bool
    ) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        if not return_details:
            return after, {}, {}
        step, visible = self._split(_join_time(steps))
        memory = _join_time(before)
        _, attention = self.cell.update(step, memory, visible, every_row=True)
        details = (attention, self.cell.gates(step, memory))
        return after, *keras.tree.map_structure(lambda x: split_time(x, before.shape[1]), details)


class LSTMCore(MemoryCore):
    """An LSTM whose memory is `[h, c]` and whose output is h.

    Args:
        units: size of h and of c.
        time_scale: an integer of at least 3, the largest number of steps that units remember before
            training. The initial time scale of each unit is drawn uniformly from 2 to `time_scale`
            steps; the biases of its forget gate and its input gate are set accordingly. `None`
            means a bias of 1 for the forget gates and 0 for the input gates.
        unroll: as in `MemoryCore`.

    References:
        - [Hochreiter and Schmidhuber, 1997](https://doi.org/10.1162/neco.1997.9.8.1735), with an
          initial forget bias of 1 (Gers et al., 2000), as in Keras
        - [Tallec and Ollivier, 2018](https://arxiv.org/abs/1804.11188), for `time_scale`
    """

    def __init__(
        self,
        units: int,
        time_scale: int | None = None,
        unroll: bool = True,
        dtype: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(unroll, dtype, name)
        self.units = self.output_size = positive_int("units", units)
        self.memory_size = 2 * self.units
        biases = _unit_forget_bias
        if time_scale is not None:
            biases = functools.partial(_long_gates, time_scale=_time_scale(time_scale), others=2)
        self.input_projection = keras.layers.Dense(
            4 * self.units,
            bias_initializer=biases,
            dtype=self.dtype_policy,
            name="input_projection",
        )
        self.recurrent_projection = keras.layers.Dense(
            4 * self.units,
            use_bias=False,
            kernel_initializer="orthogonal",
            dtype=self.dtype_policy,
            name="recurrent_projection",
        )

    def build(self, inputs_shape: Shape) -> None:
        self.input_projection.build((None, inputs_shape[-1]))
        self.recurrent_projection.build((None, self.units))

    def project(self, inputs: Tensor, visible: Tensor | None) -> Tensor:
        return dense_on_rows(self.input_projection, inputs)

    def _gates(self, step, hidden):
        parts = ops.split(step + dense_on_rows(self.recurrent_projection, hidden), 4, axis=-1)
        input_gate, forget_gate, candidate, output_gate = parts  # in Keras' order
        return [ops.sigmoid(gate) for gate in (input_gate, forget_gate, output_gate)], candidate

    def advance(self, step: Tensor, memory: Tensor) -> Tensor:
        hidden, cell = ops.split(memory, 2, axis=-1)
        (input_gate, forget_gate, output_gate), candidate = self._gates(step, hidden)
        cell = forget_gate * cell + input_gate * ops.tanh(candidate)
        return ops.concatenate([output_gate * ops.tanh(cell), cell], axis=-1)

    def read(
        self, steps: Tensor, before: Tensor, after: Tensor, return_details: bool
    ) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        hidden = ops.split(after, 2, axis=-1)[0]
        if not return_details:
            return hidden, {}, {}
        gates, _ = self._gates(steps, ops.split(before, 2, axis=-1)[0])
        return hidden, {}, dict(zip(("input", "forget", "output"), gates))


class WindowCore(MemoryCore):
    """A causal transformer over the last K steps.

    The memory contains the last K - 1 steps, the oldest first. A step is the projection of its
    input, followed by a 1. Steps before the start of the episode are zeros, so that the 1 marks
    real steps.

    Args:
        context_length: K, the number of steps, including the current one.
        width: size of the projection of a step.
        num_blocks: number of `CausalTransformerBlock`s.
        unroll: as in `MemoryCore`.
        **block: arguments of the blocks.
    """

    def __init__(
        self,
        context_length: int,
        width: int,
        num_blocks: int = 1,
        unroll: bool = True,
        dtype: Any = None,
        name: str | None = None,
        **block: Any,
    ) -> None:
        super().__init__(unroll, dtype, name)
        self.context_length = positive_int("context_length", context_length)
        self.width = self.output_size = positive_int("width", width)
        self.memory_size = (self.context_length - 1) * (self.width + 1)
        self.projection = keras.layers.Dense(self.width, dtype=self.dtype_policy, name="projection")
        self.positions = PositionEmbedding(dtype=self.dtype_policy, name="positions")
        block = {"num_heads": 2, "norm": "pre", **block}
        self.blocks = [
            CausalTransformerBlock(**block, dtype=self.dtype_policy, name=f"block_{i}")
            for i in range(1, positive_int("num_blocks", num_blocks) + 1)
        ]
        self.norm = LayerNormalization(epsilon=1e-5, dtype=self.dtype_policy, name="norm")

    def build(self, inputs_shape: Shape) -> None:
        self.projection.build((None, inputs_shape[-1]))
        window = (None, self.context_length, self.width)
        layers: list[keras.layers.Layer] = [self.positions, *self.blocks, self.norm]
        for layer in layers:
            layer.build(window)

    def project(self, inputs: Tensor, visible: Tensor | None) -> Tensor:
        tokens = dense_on_rows(self.projection, inputs)
        return ops.concatenate([tokens, ops.ones_like(tokens[..., :1])], axis=-1)

    def advance(self, step: Tensor, memory: Tensor) -> Tensor:
        return ops.concatenate([memory, step], axis=-1)[:, self.width + 1 :]

    def read(
        self, steps: Tensor, before: Tensor, after: Tensor, return_details: bool
    ) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        times = before.shape[1]  # the windows of all steps form one batch
        windows = ops.concatenate([before, steps], axis=-1)
        windows = ops.reshape(windows, (-1, self.context_length, self.width + 1))
        tokens, is_real = ops.split(windows, [self.width], axis=-1)
        x, attention = self.positions(tokens), {}
        for block in self.blocks:
            x, scores = block(x, mask=is_real[..., 0] > 0.5, return_attention_scores=True)
            attention[block.name] = split_time(scores, times)
        return split_time(self.norm(x[:, -1]), times), attention if return_details else {}, {}


class NoMemoryCore(MemoryCore):
    """A baseline that has a dense layer instead of a memory.

    Args:
        units: size of the layer.
        unroll: as in `MemoryCore`.
    """

    memory_size = 0

    def __init__(
        self, units: int, unroll: bool = True, dtype: Any = None, name: str | None = None
    ) -> None:
        super().__init__(unroll, dtype, name)
        self.units = self.output_size = positive_int("units", units)
        self.dense = keras.layers.Dense(self.units, "relu", dtype=self.dtype_policy, name="dense")

    def build(self, inputs_shape: Shape) -> None:
        self.dense.build((None, inputs_shape[-1]))

    def project(self, inputs: Tensor, visible: Tensor | None) -> Tensor:
        return dense_on_rows(self.dense, inputs)

    def advance(self, step: Tensor, memory: Tensor) -> Tensor:
        return memory

    def read(
        self, steps: Tensor, before: Tensor, after: Tensor, return_details: bool
    ) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        return steps, {}, {}


def _time_scale(received):
    """Return `received`, or raise an `InvalidInput` unless it is an integer of at least 3."""
    return number_from("time_scale", integer("time_scale", received), 3)


def _unit_forget_bias(shape, dtype=None):
    """Return an LSTM's biases: 1 for the forget gate, 0 for the other three parts."""
    return ops.repeat(ops.convert_to_tensor([0.0, 1.0, 0.0, 0.0], dtype), shape[0] // 4)


def _long_gates(shape, dtype=None, time_scale=None, others=0):
    """Return biases of an input gate and a forget gate for long time scales.

    They are followed by zeros for `others` further parts of the same size.
    """
    units = shape[0] // (2 + others)
    forget = ops.log(keras.initializers.RandomUniform(1.0, time_scale - 1.0)((units,), dtype))
    return ops.concatenate([-forget, forget, ops.zeros((others * units,), dtype)])


def _looped(advance, memory, sequences):
    """Run `advance(memory, inputs)` in a loop; return the memory after every step `(B, T, M)`."""
    inputs = keras.tree.map_structure(lambda x: ops.swapaxes(x, 0, 1), sequences)
    return ops.swapaxes(ops.scan(advance, memory, inputs)[1], 0, 1)


def _unrolled(advance, memory, sequences):
    """Compute the same as `_looped` without a loop in the graph."""
    # `unstack`, because its gradient is faster than that of one slice per step.
    parts = [ops.unstack(x, axis=1) for x in keras.tree.flatten(sequences)]
    memories = []
    for inputs in zip(*parts):
        memory, _ = advance(memory, keras.tree.pack_sequence_as(sequences, inputs))
        memories.append(memory)
    return ops.stack(memories, axis=1)


def _join_time(sequences):
    """Reshape `(B, T, F)` to `(B * T, F)`."""
    return ops.reshape(sequences, (-1, sequences.shape[-1]))


def split_time(values: Tensor, times: int) -> Tensor:
    """Reshape `(B * T, ...)` to `(B, T, ...)`."""
    return ops.reshape(values, (-1, times, *ops.shape(values)[1:]))
