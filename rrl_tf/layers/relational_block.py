"""One round of message passing between entities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import one_of, optional_positive_int, positive_ints
from rrl_tf._typing import Activation, Initializer, Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers._layer_norm import LayerNormalization
from rrl_tf.layers._masks import carry_mask, check_entity, edge_mask, padding_mask
from rrl_tf.layers._shapes import dense_on_rows, tensor_spec
from rrl_tf.layers.multi_head_dot_product_attention import MultiHeadDotProductAttention
from rrl_tf.layers.relative_position_bias import RelativePositionBias, check_grid_of

NORMS = (None, "entity", "joint")
_OF_THE_ATTENTION = (
    "num_heads",
    "key_size",
    "value_size",
    "score",
    "qkv_norm",
    "use_bias",
    "dropout",
    "kernel_initializer",
    "norm_initializer",
    "norm_epsilon",
    "seed",
)


@keras.saving.register_keras_serializable(package="rrl_tf")
class RelationalBlock(keras.layers.Layer):
    """Updates every entity by what it gathers from the others: one round of message passing.

    Attention, a dense network on the concatenated heads, then a residual connection and a norm as
    wanted: `norm(inputs + dense(attention(inputs)))`. The default is one linear layer back to the
    size of the entities with a residual connection and no norm. Without a `"joint"` norm and
    `"book_additive"` scores, the block is equivariant to permutations and takes any number of
    entities.

    Args:
        num_heads: H, the number of heads.
        key_size: size of a query and of a key, per head.
        value_size: D, size of a value, per head. `None` is `key_size`.
        units: sizes of the dense layers after the attention. `None` is one layer of the size of the
            entities.
        activation: activation of each of these layers.
        residual: whether the inputs are added to the result. The last of `units` must then be the
            size of the entities.
        norm: `None`, `"entity"` (over the features of an entity, with gain and bias) or `"joint"`
            (over entities and features together, without gain and bias, as the book's).
        score: score of the attention.
        qkv_norm: norm of the queries, keys and values.
        use_bias: whether the projections and dense layers have a bias.
        dropout: rate at which attention probabilities are dropped in training.
        kernel_initializer: initialiser of every matrix.
        norm_initializer: initialiser of the gain of the norms.
        norm_epsilon: added to the variance in the norms.
        seed: seed of the dropout.
        edge_size: E, the numbers that an edge has, where a graph is given by features of its edges:
            they are mapped linearly to a bias of the scores, one for each head.
        max_offset: for entities that are the cells of a grid: the largest offset between two cells
            that has a learned bias of its own, see `RelativePositionBias`. `None` is no such bias.

    Call arguments:
        inputs: entities `(B, N, F)`.
        mask: `(B, N)`, true for the entities that count, as Keras injects it; or four axes that
            broadcast to `(B, H, N, N)`, true where attention is allowed.
        edges: a graph. Without `edge_size` its adjacency `(B, N, N)`, true or not 0 where entity
            `i` may attend to `j`: a node without a neighbour gathers nothing, and its own state
            reaches it by the residual connection. With `edge_size`, features `(B, N, N, E)`; which
            of the edges there are is then up to `mask`.
        grid: `(rows, columns)` of the entities, where there is a `max_offset`. Entities behind the
            grid's cells, such as a question about them, have no place and no such bias.
        entity: index of the only entity whose output is wanted: `(B, 1, units[-1])`.
        training: whether to apply dropout.
        return_attention_scores: whether to return the scores as well.

    Returns:
        `(B, N, units[-1])`; with `return_attention_scores`, a pair of that and of the attention
        `(B, H, N, N)`.

    Raises:
        InvalidInput: for an argument out of its range, sizes that a residual connection cannot
            add, edges or a mask of another shape, no such `entity`, or a `grid` that is missing or
            does not fit.

    Example:

    >>> block = RelationalBlock(num_heads=2, key_size=16)
    >>> tuple(block(keras.ops.ones((1, 49, 32))).shape)
    (1, 49, 32)

    References:
        - [Zambaldi et al., 2019](https://arxiv.org/abs/1806.01830)
        - "Deep Reinforcement Learning in Action", chapter 10
    """

    def __init__(
        self,
        num_heads: int,
        key_size: int,
        value_size: int | None = None,
        units: Sequence[int] | None = None,
        activation: Activation = None,
        residual: bool = True,
        norm: str | None = None,
        score: str = "dot",
        qkv_norm: str | None = None,
        use_bias: bool = True,
        dropout: float = 0.0,
        kernel_initializer: Initializer = "glorot_uniform",
        norm_initializer: Initializer = "ones",
        norm_epsilon: float = 1e-5,
        seed: int | None = None,
        edge_size: int | None = None,
        max_offset: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.attention = MultiHeadDotProductAttention(
            num_heads,
            key_size,
            value_size,
            score=score,
            qkv_norm=qkv_norm,
            use_bias=use_bias,
            dropout=dropout,
            kernel_initializer=kernel_initializer,
            norm_initializer=norm_initializer,
            norm_epsilon=norm_epsilon,
            seed=seed,
            dtype=self.dtype_policy,
            name="attention",
        )
        for name in _OF_THE_ATTENTION:
            setattr(self, name, getattr(self.attention, name))
        self.units = None if units is None else positive_ints("units", units)
        self.activation = keras.activations.get(activation)
        self.residual = residual
        self.norm = one_of("norm", norm, NORMS)
        self.edge_size = optional_positive_int("edge_size", edge_size)
        self.max_offset = optional_positive_int("max_offset", max_offset)
        self.supports_masking = True

    def build(self, inputs_shape: Shape) -> None:
        self.attention.build(inputs_shape)
        self._build_biases()
        units = self.units or (inputs_shape[-1],)
        if self.residual and units[-1] != inputs_shape[-1]:
            raise InvalidInput(
                "A residual connection adds the inputs to the result, so the last of `units` must "
                f"be the size of the entities, {inputs_shape[-1]}; received {units!r}"
            )
        shape = self.attention.compute_output_shape(inputs_shape)
        self.dense_layers = []
        for i, size in enumerate(units, start=1):
            dense = keras.layers.Dense(
                size,
                activation=self.activation,
                use_bias=self.use_bias,
                kernel_initializer=self.kernel_initializer.clone(),
                dtype=self.dtype_policy,
                name=f"dense_{i}",
            )
            dense.build((None, shape[-1]))
            self.dense_layers.append(dense)
            shape = (*shape[:-1], size)
        self.output_norm = None
        if self.norm is not None:
            per_entity = self.norm == "entity"
            self.output_norm = LayerNormalization(
                axis=-1 if per_entity else (1, 2),
                center=per_entity,
                scale=per_entity,
                epsilon=self.norm_epsilon,
                gamma_initializer=self.norm_initializer.clone(),
                dtype=self.dtype_policy,
                name="output_norm",
            )
            self.output_norm.build(shape)

    def _build_biases(self):
        self.edge_bias = self.position_bias = None
        if self.edge_size is not None:
            self.edge_bias = keras.layers.Dense(
                self.num_heads,
                use_bias=False,  # it would add the same to all scores of a row
                kernel_initializer=self.kernel_initializer.clone(),
                dtype=self.dtype_policy,
                name="edge_bias",
            )
            self.edge_bias.build((None, self.edge_size))
        if self.max_offset is not None:
            self.position_bias = RelativePositionBias(
                self.num_heads, self.max_offset, dtype=self.dtype_policy, name="position_bias"
            )
            self.position_bias.build()

    def _biases(self, inputs, edges, grid):
        """What is added to the scores, of four axes that broadcast to `(B, H, N, N)`, or None."""
        biases = []
        if self.edge_bias is not None:
            biases.append(ops.transpose(dense_on_rows(self.edge_bias, edges), (0, 3, 1, 2)))
        if self.position_bias is not None:
            biases.append(self._position_bias(inputs, grid))
        return sum(biases) if biases else None

    def _position_bias(self, inputs, grid):
        bias = self.position_bias(grid=grid)
        behind = ops.shape(inputs)[1] - grid[0] * grid[1]
        return ops.pad(bias, [(0, 0), (0, 0), (0, behind), (0, behind)])

    def _check_call(self, inputs, edges, grid, entity):
        """Raises an `InvalidInput` for what this layer does not take."""
        check_entity(entity, inputs)
        if entity is not None and self.norm == "joint":
            raise InvalidInput(
                f"norm='joint' needs all entities, so none has an output alone; "
                f"received entity={entity!r}"
            )
        if edges is not None:
            self._check_edges(inputs, edges)
        elif self.edge_size is not None:
            raise InvalidInput(
                f"edge_size={self.edge_size} needs `edges` (B, N, N, E); received none"
            )
        if self.max_offset is not None:
            check_grid_of(inputs, grid)

    def _check_edges(self, inputs, edges):
        of_an_edge = () if self.edge_size is None else (self.edge_size,)
        nodes = inputs.shape[1]
        expected = (inputs.shape[0], nodes, nodes, *of_an_edge)
        if len(edges.shape) != len(expected) or any(
            None not in (size, given) and size != given
            for size, given in zip(expected, edges.shape)
        ):
            raise InvalidInput(
                f"`edges` must be {'(B, N, N)' if not of_an_edge else '(B, N, N, E)'}, here "
                f"{expected}, for edge_size={self.edge_size}; "
                f"received the shape {tuple(edges.shape)}"
            )

    def call(
        self,
        inputs: Tensor,
        mask: Tensor | None = None,
        edges: Tensor | None = None,
        grid: tuple[Any, Any] | None = None,
        entity: int | None = None,
        training: bool = False,
        return_attention_scores: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        self._check_call(inputs, edges, grid, entity)
        is_adjacency = edges is not None and self.edge_size is None
        x, scores = self.attention(
            inputs,
            mask=edge_mask(mask, edges, inputs, self.num_heads) if is_adjacency else mask,
            bias=self._biases(inputs, edges, grid),
            entity=entity,
            training=training,
            return_attention_scores=True,
        )
        for dense in self.dense_layers:
            x = dense_on_rows(dense, x)
        if self.residual:
            x = x + (inputs if entity is None else inputs[:, entity : entity + 1])
        if self.output_norm is not None:
            x = self.output_norm(x)
        if entity is not None:
            carry_mask(x, padding_mask(inputs, mask), slice(entity, entity + 1))
        return (x, scores) if return_attention_scores else x

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        return padding_mask(inputs, previous_mask)

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        return (*inputs_shape[:-1], self.units[-1] if self.units else inputs_shape[-1])

    def compute_output_spec(
        self,
        inputs: Tensor,
        mask: Tensor | None = None,
        edges: Tensor | None = None,
        grid: tuple[Any, Any] | None = None,
        entity: int | None = None,
        training: bool = False,
        return_attention_scores: bool = False,
    ) -> keras.KerasTensor | tuple[keras.KerasTensor, keras.KerasTensor]:
        self._check_call(inputs, edges, grid, entity)
        batch, nodes, features = inputs.shape
        updated = nodes if entity is None else 1
        output = tensor_spec(self, self.compute_output_shape((batch, updated, features)))
        if entity is not None:
            carry_mask(output, padding_mask(inputs, mask), slice(entity, entity + 1))
        scores = tensor_spec(self, (batch, self.num_heads, updated, nodes))
        return (output, scores) if return_attention_scores else output

    def get_config(self) -> dict[str, Any]:
        attention = self.attention.get_config()
        return {
            **super().get_config(),
            **{name: attention[name] for name in _OF_THE_ATTENTION},
            "units": self.units,
            "activation": keras.activations.serialize(self.activation),
            "residual": self.residual,
            "norm": self.norm,
            "edge_size": self.edge_size,
            "max_offset": self.max_offset,
        }
