"""Which entities count, and where attention may go."""

from __future__ import annotations

import math

from keras import ops

# What Keras injects as `mask`. They have no public name, and a tensor of JAX has no attributes.
from keras.src.backend import get_keras_mask as carried_mask
from keras.src.backend import set_keras_mask

from rrl_tf._arguments import integer
from rrl_tf._typing import Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers._shapes import same_shape


def padding_mask(entities: Tensor, mask: Tensor | None) -> Tensor | None:
    """`(B, N)`, true for the entities that count; None if all do.

    A `mask` of two axes says so, wherever it comes from: within a model Keras computes it anew and
    hands it over like a caller. Without one, it is the mask that Keras carries along with the
    `entities`.
    """
    return mask if mask is not None and len(mask.shape) == 2 else carried_mask(entities)


def without_removed(allowed: Tensor | None, removed: Tensor, shape: Shape) -> Tensor:
    """Which entities `(B, N)` may be attended to when some are removed.

    Args:
        allowed: `(B, N)` bool, those that may be otherwise; or None for all.
        removed: `(B, N)` bool.
        shape: `(B, N)`.

    Raises:
        InvalidInput: if there is another number of them, or they are of another dtype.
    """
    given, dtype = (getattr(removed, name, None) for name in ("shape", "dtype"))
    # Of PyTorch it is torch.bool. What is no bool would be true wherever it is not 0, NaN too.
    if given is None or not str(getattr(dtype, "name", dtype)).endswith("bool"):
        received = f"{type(removed).__name__}{'' if dtype is None else f' of dtype {dtype}'}"
    elif not same_shape(given, shape):
        received = f"the shape {tuple(given)}"
    else:
        kept = ops.logical_not(removed)
        return kept if allowed is None else ops.logical_and(allowed, kept)
    raise InvalidInput(
        f"`removed` must be an array of bools (B, N), one for each entity, here {tuple(shape)}; "
        f"received {received}"
    )


def attention_mask(mask: Tensor | None, keys: Tensor, shape: Shape) -> Tensor | None:
    """Where attention may go, of four axes that broadcast to `shape`; None for everywhere.

    Args:
        mask: `(B, S)`, true for the keys that count; or four axes that broadcast to `shape`, to
            which is added what Keras carries along with the keys.
        keys: the entities attended to, `(B, S, F)`.
        shape: `(B, H, N, S)`.

    Raises:
        InvalidInput: if the mask is neither.
    """
    pairs = None if mask is None or len(mask.shape) == 2 else mask
    padding = padding_mask(keys, mask)
    given: Tensor = padding if pairs is None else pairs
    if not (_fits(padding, (shape[0], shape[3])) and _fits(pairs, shape)):
        raise InvalidInput(
            f"`mask` must be (B, S), here {(shape[0], shape[3])}, or have four axes that "
            f"broadcast to (B, H, N, S), here {tuple(shape)}; "
            f"received the shape {tuple(given.shape)}"
        )
    if padding is None:
        return pairs
    padding = padding[:, None, None, :]
    return padding if pairs is None else ops.logical_and(padding, pairs)


def check_bias(bias: Tensor | None, shape: Shape) -> None:
    """Raises an `InvalidInput` unless a bias has four axes that broadcast to `shape`."""
    if bias is not None and not _fits(bias, shape):
        raise InvalidInput(
            f"`bias` must have four axes that broadcast to (B, H, N, S), here {tuple(shape)}; "
            f"received the shape {tuple(bias.shape)}"
        )


def _fits(mask: Tensor | None, shape: Shape) -> bool:
    if mask is None:
        return True
    sizes = zip(mask.shape, shape)
    return len(mask.shape) == len(shape) and all(
        given in (None, 1, size) or size is None for given, size in sizes
    )


def edge_mask(mask: Tensor | None, edges: Tensor, keys: Tensor, num_heads: int) -> Tensor:
    """The `attention_mask` where there are true edges `(B, N, N)`, as `(B, H or 1, N, N)`."""
    batch, nodes = keys.shape[:2]
    along = ops.cast(edges, "bool")[:, None]
    allowed = attention_mask(mask, keys, (batch, num_heads, nodes, nodes))
    return along if allowed is None else ops.logical_and(along, ops.cast(allowed, "bool"))


def check_entity(entity: int | None, entities: Tensor) -> None:
    """Raises an `InvalidInput` unless an `entity` is None or the index of one of `(B, N, F)`."""
    count = entities.shape[1]
    if entity is not None and not (
        0 <= integer("entity", entity) < (math.inf if count is None else count)
    ):
        raise InvalidInput(f"`entity` must be one of {count} from 0 up; received {entity!r}")


def rows_of_entity(pairs: Tensor | None, entity: int) -> Tensor | None:
    """The row of one entity of a mask or a bias, which may have one row for all of them."""
    if pairs is None or pairs.shape[2] == 1:
        return pairs
    if pairs.shape[2] is None:  # one row or all
        entity = ops.minimum(entity, ops.shape(pairs)[2] - 1)
    return pairs[:, :, entity : entity + 1]


def carry_mask(output: Tensor, mask: Tensor | None, rows: slice) -> None:
    """Gives a result for some `rows` of a sequence their part of its mask; Keras would give all."""
    if mask is not None:
        set_keras_mask(output, mask[:, rows])
