"""Define `RelationalBlock`, one round of message passing between entities."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import one_of, optional_positive_int, positive_ints
from rrl_tf._typing import Activation, Initializer, Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers.base import dense_on_rows, make_dense, make_norm, same_shape
from rrl_tf.layers.masks import EntityLayer, check_entity, edge_mask
from rrl_tf.layers.multi_head_dot_product_attention import MultiHeadDotProductAttention
from rrl_tf.layers.relative_position_bias import RelativePositionBias

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
    "query_chunk_size",
)


@keras.saving.register_keras_serializable(package="rrl_tf")
class RelationalBlock(EntityLayer):
    """One round of message passing: every entity is updated by attention to the others.

    The block computes `norm(inputs + dense(attention(inputs)))`, where `dense` is a stack of dense
    layers on the concatenated heads. The residual connection and the norm are optional. By default,
    `dense` is one linear layer to the size of the entities, with a residual connection and no norm.
    The block is equivariant to permutations and takes any number of entities, unless a norm is
    `"joint"` or the score is `"book_additive"`.

    Args:
        num_heads: H, the number of heads.
        key_size: size of a query and of a key, per head.
        value_size: D, size of a value, per head. `None` means `key_size`.
        units: sizes of the dense layers after the attention. `None` means one layer of the size of
            the entities.
        activation: activation of each of these layers.
        residual: whether the inputs are added to the result. The last of `units` must then be the
            size of the entities.
        norm: `None`, `"entity"` (over the features of an entity, with gain and bias) or `"joint"`
            (over entities and features together, without gain and bias, as in the book).
        score: score of the attention; see `MultiHeadDotProductAttention`.
        qkv_norm: norm of the queries, keys and values; see `MultiHeadDotProductAttention`.
        use_bias: whether the projections and dense layers have a bias.
        dropout: dropout rate of the attention probabilities in training.
        kernel_initializer: initialiser of every matrix.
        norm_initializer: initialiser of the gain of the norms.
        norm_epsilon: added to the variance in the norms.
        seed: seed of the dropout.
        edge_size: E, the number of features of an edge. A linear layer maps them to a bias of the
            scores, one for each head. `None` means that edges have no features.
        max_offset: largest offset in the table of a `RelativePositionBias`, for entities that are
            the cells of a grid. `None` means no such bias.
        query_chunk_size: number of queries to compute at a time, for many entities; see
            `MultiHeadDotProductAttention`.

    Call arguments:
        inputs: entities `(B, N, F)`.
        mask: `(B, N)`, false for padding, as Keras passes it; or four axes that broadcast to
            `(B, H, N, N)`, true where attention is allowed.
        edges: edges of a graph. Without `edge_size`, the adjacency matrix `(B, N, N)`, which is
            nonzero where entity `i` may attend to `j`. A node without neighbours receives no
            message. With `edge_size`, the features `(B, N, N, E)`, which must be finite; attention
            is then not limited to edges, unless `mask` does this.
        grid: `(rows, columns)` of the entities, required with `max_offset`. Entities that follow
            the cells of the grid, such as a question about the image, get no position bias.
        entity: index of the only entity to compute an output for, `(B, 1, units[-1])`.
        training: whether to apply dropout.
        return_attention_scores: whether to return the scores as well.

    Returns:
        `(B, N, units[-1])`. With `return_attention_scores`, a pair of the output and the attention
        `(B, H, N, N)`.

    Raises:
        InvalidInput: for an argument out of its range, for `units` that do not fit the residual
            connection, for edges or a mask of a wrong shape, for an `entity` that does not exist,
            or for a `grid` that is missing or does not fit.

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
        query_chunk_size: int | None = None,
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
            query_chunk_size=query_chunk_size,
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

    def build(self, inputs_shape: Shape) -> None:
        self.attention.build(inputs_shape)
        self._build_biases()
        units = self.units or (inputs_shape[-1],)
        if self.residual and units[-1] != inputs_shape[-1]:
            raise InvalidInput(
                "the last of `units` must be the size of the entities for a residual connection, "
                f"{inputs_shape[-1]}; received {units!r}"
            )
        shape = self.attention.compute_output_shape(inputs_shape)
        self.dense_layers = []
        for i, size in enumerate(units, start=1):
            dense = make_dense(
                self, f"dense_{i}", size, shape[-1], self.activation, use_bias=self.use_bias
            )
            self.dense_layers.append(dense)
            shape = (*shape[:-1], size)
        self.output_norm = None
        if self.norm is not None:
            per_entity = self.norm == "entity"
            self.output_norm = make_norm(
                self,
                "output_norm",
                shape,
                self.norm_epsilon,
                axis=-1 if per_entity else (1, 2),
                center=per_entity,
                scale=per_entity,
                gamma_initializer=self.norm_initializer.clone(),
            )

    def _build_biases(self):
        self.edge_bias = self.position_bias = None
        if self.edge_size is not None:
            # Without a bias, which would add the same number to all scores of a row.
            self.edge_bias = make_dense(
                self, "edge_bias", self.num_heads, self.edge_size, use_bias=False
            )
        if self.max_offset is not None:
            self.position_bias = RelativePositionBias(
                self.num_heads, self.max_offset, dtype=self.dtype_policy, name="position_bias"
            )
            self.position_bias.build()

    def _biases(self, inputs, edges, grid):
        """Return the bias of the scores, whose axes broadcast to `(B, H, N, N)`, or None."""
        biases = []
        if self.edge_bias is not None:
            biases.append(ops.transpose(dense_on_rows(self.edge_bias, edges), (0, 3, 1, 2)))
        if self.position_bias is not None:
            after = ops.shape(inputs)[1] - grid[0] * grid[1]
            padding = [(0, 0), (0, 0), (0, after), (0, after)]
            biases.append(ops.pad(self.position_bias(grid=grid), padding))
        return sum(biases) if biases else None

    def _check_call(self, inputs, edges, grid, entity):
        """Raise an `InvalidInput` if the call arguments do not fit this layer."""
        check_entity(entity, inputs)
        if entity is not None and self.norm == "joint":
            raise InvalidInput(
                f"`entity` must be None with norm='joint', which needs all entities; received "
                f"{entity!r}"
            )
        if edges is not None:
            self._check_edges(inputs, edges)
        elif self.edge_size is not None:
            raise InvalidInput(
                f"`edges` must be (B, N, N, E) with edge_size={self.edge_size}; received None"
            )
        if self.max_offset is not None:
            _check_grid(grid, inputs.shape[1])

    def _check_edges(self, inputs, edges):
        features = () if self.edge_size is None else (self.edge_size,)
        axes = "(B, N, N, E)" if features else "(B, N, N)"
        nodes = inputs.shape[1]
        expected = (inputs.shape[0], nodes, nodes, *features)
        if not same_shape(edges.shape, expected):
            raise InvalidInput(
                f"`edges` must be {axes}, here {expected}, for edge_size={self.edge_size}; "
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
        result = self.attention(
            inputs,
            mask=edge_mask(mask, edges, inputs, self.num_heads) if is_adjacency else mask,
            bias=self._biases(inputs, edges, grid),
            entity=entity,
            training=training,
            return_attention_scores=return_attention_scores,
        )
        x, scores = result if return_attention_scores else (result, None)
        for dense in self.dense_layers:
            x = dense_on_rows(dense, x)
        if self.residual:
            x = x + (inputs if entity is None else inputs[:, entity : entity + 1])
        if self.output_norm is not None:
            x = self.output_norm(x)
        self._carry_mask(x, inputs, mask, entity)
        return (x, scores) if return_attention_scores else x

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        return (*inputs_shape[:-1], self.units[-1] if self.units else inputs_shape[-1])


def _check_grid(grid, nodes):
    """Raise an `InvalidInput` unless `grid` is (rows, columns) with at most `nodes` cells."""
    sizes = [_size(each) for each in grid] if isinstance(grid, tuple | list) else []
    fits = len(sizes) == 2 and 0 not in sizes
    if not fits or (nodes and None not in sizes and math.prod(sizes) > nodes):
        raise InvalidInput(
            f"`grid` must be (rows, columns) with at most {nodes} cells, the number of entities; "
            f"received {grid!r}"
        )


def _size(value):
    """Return the size of a grid axis: None if unknown while tracing, 0 if it is not valid."""
    try:
        return 0 if isinstance(value, bool) else max(operator.index(value), 0)
    except TypeError:
        is_known = isinstance(value, numbers.Number) or not hasattr(value, "dtype")
        return 0 if is_known and value is not None else None
