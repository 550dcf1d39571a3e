"""How far apart two cells of a grid lie, as a learned bias of their attention."""

from __future__ import annotations

import numbers
import operator
from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import positive_int
from rrl_tf._typing import Initializer, Shape, Tensor
from rrl_tf.errors import InvalidInput


@keras.saving.register_keras_serializable(package="rrl_tf")
class RelativePositionBias(keras.layers.Layer):
    """A learned number for every head and every offset between two cells, added to the scores.

    The score of cell `i` for cell `j` gains `table[head, dy, dx]`, where `(dy, dx)` is the way from
    `i` to `j` in rows and columns. The table holds offsets up to `max_offset` in each direction,
    and longer ones take the entry of the longest, axis by axis: a layer that was trained on a small
    grid works on one of any size, where it tells everything beyond that distance by its direction
    alone. Offsets within the table that training never met keep their initial value.

    Args:
        num_heads: H, the number of heads.
        max_offset: R, the largest offset with an entry of its own: the table has `(2 R + 1)²`.
        embeddings_initializer: initialiser of the table.

    Call arguments:
        grid: `(rows, columns)` of the entities; cell (row, column) is `row * columns + column`.

    Returns:
        `(1, H, N, N)` with `N = rows * columns`, for `MultiHeadDotProductAttention(bias=)`.

    Raises:
        InvalidInput: for a number that is not positive.

    Example:

    >>> tuple(RelativePositionBias(num_heads=2, max_offset=6)(grid=(7, 7)).shape)
    (1, 2, 49, 49)

    References:
        - [Liu et al., 2021](https://arxiv.org/abs/2103.14030), section 3.2
        - [Shaw et al., 2018](https://arxiv.org/abs/1803.02155), clipped offsets
    """

    def __init__(
        self,
        num_heads: int,
        max_offset: int,
        embeddings_initializer: Initializer = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = positive_int("num_heads", num_heads)
        self.max_offset = positive_int("max_offset", max_offset)
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)

    def build(self, grid: Any = None) -> None:
        offsets = 2 * self.max_offset + 1
        self.embeddings = self.add_weight(
            shape=(offsets * offsets, self.num_heads),
            initializer=self.embeddings_initializer,
            name="embeddings",
        )

    def call(self, grid: tuple[Any, Any]) -> Tensor:
        rows, columns = grid
        cells = rows * columns
        dy, dx = self._offsets(rows), self._offsets(columns)
        place = (2 * self.max_offset + 1) * dy[:, None, :, None] + dx[None, :, None, :]
        bias = ops.take(self.embeddings, ops.reshape(place, (-1,)), axis=0)
        bias = ops.reshape(bias, (1, cells, cells, self.num_heads))
        return ops.cast(ops.transpose(bias, (0, 3, 1, 2)), self.compute_dtype)

    def _offsets(self, size):
        """Which row (or column) of the table, from each to each of so many: `(size, size)`."""
        place = ops.arange(size, dtype="int32")
        offset = place[None, :] - place[:, None]
        return ops.clip(offset, -self.max_offset, self.max_offset) + self.max_offset

    def compute_output_shape(self, grid: tuple[Any, Any]) -> Shape:
        cells = None if None in grid else grid[0] * grid[1]
        return (1, self.num_heads, cells, cells)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "max_offset": self.max_offset,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
        }


def check_grid_of(entities: Tensor, grid: tuple[Any, Any] | None) -> None:
    """Raises an `InvalidInput` unless there is a `grid` with a cell for each of the first."""
    nodes = entities.shape[1]
    sizes = [_size(each) for each in grid] if isinstance(grid, tuple | list) else []
    fits = len(sizes) == 2 and 0 not in sizes
    if not fits or (nodes and None not in sizes and nodes < sizes[0] * sizes[1]):
        raise InvalidInput(
            "relative positions need the `grid` (rows, columns) that the entities lie on, here "
            f"{nodes} of them; received {grid!r}"
        )


def _size(value):
    """A positive integer; None if it is not known while a graph is made; or 0 for anything else."""
    try:
        return 0 if isinstance(value, bool) else max(operator.index(value), 0)
    except TypeError:
        is_known = isinstance(value, numbers.Number) or not hasattr(value, "dtype")
        return 0 if is_known and value is not None else None
