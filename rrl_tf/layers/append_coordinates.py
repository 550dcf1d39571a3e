"""Define `AppendCoordinates`, which adds coordinates to the channels of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import number_from, one_of
from rrl_tf._typing import Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers.base import BaseLayer

DIVISORS = ("size", "size_minus_one")


@keras.saving.register_keras_serializable(package="rrl_tf")
class AppendCoordinates(BaseLayer):
    """Append the coordinates of every cell of a grid as channels: the column x and the row y.

    A coordinate is `low + (high - low) * index / divisor`. With `divisor="size"`, the divisor is
    the number of columns (rows). With `"size_minus_one"`, it is one less, so the last column (row)
    has the coordinate `high`. The book uses `low=0, high=1, divisor="size"`; Zambaldi et al. use
    the defaults.

    With `frequencies`, the layer also appends sines and cosines of multiples of the coordinates. In
    the dot product of two cells, which attention computes, these terms depend only on the distance
    of the cells: `sin wx sin wx' + cos wx cos wx' = cos w(x - x')`.

    Args:
        low: coordinate of the first column and row.
        high: coordinate of the last column and row with `divisor="size_minus_one"`; with `"size"`,
            the coordinate one step after them.
        divisor: `"size"` or `"size_minus_one"`.
        frequencies: W angular frequencies w; each adds the channels sin wx, sin wy, cos wx, cos wy.

    Call arguments:
        inputs: grid `(B, height, width, F)`.

    Returns:
        `(B, height, width, F + 2 + 4 W)`: the inputs, then x, which grows along `width`, then y,
        which grows along `height`, then the sines and cosines.

    Raises:
        InvalidInput: for an unknown `divisor`, or inputs of a wrong rank.

    Example:

    >>> keras.ops.convert_to_numpy(AppendCoordinates(0, 1, "size")(keras.ops.zeros((1, 1, 2, 1))))
    array([[[[0. , 0. , 0. ],
             [0. , 0.5, 0. ]]]], dtype=float32)

    References:
        - "Deep Reinforcement Learning in Action", listing 10.7
        - [Zambaldi et al., 2019](https://arxiv.org/abs/1806.01830)
    """

    def __init__(
        self,
        low: float = -1.0,
        high: float = 1.0,
        divisor: str = "size_minus_one",
        frequencies: Sequence[float] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.low = low
        self.high = high
        self.divisor = one_of("divisor", divisor, DIVISORS)
        self.frequencies = tuple(number_from("frequencies", w, 0) for w in frequencies)

    def build(self, inputs_shape: Shape) -> None:
        if len(inputs_shape) != 4:
            raise InvalidInput(
                "`inputs` must be a grid (B, height, width, F); "
                f"received the shape {tuple(inputs_shape)}"
            )

    def call(self, inputs: Tensor) -> Tensor:
        batch, height, width, _ = ops.shape(inputs)
        columns = ops.broadcast_to(self._coordinates(width)[None, :], (height, width))
        rows = ops.broadcast_to(self._coordinates(height)[:, None], (height, width))
        places = ops.stack([columns, rows], axis=-1)  # (height, width, 2)
        waves = [wave(w * places) for w in self.frequencies for wave in (ops.sin, ops.cos)]
        places = ops.concatenate([places, *waves], axis=-1)[None]
        places = ops.broadcast_to(places, (batch, height, width, places.shape[-1]))
        return ops.concatenate([inputs, places], axis=-1)

    def _coordinates(self, size):
        index = ops.cast(ops.arange(size), self.compute_dtype)
        steps = size if self.divisor == "size" else ops.maximum(size - 1, 1)
        return self.low + (self.high - self.low) * index / ops.cast(steps, self.compute_dtype)

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        return (*inputs_shape[:-1], inputs_shape[-1] + 2 + 4 * len(self.frequencies))
