"""What the layers share about shapes: rows through a dense layer, masks, symbolic tensors."""

import keras
from keras import ops

from rrl_tf.errors import InvalidInput


def dense_on_rows(dense, inputs):
    """Applies `dense` to the last axis of `inputs`, whatever its rank, as one matrix product.

    A `Dense` does this itself, but on TensorFlow with a free batch dimension through a
    `tensordot`, which computes the shapes in the graph: some ten small operations a layer, more
    than a small network's arithmetic when it acts on one observation.
    """
    rows = dense(ops.reshape(inputs, (-1, inputs.shape[-1])))
    return ops.reshape(rows, (-1, *ops.shape(inputs)[1:-1], rows.shape[-1]))


def attention_mask(inputs, mask):
    """The mask to broadcast to `(B, H, N, S)`: Keras' own `(B, S)` becomes `(B, 1, 1, S)`.

    A mask that Keras carries along with `inputs` (after an `Embedding(mask_zero=True)`, say) marks
    entities; one that the caller passes follows NumPy's broadcasting and stays as it is.
    """
    if mask is not None and mask is carried_mask(inputs):
        return mask[:, None, None, :]
    return mask


def check_mask(mask, scores):
    """Raises a `ValueError` if `mask` does not broadcast to the shape of `scores`."""
    sizes = zip(reversed(mask.shape), reversed(scores.shape))
    fits = all(given is None or given in (1, size) or size is None for given, size in sizes)
    if not fits or len(mask.shape) > len(scores.shape):
        raise InvalidInput(
            f"`mask` must broadcast to (B, H, N, S), here {tuple(scores.shape)}. "
            f"Received the shape {tuple(mask.shape)}"
        )


def carried_mask(inputs):
    """The mask that Keras attached to `inputs`, or None."""
    return getattr(inputs, "_keras_mask", None)


def tensor_spec(layer, shape):
    """A symbolic tensor of `shape` in the layer's compute dtype."""
    return keras.KerasTensor(shape, dtype=layer.compute_dtype)
