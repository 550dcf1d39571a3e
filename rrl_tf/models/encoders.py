"""Define encoders of observations, which Q networks with several inputs or a memory contain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import one_of, optional_dict, positive_ints
from rrl_tf._typing import Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.models.architectures import RELATIONAL_Q_NETWORK
from rrl_tf.models.base import architecture_config, build_in_turn, make_layer
from rrl_tf.models.relational_q_network import RelationalEncoder, with_preprocessor

SMALLEST_PICTURE = 36
"""Minimum height and width of a picture, for which the default network has convolutions."""


class DenseEncoder(keras.layers.Layer):
    """Embed an observation of any shape with ReLU layers, without entities or attention.

    Args:
        hidden_units: sizes of the dense layers.
        convolutions: convolutions before these layers, each a triple of filters, kernel size and
            stride, for images `(height, width, C)` of any size.
    """

    def __init__(
        self,
        hidden_units: Sequence[int] = (64, 32),
        convolutions: Sequence[Sequence[int]] = (),
        dtype: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(dtype=dtype, name=name)
        options = {"activation": "relu", "dtype": self.dtype_policy}
        self.convolutions = [
            keras.layers.Conv2D(
                *positive_ints("convolutions", sizes),
                padding="same",
                name=f"convolution_{i}",
                **options,
            )
            for i, sizes in enumerate(convolutions, start=1)
        ]
        self.dense = [
            keras.layers.Dense(units, name=f"dense_{i}", **options)
            for i, units in enumerate(positive_ints("hidden_units", hidden_units), start=1)
        ]

    def build(self, observation_shape: Shape) -> None:
        if len(observation_shape) < 2 or None in observation_shape[1:]:
            raise InvalidInput(
                "the observations of a dense encoder must be (B, ...) of known sizes; "
                f"received the shape {tuple(observation_shape)}"
            )
        shape = build_in_turn(self.convolutions, tuple(observation_shape))
        _, self.read_size = build_in_turn(self.dense, (None, math.prod(shape[1:])))

    def call(
        self,
        observation: Tensor,
        training: bool = False,
        every_entity: bool = False,
        removed: Tensor | None = None,
    ) -> tuple[Tensor, None, dict[str, Tensor]]:
        _has_no_entities("dense", removed)
        for layer in self.convolutions:
            observation = layer(observation)
        x = ops.reshape(observation, (-1, math.prod(observation.shape[1:])))
        for layer in self.dense:
            x = layer(x)
        return x, None, {}


class MultiInputEncoder(keras.layers.Layer):
    """Embed a dict of observations with one encoder per part, and concatenate the results.

    Args:
        encoders: dict name -> dict of the arguments of the part's encoder, and `"encoder"`:
            `"relational"` or `"dense"`.

    Returns:
        As `RelationalEncoder`, without entities. `"round_1"` of the part `"image"` is called
        `"image_round_1"`.
    """

    def __init__(
        self,
        encoders: Mapping[str, Mapping[str, Any]],
        dtype: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(dtype=dtype, name=name)
        self.encoders = {}
        for part, given in optional_dict("encoders", encoders).items():
            arguments = optional_dict(f"encoders[{part!r}]", given)
            kind = ENCODERS[one_of("encoder", arguments.pop("encoder", None), PART_ENCODERS)]
            self.encoders[part] = make_layer(
                f"encoders[{part!r}]", kind, arguments, dtype=self.dtype_policy, name=part
            )

    def build(self, observation_shape: Mapping[str, Shape]) -> None:
        shapes = observation_shape if isinstance(observation_shape, Mapping) else {}
        if shapes.keys() != self.encoders.keys():
            raise InvalidInput(
                f"the observation must be a dict of {sorted(self.encoders)}; received the shape "
                f"{observation_shape}"
            )
        for part, encoder in self.encoders.items():
            encoder.build(tuple(shapes[part]))
        self.read_size = sum(encoder.read_size for encoder in self.encoders.values())

    def call(
        self,
        observation: Mapping[str, Tensor],
        training: bool = False,
        every_entity: bool = False,
        removed: Tensor | None = None,
    ) -> tuple[Tensor, None, dict[str, Tensor]]:
        _has_no_entities("multi-input", removed)
        vectors, attention = [], {}
        for part, encoder in self.encoders.items():
            vector, _, rounds = encoder(
                observation[part], training=training, every_entity=every_entity
            )
            vectors.append(vector)
            attention.update({f"{part}_{name}": scores for name, scores in rounds.items()})
        return ops.concatenate(vectors, axis=-1), None, attention


ENCODERS = {
    "relational": RelationalEncoder,
    "dense": DenseEncoder,
    "multi_input": MultiInputEncoder,
}
PART_ENCODERS = ("relational", "dense")


def _has_no_entities(kind, removed):
    if removed is not None:
        raise InvalidInput(
            f"`removed` must be None with a {kind} encoder, which has no entities to remove; "
            f"received the shape {tuple(removed.shape)}"
        )


def encoders_of(
    preprocessor: Any, grids: str = "grid", **overrides: Any
) -> dict[str, dict[str, Any]]:
    """Return the argument `encoders` of `MultiInputEncoder` for preprocessed observations.

    Images of at least 36 x 36 pixels get convolutions, smaller grids the encoder that `grids`
    names, and all other parts dense layers. With `grids="dense"`, images get dense layers too.

    Args:
        preprocessor: `Preprocessor` with `parts`.
        grids: `"dense"` (also for images), `"convolutional"`, or an architecture of
            `RelationalQNetwork`.
        **overrides: arguments that replace those of the architecture.
    """
    return {name: _encoder_of(part, grids, overrides) for name, part in preprocessor.parts.items()}


def _encoder_of(preprocessor, grids, overrides):
    """Return the entry of `encoders_of` for one part."""
    is_grid = len(preprocessor.shape) == 3
    is_picture = is_grid and min(preprocessor.shape[:2]) >= SMALLEST_PICTURE
    if not is_grid or grids == "dense":
        return {"encoder": "dense", "hidden_units": (64,)}
    if is_picture:
        sizes = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
        return {"encoder": "dense", "convolutions": sizes, "hidden_units": (256,)}
    if grids == "convolutional":
        return {"encoder": "dense", "convolutions": ((20, 3, 1), (20, 3, 1)), "hidden_units": (64,)}
    config = architecture_config(RELATIONAL_Q_NETWORK, grids, overrides)
    head = ("num_actions", "hidden_units", "dueling", "output_activation")
    arguments = {key: each for key, each in config.items() if key not in head}
    if RELATIONAL_Q_NETWORK[grids].get("takes_preprocessor"):
        arguments = with_preprocessor(preprocessor, arguments)
    return {"encoder": "relational", **arguments}
