"""From a grid to the value of every action, by way of relations between its cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

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
from rrl_tf.layers._shapes import dense_on_rows, tensor_spec
from rrl_tf.models._grids import check_grid, check_grid_shape, dense
from rrl_tf.models.presets import RELATIONAL_Q_NETWORK, FromPreset

OBSERVATIONS = "observations (B, height, width, F)"
CONV_PADDINGS = ("valid", "top_left")
READOUTS = ("max", "flatten", "cell")


@keras.saving.register_keras_serializable(package="rrl_tf")
class RelationalQNetwork(FromPreset, keras.Model, presets=RELATIONAL_Q_NETWORK):
    """Values the actions in a grid world by letting the grid's cells attend to each other.

    Convolutions make an entity of every cell, coordinates or learned positions tell it where it is,
    rounds of message passing relate the entities, and a readout turns all of them into one vector
    for a dense network. Cell (row, column) of an input `(B, height, width, F)` is node
    `row * width + column`, where convolutions keep the size.

    Args:
        num_actions: A, the number of actions.
        conv_filters: channels of each convolution.
        conv_kernel_size: edge of the convolutions' kernels, in cells.
        conv_padding: `"valid"`, or `"top_left"` to keep the size by zeros above and to the left.
        conv_activation: activation of the convolutions.
        coordinates: arguments of `AppendCoordinates`, or `None` for no coordinates.
        position_embedding: whether to add a learned vector for every cell.
        block: arguments of `RelationalBlock`.
        num_rounds: rounds of message passing.
        share_weights: whether the rounds share their weights.
        unseen_feature: index of the feature of an observation that is 1 where a cell is out of
            sight; nothing attends to such a cell. `None` lets every cell be attended to.
        readout: `"max"` over the nodes of every feature (any number of nodes), `"flatten"`, or
            `"cell"`: only `readout_cell`, so that what the Q values know of the other cells has
            reached it by attention.
        readout_cell: (row, column) of that cell, after the convolutions.
        hidden_units: sizes of the ReLU layers after the readout.
        dueling: whether Q is made of the value of the state and centred advantages, as
            `V + A - mean(A)` (Wang et al., 2016).
        output_activation: activation of the Q values.
        kernel_initializer: initialiser of every matrix.

    Call arguments:
        observation: prepared observation `(B, height, width, F)`.
        training: whether to apply dropout.
        return_attention_scores: whether to return the attention as well.

    Returns:
        Q values `(B, A)`, float32 also under a mixed policy; with `return_attention_scores`, a pair
        of them and a dict `"round_1"`, `"round_2"`, ... -> attention `(B, H, N, N)`.

    Raises:
        InvalidInput: for an argument out of its range, or an observation that is no such grid.

    Example:

    >>> model = RelationalQNetwork.from_preset("book", num_actions=5)
    >>> q, attention = model(keras.ops.ones((1, 7, 7, 3)), return_attention_scores=True)
    >>> tuple(q.shape), tuple(attention["round_1"].shape), model.count_params()
    ((1, 5), (1, 3, 49, 49), 91597)

    References:
        - [Zambaldi et al., 2019](https://arxiv.org/abs/1806.01830)
        - [Wang et al., 2016](https://arxiv.org/abs/1511.06581)
        - "Deep Reinforcement Learning in Action", chapter 10
    """

    def __init__(
        self,
        num_actions: int,
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
        hidden_units: Sequence[int] = (64,),
        dueling: bool = False,
        output_activation: Activation = None,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        one_of("readout", readout, READOUTS)
        if (readout_cell is not None) != (readout == "cell"):
            raise InvalidInput(
                f"`readout_cell` goes with readout='cell', here {readout!r}; "
                f"received {readout_cell!r}"
            )
        super().__init__(**kwargs)
        self.num_actions = positive_int("num_actions", num_actions)
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
        self.hidden_units = positive_ints("hidden_units", hidden_units)
        self.dueling = dueling
        self.output_activation = keras.activations.get(output_activation)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self._make_layers()

    def _make_layers(self):
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
        self.hidden = [
            dense(self, f"hidden_{i}", units, "relu")
            for i, units in enumerate(self.hidden_units, start=1)
        ]
        # With a dueling head, the first column is the value of the state.
        columns = self.num_actions + (1 if self.dueling else 0)
        self.head = dense(self, "head", columns, full_precision=True)

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
        check_grid_shape("RelationalQNetwork", observation_shape, OBSERVATIONS)
        shape = tuple(observation_shape)
        for layer in self.grid_layers:
            layer.build(shape)
            shape = layer.compute_output_shape(shape)
        shape = self._nodes_shape(observation_shape)
        if self.positions is not None:
            self.positions.build(shape)
        self.relations.build(shape)
        shape = self.relations.compute_output_shape(shape)
        self._check_unseen(observation_shape)
        self._check_readout(observation_shape)
        features = shape[1] * shape[2] if self.readout == "flatten" else shape[2]
        for layer in [*self.hidden, self.head]:
            layer.build((None, features))
            features = layer.units
        self._expected_shape = self._shape_to_expect(observation_shape)

    def _check_readout(self, observation_shape):
        if self.readout == "max":
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

    def _check_unseen(self, observation_shape):
        if self.unseen_feature is None:
            return
        _, *grid, features = observation_shape
        if not 0 <= self.unseen_feature < features:
            raise InvalidInput(
                f"`unseen_feature` must be one of the {features} features of the observation; "
                f"received {self.unseen_feature!r}"
            )
        if list(self._grid_shape(observation_shape)[1:3]) != grid:
            raise InvalidInput(
                "`unseen_feature` needs convolutions that keep the size of the grid; received "
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
            self.readout != "max"
            or self.position_embedding
            or self.relations.block.attention.fixed_entities
        ):
            return None, height, width, features
        return None, None, None, features

    def call(
        self, observation: Tensor, training: bool = False, return_attention_scores: bool = False
    ) -> Tensor | tuple[Tensor, dict[str, Tensor]]:
        check_grid(self.name, self._expected_shape, observation.shape, OBSERVATIONS)
        x = observation  # (B, height, width, F)
        for layer in self.grid_layers:
            is_dense = isinstance(layer, keras.layers.Dense)
            x = dense_on_rows(layer, x) if is_dense else layer(x)
        _, height, width, features = ops.shape(x)
        x = ops.reshape(x, (-1, height * width, features))  # (B, N, F)
        if self.positions is not None:
            x = self.positions(x)
        x, attention = self.relations(
            x,
            mask=self._seen(observation),
            # Whoever looks at the attention wants all rows, also where one cell is read.
            entity=None if return_attention_scores else self._only_entity(width),
            training=training,
            return_attention_scores=True,
        )
        x = self._read(x, width)
        for layer in self.hidden:
            x = layer(x)
        q = self.output_activation(self._duel(self.head(x)))
        return (q, attention) if return_attention_scores else q

    def _seen(self, observation):
        """Where attention may go: `(B, 1, 1, N)`, or `None` for everywhere."""
        if self.unseen_feature is None:
            return None
        _, height, width, _ = ops.shape(observation)
        unseen = ops.reshape(observation[..., self.unseen_feature], (-1, 1, 1, height * width))
        return unseen < 0.5

    def _only_entity(self, width):
        """Index of the only node that the last round has to update, or `None`."""
        needs_all = self.block.get("norm") == "joint" or self.block.get("score") == "book_additive"
        if self.readout != "cell" or needs_all:
            return None
        row, column = self.readout_cell
        return row * width + column

    def _read(self, nodes, width):
        """One vector `(B, features)` from the nodes `(B, N, F)` of a grid of that width."""
        if self.readout == "max":
            return ops.max(nodes, axis=1)
        if self.readout == "cell":
            row, column = self.readout_cell
            return nodes[:, 0 if nodes.shape[1] == 1 else row * width + column]
        return ops.reshape(nodes, (-1, nodes.shape[1] * nodes.shape[2]))

    def _duel(self, outputs):
        if not self.dueling:
            return outputs
        value, advantage = outputs[:, :1], outputs[:, 1:]
        return value + advantage - ops.mean(advantage, axis=1, keepdims=True)

    def compute_output_shape(self, observation_shape: Shape) -> Shape:
        return (observation_shape[0], self.num_actions)

    def compute_output_spec(
        self, observation: Tensor, training: bool = False, return_attention_scores: bool = False
    ) -> keras.KerasTensor | tuple[keras.KerasTensor, dict[str, keras.KerasTensor]]:
        q = tensor_spec(self.head, self.compute_output_shape(observation.shape))
        if not return_attention_scores:
            return q
        nodes = keras.KerasTensor(self._nodes_shape(observation.shape), dtype=self.compute_dtype)
        _, attention = self.relations.compute_output_spec(nodes, return_attention_scores=True)
        return q, attention

    @classmethod
    def from_preset(cls, name: str, preparation: Any = None, **overrides: Any) -> Self:
        """A network with a published configuration, or ours, and new weights.

        What an observation holds, its preparation knows: `"fast"` hides the cells that the
        preparation says are out of sight, and reads the agent's cell, or by `"max"` where the
        preparation knows none. Without a preparation it hides nothing and reads by `"max"`. The
        weights are the same in number and shape either way. The other presets do not ask.

        Args:
            name: one of `presets`, which says what each of them is; `rrl_tf.models.presets` has
                their numbers and sources.
            preparation: what has an `unseen_feature` (index or `None`) and an `agent_cell`
                ((row, column) or `None`), as `rrl_tf.envs.Preparation`.
            **overrides: arguments that replace the preset's and the preparation's. A dict
                (`block=`, `coordinates=`) replaces single entries of the preset's dict.

        Raises:
            InvalidInput: for an unknown name; it lists the known ones.

        Example:

        >>> model = RelationalQNetwork.from_preset("fast", readout_cell=(3, 6), unseen_feature=0)
        >>> model.readout
        'cell'
        """
        if RELATIONAL_Q_NETWORK.get(name, {}).get("takes_preparation"):
            overrides = _with_preparation(preparation, overrides)
        return super().from_preset(name, **overrides)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_actions": self.num_actions,
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
            "hidden_units": self.hidden_units,
            "dueling": self.dueling,
            "output_activation": keras.activations.serialize(self.output_activation),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


def _with_preparation(preparation, overrides):
    """The arguments that a preparation settles, under those that were given."""
    arguments = dict(overrides)
    if preparation is not None:
        arguments.setdefault("unseen_feature", preparation.unseen_feature)
        if arguments.get("readout", "cell") == "cell":
            arguments.setdefault("readout_cell", preparation.agent_cell)
    cell = arguments.get("readout_cell")
    return {"readout": "max" if cell is None else "cell", **arguments}
