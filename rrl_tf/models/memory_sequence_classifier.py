"""From a sequence to a class, by way of a memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from rrl_tf._arguments import one_of, optional_dict, positive_int, positive_ints
from rrl_tf._typing import Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers import CausalTransformerBlock, RelationalMemory
from rrl_tf.layers.base import dense_on_rows, tensor_spec
from rrl_tf.models._from_preset import FromPreset
from rrl_tf.models._grids import layer_of
from rrl_tf.models.presets import MEMORY_SEQUENCE_CLASSIFIER

CORES = ("relational_memory", "lstm", "transformer")


@keras.saving.register_keras_serializable(package="rrl_tf")
class MemorySequenceClassifier(FromPreset, keras.Model, presets=MEMORY_SEQUENCE_CLASSIFIER):
    """Reads a sequence into a memory and classifies what the memory holds in the end.

    A core goes through the sequence `(B, T, F)`; its last output goes through ReLU layers to one
    logit for every class. The cores can be exchanged, which is what the model is for: what does a
    memory whose slots attend to each other answer that another of the same size does not?

    Args:
        num_classes: C, the number of classes.
        core: `"relational_memory"`, `"lstm"` or `"transformer"`.
        core_arguments: dict of arguments of the core: of `RelationalMemory`; of
            `keras.layers.LSTM`; or of a transformer's `CausalTransformerBlock`s, and with them its
            `width` and `num_blocks`. A transformer sees no positions but by the causal mask.
        hidden_units: sizes of the ReLU layers after the core.

    Call arguments:
        sequences: `(B, T, F)`.
        training: whether to apply dropout.
        mask: `(B, T)`, true for the steps that count.
        return_attention_scores: whether to return the attention as well.

    Returns:
        Logits `(B, C)`, float32 also under a mixed policy; with `return_attention_scores`, a pair
        of them and a dict name → attention of the core's blocks, `"block_1"` and so on:
        `(B, T, H, N, N)` of a Relational Memory, `(B, H, T, T)` of a transformer. It is empty for
        an LSTM, which does not attend.

    Raises:
        InvalidInput: for an argument out of its range, or inputs that are no such sequence.

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
        self.core_arguments = optional_dict("core_arguments", core_arguments) or {}
        self.hidden_units = positive_ints("hidden_units", hidden_units)
        self.core_layer = self._make_core()
        self.hidden = [
            keras.layers.Dense(units, "relu", dtype=self.dtype_policy, name=f"hidden_{i}")
            for i, units in enumerate(self.hidden_units, start=1)
        ]
        # Full precision under a mixed policy: the loss takes differences of logits.
        self.head = keras.layers.Dense(
            self.num_classes, dtype=self.dtype_policy.variable_dtype, name="head"
        )
        self.supports_masking = True

    def _make_core(self):
        make = {
            "relational_memory": RelationalMemory,
            "lstm": keras.layers.LSTM,
            "transformer": _CausalTransformer,
        }[self.core]
        ours = {"dtype": self.dtype_policy, "name": "core"}
        return layer_of("core_arguments", make, self.core_arguments, **ours)

    def build(self, sequences_shape: Shape) -> None:
        if len(sequences_shape) != 3 or sequences_shape[-1] is None:
            raise InvalidInput(
                "MemorySequenceClassifier takes sequences (B, T, F) with a known F; "
                f"received the shape {tuple(sequences_shape)}"
            )
        self.core_layer.build(sequences_shape)
        features = self.core_layer.compute_output_shape(sequences_shape)[-1]
        for dense in [*self.hidden, self.head]:
            dense.build((None, features))
            features = dense.units
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
        return None  # logits have no steps

    def compute_output_shape(self, sequences_shape: Shape) -> Shape:
        return (sequences_shape[0], self.num_classes)

    def compute_output_spec(
        self,
        sequences: Tensor,
        training: bool = False,
        mask: Tensor | None = None,
        return_attention_scores: bool = False,
    ) -> keras.KerasTensor | tuple[keras.KerasTensor, dict[str, keras.KerasTensor]]:
        logits = tensor_spec(self.head, self.compute_output_shape(sequences.shape))
        if not return_attention_scores:
            return logits
        if self.core == "lstm":
            return logits, {}
        _, attention = self.core_layer.compute_output_spec(sequences, return_attention_scores=True)
        return logits, attention

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "core": self.core,
            "core_arguments": dict(self.core_arguments),
            "hidden_units": self.hidden_units,
        }


@keras.saving.register_keras_serializable(package="rrl_tf")
class _CausalTransformer(keras.layers.Layer):
    """Causal blocks over projected inputs; the output is that at the last position, `(B, width)`.

    That position sees all the others, as an RNN's last state does.
    """

    def __init__(self, width, num_blocks=1, dtype=None, name=None, **block_arguments):
        super().__init__(dtype=dtype, name=name)
        self.projection = keras.layers.Dense(width, dtype=self.dtype_policy, name="projection")
        self.blocks = [
            CausalTransformerBlock(**block_arguments, dtype=self.dtype_policy, name=f"block_{i}")
            for i in range(1, num_blocks + 1)
        ]
        self.norm = keras.layers.LayerNormalization(
            epsilon=1e-5, dtype=self.dtype_policy, name="norm"
        )
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
            x = block(
                x,
                mask=mask,
                training=training,
                return_attention_scores=return_attention_scores,
            )
            if return_attention_scores:
                x, attention[block.name] = x
        x = self.norm(x[:, -1])
        return (x, attention) if return_attention_scores else x

    def compute_mask(self, inputs, previous_mask):
        return None

    def compute_output_shape(self, inputs_shape):
        return (inputs_shape[0], self.projection.units)

    def compute_output_spec(self, inputs, mask=None, training=False, return_attention_scores=False):
        output = tensor_spec(self, self.compute_output_shape(inputs.shape))
        batch, steps, _ = inputs.shape
        scores = {
            block.name: tensor_spec(self, (batch, block.num_heads, steps, steps))
            for block in self.blocks
        }
        return (output, scores) if return_attention_scores else output
