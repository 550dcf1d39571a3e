"""Define `RandomShift`, a data augmentation for images."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import positive_int
from rrl_tf._typing import Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers.base import BaseLayer


@keras.saving.register_keras_serializable(package="rrl_tf")
class RandomShift(BaseLayer):
    """Shift every image by a random number of pixels in training, and repeat border pixels.

    `output[y, x] = input[clip(y + dy), clip(x + dx)]`, with integers `dy` and `dx` drawn uniformly
    from `-cells` to `cells` for each image of a batch. The result equals that of padding with
    repeated border pixels, followed by a random crop of the original size.

    Args:
        cells: largest shift up, down, left and right.
        seed: seed of the shifts. `None` means a seed from Keras' global generator.

    Call arguments:
        inputs: `(B, height, width, C)`.
        training: whether to shift the images.

    Returns:
        `(B, height, width, C)`.

    Raises:
        InvalidInput: for `cells` below 1, or inputs of a wrong rank.

    Example:

    >>> tuple(RandomShift(4)(keras.ops.ones((2, 84, 84, 4)), training=True).shape)
    (2, 84, 84, 4)

    References:
        - [Kostrikov et al., 2021](https://arxiv.org/abs/2004.13649) (DrQ)
    """

    def __init__(self, cells: int, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cells = positive_int("cells", cells)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, inputs_shape: Shape) -> None:
        if len(inputs_shape) != 4:
            raise InvalidInput(
                "`inputs` must be images (B, height, width, C); "
                f"received the shape {tuple(inputs_shape)}"
            )

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        if not training:
            return inputs
        batch, height, width, channels = ops.shape(inputs)
        shift = keras.random.randint(
            (batch, 2, 1), -self.cells, self.cells + 1, seed=self.seed_generator
        )
        rows = self._sources(shift[:, 0], height)[:, :, None]
        columns = self._sources(shift[:, 1], width)[:, None, :]
        images = ops.arange(batch, dtype="int32")[:, None, None]
        # One gather over the flattened pixels is much faster than one along each axis.
        taken = (images * height + rows) * width + columns  # (B, height, width)
        return ops.take(ops.reshape(inputs, (-1, channels)), taken, axis=0)

    @staticmethod
    def _sources(shift, size):
        """Return the input index for each row or column of the output, `(B, size)`."""
        return ops.clip(ops.arange(size, dtype="int32") + shift, 0, size - 1)

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        return tuple(inputs_shape)
