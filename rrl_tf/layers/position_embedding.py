"""A learned vector for every place."""

import keras

from rrl_tf.errors import InvalidInput
from rrl_tf.layers._shapes import tensor_spec


@keras.saving.register_keras_serializable(package="rrl_tf")
class PositionEmbedding(keras.layers.Layer):
    """Tells every entity where it is: adds to entity `i` a learned vector of place `i`.

    Args:
        embeddings_initializer: initialiser of the table `(N, F)`.

    Call arguments:
        inputs: entities `(B, N, F)`; N and F are fixed when the layer is built.

    Returns:
        `(B, N, F)`.

    Raises:
        ValueError: for inputs of another rank, or of unknown N or F.

    Example:

    >>> tuple(PositionEmbedding()(keras.ops.ones((2, 49, 32))).shape)
    (2, 49, 32)
    """

    def __init__(self, embeddings_initializer="random_normal", **kwargs):
        super().__init__(**kwargs)
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)

    def build(self, inputs_shape):
        if len(inputs_shape) != 3 or None in inputs_shape[1:]:
            raise InvalidInput(
                "`inputs` must be entities (B, N, F) with a known N and F. "
                f"Received the shape {inputs_shape}"
            )
        self.embeddings = self.add_weight(
            shape=inputs_shape[1:], initializer=self.embeddings_initializer, name="embeddings"
        )

    def call(self, inputs):
        return inputs + self.embeddings

    def compute_output_shape(self, inputs_shape):
        return tuple(inputs_shape)

    def compute_output_spec(self, inputs):
        return tensor_spec(self, inputs.shape)

    def get_config(self):
        return {
            **super().get_config(),
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
        }
