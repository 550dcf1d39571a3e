"""Define `PositionEmbedding`, which adds a learned vector for every position."""

from __future__ import annotations

from typing import Any

import keras

from rrl_tf._typing import Initializer, Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers.base import BaseLayer, same_shape


@keras.saving.register_keras_serializable(package="rrl_tf")
class PositionEmbedding(BaseLayer):
    """Add a learned vector to every entity, one vector for each position.

    Args:
        embeddings_initializer: initialiser of the table `(N, F)`.

    Call arguments:
        inputs: entities `(B, N, F)`; N and F are fixed when the layer is built.

    Returns:
        `(B, N, F)`.

    Raises:
        InvalidInput: for inputs of a wrong rank, with an unknown N or F, or with sizes for which
            the layer was not built.

    Example:

    >>> tuple(PositionEmbedding()(keras.ops.ones((2, 49, 32))).shape)
    (2, 49, 32)
    """

    def __init__(
        self, embeddings_initializer: Initializer = "random_normal", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.supports_masking = True

    def build(self, inputs_shape: Shape) -> None:
        if len(inputs_shape) != 3 or None in inputs_shape[1:]:
            raise InvalidInput(
                "`inputs` must be entities (B, N, F) with a known N and F; "
                f"received the shape {tuple(inputs_shape)}"
            )
        self.embeddings = self.add_weight(
            shape=inputs_shape[1:], initializer=self.embeddings_initializer, name="embeddings"
        )

    def call(self, inputs: Tensor) -> Tensor:
        # Without this check, a single entity or feature would be broadcast to the table.
        if not same_shape(inputs.shape[1:], self.embeddings.shape):
            raise InvalidInput(
                "`inputs` must be entities (B, N, F) of the N and F that the layer was built for, "
                f"{tuple(self.embeddings.shape)}; received the shape {tuple(inputs.shape)}"
            )
        return inputs + self.embeddings

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        return tuple(inputs_shape)
