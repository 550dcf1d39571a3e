"""Define `RelationalQNetwork`, a Q network with attention between the cells of a grid."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras
from keras import ops

from rrl_tf._arguments import (
    integer,
    natural,
    one_of,
    optional_dict,
    optional_integer,
    optional_positive_int,
    positive_int,
    positive_ints,
)
from rrl_tf._typing import Activation, Initializer, Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers import PositionEmbedding, RandomShift
from rrl_tf.layers.base import dense_on_rows, make_dense, masked_softmax
from rrl_tf.layers.masks import without_removed
from rrl_tf.models.architectures import RELATIONAL_Q_NETWORK
from rrl_tf.models.base import build_in_turn, make_q_head, one_hot, q_values
from rrl_tf.models.image_model import (
    ImageModel,
    make_coordinates,
    make_relations,
    one_per_convolution,
)

CONV_PADDINGS = ("valid", "same", "top_left")
READOUTS = ("max", "flatten", "cell", "feature", "attention")


class RelationalEncoder(ImageModel):
    """Embed a grid by convolutions, rounds of message passing between the cells, and a readout.

    `RelationalQNetwork` is a subclass and documents the arguments. `RecurrentQNetwork` contains an
    encoder.

    Call arguments:
        observation: preprocessed observation `(B, height, width, F)`.
        training: whether to apply dropout.
        every_entity: whether the last round updates all entities even if the readout needs only
            one.
        removed: `(B, N)` bool, true for entities that no entity attends to in any round.

    Returns:
        A tuple of the readout `(B, read_size)`, the entities `(B, N, features)` and a dict
        `"round_1"`, `"round_2"`, ... -> attention. Without `every_entity`, if the readout needs one
        entity only, the entities are `(B, 1, features)` and the last round has one row of
        attention.
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
        readout_heads: int = 4,
        **kwargs: Any,
    ) -> None:
        one_of("readout", readout, READOUTS)
        for name, value in (("cell", readout_cell), ("feature", readout_feature)):
            if (value is not None) != (readout == name):
                raise InvalidInput(
                    f"`readout_{name}` must be given if and only if readout={name!r}; received "
                    f"{value!r} and readout={readout!r}"
                )
        super().__init__(**kwargs)
        self.conv_filters = positive_ints("conv_filters", conv_filters)
        count = len(self.conv_filters)
        self.conv_kernel_size = one_per_convolution("conv_kernel_size", conv_kernel_size, count)
        self.conv_strides = one_per_convolution("conv_strides", conv_strides, count)
        self.conv_pool = one_per_convolution("conv_pool", conv_pool, count)
        self.random_shift = natural("random_shift", random_shift)
        self.conv_padding = one_of("conv_padding", conv_padding, CONV_PADDINGS)
        self.conv_activation = keras.activations.get(conv_activation)
        self.coordinates = optional_dict("coordinates", coordinates)
        self.position_embedding = position_embedding
        self.block = optional_dict("block", block, {"num_heads": 2, "key_size": 16})
        self.num_rounds = positive_int("num_rounds", num_rounds)
        self.share_weights = share_weights
        self.unseen_feature = optional_integer("unseen_feature", unseen_feature)
        self.readout = readout
        self.readout_cell = None if readout_cell is None else _cell(readout_cell)
        self.readout_feature = optional_integer("readout_feature", readout_feature)
        self.max_entities = optional_positive_int("max_entities", max_entities)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.readout_heads = positive_int("readout_heads", readout_heads)
        self._check_max_entities()
        self.grid_layers = [*self._convolutions(), *make_coordinates(self)]
        self.positions = None
        if self.position_embedding:
            self.positions = PositionEmbedding(dtype=self.dtype_policy, name="positions")
        self.relations = make_relations(self)

    def _check_max_entities(self):
        """Raise an `InvalidInput` if `max_entities` could change the Q values."""
        if self.max_entities is None:
            return
        relates_all = self._relates_all or self._norms_all
        unfit = {
            "unseen_feature": self.unseen_feature is None,
            "readout": self.readout not in ("cell", "feature"),
            "block": relates_all or self.block.get("max_offset") is not None,
        }
        for name in (name for name, is_unfit in unfit.items() if is_unfit):
            raise InvalidInput(
                "`max_entities` must be None without an `unseen_feature`, a readout of 'cell' or "
                "'feature', and a block without joint norm, additive scores and `max_offset`; "
                f"received {name}={getattr(self, name)!r}"
            )

    @property
    def _relates_all(self):
        """Whether every output depends on all entities, even on those it does not attend to."""
        return self.block.get("norm") == "joint" or self.block.get("score") == "book_additive"

    @property
    def _norms_all(self):
        """Whether a norm makes every output depend on entities that no entity attends to."""
        return "joint" in (self.block.get("norm"), self.block.get("qkv_norm"))

    def _convolutions(self):
        if self.random_shift:
            yield RandomShift(self.random_shift, dtype=self.dtype_policy)
        sizes = (self.conv_filters, self.conv_kernel_size, self.conv_strides, self.conv_pool)
        for i, (filters, kernel_size, strides, pool) in enumerate(zip(*sizes), start=1):
            padding = self.conv_padding
            if padding == "top_left":
                zeros = (kernel_size - 1, 0)
                yield keras.layers.ZeroPadding2D((zeros, zeros), dtype=self.dtype_policy)
                padding = "valid"
            name, activation = f"convolution_{i}", self.conv_activation
            yield self._convolution(name, filters, kernel_size, strides, padding, activation)
            if pool > 1:
                yield keras.layers.MaxPooling2D(pool, dtype=self.dtype_policy)

    def build(self, observation_shape: Shape) -> None:
        self._build_grid(observation_shape)
        nodes_shape = self._nodes_shape(observation_shape)
        if self.positions is not None:
            self.positions.build(nodes_shape)
        self.relations.build(nodes_shape)
        _, nodes, features = self.entities_shape(observation_shape)
        for argument in ("unseen_feature", "readout_feature"):
            self._check_feature(argument, observation_shape[-1])
        self._check_readout(observation_shape)
        copies = {"flatten": nodes, "attention": self.readout_heads}.get(self.readout, 1)
        self.read_size = copies * features
        self.read_scores = None
        if self.readout == "attention":
            self.read_scores = make_dense(
                self, "read_scores", copies, features, full_precision=True
            )
        has_fixed_size = (
            self.readout in ("flatten", "cell")
            or self.position_embedding
            or self.relations.block.attention.fixed_entities
        )
        self._expect(observation_shape, any_size=not has_fixed_size)

    def entities_shape(self, observation_shape: Shape) -> Shape:
        """Return the shape `(B, N, features)` of the entities after the last round."""
        return self.relations.compute_output_shape(self._nodes_shape(observation_shape))

    def _check_readout(self, observation_shape):
        if self.readout in ("max", "feature", "attention"):
            return
        height, width = self.grid_shape(observation_shape)
        if None in (height, width):
            raise InvalidInput(
                f"readout={self.readout!r} must have a grid of known size; "
                f"received the shape {tuple(observation_shape)}"
            )
        if self.readout == "cell":
            row, column = self.readout_cell
            if not (0 <= row < height and 0 <= column < width):
                raise InvalidInput(
                    f"`readout_cell` must be a (row, column) inside the {height} x {width} grid; "
                    f"received {self.readout_cell}"
                )

    def _check_feature(self, argument, features):
        feature = getattr(self, argument)
        if feature is None:
            return
        if not 0 <= feature < features:
            raise InvalidInput(
                f"`{argument}` must be one of the {features} features of the observation; "
                f"received {feature!r}"
            )
        narrowing = {*self.conv_strides, *self.conv_pool}
        if self.conv_padding == "valid":
            narrowing.update(self.conv_kernel_size)
        if narrowing != {1}:
            raise InvalidInput(
                f"`{argument}` must have convolutions that keep the size of the grid; received "
                f"conv_kernel_size={self.conv_kernel_size}, conv_padding={self.conv_padding!r}, "
                f"conv_strides={self.conv_strides}, conv_pool={self.conv_pool}"
            )

    def call(
        self,
        observation: Tensor,
        training: bool = False,
        every_entity: bool = False,
        removed: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        self.grid_shape(observation.shape)  # Keras raises an error for a grid that is too small
        x = self._cells(observation, training)
        _, height, width, features = ops.shape(x)
        x = ops.reshape(x, (-1, height * width, features))  # (B, N, F)
        if self.positions is not None:
            x = self.positions(x)
        visible, entity = self.visible(observation, removed), self._only_entity(width)
        if self.max_entities is not None:
            first = self._is_read(observation, width)
            if every_entity:  # attend only to entities that a call without it would gather
                visible = ops.logical_and(visible, self._slots(visible, first) >= 0)
            else:
                x, visible = self._gather(x, visible, first)
                entity = 0
        entities, attention = self.relations(
            x,
            mask=None if visible is None else visible[:, None, None],
            grid=(height, width),
            entity=None if every_entity else entity,
            training=training,
            return_attention_scores=True,
        )
        if self.read_scores is not None:
            read, attention["readout"] = self._attend(entities, visible)
            return read, entities, attention
        return self._read(entities, width, observation), entities, attention

    def _attend(self, nodes, visible):
        """Return the readout of learned queries, and their attention `(B, readout_heads, 1, N)`.

        Both are 0 if no entity is visible.
        """
        scores = dense_on_rows(self.read_scores, nodes)
        visible = None if visible is None else visible[:, None]
        weights = masked_softmax(ops.transpose(scores, (0, 2, 1)), visible)
        read = ops.matmul(ops.cast(weights, nodes.dtype), nodes)
        return ops.reshape(read, (-1, self.read_size)), weights[:, :, None]

    def visible(self, observation: Tensor, removed: Tensor | None = None) -> Tensor | None:
        """Return the mask `(B, N)` of entities that may be attended to, or `None` for all."""
        visible = None
        if self.unseen_feature is not None:
            visible = self._of_nodes(observation, self.unseen_feature) < 0.5
        if removed is None:
            return visible
        if self._norms_all:
            raise InvalidInput(
                "`removed` must be None for a block with a joint norm, through which removed "
                f"entities would still have an effect; received block={self.block!r}"
            )
        return without_removed(visible, removed, self._nodes_shape(observation.shape)[:2])

    def _of_nodes(self, observation, feature):
        """Return one feature of the observation for every entity, `(B, N)`."""
        _, height, width, _ = ops.shape(observation)
        return ops.reshape(observation[..., feature], (-1, height * width))

    def _gather(self, x, visible, first):
        """Return the visible entities `(B, max_entities, F)`, where `first` is at 0, and a mask.

        On a CPU, a matrix product with zeros and ones is faster than a sort and a gather, and it is
        exact.
        """
        slots = self._slots(visible, first)
        chosen = one_hot(slots, self.max_entities, x.dtype, axis=1)
        row = ops.arange(self.max_entities)[None]
        first_visible = ops.any(ops.logical_and(visible, first), axis=1, keepdims=True)
        is_used = row <= ops.max(slots, axis=1, keepdims=True)
        return ops.matmul(chosen, x), ops.where(row == 0, first_visible, is_used)

    def _slots(self, visible, first):
        """Return the index of each entity after `_gather`, `(B, N)`: 0 for `first`, -1 for none."""
        others = ops.logical_and(visible, ops.logical_not(first))
        counted = ops.cumsum(ops.cast(others, "int32"), axis=1)
        slots = ops.where(first, 0, ops.where(others, counted, -1))
        return ops.where(slots < self.max_entities, slots, -1)  # PyTorch's one-hot checks the bound

    def _only_entity(self, width):
        """Return the index of the only entity that the last round has to update, or `None`."""
        if self.readout != "cell" or self._relates_all:
            return None
        return self._read_index(width)

    def _read_index(self, width):
        """Return the index of the entity of `readout_cell`."""
        row, column = self.readout_cell
        return row * width + column

    def _is_read(self, observation, width):
        """Return a mask of the entity that the readout needs, `(B, N)` or `(1, N)`."""
        if self.readout == "feature":
            return self._of_nodes(observation, self.readout_feature) > 0.5
        _, height, width, _ = ops.shape(observation)
        return ops.arange(height * width)[None] == self._read_index(width)

    def _read(self, nodes, width, observation):
        """Return the readout `(B, read_size)` of entities `(B, N, F)`, for a grid of this width."""
        if self.readout == "max":
            return ops.max(nodes, axis=1)
        if self.readout == "cell":
            return nodes[:, 0 if nodes.shape[1] == 1 else self._read_index(width)]
        if self.readout == "feature":
            marked = ops.cast(self._of_nodes(observation, self.readout_feature), nodes.dtype)
            if nodes.shape[1] == 1:
                return nodes[:, 0] * ops.max(marked, axis=1, keepdims=True)  # 0 if none is marked
            return ops.squeeze(ops.matmul(marked[:, None], nodes), axis=1)
        return ops.reshape(nodes, (-1, nodes.shape[1] * nodes.shape[2]))


@keras.saving.register_keras_serializable(package="rrl_tf")
class RelationalQNetwork(RelationalEncoder, architectures=RELATIONAL_Q_NETWORK):
    """Compute Q values of a grid observation by attention between the cells of the grid.

    Convolutions turn every cell, or every patch of an image, into an entity. Coordinates or learned
    vectors encode its position. Rounds of message passing update the entities. A readout reduces
    them to one vector, which a dense network maps to the Q values. If the convolutions keep the
    size, cell (row, column) of an input `(B, height, width, F)` is entity `row * width + column`.

    Args:
        num_actions: A, the number of actions.
        conv_filters: channels of each convolution.
        hidden_units: sizes of the ReLU layers after the readout.
        dueling: whether the Q values are `V + A - mean(A)`, from the value of the state and the
            advantages of the actions (Wang et al., 2016).
        output_activation: activation of the Q values.
        **kwargs: other arguments of the encoder:

            - `conv_kernel_size`: edge of the kernels in cells: an int for all convolutions, or a
              sequence with one size for each.
            - `conv_padding`: `"valid"`; or, to keep the size, `"same"` (zeros on all sides) or
              `"top_left"` (zeros above and to the left).
            - `conv_activation`: activation of the convolutions.
            - `coordinates`: arguments of `AppendCoordinates`, or `None` for no coordinates.
            - `position_embedding`: whether to add a learned vector for every cell.
            - `block`: arguments of `RelationalBlock`. With a `max_offset`, the model learns a bias
              for the offset between two cells and works on grids of any size.
            - `num_rounds`: number of rounds of message passing.
            - `share_weights`: whether the rounds share their weights.
            - `unseen_feature`: index of the observation's feature that is 1 in an invisible cell.
              Entities attend to visible cells only. `None` means that all cells are visible.
            - `readout`: one of `"max"`, the maximum of every feature over the entities, whose
              number may vary; `"flatten"`, all entities; `"cell"`, only the entity of
              `readout_cell`, so that information about other cells must reach it by attention;
              `"feature"`, only the entity that `readout_feature` marks; `"attention"`, a weighted
              mean of the visible entities for each of `readout_heads` learned queries, or 0 if no
              entity is visible.
            - `readout_cell`: (row, column) of the cell in the grid after the convolutions.
            - `kernel_initializer`: initialiser of every matrix.
            - `readout_feature`: index of the observation's feature that is 1 in the cell of the
              agent and 0 elsewhere.
            - `max_entities`: upper bound of the number of visible cells; requires an
              `unseen_feature`. The model then computes only this number of entities, unless the
              call returns attention. The Q values are the same. If more cells are visible, the
              last ones are left out.
            - `conv_strides`: stride of the convolutions: an int, or a sequence.
            - `conv_pool`: edge of the max-pooling after the convolutions: an int, or a sequence. 1
              means no pooling.
            - `random_shift`: largest random shift of observations in training, in cells
              (`RandomShift`).
            - `readout_heads`: number of learned queries of the readout `"attention"`.

    Call arguments:
        observation: preprocessed observation `(B, height, width, F)`.
        training: whether to apply dropout and shift observations.
        return_attention_scores: whether to return the attention as well.
        removed: `(B, N)` bool, true for entities that no entity attends to in any round. The
            readout still includes them. `None` means that no entities are removed.

    Returns:
        Q values `(B, A)`, float32 also under a mixed-precision policy. With
        `return_attention_scores`, a pair of the Q values and a dict `"round_1"`, `"round_2"`, ...
        -> attention `(B, H, N, N)`. The readout `"attention"` adds its own attention under
        `"readout"`, `(B, readout_heads, 1, N)`.

    Raises:
        InvalidInput: for an argument out of its range, or an observation of a wrong shape.

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
        *,
        hidden_units: Sequence[int] = (64,),
        dueling: bool = False,
        output_activation: Activation = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(conv_filters, **kwargs)
        self.num_actions = positive_int("num_actions", num_actions)
        self.hidden_units = positive_ints("hidden_units", hidden_units)
        self.dueling = dueling
        self.output_activation = keras.activations.get(output_activation)
        self.hidden, self.head = make_q_head(self, self.num_actions, self.hidden_units, dueling)

    def build(self, observation_shape: Shape) -> None:
        super().build(observation_shape)
        build_in_turn([*self.hidden, self.head], (None, self.read_size))

    def call(  # type: ignore[override]  # an encoder returns more
        self,
        observation: Tensor,
        training: bool = False,
        return_attention_scores: bool = False,
        removed: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, dict[str, Tensor]]:
        # Returned attention has the rows of all entities, even if the readout needs only one.
        x, _, attention = super().call(observation, training, return_attention_scores, removed)
        q = self.output_activation(q_values([*self.hidden, self.head], x, self.dueling))
        return (q, attention) if return_attention_scores else q

    @classmethod
    def from_preset(  # type: ignore[override]  # the preprocessor comes second
        cls, name: str | os.PathLike, preprocessor: Any = None, **overrides: Any
    ) -> Self:
        """Return a named architecture with new weights, or a pretrained model.

        A preprocessor sets `unseen_feature` of `"grid"`, `"fast"` and `"fast-relative"`, and the
        readout of the last two. Other architectures do not use it. The readout is the agent's cell,
        which is fixed or marked by a feature, or `"max"` if the preprocessor has neither. Without a
        preprocessor, all cells are visible and the readout is `"max"`. The weights have the same
        shapes in all these cases.

        Args:
            name: as in `BaseModel.from_preset`.
            preprocessor: object with the attributes `unseen_feature` (index or `None`),
                `agent_cell` ((row, column) or `None`) and `agent_feature` (index or `None`), such
                as the `preprocessor` of a task.
            **overrides: `load_weights`, and arguments that replace those of the architecture and
                the preprocessor; see `BaseModel.from_preset`.

        Raises:
            InvalidInput: if the name is unknown; the message lists the known names.

        Example:

        >>> model = RelationalQNetwork.from_preset("fast", readout_cell=(3, 6), unseen_feature=0)
        >>> model.readout
        'cell'
        """
        architecture = RELATIONAL_Q_NETWORK.get(str(name), {})
        if architecture.get("takes_preprocessor"):
            config = architecture["config"]
            fixed = {"readout": config["readout"]} if "readout" in config else {}
            overrides = with_preprocessor(preprocessor, {**fixed, **overrides})
        return super().from_preset(name, **overrides)


def _cell(place):
    """Return a `readout_cell` as two ints, or raise an `InvalidInput`."""
    if not isinstance(place, Sequence) or isinstance(place, str) or len(place) != 2:
        raise InvalidInput(f"`readout_cell` must be a (row, column); received {place!r}")
    row, column = (integer("readout_cell", each) for each in place)
    return row, column


def with_preprocessor(preprocessor: Any, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Add the arguments that a preprocessor determines to the arguments of an encoder."""
    arguments = dict(overrides)
    if preprocessor is not None:
        arguments.setdefault("unseen_feature", preprocessor.unseen_feature)
        for place in ("cell", "feature"):
            is_open = arguments.get("readout", place) == place and not _place(arguments)
            if is_open and f"readout_{place}" not in arguments:
                arguments[f"readout_{place}"] = getattr(preprocessor, f"agent_{place}")
    return {"readout": _place(arguments) or "max", **arguments}


def _place(arguments):
    """Return the readout that the arguments imply: `"cell"`, `"feature"`, or `None`."""
    places = ("cell", "feature")
    return next((name for name in places if arguments.get(f"readout_{name}") is not None), None)
