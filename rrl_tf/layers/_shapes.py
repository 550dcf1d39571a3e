"""What the layers share about shapes: checks, rows through a dense layer, symbolic tensors."""

from __future__ import annotations

import keras
from keras import ops

from rrl_tf._typing import Shape, Tensor
from rrl_tf.errors import InvalidInput


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


def same_shape(shape: Shape, wanted: Shape) -> bool:
    """Whether two shapes may be the same, where None may be any number."""
    pairs = zip(shape, wanted)
    return len(shape) == len(wanted) and all(a == b or None in (a, b) for a, b in pairs)


def check_fixed_entities(layer: keras.layers.Layer, sizes: Shape, built: Shape) -> None:
    """Raises an `InvalidInput` where an attention with weights for every entity has others.

    One entity would be broadcast to as many as there are weights.
    """
    if layer.fixed_entities and not same_shape(sizes, built):
        raise InvalidInput(
            f"{layer.name} has weights for every entity, so there must be as many as it was built "
            f"for, {built[0]} that attend to {built[1]}; received {sizes[0]} and {sizes[1]}"
        )


def check_attention_shapes(
    layer: keras.layers.Layer, inputs_shape: Shape, context_shape: Shape | None
) -> None:
    """Raises an `InvalidInput` for entities that a `MultiHeadDotProductAttention` can't relate."""
    for name, shape in (("inputs", inputs_shape), ("context", context_shape)):
        if shape is not None and (len(shape) != 3 or shape[-1] is None):
            raise InvalidInput(
                f"`{name}` must be entities (B, N, F) with a known F; "
                f"received the shape {tuple(shape)}"
            )
    if context_shape is not None:
        if layer.score == "book_additive":
            raise InvalidInput(
                "score='book_additive' adds the query and the key of the same entity, so it "
                f"takes no `context`; received one of the shape {tuple(context_shape)}"
            )
        if layer.qkv_norm == "fused":
            raise InvalidInput(
                "qkv_norm='fused' normalises q, k and v of an entity together, so it takes no "
                f"`context`; received one of the shape {tuple(context_shape)}"
            )
    sizes = (inputs_shape[1], context_shape[1] if context_shape else inputs_shape[1])
    if layer.fixed_entities and None in sizes:
        raise InvalidInput(
            "score='book_additive' and qkv_norm='joint' have weights for every entity, so the "
            f"number of entities must be known; received the shape {tuple(inputs_shape)}"
        )
