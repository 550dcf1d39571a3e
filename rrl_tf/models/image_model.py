"""Define `ImageModel`, the base class of models that read images or grids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from rrl_tf._arguments import positive_ints
from rrl_tf._typing import Activation, Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers import AppendCoordinates, RandomShift, RelationalBlock, RelationalModule
from rrl_tf.layers.base import dense_on_rows, make_dense
from rrl_tf.models.base import BaseModel, build_in_turn, make_layer


class ImageModel(BaseModel):
    """Base class of models that read images, or grids such as those of MiniGrid.

    The `grid_layers`, if there are any, turn the image into a smaller grid of cells. The entities
    of a relational model are these cells: cell (row, column) is entity `row * columns + column`.
    Subclasses that call `_convolution` must have the attribute `kernel_initializer`.
    """

    grid_layers: Sequence[keras.layers.Layer] = ()

    def grid_shape(self, inputs_shape: Shape) -> tuple[Any, Any]:
        """Return `(rows, columns)` of the grid of cells; an unknown size is None.

        Args:
            inputs_shape: `(B, height, width, F)` of an image or a grid.
        """
        _, rows, columns, _ = self._cells_shape(inputs_shape)
        return rows, columns

    def _cells_shape(self, inputs_shape: Shape) -> Shape:
        shape = tuple(inputs_shape)
        for layer in self.grid_layers:
            shape = layer.compute_output_shape(shape)
        return shape

    def _nodes_shape(self, inputs_shape: Shape) -> Shape:
        """Return the shape `(B, N, features)` of the cells as entities."""
        batch, rows, columns, features = self._cells_shape(inputs_shape)
        nodes = None if None in (rows, columns) else rows * columns
        return batch, nodes, features

    def _build_grid(self, inputs_shape: Shape, needs_size: bool = False) -> Shape:
        """Build the `grid_layers` and return the shape of their output.

        Raises:
            InvalidInput: if the shape is not `(B, height, width, channels)`, if the channels are
                unknown, or if the size is unknown although `needs_size` is true.
            ValueError: if the image is too small for a convolution or a pooling layer (from Keras).
        """
        name, shape = type(self).__name__, tuple(inputs_shape)
        if len(shape) != 4 or shape[-1] is None:
            raise InvalidInput(
                f"the images must be (B, height, width, F) with a known F; received the shape "
                f"{shape}"
            )
        if needs_size and None in shape[1:]:
            raise InvalidInput(
                f"the size of the images must be known, because {name} has weights for every "
                f"position; received the shape {shape}"
            )
        return build_in_turn(self.grid_layers, shape)

    def _cells(self, x: Tensor, training: bool = False) -> Tensor:
        """Return the grid `(B, rows, columns, features)` of an image."""
        for layer in self.grid_layers:
            if isinstance(layer, keras.layers.Dense):
                x = dense_on_rows(layer, x)
            else:
                x = layer(x, training=training) if isinstance(layer, RandomShift) else layer(x)
        return x

    def _expect(self, inputs_shape: Shape, any_size: bool) -> None:
        """Let Keras check the channels of later inputs and, without `any_size`, their size."""
        _, height, width, channels = inputs_shape
        size = (None, None) if any_size else (height, width)
        self.input_spec = keras.layers.InputSpec(shape=(None, *size, channels))

    def _convolution(
        self,
        name: str,
        filters: int,
        kernel_size: int,
        strides: int = 1,
        padding: str = "valid",
        activation: Activation = "relu",
    ) -> keras.layers.Layer:
        """Return a convolution, or an equivalent dense layer for 1 x 1 kernels, which is faster."""
        if kernel_size == strides == 1:
            return make_dense(self, name, filters, activation=activation)
        return keras.layers.Conv2D(
            filters,
            kernel_size,
            strides,
            padding=padding,
            activation=activation,
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name=name,
        )


def make_coordinates(owner: keras.Model) -> list[keras.layers.Layer]:
    """Return a list with the layer that appends coordinates to the cells, or an empty list.

    Args:
        owner: model with the attribute `coordinates`.
    """
    if owner.coordinates is None:
        return []
    layer = make_layer(
        "coordinates", AppendCoordinates, owner.coordinates, dtype=owner.dtype_policy
    )
    return [layer]


def make_relations(owner: keras.Model) -> RelationalModule:
    """Return the rounds of message passing between the entities.

    Args:
        owner: model with the attributes `block`, `num_rounds`, `share_weights` and
            `kernel_initializer`.
    """
    block = make_layer(
        "block",
        RelationalBlock,
        owner.block,
        kernel_initializer=owner.kernel_initializer.clone(),
        dtype=owner.dtype_policy,
        name="block",
    )
    return RelationalModule(
        block,
        num_rounds=owner.num_rounds,
        share_weights=owner.share_weights,
        dtype=owner.dtype_policy,
        name="relations",
    )


def one_per_convolution(name: str, sizes: int | Sequence[int], count: int) -> tuple[int, ...]:
    """Return a tuple with one size for each of `count` convolutions; an int applies to all."""
    sizes = positive_ints(name, sizes if isinstance(sizes, Sequence) else [sizes] * count)
    if len(sizes) != count:
        raise InvalidInput(
            f"`{name}` must be one integer, or one for each of the {count} convolutions; "
            f"received {sizes!r}"
        )
    return sizes
