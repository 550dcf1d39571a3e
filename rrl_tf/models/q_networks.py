"""Define functions that return dense and convolutional Q networks as plain Keras models."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from rrl_tf.layers import RandomShift


def dense_q_network(
    num_actions: int, hidden_units: Sequence[int] = (128, 128), dtype: str | None = None
) -> keras.Sequential:
    """Return a network that maps flattened observations `(B, ...)` to float32 Q values `(B, A)`.

    Args:
        num_actions: A, the number of actions.
        hidden_units: sizes of the ReLU layers.
        dtype: dtype policy of the hidden layers. `None` means Keras' global policy.

    Example:
        >>> network = dense_q_network(2)
        >>> network.build((None, 4))
    """
    dense = _dense_layers(num_actions, hidden_units, dtype)
    return keras.Sequential([keras.layers.Flatten(dtype=dtype), *dense])


def grid_q_network(
    num_actions: int,
    filters: Sequence[int] = (20, 20, 20, 4),
    hidden_units: Sequence[int] = (51,),
    dtype: str | None = None,
) -> keras.Sequential:
    """Return a network that maps grids `(B, height, width, F)` to float32 Q values `(B, A)`.

    The network is a baseline for relational networks. It has 3 x 3 convolutions, which keep the
    size of the grid, and ReLU layers that read all cells.

    Args:
        num_actions: A, the number of actions.
        filters: channels of the convolutions.
        hidden_units: sizes of the ReLU layers.
        dtype: dtype policy of the hidden layers. `None` means Keras' global policy.

    Example:
        >>> network = grid_q_network(4)
        >>> network.build((None, 8, 8, 26))
    """
    convolutions = [
        keras.layers.Conv2D(channels, 3, padding="same", activation="relu", dtype=dtype)
        for channels in filters
    ]
    dense = _dense_layers(num_actions, hidden_units, dtype)
    return keras.Sequential([*convolutions, keras.layers.Flatten(dtype=dtype), *dense])


def convolutional_q_network(
    num_actions: int,
    filters: Sequence[int] = (32, 64, 64),
    hidden_units: Sequence[int] = (512,),
    random_shift: int = 0,
    dtype: str | None = None,
) -> keras.Sequential:
    """Return a network that maps images `(B, height, width, C)` to float32 Q values `(B, A)`.

    The network has three convolutions and a dense layer, each with a ReLU. Images have values in
    [0, 1] and at least 36 x 36 pixels.

    Args:
        num_actions: A, the number of actions.
        filters: channels of the three convolutions.
        hidden_units: sizes of the ReLU layers.
        random_shift: largest random shift of images in training, in pixels (`RandomShift`).
        dtype: dtype policy of the hidden layers. `None` means Keras' global policy.

    Example:
        >>> network = convolutional_q_network(18)
        >>> network.build((None, 84, 84, 4))

    Source: Mnih et al., "Human-level control through deep reinforcement learning" (2015).
    """
    shift = [RandomShift(random_shift, dtype=dtype)] if random_shift else []
    convolutions = [
        keras.layers.Conv2D(channels, kernel_size, strides, activation="relu", dtype=dtype)
        for channels, kernel_size, strides in zip(filters, (8, 4, 3), (4, 2, 1), strict=True)
    ]
    dense = _dense_layers(num_actions, hidden_units, dtype)
    return keras.Sequential([*shift, *convolutions, keras.layers.Flatten(dtype=dtype), *dense])


def _dense_layers(num_actions, hidden_units, dtype):
    hidden = [keras.layers.Dense(units, "relu", dtype=dtype) for units in hidden_units]
    return [*hidden, keras.layers.Dense(num_actions, dtype="float32")]
