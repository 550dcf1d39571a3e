"""The Relational Memory Core over a sequence."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from rrl_tf._typing import Initializer, Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers._masks import carried_mask
from rrl_tf.layers._shapes import tensor_spec
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
class RelationalMemory(keras.layers.RNN):
    """A recurrent layer whose memory is several slots that attend to each other and to the input.

    `RelationalMemoryCell` says what happens at a step. The layer takes the place of a
    `keras.layers.LSTM`. What the memory does not change, the projections of the inputs, is computed
    for the whole sequence before the loop.

    The output of a step is the memory after it. A masked step leaves the memory as it is, so
    before the first step that counts it is the initial memory.

    Args:
        mem_slots: number of rows of the memory.
        head_size: D, size of a value, per head; the memory's rows are `num_heads` times as long.
        num_heads: H, the number of attention heads.
        num_blocks: how often a step attends.
        forget_bias: added to the forget gate before its sigmoid.
        input_bias: added to the input gate before its sigmoid.
        gate_style: `"unit"`, `"memory"` or `None`.
        attention_mlp_layers: number of layers of the dense network, with ReLU between them.
        key_size: size of a query and of a key, per head. `None` is `head_size`.
        learned_start: whether the initial memory is a weight. It starts as the identity, which it
            otherwise stays. A stateful layer starts from it but does not train it.
        kernel_initializer: initialiser of every matrix. `None` is Sonnet's.
        return_sequences: whether to return the memory after every step, or after the last.
        return_state: whether to return the last memory as well.
        go_backwards: whether to take the steps in reverse; sequences come out as they were made,
            the last step first.
        stateful: whether a batch starts from the memories the batch before it ended with.
            `reset_state()` returns to the initial memory. On JAX that needs a direct call: `fit`
            and `predict` do not carry the state of any recurrent layer on.
        unroll: whether to write the steps out one after the other instead of looping, which needs
            a known T and is faster on short sequences.
        zero_output_for_mask: whether the sequence is zero at masked steps.

    Call arguments:
        sequences: vectors `(B, T, F)`, or matrices of n rows `(B, T, n, F)`.
        initial_state: the memory to start from, `(B, mem_slots * H * D)`.
        mask: `(B, T)`, true for the steps that count.
        return_attention_scores: whether to return the scores as well.

    Returns:
        The last memory, flat, `(B, mem_slots * H * D)`; with `return_sequences` that of every step,
        `(B, T, mem_slots * H * D)`. Then, with `return_state`, the last memory. Then, with
        `return_attention_scores`, a dict of the attention of the blocks, `"block_1"` and so on,
        `(B, T, H, N, N)`: N is `mem_slots` and after them the rows of the input. It is zero at
        masked steps, and in the order of the sequence returned.

    Raises:
        InvalidInput: for an argument out of its range, or sequences, a mask or an initial memory of
            another shape.

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
        self.input_spec = keras.layers.InputSpec(shape=(None, None, *sequences_shape[2:]))

    def call(
        self,
        sequences: Tensor,
        initial_state: Tensor | list[Tensor] | None = None,
        mask: Tensor | None = None,
        return_attention_scores: bool = False,
    ) -> Tensor | tuple[Any, ...]:
        # Keras injects a mask into a layer only if the layer is given no other tensor.
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
        """Raises an `InvalidInput` unless mask, memory, batch and number of steps fit."""
        batch, steps = sequences.shape[:2]
        if mask is not None and not _fits(mask.shape, (batch, steps)):
            raise InvalidInput(
                f"`mask` must be (B, T), here {(batch, steps)}; "
                f"received the shape {tuple(mask.shape)}"
            )
        memories = keras.tree.flatten(initial_state) if initial_state is not None else []
        if len(memories) > 1:
            raise InvalidInput(f"`initial_state` must be one memory; received {len(memories)}")
        for memory in memories:
            if not _fits(memory.shape, (batch, self.cell.state_size)):
                raise InvalidInput(
                    "`initial_state` must be a flat memory (B, mem_slots * num_heads * head_size), "
                    f"here {(batch, self.cell.state_size)}; "
                    f"received the shape {tuple(memory.shape)}"
                )
        if self.stateful and not _fits(self.states[0].shape[:1], (batch,)):
            raise InvalidInput(
                f"{self.name} is stateful and keeps the memories of a batch of "
                f"{self.states[0].shape[0]}; received a batch of {batch}"
            )
        if self.unroll and steps is None:
            raise InvalidInput(
                "unroll=True needs a known number of steps T; "
                f"received sequences of the shape {tuple(sequences.shape)}"
            )

    def _start(self, sequences, initial_state):
        """The memory before the first step, `(B, state size)`."""
        if initial_state is None and self.stateful:
            # A copy, as PyTorch overwrites the variable while it still needs the value.
            initial_state = ops.copy(self.states[0])
        elif initial_state is None:
            initial_state = self.get_initial_state(ops.shape(sequences)[0])
        (memory,) = keras.tree.flatten(initial_state)
        return ops.cast(memory, self.compute_dtype)

    def _memories(self, steps, start, mask):
        """The memory after every step. The mask goes along with the steps: Keras' own masking puts
        zeros, on TensorFlow, before the first step that counts."""
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
        """The attention of all steps at once, as the memory before each of them is known by now."""
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
        """Returns a stateful layer to the initial memory."""
        if self.states is not None:
            (memory,) = self.states
            memory.assign(self.get_initial_state(memory.shape[0])[0])

    def compute_output_spec(
        self,
        sequences: Tensor,
        initial_state: Tensor | list[Tensor] | None = None,
        mask: Tensor | None = None,
        return_attention_scores: bool = False,
    ) -> keras.KerasTensor | tuple[Any, ...]:
        self._check_call(sequences, initial_state, mask)
        shapes = self.compute_output_shape(sequences.shape)
        result = [tensor_spec(self, s) for s in (shapes if self.return_state else [shapes])]
        if return_attention_scores:
            entities = self.cell.mem_slots + self.cell.num_rows
            shape = (*sequences.shape[:2], self.cell.num_heads, entities, entities)
            blocks = range(1, self.cell.num_blocks + 1)
            result.append({f"block_{i}": tensor_spec(self, shape) for i in blocks})
        return tuple(result) if len(result) > 1 else result[0]

    def get_config(self) -> dict[str, Any]:
        config, cell = super().get_config(), self.cell.get_config()
        del config["cell"]
        return {**config, **{name: cell[name] for name in _OF_THE_CELL}}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> RelationalMemory:
        return cls(**config)


class _ProjectedStep:
    """What Keras loops over: the cell's step on a projected input.

    An input with one number more than the cell's ends with whether the step counts.
    """

    def __init__(self, cell):
        self.cell = cell
        self.state_size = self.output_size = cell.state_size

    @property
    def compute_dtype(self):
        return self.cell.compute_dtype

    def __call__(self, projected, states):
        return self.call(projected, states)

    def call(self, projected, states):
        if projected.shape[-1] == self.cell.projection_size:
            memory, _ = self.cell.update(projected, states[0])
        else:
            projected, counts = ops.split(projected, [self.cell.projection_size], axis=-1)
            memory, _ = self.cell.update(projected, states[0])
            memory = ops.where(counts > 0, memory, states[0])
        return memory, [memory]


def _fits(shape, wanted):
    """Whether two shapes may be the same, where None may be any number."""
    pairs = zip(shape, wanted)
    return len(shape) == len(wanted) and all(a == b or None in (a, b) for a, b in pairs)
