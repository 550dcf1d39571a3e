"""Define `RelationalMemory`, the Relational Memory Core as a recurrent layer."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from rrl_tf._typing import Initializer, Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers.base import BaseLayer, same_shape
from rrl_tf.layers.masks import carried_mask
from rrl_tf.layers.relational_memory_cell import RelationalMemoryCell

_OF_THE_CELL = (
    "mem_slots",
    "head_size",
    "num_heads",
    "num_blocks",
    "forget_bias",
    "input_bias",
    "gate_style",
    "attention_mlp_layers",
    "key_size",
    "learned_start",
    "kernel_initializer",
)


@keras.saving.register_keras_serializable(package="rrl_tf")
class RelationalMemory(BaseLayer, keras.layers.RNN):
    """Recurrent layer whose memory has several slots, which attend to each other and to the input.

    The layer can replace a `keras.layers.LSTM`. `RelationalMemoryCell` documents a step. The
    projections of the inputs do not depend on the memory, so the layer computes them for the whole
    sequence before the loop.

    The output of a step is the memory after the step. A masked step does not change the memory.

    Args:
        mem_slots: number of rows of the memory.
        head_size: D, size of a value, per head; a row of the memory has `num_heads * head_size`
            units.
        num_heads: H, the number of attention heads.
        num_blocks: number of attention blocks in a step.
        forget_bias: added to the forget gate before its sigmoid.
        input_bias: added to the input gate before its sigmoid.
        gate_style: `"unit"`, `"memory"` or `None`; see `RelationalMemoryCell`.
        attention_mlp_layers: number of layers of the dense network, with ReLU between them.
        key_size: size of a query and of a key, per head. `None` means `head_size`.
        learned_start: whether the initial memory is a trainable weight, initialised to the identity
            matrix. Otherwise, the initial memory is the identity matrix. A stateful layer does not
            train this weight.
        kernel_initializer: initialiser of every matrix. `None` means that of Sonnet.
        return_sequences: whether to return the memory after every step instead of after the last.
        return_state: whether to return the last memory as well.
        go_backwards: whether to process the steps in reverse order. Returned sequences are then
            also in reverse order.
        stateful: whether a batch starts from the last memories of the previous batch.
            `reset_state()` restores the initial memory. With JAX, this works in direct calls only,
            because `fit` and `predict` do not keep the state of recurrent layers.
        unroll: whether to unroll the loop, which needs a known T and is faster for short sequences.
        zero_output_for_mask: whether the returned sequence is zero at masked steps.

    Call arguments:
        sequences: vectors `(B, T, F)`, or matrices of n rows `(B, T, n, F)`.
        initial_state: the memory to start from, `(B, mem_slots * H * D)`.
        mask: `(B, T)`, false for masked steps.
        return_attention_scores: whether to return the scores as well.

    Returns:
        The output, or a tuple if more than one of these results is requested:

        - the last memory, flattened to `(B, mem_slots * H * D)`; with `return_sequences`, the
          memory after every step, `(B, T, mem_slots * H * D)`;
        - with `return_state`, the last memory;
        - with `return_attention_scores`, a dict `"block_1"`, `"block_2"`, ... -> attention
          `(B, T, H, N, N)`, where the N rows are the slots, followed by the rows of the input. The
          attention is zero at masked steps. Steps are in the order of the returned sequence.

    Raises:
        InvalidInput: for an argument out of its range, or sequences, a mask or an initial memory of
            a wrong shape.

    Example:

    >>> layer = RelationalMemory(mem_slots=4, head_size=8, num_heads=2)
    >>> output, attention = layer(keras.ops.ones((1, 5, 10)), return_attention_scores=True)
    >>> tuple(output.shape), tuple(attention["block_1"].shape)
    ((1, 64), (1, 5, 2, 5, 5))

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
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        zero_output_for_mask: bool = False,
        **kwargs: Any,
    ) -> None:
        cell = RelationalMemoryCell(
            mem_slots,
            head_size,
            num_heads,
            num_blocks,
            forget_bias,
            input_bias,
            gate_style,
            attention_mlp_layers,
            key_size,
            learned_start,
            kernel_initializer,
            dtype=kwargs.get("dtype"),
            name="cell",
        )
        super().__init__(
            cell,
            return_sequences,
            return_state,
            go_backwards,
            stateful,
            unroll,
            zero_output_for_mask,
            **kwargs,
        )
        for name in _OF_THE_CELL:
            setattr(self, name, getattr(cell, name))
        self.loop = keras.layers.RNN(
            _ProjectedStep(cell),
            return_sequences=True,
            unroll=unroll,
            dtype=self.dtype_policy,
            name="loop",
        )

    def build(self, sequences_shape: Shape, initial_state_shape: Shape | None = None) -> None:
        if len(sequences_shape) not in (3, 4):
            raise InvalidInput(
                "`sequences` must be vectors (B, T, F) or matrices (B, T, n, F); "
                f"received the shape {tuple(sequences_shape)}"
            )
        super().build(sequences_shape, initial_state_shape)
        self.loop.build((None, None, self.cell.projection_size))
        self.input_spec = keras.layers.InputSpec(shape=(None, None, *sequences_shape[2:]))

    def call(
        self,
        sequences: Tensor,
        initial_state: Tensor | list[Tensor] | None = None,
        mask: Tensor | None = None,
        return_attention_scores: bool = False,
    ) -> Tensor | tuple[Any, ...]:
        # Keras passes the mask of `sequences` only if the call has no other tensors.
        mask = carried_mask(sequences) if mask is None else mask
        self._check_call(sequences, initial_state, mask)
        start = self._start(sequences, initial_state)
        if self.go_backwards:
            sequences = ops.flip(sequences, axis=1)
            mask = None if mask is None else ops.flip(mask, axis=1)
        steps = self.cell.project_inputs(sequences)  # (B, T, projection size)
        memories = self._memories(steps, start, mask)  # (B, T, state size)
        if self.stateful:
            self.states[0].assign(memories[:, -1])
        result = [self._output(memories, mask)]
        if self.return_state:
            result.append(memories[:, -1])
        if return_attention_scores:
            before = ops.concatenate([start[:, None], memories[:, :-1]], axis=1)
            result.append(self._attention(steps, before, mask))
        return tuple(result) if len(result) > 1 else result[0]

    def _check_call(self, sequences, initial_state, mask):
        """Raise an `InvalidInput` if the mask, the memory or the sizes do not fit this layer."""
        batch, steps = sequences.shape[:2]
        if mask is not None and not same_shape(mask.shape, (batch, steps)):
            raise InvalidInput(
                f"`mask` must be (B, T), here {(batch, steps)}; "
                f"received the shape {tuple(mask.shape)}"
            )
        memories = keras.tree.flatten(initial_state) if initial_state is not None else []
        if len(memories) > 1:
            raise InvalidInput(f"`initial_state` must be one memory; received {len(memories)}")
        for memory in memories:
            if not same_shape(memory.shape, (batch, self.cell.state_size)):
                raise InvalidInput(
                    "`initial_state` must be a flat memory (B, mem_slots * num_heads * head_size), "
                    f"here {(batch, self.cell.state_size)}; "
                    f"received the shape {tuple(memory.shape)}"
                )
        if self.stateful and not same_shape(self.states[0].shape[:1], (batch,)):
            raise InvalidInput(
                f"the batch size of the stateful {self.name} must be that of its memories, "
                f"{self.states[0].shape[0]}; received {batch}"
            )
        if self.unroll and steps is None:
            raise InvalidInput(
                "the number of steps T must be known with unroll=True; "
                f"received sequences of the shape {tuple(sequences.shape)}"
            )

    def _start(self, sequences, initial_state):
        """Return the memory before the first step, `(B, state size)`."""
        if initial_state is None and self.stateful:
            # A copy, because with PyTorch the variable is overwritten while its value is in use.
            initial_state = ops.copy(self.states[0])
        elif initial_state is None:
            initial_state = self.get_initial_state(ops.shape(sequences)[0])
        (memory,) = keras.tree.flatten(initial_state)
        return ops.cast(memory, self.compute_dtype)

    def _memories(self, steps, start, mask):
        """Return the memory after every step, `(B, T, state size)`.

        The mask is appended to the features, because masking in Keras' RNN on TensorFlow replaces
        the initial memory by zeros until the first step that is not masked.
        """
        if mask is not None:
            counts = ops.cast(mask, steps.dtype)[:, :, None]
            steps = ops.concatenate([steps, counts], axis=-1)
        return self.loop(steps, initial_state=start)

    def _output(self, memories, mask):
        if not self.return_sequences:
            return memories[:, -1]
        if self.zero_output_for_mask and mask is not None:
            return ops.where(ops.cast(mask, "bool")[:, :, None], memories, 0.0)
        return memories

    def _attention(self, steps, memories, mask):
        """Compute the attention of all steps at once from the memory before each step."""
        cell = self.cell
        times = ops.shape(steps)[1]
        steps = ops.reshape(steps, (-1, steps.shape[-1]))
        memories = ops.reshape(memories, (-1, cell.state_size))
        _, scores = cell.update(steps, memories, every_row=True)  # (B * T, H, N, N)
        scores = {
            name: ops.reshape(score, (-1, times, *score.shape[1:]))
            for name, score in scores.items()
        }
        if mask is None:
            return scores
        counts = ops.cast(mask, "bool")[:, :, None, None, None]
        return {name: ops.where(counts, score, 0.0) for name, score in scores.items()}

    def reset_state(self) -> None:
        """Reset a stateful layer to the initial memory."""
        if self.states is not None:
            (memory,) = self.states
            memory.assign(self.get_initial_state(memory.shape[0])[0])

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["cell"]
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> RelationalMemory:
        return cls(**config)


class _ProjectedStep:
    """Cell for Keras' RNN that applies a `RelationalMemoryCell` to projected inputs.

    An input may have one additional number at its end: 0 for a masked step, and otherwise 1.
    """

    def __init__(self, cell):
        self.cell = cell
        self.state_size = self.output_size = cell.state_size
        self.compute_dtype = cell.compute_dtype

    def __call__(self, projected, states):
        return self.call(projected, states)

    def call(self, projected, states):
        if projected.shape[-1] == self.cell.projection_size:
            memory, _ = self.cell.update(projected, states[0])
        else:
            projected, is_real = ops.split(projected, [self.cell.projection_size], axis=-1)
            memory, _ = self.cell.update(projected, states[0])
            memory = ops.where(is_real > 0, memory, states[0])
        return memory, [memory]
