"""Define functions for masks of entities and of attention, and the base class `EntityLayer`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import integer
from rrl_tf._typing import Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers.base import BaseLayer, same_shape


def keras_mask_functions() -> tuple[Callable[[Tensor], Tensor | None], Callable[..., None]]:
    """Return Keras' functions that get and set the mask attached to a tensor.

    Keras has no public name for them. Using the attribute directly fails on JAX, whose tensors
    cannot have additional attributes. A test lists the versions of Keras that have these functions.
    """
    from keras.src.backend import get_keras_mask, set_keras_mask

    return get_keras_mask, set_keras_mask


def carried_mask(tensor: Tensor) -> Tensor | None:
    """Return the mask that Keras has attached to a tensor, or None."""
    get_mask, _ = keras_mask_functions()
    return get_mask(tensor)


def padding_mask(entities: Tensor, mask: Tensor | None) -> Tensor | None:
    """Return the padding mask `(B, N)` of entities, true for real ones; None if all are real.

    A `mask` with two axes is the padding mask. Otherwise, it is the mask that Keras has attached to
    the `entities`.
    """
    return mask if mask is not None and len(mask.shape) == 2 else carried_mask(entities)


def without_removed(allowed: Tensor | None, removed: Tensor, shape: Shape) -> Tensor:
    """Return a mask `(B, N)` of the entities that are allowed and not removed.

    Args:
        allowed: `(B, N)` bool; None means that all entities are allowed.
        removed: `(B, N)` bool.
        shape: the expected shape `(B, N)`, for the check of `removed`.

    Raises:
        InvalidInput: if `removed` has a wrong shape or dtype.
    """
    given, dtype = (getattr(removed, name, None) for name in ("shape", "dtype"))
    # PyTorch's dtype is `torch.bool`. In any other dtype, every number except 0, even NaN, is true.
    is_bool = str(getattr(dtype, "name", dtype)).endswith("bool")
    if given is None or not is_bool or not same_shape(given, shape):
        received = type(removed).__name__ if given is None else f"{tuple(given)} of {dtype}"
        raise InvalidInput(
            "`removed` must be an array of bools (B, N), one for each entity, here "
            f"{tuple(shape)}; received {received}"
        )
    kept = ops.logical_not(removed)
    return kept if allowed is None else ops.logical_and(allowed, kept)


def attention_mask(mask: Tensor | None, keys: Tensor, shape: Shape) -> Tensor | None:
    """Return a mask of the pairs of query and key between which attention is allowed.

    The mask has four axes that broadcast to `shape`. None means that all pairs are allowed.

    Args:
        mask: `(B, S)`, false for keys that are padding; or four axes that broadcast to `shape`,
            which are combined with the padding mask that Keras has attached to the keys.
        keys: entities to attend to, `(B, S, F)`.
        shape: `(B, H, N, S)`.

    Raises:
        InvalidInput: if the mask has a wrong shape.
    """
    pairs = None if mask is None or len(mask.shape) == 2 else mask
    padding = padding_mask(keys, mask)
    for given, expected in ((padding, (shape[0], shape[3])), (pairs, shape)):
        if given is not None and not same_shape(given.shape, expected, broadcast=True):
            raise InvalidInput(
                f"`mask` must be (B, S), here {(shape[0], shape[3])}, or have four axes that "
                f"broadcast to (B, H, N, S), here {tuple(shape)}; "
                f"received the shape {tuple(given.shape)}"
            )
    if padding is None:
        return pairs
    padding = padding[:, None, None, :]
    return padding if pairs is None else ops.logical_and(padding, pairs)


def edge_mask(mask: Tensor | None, edges: Tensor, keys: Tensor, num_heads: int) -> Tensor:
    """Return a mask `(B, H or 1, N, N)` that allows attention along the edges `(B, N, N)` only."""
    batch, nodes = keys.shape[:2]
    along = ops.cast(edges, "bool")[:, None]
    allowed = attention_mask(mask, keys, (batch, num_heads, nodes, nodes))
    return along if allowed is None else ops.logical_and(along, ops.cast(allowed, "bool"))


def check_entity(entity: int | None, entities: Tensor) -> None:
    """Raise an `InvalidInput` unless `entity` is None or an index of the entities `(B, N, F)`."""
    count = entities.shape[1]
    if entity is not None and (
        integer("entity", entity) < 0 or (count is not None and entity >= count)
    ):
        raise InvalidInput(
            f"`entity` must be an index of the {count} entities; received {entity!r}"
        )


def rows_of_entity(pairs: Tensor | None, entity: int) -> Tensor | None:
    """Return the row of one entity of a mask or a bias. A single row applies to all entities."""
    if pairs is None or pairs.shape[2] == 1:
        return pairs
    if pairs.shape[2] is None:  # a single row or one for each entity
        entity = ops.minimum(entity, ops.shape(pairs)[2] - 1)
    return pairs[:, :, entity : entity + 1]


def carry_mask(output: Tensor, mask: Tensor | None, rows: slice) -> None:
    """Attach the mask of the selected `rows` to an output; Keras would attach that of all rows."""
    if mask is not None:
        _, set_mask = keras_mask_functions()
        set_mask(output, mask[:, rows])


class EntityLayer(BaseLayer):
    """Base class of layers that take entities `(B, N, F)` and pass on their padding mask.

    `call` has the arguments `inputs`, `mask` and `entity`, the index of the only entity to compute
    an output for.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        return padding_mask(inputs, previous_mask)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        result = super().compute_output_spec(*args, **kwargs)
        given = inspect.signature(self.call).bind(*args, **kwargs).arguments
        self._carry_mask(keras.tree.flatten(result)[0], **given)
        return result

    def _carry_mask(self, output, inputs, mask=None, entity=None, **_):
        """Attach the mask of one entity to its output."""
        if entity is not None:
            carry_mask(output, self.compute_mask(inputs, mask), slice(entity, entity + 1))
