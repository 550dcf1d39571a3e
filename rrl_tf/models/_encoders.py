"""What Q networks make of an observation before they value actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import (
    integer,
    number_from,
    one_of,
    optional_dict,
    optional_integer,
    positive_int,
    positive_ints,
)
from rrl_tf._typing import Activation, Initializer, Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers import (
    AppendCoordinates,
    PositionEmbedding,
    RandomShift,
    RelationalBlock,
    RelationalModule,
)
from rrl_tf.layers._masks import without_removed
from rrl_tf.layers._shapes import dense_on_rows
from rrl_tf.models._grids import (
    OnGrid,
    cell_of,
    check_grid,
    check_grid_shape,
    check_room,
    convolutions,
    keeps_size,
    layer_of,
)

OBSERVATIONS = "observations (B, height, width, F)"
CONV_PADDINGS = ("valid", "same", "top_left")
READOUTS = ("max", "flatten", "cell", "feature")


class RelationalEncoder(OnGrid, keras.Model):
    """What the Q networks of grids share: cells, their relations, and what is read of them.

    `RelationalQNetwork` is one, and documents the arguments; `RecurrentQNetwork` has one.

    Call arguments:
        observation: preprocessed observation `(B, height, width, F)`.
        training: whether to apply dropout.
        every_entity: whether the last round updates all entities, also where one cell is read.
        removed: `(B, N)` bool, entities that nothing attends to in any round.

    Returns:
        What is read `(B, read_size)`; the entities `(B, N, features)`, or the only one that is
        read `(B, 1, features)`; and a dict `"round_1"`, `"round_2"`, ... -> attention, of which
        the last has a row for each of these entities.
    """

    def __init__(
        self,
        conv_filters: Sequence[int] = (32,),
        conv_kernel_size: int | Sequence[int] = 1,
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
        conv_strides: int | Sequence[int] = 1,
        conv_pool: int | Sequence[int] = 1,
        random_shift: int = 0,
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
        self.conv_kernel_size = conv_kernel_size
        self.conv_strides = conv_strides
        self.conv_pool = conv_pool
        self.random_shift = number_from("random_shift", integer("random_shift", random_shift), 0)
        self.conv_padding = one_of("conv_padding", conv_padding, CONV_PADDINGS)
        self.conv_activation = keras.activations.get(conv_activation)
        self.coordinates = optional_dict("coordinates", coordinates)
        self.position_embedding = position_embedding
        block = optional_dict("block", block)
        self.block = {"num_heads": 2, "key_size": 16} if block is None else block
        self.num_rounds = positive_int("num_rounds", num_rounds)
        self.share_weights = share_weights
        self.unseen_feature = optional_integer("unseen_feature", unseen_feature)
        self.readout = readout
        self.readout_cell = None if readout_cell is None else cell_of(readout_cell)
        self.readout_feature = optional_integer("readout_feature", readout_feature)
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
            "readout": self.readout not in ("cell", "feature"),
            "block": self._relates_all
            or self._norms_all
            or self.block.get("max_offset") is not None,
        }
        for name in (name for name, is_unfit in unfit.items() if is_unfit):
            raise InvalidInput(
                "`max_entities` goes with an `unseen_feature`, a readout of 'cell' or 'feature', "
                "and a block without joint norm, additive scores or `max_offset`; "
                f"received {name}={getattr(self, name)!r}"
            )

    @property
    def _relates_all(self):
        """Whether no entity has an output alone."""
        return self.block.get("norm") == "joint" or self.block.get("score") == "book_additive"

    @property
    def _norms_all(self):
        """Whether entities count that nothing attends to: through a norm."""
        return "joint" in (self.block.get("norm"), self.block.get("qkv_norm"))

    def _make_relations(self):
        self.grid_layers = convolutions(self)
        if self.coordinates is not None:
            ours = {"dtype": self.dtype_policy}
            layer = layer_of("coordinates", AppendCoordinates, self.coordinates, **ours)
            self.grid_layers.append(layer)
        self.positions = None
        if self.position_embedding:
            self.positions = PositionEmbedding(dtype=self.dtype_policy, name="positions")
        self.relations = RelationalModule(
            layer_of(
                "block",
                RelationalBlock,
                self.block,
                kernel_initializer=self.kernel_initializer.clone(),
                dtype=self.dtype_policy,
                name="block",
            ),
            num_rounds=self.num_rounds,
            share_weights=self.share_weights,
            dtype=self.dtype_policy,
            name="relations",
        )

    def build(self, observation_shape: Shape) -> None:
        check_grid_shape(type(self).__name__, observation_shape, OBSERVATIONS)
        shape = tuple(observation_shape)
        for layer in self.grid_layers:
            check_room(layer, shape)
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
        height, width = self.grid_shape(observation_shape)
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
        features = observation_shape[-1]
        if not 0 <= feature < features:
            raise InvalidInput(
                f"`{argument}` must be one of the {features} features of the observation; "
                f"received {feature!r}"
            )
        if not keeps_size(self):
            raise InvalidInput(
                f"`{argument}` needs convolutions that keep the size of the grid; received "
                f"conv_kernel_size={self.conv_kernel_size}, conv_padding={self.conv_padding!r}, "
                f"conv_strides={self.conv_strides}, conv_pool={self.conv_pool}"
            )

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
        self,
        observation: Tensor,
        training: bool = False,
        every_entity: bool = False,
        removed: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        check_grid(self.name, self._expected_shape, observation.shape, OBSERVATIONS)
        x = observation  # (B, height, width, F)
        for layer in self.grid_layers:
            check_room(layer, x.shape)
            if isinstance(layer, keras.layers.Dense):
                x = dense_on_rows(layer, x)
            else:
                x = layer(x, training=training) if isinstance(layer, RandomShift) else layer(x)
        _, height, width, features = ops.shape(x)
        x = ops.reshape(x, (-1, height * width, features))  # (B, N, F)
        if self.positions is not None:
            x = self.positions(x)
        seen, entity = self.seen(observation, removed), self._only_entity(width)
        if self.max_entities is not None:
            first = self._is_read(observation, width)
            if every_entity:  # the same are related as without the others
                seen = ops.logical_and(seen, self._places(seen, first) >= 0)
            else:
                x, seen = self._gather(x, seen, first)
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

    def seen(self, observation: Tensor, removed: Tensor | None = None) -> Tensor | None:
        """Where attention may go: `(B, N)` bool, or `None` for everywhere."""
        seen = None
        if self.unseen_feature is not None:
            seen = self._of_nodes(observation, self.unseen_feature) < 0.5
        if removed is None:
            return seen
        if self._norms_all:
            raise InvalidInput(
                "`removed` goes with a block without a joint norm, through which what is removed "
                f"would count still; received block={self.block!r}"
            )
        return without_removed(seen, removed, self._nodes_shape(observation.shape)[:2])

    def _of_nodes(self, observation, feature):
        """One feature of the observation for every node, `(B, N)`."""
        _, height, width, _ = ops.shape(observation)
        return ops.reshape(observation[..., feature], (-1, height * width))

    def _gather(self, x, seen, first):
        """The entities `(B, max_entities, F)` that count, `first` before the others, and which.

        A product with zeros and ones: on a CPU sooner than a sort and a gather, and exact.
        """
        place = self._places(seen, first)
        chosen = ops.one_hot(place, self.max_entities, axis=1, dtype=x.dtype)
        row = ops.arange(self.max_entities)[None]
        first_seen = ops.any(ops.logical_and(seen, first), axis=1, keepdims=True)
        is_seen = ops.where(row == 0, first_seen, row <= ops.max(place, axis=1, keepdims=True))
        return ops.matmul(chosen, x), is_seen

    def _places(self, seen, first):
        """Which of the `max_entities` each node is, 0 for the `first`, or -1: `(B, N)`."""
        others = ops.logical_and(seen, ops.logical_not(first))
        counted = ops.cumsum(ops.cast(others, "int32"), axis=1)
        place = ops.where(first, 0, ops.where(others, counted, -1))
        return ops.where(place < self.max_entities, place, -1)  # PyTorch's one-hot refuses more

    def _only_entity(self, width):
        """Index of the only node that the last round has to update, or `None`."""
        if self.readout != "cell" or self._relates_all:
            return None
        return self._read_index(width)

    def _read_index(self, width):
        """Index of the node of `readout_cell`."""
        row, column = self.readout_cell
        return row * width + column

    def _is_read(self, observation, width):
        """Which node is read, `(B, N)` or `(1, N)` bool."""
        if self.readout == "feature":
            return self._of_nodes(observation, self.readout_feature) > 0.5
        _, height, width, _ = ops.shape(observation)
        return ops.arange(height * width)[None] == self._read_index(width)

    def _read(self, nodes, width, observation):
        """One vector `(B, features)` from the nodes `(B, N, F)` of a grid of that width."""
        if self.readout == "max":
            return ops.max(nodes, axis=1)
        if self.readout == "cell":
            return nodes[:, 0 if nodes.shape[1] == 1 else self._read_index(width)]
        if self.readout == "feature":
            marked = ops.cast(self._of_nodes(observation, self.readout_feature), nodes.dtype)
            if nodes.shape[1] == 1:
                return nodes[:, 0] * ops.max(marked, axis=1, keepdims=True)  # 0 where none is
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
            "conv_strides": self.conv_strides,
            "conv_pool": self.conv_pool,
            "random_shift": self.random_shift,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


def with_preprocessor(preprocessor: Any, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that a preprocessor settles, under those that were given."""
    arguments = dict(overrides)
    if preprocessor is not None:
        arguments.setdefault("unseen_feature", preprocessor.unseen_feature)
        for place in ("cell", "feature"):
            is_open = arguments.get("readout", place) == place and not _place(arguments)
            if is_open and f"readout_{place}" not in arguments:
                arguments[f"readout_{place}"] = getattr(preprocessor, f"agent_{place}")
    return {"readout": _place(arguments) or "max", **arguments}


def _place(arguments):
    """What the arguments say is read: `"cell"`, `"feature"`, or `None`."""
    places = ("cell", "feature")
    return next((name for name in places if arguments.get(f"readout_{name}") is not None), None)
