"""What the models of images and grids share: the shape they take, and their dense layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from rrl_tf._arguments import integer, positive_ints
from rrl_tf._typing import Activation, Shape
from rrl_tf.errors import InvalidInput
from rrl_tf.layers import RandomShift

IMAGES = "images (B, height, width, C)"


def check_grid_shape(name: str, shape: Shape, what: str = IMAGES) -> None:
    """Raises an `InvalidInput` unless `shape` is `what`, with a known number of channels."""
    if len(shape) != 4 or shape[-1] is None:
        raise InvalidInput(
            f"{name} takes {what} with a known {what[-2]}; received the shape {tuple(shape)}"
        )


def check_grid(name: str, expected: Shape, shape: Shape, what: str = IMAGES) -> None:
    """Raises an `InvalidInput` if a batch does not fit; None in `expected` is any size."""
    if len(shape) != 4 or any(
        size is not None and given not in (size, None) for size, given in zip(expected, shape)
    ):
        raise InvalidInput(
            f"{name} was built for {what} of the shape {expected} (None: any size); "
            f"received the shape {tuple(shape)}"
        )


class OnGrid:
    """Of a model whose `grid_layers` make a smaller grid of an observation; cells are entities."""

    grid_layers: Sequence[keras.layers.Layer]

    def grid_shape(self, observation_shape: Shape) -> tuple[int | None, int | None]:
        """The grid that the entities lie on.

        Args:
            observation_shape: `(B, height, width, F)`, of a grid or an image.

        Returns:
            `(rows, columns)`; `None` where the size of the observation is.
        """
        _, rows, columns, _ = self._cells_shape(observation_shape)
        return rows, columns

    def _cells_shape(self, observation_shape: Shape) -> Shape:
        shape = observation_shape
        for layer in self.grid_layers:
            shape = layer.compute_output_shape(shape)
        return shape

    def _nodes_shape(self, observation_shape: Shape) -> Shape:
        """From `(B, height, width, F)` to the `(B, N, features)` of the entities."""
        batch, rows, columns, features = self._cells_shape(observation_shape)
        nodes = None if None in (rows, columns) else rows * columns
        return batch, nodes, features


def one_each(name: str, sizes: int | Sequence[int], count: int) -> tuple[int, ...]:
    """A positive integer for each of `count` convolutions, where one may stand for all."""
    sizes = sizes if isinstance(sizes, Sequence) else [sizes] * count
    if len(sizes) != count:
        raise InvalidInput(
            f"`{name}` must be one integer, or one for each of the {count} convolutions; "
            f"received {sizes!r}"
        )
    return positive_ints(name, sizes)


def keeps_size(model: keras.Model) -> bool:
    """Whether the `convolutions` of a model leave a grid of any size as large as it is."""
    count = len(model.conv_filters)
    narrowing = ["conv_strides", "conv_pool"]
    if model.conv_padding == "valid":
        narrowing.append("conv_kernel_size")
    return all(set(one_each(name, getattr(model, name), count)) == {1} for name in narrowing)


def check_room(layer: keras.layers.Layer, shape: Shape, pool: str = "`conv_pool`") -> None:
    """Raises an `InvalidInput` where a convolution or a `pool` looks at more than there is."""
    if isinstance(layer, keras.layers.MaxPooling2D):
        name, edges = pool, layer.pool_size
    elif isinstance(layer, keras.layers.Conv2D) and layer.padding == "valid":
        name, edges = "`conv_kernel_size`", layer.kernel_size
    else:
        return
    _, *grid, _ = shape
    if any(size is not None and size < edge for size, edge in zip(grid, edges)):
        raise InvalidInput(
            f"{name} must be at most the size of the grid that it is used on, "
            f"{' x '.join(map(str, grid))}; received {edges[0]}"
        )


def layer_of(
    name: str, kind: type[keras.layers.Layer], arguments: Mapping[str, Any], /, **ours: Any
) -> keras.layers.Layer:
    """The layer of a model's argument `name`, a dict of arguments; they win over `ours`.

    Raises:
        InvalidInput: if it has no such arguments.
    """
    try:
        return kind(**{**ours, **arguments})
    except InvalidInput:
        raise
    except (TypeError, ValueError) as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise InvalidInput(
            f"`{name}` must be a dict of arguments of {kind.__name__} ({first}); "
            f"received {arguments!r}"
        ) from error


def cell_of(place: Any) -> tuple[int, int]:
    """A `readout_cell` as two ints, or raises an `InvalidInput`."""
    if not isinstance(place, Sequence) or isinstance(place, str) or len(place) != 2:
        raise InvalidInput(f"`readout_cell` must be a (row, column); received {place!r}")
    row, column = (integer("readout_cell", each) for each in place)
    return row, column


def convolutions(model: keras.Model) -> list[keras.layers.Layer]:
    """The layers that make entities of an observation, by the arguments of `RelationalEncoder`."""
    sizes = ("conv_kernel_size", "conv_strides", "conv_pool")
    count = len(model.conv_filters)
    each = zip(model.conv_filters, *(one_each(n, getattr(model, n), count) for n in sizes))
    layers: list[keras.layers.Layer] = []
    if model.random_shift:
        layers.append(RandomShift(model.random_shift, dtype=model.dtype_policy))
    for i, (filters, kernel_size, strides, pool) in enumerate(each, start=1):
        if model.conv_padding == "top_left":
            zeros = (kernel_size - 1, 0)
            layers.append(keras.layers.ZeroPadding2D((zeros, zeros), dtype=model.dtype_policy))
        layers.append(_convolution(model, f"convolution_{i}", filters, kernel_size, strides))
        if pool > 1:
            layers.append(keras.layers.MaxPooling2D(pool, dtype=model.dtype_policy))
    return layers


def _convolution(model, name, filters, kernel_size, strides):
    if kernel_size == strides == 1:
        # The same numbers as a 1 x 1 convolution, by a matrix product.
        return dense(model, name, filters, model.conv_activation)
    return keras.layers.Conv2D(
        filters,
        kernel_size,
        strides,
        padding="same" if model.conv_padding == "same" else "valid",
        activation=model.conv_activation,
        kernel_initializer=model.kernel_initializer.clone(),
        dtype=model.dtype_policy,
        name=name,
    )


def dense(
    model: keras.Model,
    name: str,
    units: int,
    activation: Activation = None,
    full_precision: bool = False,
) -> keras.layers.Dense:
    """A dense layer with the model's initialiser and precision.

    Logits and Q values stay in full precision under a mixed policy: a bfloat16 has three digits,
    and none for the difference of two.
    """
    return keras.layers.Dense(
        units,
        activation=activation,
        kernel_initializer=model.kernel_initializer.clone(),
        dtype=model.dtype_policy.variable_dtype if full_precision else model.dtype_policy,
        name=name,
    )
