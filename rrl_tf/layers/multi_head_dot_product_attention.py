"""Define `MultiHeadDotProductAttention`, with the scores and norms of relational models."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from rrl_tf._arguments import (
    dropout_rate,
    number_from,
    one_of,
    optional_integer,
    optional_positive_int,
    positive_int,
)
from rrl_tf._typing import Initializer, Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers.base import dense_on_rows, make_dense, make_norm, masked_softmax, same_shape
from rrl_tf.layers.masks import (
    EntityLayer,
    attention_mask,
    check_entity,
    rows_of_entity,
)

SCORES = ("dot", "additive", "book_additive")
QKV_NORMS = (None, "entity", "joint", "fused")
_LOWEST = float(np.finfo("float32").min)


@keras.saving.register_keras_serializable(package="rrl_tf")
class MultiHeadDotProductAttention(EntityLayer):
    """Multi-head attention between entities, with the scores and norms of relational models.

    Each head projects the entities to queries `q`, keys `k` and values `v`, and returns
    `softmax_j(score(q_i, k_j)) @ v`. The layer concatenates the outputs of the heads, and projects
    them if `output_size` is given. The `score` is one of

    - `"dot"`: `q_i · k_j / sqrt(key_size)` (Vaswani et al., 2017).
    - `"additive"`: `w · tanh(Q q_i + K k_j + b)` with square matrices `Q` and `K` (Bahdanau et al.,
      2015). The heads share `w`, `Q`, `K` and `b`.
    - `"book_additive"`: `W elu(Q q_i + K k_i)`, which computes a row of `N` scores from entity `i`
      alone, as in "Deep Reinforcement Learning in Action", listing 10.7. The scores of entity `i`
      do not depend on the keys of other entities, and `N` is fixed. This score exists to reproduce
      the book.

    The norm of q, k and v, `qkv_norm`, is one of

    - `None`: no norm.
    - `"entity"`: normalises each of q, k and v over the features of one head of one entity, with a
      gain and a bias that the heads share (Zambaldi et al., 2019).
    - `"joint"`: normalises each of q, k and v over heads, entities and features together, with a
      gain and a bias for every element (the book). `N` is fixed.
    - `"fused"`: normalises q, k and v of all heads of an entity together (Sonnet's Relational
      Memory).

    In self-attention, one matrix product computes q, k and v. Its columns are ordered
    `[head][q | k | v]`, as in Sonnet's `RelationalMemory`.

    Args:
        num_heads: H, the number of heads.
        key_size: size of a query and of a key, per head.
        value_size: D, size of a value, per head. `None` means `key_size`.
        output_size: size of the output projection. `None` means no projection.
        score: `"dot"`, `"additive"` or `"book_additive"`.
        qkv_norm: `None`, `"entity"`, `"joint"` or `"fused"`.
        use_bias: whether the projections have a bias.
        dropout: dropout rate of the attention probabilities in training.
        kernel_initializer: initialiser of every matrix.
        norm_initializer: initialiser of the gain of the norms.
        norm_epsilon: added to the variance in the norms; the default is that of PyTorch and Sonnet.
        seed: seed of the dropout.
        query_chunk_size: compute the output for this number of queries at a time, and their
            scores again for the gradient. The peak memory then grows linearly with N instead of
            quadratically. Needs `score="dot"`, no dropout and a known N; has no effect if the
            scores are returned. `None` computes all queries at once, which is faster for N below
            about 1,000.

    Call arguments:
        inputs: entities `(B, N, F)`.
        context: entities to attend to, `(B, S, G)`. `None` means the inputs (self-attention). Once
            built with a context, the layer needs one in every call, and vice versa.
        mask: true where attention is allowed, with one of these shapes:

            - `(B, S)`, a padding mask of the keys. Keras passes such a mask after an
              `Embedding(mask_zero=True)` or a `Masking` layer.
            - Four axes that broadcast to `(B, H, N, S)`. The mask is combined with the padding mask
              that Keras has attached to the keys. Write `mask[None, None]` to apply a mask `(N, S)`
              to all inputs and heads.

            For a query without any allowed key, output and scores are zero. Masked values must be
            finite, because 0 times infinity is NaN.
        bias: added to the scores before the softmax; four axes that broadcast to `(B, H, N, S)`. A
            bias of `-inf` forbids attention, as a `mask` does.
        entity: index of the only entity to compute an output for. N is then 1 in the results.
        training: whether to apply dropout.
        return_attention_scores: whether to return the scores as well.

    Returns:
        `(B, N, output_size)`, or `(B, N, H * D)` without an output projection. With
        `return_attention_scores`, a pair of the output and the attention `(B, H, N, S)` before
        dropout, whose rows sum to 1.

    Raises:
        InvalidInput: for an argument out of its range; for a `score` or `qkv_norm` that does not
            support a context or an unknown number of entities; for a mask or bias with a wrong
            shape; for an `entity` that does not exist.

    Example:

    >>> layer = MultiHeadDotProductAttention(num_heads=2, key_size=16, output_size=32)
    >>> output, attention = layer(keras.ops.ones((1, 49, 22)), return_attention_scores=True)
    >>> tuple(output.shape), tuple(attention.shape)
    ((1, 49, 32), (1, 2, 49, 49))

    References:
        - [Zambaldi et al., 2019](https://arxiv.org/abs/1806.01830)
        - [Santoro et al., 2018](https://arxiv.org/abs/1806.01822)
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
        - [Bahdanau et al., 2015](https://arxiv.org/abs/1409.0473)
    """

    def __init__(
        self,
        num_heads: int,
        key_size: int,
        value_size: int | None = None,
        output_size: int | None = None,
        score: str = "dot",
        qkv_norm: str | None = None,
        use_bias: bool = True,
        dropout: float = 0.0,
        kernel_initializer: Initializer = "glorot_uniform",
        norm_initializer: Initializer = "ones",
        norm_epsilon: float = 1e-5,
        seed: int | None = None,
        query_chunk_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = positive_int("num_heads", num_heads)
        self.key_size = positive_int("key_size", key_size)
        self.value_size = optional_positive_int("value_size", value_size) or self.key_size
        self.output_size = optional_positive_int("output_size", output_size)
        self.score = one_of("score", score, SCORES)
        self.qkv_norm = one_of("qkv_norm", qkv_norm, QKV_NORMS)
        self.use_bias = use_bias
        self.dropout = dropout_rate("dropout", dropout)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.norm_initializer = keras.initializers.get(norm_initializer)
        self.norm_epsilon = number_from("norm_epsilon", norm_epsilon, 0)
        self.seed = optional_integer("seed", seed)
        self.query_chunk_size = optional_positive_int("query_chunk_size", query_chunk_size)
        if query_chunk_size is not None and (score != "dot" or dropout):
            raise InvalidInput(
                "`query_chunk_size` must be None unless score='dot' and dropout=0; received "
                f"{query_chunk_size!r} with score={score!r} and dropout={dropout!r}"
            )

    @property
    def fixed_entities(self) -> bool:
        """Whether the number of entities is fixed, because each entity has its own weights."""
        return self.score == "book_additive" or self.qkv_norm == "joint"

    def build(self, inputs_shape: Shape, context_shape: Shape | None = None) -> None:
        self._check_shapes(inputs_shape, context_shape)
        self.is_cross_attention = context_shape is not None
        nodes, features = inputs_shape[1:]
        keys = nodes if context_shape is None else context_shape[1]
        self._built_for = (nodes, keys)
        heads, key_size, value_size = self.num_heads, self.key_size, self.value_size
        if context_shape is not None:
            width = heads * (key_size + value_size)
            self.query = self._dense("query", heads * key_size, features)
            self.key_value = self._dense("key_value", width, context_shape[-1])
        else:
            width = heads * (2 * key_size + value_size)
            self.query_key_value = self._dense("query_key_value", width, features)
        self._build_norms(nodes, keys)
        self._build_score(nodes)
        self.attention_dropout = keras.layers.Dropout(
            self.dropout, seed=self.seed, dtype=self.dtype_policy, name="attention_dropout"
        )
        self.output_projection = None
        if self.output_size is not None:
            self.output_projection = self._dense(
                "output_projection", self.output_size, heads * value_size
            )

    def _check_shapes(self, inputs_shape, context_shape):
        """Raise an `InvalidInput` if the shapes do not fit the score and the norm."""
        for name, shape in (("inputs", inputs_shape), ("context", context_shape)):
            if shape is not None and (len(shape) != 3 or shape[-1] is None):
                raise InvalidInput(
                    f"`{name}` must be entities (B, N, F) with a known F; "
                    f"received the shape {tuple(shape)}"
                )
            if self.fixed_entities and shape is not None and shape[1] is None:
                raise InvalidInput(
                    "score='book_additive' and qkv_norm='joint' have weights for every entity, so "
                    f"the number of entities must be known; received the shape {tuple(shape)}"
                )
        if self.query_chunk_size is not None and inputs_shape[1] is None:
            raise InvalidInput(
                "the number of entities must be known for query_chunk_size="
                f"{self.query_chunk_size}; received the shape {tuple(inputs_shape)}"
            )
        if context_shape is not None and (
            self.score == "book_additive" or self.qkv_norm == "fused"
        ):
            raise InvalidInput(
                "`context` must be None with score='book_additive' or qkv_norm='fused', which "
                f"combine query and key of one entity; received the shape {context_shape}"
            )

    def _build_norms(self, nodes, keys):
        heads, key_size, value_size = self.num_heads, self.key_size, self.value_size
        self.fused_norm = self.query_norm = self.key_norm = self.value_norm = None
        if self.qkv_norm == "fused":
            width = heads * (2 * key_size + value_size)
            self.fused_norm = self._norm("fused_norm", -1, (None, nodes, width))
        elif self.qkv_norm is not None:
            axis = -1 if self.qkv_norm == "entity" else (1, 2, 3)
            self.query_norm = self._norm("query_norm", axis, (None, heads, nodes, key_size))
            self.key_norm = self._norm("key_norm", axis, (None, heads, keys, key_size))
            self.value_norm = self._norm("value_norm", axis, (None, heads, keys, value_size))

    def _build_score(self, nodes):
        if self.score == "dot":
            return
        book = self.score == "book_additive"
        width = nodes if book else self.key_size
        self.score_query = self._dense("score_query", width, self.key_size)
        # With "additive", a bias of the keys would have the same effect as that of the queries, and
        # a bias of the result would cancel in the softmax. The book has all three.
        self.score_key = self._dense("score_key", width, self.key_size, use_bias=book)
        self.score_output = self._dense("score_output", nodes if book else 1, width, use_bias=book)

    def _dense(self, name, units, features, use_bias=True):
        return make_dense(self, name, units, features, use_bias=self.use_bias and use_bias)

    def _norm(self, name, axis, shape):
        gamma_initializer = self.norm_initializer.clone()
        return make_norm(
            self, name, shape, self.norm_epsilon, axis=axis, gamma_initializer=gamma_initializer
        )

    def call(
        self,
        inputs: Tensor,
        context: Tensor | None = None,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        entity: int | None = None,
        training: bool = False,
        return_attention_scores: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        check_entity(entity, inputs)
        keys = inputs if context is None else context
        shape = (inputs.shape[0], self.num_heads, inputs.shape[1], keys.shape[1])  # (B, H, N, S)
        self._check_call(shape, context, bias, entity)
        query, key, value = self._project(inputs, context)  # (B, H, N or S, size)
        allowed = attention_mask(mask, keys, shape)
        if entity is not None:
            query = query[:, :, entity : entity + 1]
            bias, allowed = rows_of_entity(bias, entity), rows_of_entity(allowed, entity)
        if self.query_chunk_size is None or return_attention_scores:
            output, attention = self._gather(query, key, value, allowed, training, bias)
        else:
            output = self._gather_in_chunks(query, key, value, allowed, bias)
        if self.output_projection is not None:
            output = dense_on_rows(self.output_projection, output)
        self._carry_mask(output, inputs, mask, entity)
        return (output, attention) if return_attention_scores else output

    def _check_call(self, shape, context, bias, entity):
        """Raise an `InvalidInput` for arguments that do not fit scores of `shape`."""
        if (context is not None) != self.is_cross_attention:
            raise InvalidInput(
                f"`context` must be {'a tensor' if self.is_cross_attention else 'None'}, as when "
                f"{self.name} was built; received {'None' if context is None else 'a tensor'}"
            )
        if bias is not None and not same_shape(bias.shape, shape, broadcast=True):
            raise InvalidInput(
                "`bias` must have four axes that broadcast to (B, H, N, S), here "
                f"{tuple(shape)}; received the shape {tuple(bias.shape)}"
            )
        # Without this check, a single entity would be broadcast to the weights of all entities.
        if self.fixed_entities and not same_shape(shape[2:], self._built_for):
            raise InvalidInput(
                f"the numbers of entities (N, S) must be those that {self.name} has weights for, "
                f"{self._built_for}; received {tuple(shape[2:])}"
            )
        if entity is not None and self.score == "book_additive":
            raise InvalidInput(
                "`entity` must be None with score='book_additive', which has no row for one "
                f"entity; received {entity!r}"
            )

    def _gather(self, query, key, value, allowed, training, bias=None):
        """Return the heads' outputs `(B, N, H * D)` and attention `(B, H, N, S)`."""
        scores = self._score(query, key)
        attention = self._softmax(scores, allowed, bias)
        heads = ops.matmul(self.attention_dropout(attention, training=training), value)
        heads = ops.transpose(heads, (0, 2, 1, 3))  # (B, H, N, D) -> (B, N, H, D)
        output = ops.reshape(heads, (-1, ops.shape(query)[2], self.num_heads * self.value_size))
        return output, attention

    def _gather_in_chunks(self, query, key, value, allowed, bias):
        """Return the output of `_gather`, computed for a few queries at a time."""
        outputs = []
        for start in range(0, query.shape[2], self.query_chunk_size):
            rows = slice(start, start + self.query_chunk_size)
            mask, *added = (
                each if each is None or each.shape[2] == 1 else each[:, :, rows]
                for each in (allowed, bias)
            )

            # Gradients pass through arguments only, and these must be tensors of numbers
            def gather(query, key, value, bias=None, mask=mask):
                return self._gather(query, key, value, mask, training=False, bias=bias)[0]

            tensors = [ops.convert_to_tensor(each) for each in added if each is not None]
            outputs.append(keras.remat(gather)(query[:, :, rows], key, value, *tensors))
        return ops.concatenate(outputs, axis=1)

    def query_key_values(self, inputs: Tensor) -> Tensor:
        """Return each entity's queries, keys and values, `(..., N, H * (2 * key_size + D))`."""
        fused = dense_on_rows(self.query_key_value, inputs)
        return fused if self.fused_norm is None else self.fused_norm(fused)

    def attend(
        self, fused: Tensor, mask: Tensor | None = None, num_queries: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute self-attention from the result of `query_key_values`.

        Args:
            fused: `(B, N, H * (2 * key_size + D))`.
            mask: `(B, N)`, false for padding.
            num_queries: compute outputs for this number of entities, the first ones. `None` means
                all.

        Returns:
            The output `(B, num_queries, H * D)`, without output projection, and the attention
            `(B, H, num_queries, N)`.
        """
        query, key, value = self._parts(fused)
        if num_queries is not None:
            query = ops.split(query, [num_queries], axis=2)[0]
        allowed = None if mask is None else mask[:, None, None, :]
        return self._gather(query, key, value, allowed, training=False)

    def _project(self, inputs, context):
        """Return queries and keys `(B, H, N or S, key_size)`, and values `(B, H, S, D)`."""
        if self.is_cross_attention:
            query = self._split_heads(dense_on_rows(self.query, inputs))
            fused = self._split_heads(dense_on_rows(self.key_value, context))
            key, value = ops.split(fused, [self.key_size], axis=-1)
        else:
            query, key, value = self._parts(self.query_key_values(inputs))
        if self.query_norm is not None:
            query, key, value = self.query_norm(query), self.key_norm(key), self.value_norm(value)
        return query, key, value

    def _parts(self, fused):
        k = self.key_size
        if k != self.value_size:
            return ops.split(self._split_heads(fused), [k, 2 * k], axis=-1)
        # On TensorFlow, unstacking the first axis does not copy.
        parts = ops.reshape(fused, (-1, ops.shape(fused)[1], self.num_heads, 3, k))
        return ops.unstack(ops.transpose(parts, (3, 0, 2, 1, 4)), 3)  # each (B, H, N, k)

    def _split_heads(self, projected):
        shape = (-1, ops.shape(projected)[1], self.num_heads, projected.shape[-1] // self.num_heads)
        return ops.transpose(ops.reshape(projected, shape), (0, 2, 1, 3))  # (B, H, N, size)

    def _score(self, query, key):
        if self.score == "dot":
            scaled = query * self.key_size**-0.5
            return ops.matmul(scaled, ops.transpose(key, (0, 1, 3, 2)))
        query = dense_on_rows(self.score_query, query)  # (B, H, N, width)
        key = dense_on_rows(self.score_key, key)  # (B, H, S, width)
        if self.score == "book_additive":
            return dense_on_rows(self.score_output, ops.elu(query + key))
        pairs = ops.tanh(query[:, :, :, None, :] + key[:, :, None, :, :])  # (B, H, N, S, width)
        return ops.squeeze(dense_on_rows(self.score_output, pairs), axis=-1)

    def _softmax(self, scores, mask, bias):
        # Half precision would lose small probabilities, so the softmax is at least float32.
        dtype = keras.backend.result_type(self.compute_dtype, "float32")
        allowed = None if mask is None else ops.cast(mask, "bool")
        scores = ops.cast(scores if bias is None else scores + bias, dtype)
        if bias is not None:
            # The softmax of a row of -inf would be NaN.
            scores = ops.maximum(scores, _LOWEST)
            is_finite = ops.not_equal(bias, -math.inf)
            allowed = is_finite if mask is None else ops.logical_and(allowed, is_finite)
        return ops.cast(masked_softmax(scores, allowed), self.compute_dtype)

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        # With a context, the argument `mask` of `call` masks the context instead of the inputs.
        mask = None if self.is_cross_attention else previous_mask
        return super().compute_mask(inputs, mask)

    def compute_output_shape(
        self, inputs_shape: Shape, context_shape: Shape | None = None
    ) -> Shape:
        width = self.output_size or self.num_heads * self.value_size
        return (*inputs_shape[:-1], width)
