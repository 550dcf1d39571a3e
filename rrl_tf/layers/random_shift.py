"""Pictures moved a little at random, so that nothing is learned of where exactly a thing is."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import positive_int
from rrl_tf._typing import Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers._shapes import tensor_spec


@keras.saving.register_keras_serializable(package="rrl_tf")
class RandomShift(keras.layers.Layer):
    """In training, moves every picture by whole cells; the cells at the border fill the gap.

    `output[y, x] = input[clip(y + dy), clip(x + dx)]`, with `dy` and `dx` drawn uniformly from
    `-cells` to `cells` for each picture of a batch: what padding by repeated borders and a random
    crop of the old size give.

    Args:
        cells: the furthest, up, down, left and right.
        seed: int, of the shifts; by default Keras' own.

    Call arguments:
        inputs: `(B, height, width, C)`.
        training: whether to move.

    Returns:
        `(B, height, width, C)`.

    Raises:
        InvalidInput: for a number of cells that is not positive, or inputs that are no pictures.

    Example:

    >>> RandomShift(4)(keras.ops.ones((2, 84, 84, 4)), training=True).shape
    TensorShape([2, 84, 84, 4])

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
                "`inputs` must be pictures (B, height, width, C); "
                f"received the shape {tuple(inputs_shape)}"
            )

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        if not training:
            return inputs
        batch, height, width, channels = ops.shape(inputs)
        shift = keras.random.randint(
            (batch, 2, 1), -self.cells, self.cells + 1, seed=self.seed_generator
        )
        rows = self._moved(shift[:, 0], height)[:, :, None]
        columns = self._moved(shift[:, 1], width)[:, None, :]
        pictures = ops.arange(batch, dtype="int32")[:, None, None]
        # One gather of whole cells is many times as fast as one along each axis.
        taken = (pictures * height + rows) * width + columns  # (B, height, width)
        return ops.take(ops.reshape(inputs, (-1, channels)), taken, axis=0)

    @staticmethod
    def _moved(shift, size):
        """Where each row or column is taken from, `(B, size)`."""
        return ops.clip(ops.arange(size, dtype="int32") + shift, 0, size - 1)

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        return tuple(inputs_shape)

    def compute_output_spec(self, inputs: Tensor, training: bool = False) -> keras.KerasTensor:
        return tensor_spec(self, self.compute_output_shape(inputs.shape))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "cells": self.cells, "seed": self.seed}
