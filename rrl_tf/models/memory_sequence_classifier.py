"""Define `MemorySequenceClassifier`, a sequence classifier with a choice of memories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import one_of, optional_dict, positive_int, positive_ints
from rrl_tf._typing import Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers import CausalTransformerBlock, RelationalMemory
from rrl_tf.layers.base import LayerNormalization, dense_on_rows
from rrl_tf.models.architectures import MEMORY_SEQUENCE_CLASSIFIER
from rrl_tf.models.base import BaseModel, build_in_turn, make_layer

CORES = ("relational_memory", "lstm", "transformer")


@keras.saving.register_keras_serializable(package="rrl_tf")
class MemorySequenceClassifier(BaseModel, architectures=MEMORY_SEQUENCE_CLASSIFIER):
    """Classify sequences by the last output of a recurrent core or a causal transformer.

    The core reads the sequence `(B, T, F)`. ReLU layers and a linear layer map its last output to
    the logits. Use the argument `core` to compare the Relational Memory with other memories of the
    same size.

    Args:
        num_classes: C, the number of classes.
        core: `"relational_memory"`, `"lstm"` or `"transformer"`.
        core_arguments: dict of arguments of the core:

            - `"relational_memory"`: arguments of `RelationalMemory`;
            - `"lstm"`: arguments of `keras.layers.LSTM`;
            - `"transformer"`: `width`, `num_blocks` and the arguments of `CausalTransformerBlock`.
              The causal mask is its only information about positions.
        hidden_units: sizes of the ReLU layers after the core.

    Call arguments:
        sequences: `(B, T, F)`.
        training: whether to apply dropout.
        mask: `(B, T)`, false for masked steps.
        return_attention_scores: whether to return the attention as well.

    Returns:
        Logits `(B, C)`, float32 also under a mixed-precision policy. With
        `return_attention_scores`, a pair of the logits and a dict `"block_1"`, `"block_2"`, ... ->
        attention of the core's blocks: `(B, T, H, N, N)` for a Relational Memory, `(B, H, T, T)`
        for a transformer. The dict is empty for an LSTM.

    Raises:
        InvalidInput: for an argument out of its range, or inputs of a wrong rank.

    Example:

    >>> model = MemorySequenceClassifier.from_preset("paper")
    >>> logits, attention = model(keras.ops.ones((1, 8, 40)), return_attention_scores=True)
    >>> tuple(logits.shape), tuple(attention["block_1"].shape)
    ((1, 8), (1, 8, 8, 9, 9))

    References:
        - [Santoro et al., 2018](https://arxiv.org/abs/1806.01822)
    """

    def __init__(
        self,
        num_classes: int,
        core: str,
        core_arguments: Mapping[str, Any],
        hidden_units: Sequence[int] = (256,) * 4,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_classes = positive_int("num_classes", num_classes)
        self.core = one_of("core", core, CORES)
        self.core_arguments = optional_dict("core_arguments", core_arguments, {})
        self.hidden_units = positive_ints("hidden_units", hidden_units)
        kinds = {
            "relational_memory": RelationalMemory,
            "lstm": keras.layers.LSTM,
            "transformer": _CausalTransformer,
        }
        self.core_layer = make_layer(
            "core_arguments",
            kinds[self.core],
            self.core_arguments,
            dtype=self.dtype_policy,
            name="core",
        )
        self.hidden = [
            keras.layers.Dense(units, "relu", dtype=self.dtype_policy, name=f"hidden_{i}")
            for i, units in enumerate(self.hidden_units, start=1)
        ]
        # float32 also under a mixed-precision policy, because the loss subtracts logits.
        self.head = keras.layers.Dense(
            self.num_classes, dtype=self.dtype_policy.variable_dtype, name="head"
        )
        self.supports_masking = True

    def build(self, sequences_shape: Shape) -> None:
        if len(sequences_shape) != 3 or sequences_shape[-1] is None:
            raise InvalidInput(
                "`sequences` must be (B, T, F) with a known F; "
                f"received the shape {tuple(sequences_shape)}"
            )
        build_in_turn([self.core_layer, *self.hidden, self.head], sequences_shape)
        self.input_spec = keras.layers.InputSpec(shape=(None, None, sequences_shape[-1]))

    def call(
        self,
        sequences: Tensor,
        training: bool = False,
        mask: Tensor | None = None,
        return_attention_scores: bool = False,
    ) -> Tensor | tuple[Tensor, dict[str, Tensor]]:
        arguments = {} if self.core == "relational_memory" else {"training": training}
        if return_attention_scores and self.core != "lstm":
            arguments["return_attention_scores"] = True
        x = self.core_layer(sequences, mask=mask, **arguments)
        x, attention = x if isinstance(x, tuple) else (x, {})
        for dense in self.hidden:
            x = dense(x)
        logits = self.head(x)
        return (logits, attention) if return_attention_scores else logits

    def compute_mask(self, sequences: Tensor, previous_mask: Tensor | None = None) -> None:
        return None  # logits have no time axis


class _CausalTransformer(keras.layers.Layer):
    """Causal transformer that returns the output `(B, width)` at the last unmasked position.

    This position attends to all earlier ones, so its output corresponds to the last state of an
    RNN.
    """

    def __init__(self, width, num_blocks=1, dtype=None, name=None, **block_arguments):
        super().__init__(dtype=dtype, name=name)
        self.projection = keras.layers.Dense(width, dtype=self.dtype_policy, name="projection")
        self.blocks = [
            CausalTransformerBlock(**block_arguments, dtype=self.dtype_policy, name=f"block_{i}")
            for i in range(1, num_blocks + 1)
        ]
        self.norm = LayerNormalization(epsilon=1e-5, dtype=self.dtype_policy, name="norm")
        self.supports_masking = True

    def build(self, inputs_shape):
        self.projection.build((None, inputs_shape[-1]))
        shape = (*inputs_shape[:-1], self.projection.units)
        for block in self.blocks:
            block.build(shape)
        self.norm.build((None, self.projection.units))

    def call(self, inputs, mask=None, training=False, return_attention_scores=False):
        x, attention = dense_on_rows(self.projection, inputs), {}
        for block in self.blocks:
            x, attention[block.name] = block(
                x, mask=mask, training=training, return_attention_scores=True
            )
        if mask is None:
            x = x[:, -1]
        else:
            positions = ops.arange(ops.shape(x)[1])
            last = ops.max(ops.where(ops.cast(mask, "bool"), positions, 0), axis=1)
            x = ops.squeeze(ops.take_along_axis(x, last[:, None, None], axis=1), axis=1)
        x = self.norm(x)
        return (x, attention) if return_attention_scores else x

    def compute_mask(self, inputs, previous_mask):
        return None

    def compute_output_shape(self, inputs_shape):
        return (inputs_shape[0], self.projection.units)
