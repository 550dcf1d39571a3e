"""What Q networks make of an observation before they value actions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import one_of, positive_int, positive_ints
from rrl_tf._typing import Activation, Initializer, Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers import (
    AppendCoordinates,
    PositionEmbedding,
    RelationalBlock,
    RelationalModule,
)
from rrl_tf.layers._shapes import dense_on_rows
from rrl_tf.models._grids import check_grid, check_grid_shape, dense

OBSERVATIONS = "observations (B, height, width, F)"
CONV_PADDINGS = ("valid", "top_left")
READOUTS = ("max", "flatten", "cell", "feature")


class RelationalEncoder(keras.Model):
    """What the Q networks of grids share: cells, their relations, and what is read of them.

    `RelationalQNetwork` is one, and documents the arguments; `RecurrentQNetwork` has one.

    Call arguments:
        observation: prepared observation `(B, height, width, F)`.
        training: whether to apply dropout.
        every_entity: whether the last round updates all entities, also where one cell is read.

    Returns:
        What is read `(B, read_size)`; the entities `(B, N, features)`, or the only one that is
        read `(B, 1, features)`; and a dict `"round_1"`, `"round_2"`, ... -> attention, of which
        the last has a row for each of these entities.
    """

    def __init__(
        self,
        conv_filters: Sequence[int] = (32,),
        conv_kernel_size: int = 1,
        conv_padding: str = "valid",
        conv_activation: Activation = "relu",
        coordinates: Mapping[str, Any] | None = None,
        position_embedding: bool = False,
        block: Mapping[str, Any] | None = None,
        num_rounds: int = 1,
        share_weights: bool = False,
        unseen_feature: int | None = None,
        readout: str = "max",
        readout_cell: Sequence[int] | None = None,
        kernel_initializer: Initializer = "glorot_uniform",
        readout_feature: int | None = None,
        max_entities: int | None = None,
        **kwargs: Any,
    ) -> None:
        one_of("readout", readout, READOUTS)
        for name, value in (("cell", readout_cell), ("feature", readout_feature)):
            if (value is not None) != (readout == name):
                raise InvalidInput(
                    f"`readout_{name}` goes with readout={name!r}, here {readout!r}; "
                    f"received {value!r}"
                )
        super().__init__(**kwargs)
        self.conv_filters = positive_ints("conv_filters", conv_filters)
        self.conv_kernel_size = positive_int("conv_kernel_size", conv_kernel_size)
        self.conv_padding = one_of("conv_padding", conv_padding, CONV_PADDINGS)
        self.conv_activation = keras.activations.get(conv_activation)
        self.coordinates = coordinates
        self.position_embedding = position_embedding
        self.block = {"num_heads": 2, "key_size": 16} if block is None else dict(block)
        self.num_rounds = positive_int("num_rounds", num_rounds)
        self.share_weights = share_weights
        self.unseen_feature = unseen_feature
        self.readout = readout
        self.readout_cell = readout_cell and tuple(readout_cell)
        self.readout_feature = readout_feature
        self.max_entities = max_entities
        if max_entities is not None:
            self._check_max_entities()
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self._make_relations()

    def _check_max_entities(self):
        """Leaving out what nothing attends to is no change in these networks alone."""
        positive_int("max_entities", self.max_entities)
        unfit = {
            "unseen_feature": self.unseen_feature is None,
            "readout": self.readout != "feature",
            "block": self._relates_all or self.block.get("max_offset") is not None,
        }
        for name in (name for name, is_unfit in unfit.items() if is_unfit):
            raise InvalidInput(
                "`max_entities` goes with an `unseen_feature`, readout='feature', and a block "
                "without joint norm, additive scores or `max_offset`; "
                f"received {name}={getattr(self, name)!r}"
            )

    @property
    def _relates_all(self):
        """Whether an entity's output depends on others than those that it attends to."""
        return self.block.get("norm") == "joint" or self.block.get("score") == "book_additive"

    def _make_relations(self):
        self.grid_layers = []
        for i, filters in enumerate(self.conv_filters, start=1):
            if self.conv_padding == "top_left":
                zeros = (self.conv_kernel_size - 1, 0)
                self.grid_layers.append(
                    keras.layers.ZeroPadding2D((zeros, zeros), dtype=self.dtype_policy)
                )
            self.grid_layers.append(self._convolution(f"convolution_{i}", filters))
        if self.coordinates is not None:
            self.grid_layers.append(AppendCoordinates(**self.coordinates, dtype=self.dtype_policy))
        self.positions = None
        if self.position_embedding:
            self.positions = PositionEmbedding(dtype=self.dtype_policy, name="positions")
        self.relations = RelationalModule(
            RelationalBlock(
                **{"kernel_initializer": self.kernel_initializer.clone(), **self.block},
                dtype=self.dtype_policy,
                name="block",
            ),
            num_rounds=self.num_rounds,
            share_weights=self.share_weights,
            dtype=self.dtype_policy,
            name="relations",
        )

    def _convolution(self, name, filters):
        if self.conv_kernel_size == 1:
            # The same numbers as a 1 x 1 convolution, by a matrix product.
            return dense(self, name, filters, self.conv_activation)
        return keras.layers.Conv2D(
            filters,
            self.conv_kernel_size,
            activation=self.conv_activation,
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, observation_shape: Shape) -> None:
        check_grid_shape(type(self).__name__, observation_shape, OBSERVATIONS)
        shape = tuple(observation_shape)
        for layer in self.grid_layers:
            layer.build(shape)
            shape = layer.compute_output_shape(shape)
        shape = self._nodes_shape(observation_shape)
        if self.positions is not None:
            self.positions.build(shape)
        self.relations.build(shape)
        _, nodes, features = self.entities_shape(observation_shape)
        for argument in ("unseen_feature", "readout_feature"):
            self._check_feature(argument, observation_shape)
        self._check_readout(observation_shape)
        self.read_size = nodes * features if self.readout == "flatten" else features
        self._expected_shape = self._shape_to_expect(observation_shape)

    def entities_shape(self, observation_shape: Shape) -> Shape:
        """From `(B, height, width, F)` to the `(B, N, features)` of the related entities."""
        return self.relations.compute_output_shape(self._nodes_shape(observation_shape))

    def _check_readout(self, observation_shape):
        if self.readout in ("max", "feature"):
            return
        _, height, width, _ = self._grid_shape(observation_shape)
        if None in (height, width):
            raise InvalidInput(
                f"readout={self.readout!r} needs a grid of known size; "
                f"received the shape {tuple(observation_shape)}"
            )
        if self.readout == "cell":
            row, column = self.readout_cell
            if not (0 <= row < height and 0 <= column < width):
                raise InvalidInput(
                    f"`readout_cell` must be a (row, column) inside the {height} x {width} grid; "
                    f"received {self.readout_cell}"
                )

    def _check_feature(self, argument, observation_shape):
        feature = getattr(self, argument)
        if feature is None:
            return
        _, *grid, features = observation_shape
        if not 0 <= feature < features:
            raise InvalidInput(
                f"`{argument}` must be one of the {features} features of the observation; "
                f"received {feature!r}"
            )
        if list(self._grid_shape(observation_shape)[1:3]) != grid:
            raise InvalidInput(
                f"`{argument}` needs convolutions that keep the size of the grid; received "
                f"conv_kernel_size={self.conv_kernel_size}, conv_padding={self.conv_padding!r}"
            )

    def _grid_shape(self, observation_shape):
        """From `(B, height, width, F)` to the shape of the grid after the convolutions."""
        shape = observation_shape
        for layer in self.grid_layers:
            shape = layer.compute_output_shape(shape)
        return shape

    def _nodes_shape(self, observation_shape):
        """From `(B, height, width, F)` to the `(B, N, features)` of the entities."""
        batch, height, width, features = self._grid_shape(observation_shape)
        nodes = None if None in (height, width) else height * width
        return batch, nodes, features

    def _shape_to_expect(self, observation_shape):
        """The shape that fits the weights: None where any size will do."""
        _, height, width, features = observation_shape
        if (
            self.readout in ("flatten", "cell")
            or self.position_embedding
            or self.relations.block.attention.fixed_entities
        ):
            return None, height, width, features
        return None, None, None, features

    def call(
        self, observation: Tensor, training: bool = False, every_entity: bool = False
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        check_grid(self.name, self._expected_shape, observation.shape, OBSERVATIONS)
        x = observation  # (B, height, width, F)
        for layer in self.grid_layers:
            is_dense = isinstance(layer, keras.layers.Dense)
            x = dense_on_rows(layer, x) if is_dense else layer(x)
        _, height, width, features = ops.shape(x)
        x = ops.reshape(x, (-1, height * width, features))  # (B, N, F)
        if self.positions is not None:
            x = self.positions(x)
        seen, entity = self.seen(observation), self._only_entity(width)
        if self.max_entities is not None and not every_entity:
            x, seen = self._gather(x, seen, self._of_nodes(observation, self.readout_feature) > 0.5)
            entity = 0
        entities, attention = self.relations(
            x,
            mask=None if seen is None else seen[:, None, None],
            grid=(height, width),
            entity=None if every_entity else entity,
            training=training,
            return_attention_scores=True,
        )
        return self._read(entities, width, observation), entities, attention

    def seen(self, observation: Tensor) -> Tensor | None:
        """Where attention may go: `(B, N)` bool, or `None` for everywhere."""
        if self.unseen_feature is None:
            return None
        return self._of_nodes(observation, self.unseen_feature) < 0.5

    def _of_nodes(self, observation, feature):
        """One feature of the observation for every node, `(B, N)`."""
        _, height, width, _ = ops.shape(observation)
        return ops.reshape(observation[..., feature], (-1, height * width))

    def _gather(self, x, seen, first):
        """The entities `(B, max_entities, F)` that count, `first` before the others, and which.

        A product with zeros and ones: on a CPU sooner than a sort and a gather, and exact.
        """
        others = ops.cast(ops.logical_and(seen, ops.logical_not(first)), "int32")
        place = ops.where(first, 0, ops.cumsum(others, axis=1))  # (B, N)
        chosen = ops.logical_and(
            place[:, None] == ops.arange(self.max_entities)[:, None],
            ops.logical_or(seen, first)[:, None],
        )  # (B, max_entities, N)
        return ops.matmul(ops.cast(chosen, x.dtype), x), ops.any(chosen, axis=-1)

    def _only_entity(self, width):
        """Index of the only node that the last round has to update, or `None`."""
        if self.readout != "cell" or self._relates_all:
            return None
        row, column = self.readout_cell
        return row * width + column

    def _read(self, nodes, width, observation):
        """One vector `(B, features)` from the nodes `(B, N, F)` of a grid of that width."""
        if self.readout == "max":
            return ops.max(nodes, axis=1)
        if self.readout == "cell":
            row, column = self.readout_cell
            return nodes[:, 0 if nodes.shape[1] == 1 else row * width + column]
        if self.readout == "feature":
            if nodes.shape[1] == 1:
                return nodes[:, 0]
            marked = ops.cast(self._of_nodes(observation, self.readout_feature), nodes.dtype)
            return ops.squeeze(ops.matmul(marked[:, None], nodes), axis=1)
        return ops.reshape(nodes, (-1, nodes.shape[1] * nodes.shape[2]))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "conv_filters": self.conv_filters,
            "conv_kernel_size": self.conv_kernel_size,
            "conv_padding": self.conv_padding,
            "conv_activation": keras.activations.serialize(self.conv_activation),
            "coordinates": self.coordinates and dict(self.coordinates),
            "position_embedding": self.position_embedding,
            "block": dict(self.block),
            "num_rounds": self.num_rounds,
            "share_weights": self.share_weights,
            "unseen_feature": self.unseen_feature,
            "readout": self.readout,
            "readout_cell": self.readout_cell,
            "readout_feature": self.readout_feature,
            "max_entities": self.max_entities,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


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
        self, observation: Tensor, training: bool = False, every_entity: bool = False
    ) -> tuple[Tensor, None, dict[str, Tensor]]:
        x = ops.reshape(observation, (-1, math.prod(observation.shape[1:])))
        for layer in self.dense:
            x = layer(x)
        return x, None, {}


def with_preparation(preparation: Any, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that a preparation settles, under those that were given."""
    arguments = dict(overrides)
    if preparation is not None:
        arguments.setdefault("unseen_feature", preparation.unseen_feature)
        for place in ("cell", "feature"):
            is_open = arguments.get("readout", place) == place and not _place(arguments)
            if is_open and f"readout_{place}" not in arguments:
                arguments[f"readout_{place}"] = getattr(preparation, f"agent_{place}")
    return {"readout": _place(arguments) or "max", **arguments}


def _place(arguments):
    """What the arguments say is read: `"cell"`, `"feature"`, or `None`."""
    places = ("cell", "feature")
    return next((name for name in places if arguments.get(f"readout_{name}") is not None), None)
