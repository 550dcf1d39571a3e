"""What a Q network makes of an observation whose parts are not related to each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import positive_ints
from rrl_tf._typing import Shape, Tensor
from rrl_tf.errors import InvalidInput


class DenseEncoder(keras.layers.Layer):
    """ReLU layers on an observation of any shape, flattened; without entities or attention.

    Args:
        hidden_units: sizes of the layers.
    """

    def __init__(
        self, hidden_units: Sequence[int] = (64, 32), dtype: Any = None, name: str | None = None
    ) -> None:
        super().__init__(dtype=dtype, name=name)
        self.dense = [
            keras.layers.Dense(units, "relu", dtype=self.dtype_policy, name=f"dense_{i}")
            for i, units in enumerate(positive_ints("hidden_units", hidden_units), start=1)
        ]

    def build(self, observation_shape: Shape) -> None:
        if len(observation_shape) < 2 or None in observation_shape[1:]:
            raise InvalidInput(
                "a dense encoder takes observations (B, ...) of known sizes; "
                f"received the shape {tuple(observation_shape)}"
            )
        self.read_size = math.prod(observation_shape[1:])
        for layer in self.dense:
            layer.build((None, self.read_size))
            self.read_size = layer.units

    def call(
        self,
        observation: Tensor,
        training: bool = False,
        every_entity: bool = False,
        removed: Tensor | None = None,
    ) -> tuple[Tensor, None, dict[str, Tensor]]:
        if removed is not None:
            raise InvalidInput(
                "a dense encoder has no entities that could be removed; "
                f"received `removed` of the shape {tuple(removed.shape)}"
            )
        x = ops.reshape(observation, (-1, math.prod(observation.shape[1:])))
        for layer in self.dense:
            x = layer(x)
        return x, None, {}
