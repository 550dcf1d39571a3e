"""Define `CausalTransformerBlock`."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import dropout_rate, one_of, optional_positive_int, positive_int
from rrl_tf._typing import Activation, Initializer, Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers.base import HIDDEN, BaseLayer, dense_on_rows, make_dense, make_norm, softmax
from rrl_tf.layers.masks import carried_mask, carry_mask

NORMS = ("post", "pre")
DROPOUT_PLACEMENTS = ("output", "probabilities")


@keras.saving.register_keras_serializable(package="rrl_tf")
class CausalTransformerBlock(BaseLayer):
    """A transformer block in which a position attends to itself and to earlier positions.

    The block has two parts, attention `softmax_j(q_i · k_j / sqrt(D)) @ v` over `j <= i` and a
    network of two dense layers. Each part has a residual connection. `norm="post"` normalises the
    sum, `x = norm(x + attention(x))` (Vaswani et al., 2017). `norm="pre"` normalises the input of
    each part instead, `x = x + attention(norm(x))` (GPT-2).

    Positions where `mask` is false are padding. No other position attends to them. A padded
    position attends to itself and to earlier positions that are not padding, so every row of the
    attention sums to 1. The output of a padded position has no meaning.

    Args:
        num_heads: H, the number of heads; it divides F.
        hidden_units: size of the hidden dense layer. `None` means 4 F.
        activation: activation of the hidden dense layer.
        norm: `"post"` or `"pre"`.
        dropout: dropout rate in training. Dropout is applied to the result of both parts and within
            the attention.
        dropout_placement: where dropout is applied within the attention: `"output"`, the output of
            the heads, or `"probabilities"`, the attention probabilities.
        epsilon: added to the variance in the norms; the default is PyTorch's.
        kernel_initializer: initialiser of every matrix.
        seed: seed of the dropout.

    Call arguments:
        inputs: sequences `(B, T, F)`.
        mask: `(B, T)`, false for padding. `None` means no padding.
        rows: slice that selects N positions to compute outputs for, such as `slice(1, None, 3)`.
            `None` means all T positions.
        training: whether to apply dropout.
        return_attention_scores: whether to return the attention as well.

    Returns:
        `(B, N, F)`. With `return_attention_scores`, a pair of this output and the attention
        `(B, H, N, T)` before dropout.

    Raises:
        InvalidInput: for an argument out of its range, or if `num_heads` does not divide F.

    Example:

    >>> block = CausalTransformerBlock(num_heads=2, norm="pre")
    >>> output, attention = block(keras.ops.ones((1, 20, 32)), return_attention_scores=True)
    >>> tuple(output.shape), tuple(attention.shape)
    ((1, 20, 32), (1, 2, 20, 20))

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
        - [Radford et al., 2019](https://openai.com/index/better-language-models/) (GPT-2)
    """

    def __init__(
        self,
        num_heads: int,
        hidden_units: int | None = None,
        activation: Activation = "gelu",
        norm: str = "post",
        dropout: float = 0.0,
        dropout_placement: str = "output",
        epsilon: float = 1e-5,
        kernel_initializer: Initializer = "glorot_uniform",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = positive_int("num_heads", num_heads)
        self.hidden_units = optional_positive_int("hidden_units", hidden_units)
        self.activation = keras.activations.get(activation)
        self.norm = one_of("norm", norm, NORMS)
        self.dropout = dropout_rate("dropout", dropout)
        self.dropout_placement = one_of("dropout_placement", dropout_placement, DROPOUT_PLACEMENTS)
        self.epsilon = epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed
        self.supports_masking = True

    def build(self, inputs_shape: Shape) -> None:
        if len(inputs_shape) != 3 or inputs_shape[-1] is None:
            raise InvalidInput(
                "`inputs` must be sequences (B, T, F) with a known F; "
                f"received the shape {tuple(inputs_shape)}"
            )
        width = inputs_shape[-1]
        if width % self.num_heads:
            raise InvalidInput(
                f"`num_heads` must divide F, here {width}; received {self.num_heads}"
            )
        hidden = self.hidden_units or 4 * width
        # Queries have their own layer, because with `rows` there are fewer queries than keys.
        self.query = make_dense(self, "query", width, width)
        self.key_value = make_dense(self, "key_value", 2 * width, width)
        self.projection = make_dense(self, "projection", width, width)
        self.hidden = make_dense(self, "hidden", hidden, width, self.activation)
        self.output_dense = make_dense(self, "output", width, hidden)
        shape = (None, None, width)
        self.attention_norm = make_norm(self, "attention_norm", shape, self.epsilon)
        self.output_norm = make_norm(self, "output_norm", shape, self.epsilon)
        self.dropouts = [
            keras.layers.Dropout(
                self.dropout, seed=self.seed, dtype=self.dtype_policy, name=f"{part}_dropout"
            )
            for part in ("attention", "projection", "output")
        ]

    def call(
        self,
        inputs: Tensor,
        mask: Tensor | None = None,
        rows: slice | None = None,
        training: bool = False,
        return_attention_scores: bool = False,
    ) -> Tensor | tuple[Tensor, ...]:
        attention_dropout, projection_dropout, output_dropout = self.dropouts
        pre = self.norm == "pre"
        x = self.attention_norm(inputs) if pre else inputs
        key, value = ops.split(dense_on_rows(self.key_value, x), 2, axis=-1)
        padding, bias = carried_mask(inputs), _bias(ops.shape(key)[1], mask, rows)
        if rows is not None:
            inputs, x = inputs[:, rows], x[:, rows]
        query, key, value = map(self._split_heads, (dense_on_rows(self.query, x), key, value))
        heads, scores = self._attend(query, key, value, bias, training)
        x = self._join_heads(heads, ops.shape(inputs))
        if self.dropout_placement == "output":
            x = attention_dropout(x, training=training)
        x = inputs + projection_dropout(dense_on_rows(self.projection, x), training=training)
        x = x if pre else self.attention_norm(x)
        hidden = dense_on_rows(self.hidden, self.output_norm(x) if pre else x)
        x = x + output_dropout(dense_on_rows(self.output_dense, hidden), training=training)
        x = x if pre else self.output_norm(x)
        if rows is not None:
            carry_mask(x, padding, rows)
        return (x, scores) if return_attention_scores else x

    def _split_heads(self, projected):
        """Reshape `(B, T, F)` to `(B, H, T, D)`, without a copy for a single head."""
        _, steps, width = ops.shape(projected)
        if self.num_heads == 1:
            return ops.reshape(projected, (-1, 1, steps, width))
        heads = ops.reshape(projected, (-1, steps, self.num_heads, width // self.num_heads))
        return ops.transpose(heads, (0, 2, 1, 3))

    def _join_heads(self, heads, shape):
        """Reshape `(B, H, N, D)` to `(B, N, F)`."""
        if self.num_heads > 1:
            heads = ops.transpose(heads, (0, 2, 1, 3))
        return ops.reshape(heads, shape)

    def _attend(self, query, key, value, bias, training):
        """Return the heads' outputs `(B, H, N, D)` and attention `(B, H, N, T)`.

        Matrix products are faster on a CPU than the `einsum` of TensorFlow's
        `ops.dot_product_attention`.
        """
        scaled = query * query.shape[-1] ** -0.5
        scores = ops.matmul(scaled, ops.transpose(key, (0, 1, 3, 2)))  # (B, H, N, T)
        # Half precision would lose small probabilities, so the softmax is at least float32.
        scores = ops.cast(scores, keras.backend.result_type(scores.dtype, "float32"))
        bias = ops.cast(bias, scores.dtype)
        scores = ops.cast(softmax(scores + bias), self.compute_dtype)
        # Also called without dropout, because `rrl_tf.interpret` changes attention there.
        drops = training and self.dropout_placement == "probabilities"
        return ops.matmul(self.dropouts[0](scores, training=drops), value), scores

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        return carried_mask(inputs)

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        return tuple(inputs_shape)

    def compute_output_spec(self, inputs: Tensor, **options: Any) -> Any:
        result = super().compute_output_spec(inputs, **options)
        if options.get("rows") is not None:
            carry_mask(keras.tree.flatten(result)[0], carried_mask(inputs), options["rows"])
        return result


def _bias(steps, mask=None, rows=None):
    """Return the bias of the scores, `(1 or B, 1, N, T)`: 0 where attention is allowed."""
    positions = ops.arange(steps)
    own = (positions if rows is None else positions[rows])[:, None]
    allowed = (positions <= own)[None, None]
    if mask is not None:
        real = ops.cast(mask, "bool")[:, None, None, :]
        allowed = ops.logical_and(allowed, ops.logical_or(real, positions == own))
    return ops.where(allowed, 0.0, HIDDEN)
