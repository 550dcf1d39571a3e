"""Q networks for observations that are no grid of entities, as plain Keras models."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from rrl_tf.layers import RandomShift


def dense_q_network(
    num_actions: int, hidden_units: Sequence[int] = (128, 128), dtype: str | None = None
) -> keras.Sequential:
    """Vectors `(B, F)` → Q values `(B, A)`, float32 also under a mixed policy.

    Args:
        num_actions: A.
        hidden_units: sizes of the ReLU layers.
        dtype: dtype policy of the hidden layers; Keras' own by default.

    Example:
        >>> network = dense_q_network(2)
        >>> network.build((None, 4))
    """
    hidden = [keras.layers.Dense(units, "relu", dtype=dtype) for units in hidden_units]
    return keras.Sequential([*hidden, keras.layers.Dense(num_actions, dtype="float32")])


def grid_q_network(
    num_actions: int,
    filters: Sequence[int] = (20, 20, 20, 4),
    hidden_units: Sequence[int] = (51,),
    dtype: str | None = None,
) -> keras.Sequential:
    """Grids `(B, height, width, F)` → Q values `(B, A)`, float32 also under a mixed policy.

    3 x 3 convolutions that keep the size, so that every cell knows what is near it, and ReLU layers
    on all cells together: what a relational network of cells is compared with.

    Args:
        num_actions: A.
        filters: channels of the convolutions.
        hidden_units: sizes of the ReLU layers.
        dtype: dtype policy of the hidden layers; Keras' own by default.

    Example:
        >>> network = grid_q_network(4)
        >>> network.build((None, 8, 8, 26))
    """
    convolutions = [
        keras.layers.Conv2D(channels, 3, padding="same", activation="relu", dtype=dtype)
        for channels in filters
    ]
    hidden = [keras.layers.Dense(units, "relu", dtype=dtype) for units in hidden_units]
    head = keras.layers.Dense(num_actions, dtype="float32")
    return keras.Sequential([*convolutions, keras.layers.Flatten(dtype=dtype), *hidden, head])


def convolutional_q_network(
    num_actions: int,
    filters: Sequence[int] = (32, 64, 64),
    hidden_units: Sequence[int] = (512,),
    random_shift: int = 0,
    dtype: str | None = None,
) -> keras.Sequential:
    """Images `(B, height, width, C)`, prepared to 0..1, → Q values `(B, A)`, float32.

    Three convolutions and a dense layer, each with a ReLU; images from 36 x 36 up.

    Args:
        num_actions: A.
        filters: channels of the three convolutions.
        hidden_units: sizes of the ReLU layers.
        random_shift: in training, images are moved by up to so many pixels (`RandomShift`).
        dtype: dtype policy of the hidden layers; Keras' own by default.

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
    hidden = [keras.layers.Dense(units, "relu", dtype=dtype) for units in hidden_units]
    head = keras.layers.Dense(num_actions, dtype="float32")
    return keras.Sequential(
        [*shift, *convolutions, keras.layers.Flatten(dtype=dtype), *hidden, head]
    )
