"""What the layers share about shapes: rows through a dense layer, symbolic tensors."""

from __future__ import annotations

import keras
from keras import ops

from rrl_tf._typing import Shape, Tensor


def dense_on_rows(dense: keras.layers.Layer, inputs: Tensor) -> Tensor:
    """Applies `dense` to the last axis of `inputs`, whatever its rank, as one matrix product.

    A `Dense` does this itself, but on TensorFlow with a free batch dimension through a
    `tensordot`, which computes the shapes in the graph: some ten small operations a layer, more
    than a small network's arithmetic when it acts on one observation.
    """
    rows = dense(ops.reshape(inputs, (-1, inputs.shape[-1])))
    return ops.reshape(rows, (-1, *ops.shape(inputs)[1:-1], rows.shape[-1]))


def tensor_spec(layer: keras.layers.Layer, shape: Shape) -> keras.KerasTensor:
    """A symbolic tensor of `shape` in the layer's compute dtype."""
    return keras.KerasTensor(shape, dtype=layer.compute_dtype)
