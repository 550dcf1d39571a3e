"""Define `RelativePositionBias`, a learned attention bias for pairs of cells of a grid."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import positive_int
from rrl_tf._typing import Initializer, Shape, Tensor
from rrl_tf.layers.base import BaseLayer


@keras.saving.register_keras_serializable(package="rrl_tf")
class RelativePositionBias(BaseLayer):
    """Learned attention bias for every head and every offset between two cells of a grid.

    The bias of query cell `i` and key cell `j` is `table[head, dy, dx]`, where `(dy, dx)` is the
    offset from `i` to `j` in rows and columns. The table contains offsets up to `max_offset` in
    each direction. Larger offsets are clipped on each axis separately, so a layer that was trained
    on a small grid also works on a larger one. Offsets that do not occur in training keep their
    initial value.

    Args:
        num_heads: H, the number of heads.
        max_offset: R, the largest offset in the table, which has `(2 R + 1)²` entries per head.
        embeddings_initializer: initialiser of the table.

    Call arguments:
        grid: `(rows, columns)` of the entities; cell (row, column) is `row * columns + column`.

    Returns:
        `(1, H, N, N)` with `N = rows * columns`, for the call argument `bias` of
        `MultiHeadDotProductAttention`.

    Raises:
        InvalidInput: if `num_heads` or `max_offset` is below 1.

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
        """Return the table index of each pair of rows (or columns), `(size, size)`."""
        place = ops.arange(size, dtype="int32")
        offset = place[None, :] - place[:, None]
        return ops.clip(offset, -self.max_offset, self.max_offset) + self.max_offset

    def compute_output_shape(self, grid: tuple[Any, Any]) -> Shape:
        cells = None if None in grid else grid[0] * grid[1]
        return (1, self.num_heads, cells, cells)
