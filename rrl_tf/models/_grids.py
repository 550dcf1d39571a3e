"""What the models of images and grids share: the shape they take, and their dense layers."""

from __future__ import annotations

import keras

from rrl_tf._typing import Activation, Shape
from rrl_tf.errors import InvalidInput

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
