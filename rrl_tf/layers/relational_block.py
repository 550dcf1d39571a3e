"""One round of message passing between entities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from rrl_tf._arguments import one_of, positive_ints
from rrl_tf._typing import Activation, Initializer, Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers._layer_norm import LayerNormalization
from rrl_tf.layers._masks import carry_mask, padding_mask
from rrl_tf.layers._shapes import dense_on_rows, tensor_spec
from rrl_tf.layers.multi_head_dot_product_attention import MultiHeadDotProductAttention

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

    Call arguments:
        inputs: entities `(B, N, F)`.
        mask: `(B, N)`, true for the entities that count, as Keras injects it; or four axes that
            broadcast to `(B, H, N, N)`, true where attention is allowed.
        entity: index of the only entity whose output is wanted: `(B, 1, units[-1])`.
        training: whether to apply dropout.
        return_attention_scores: whether to return the scores as well.

    Returns:
        `(B, N, units[-1])`; with `return_attention_scores`, a pair of that and of the attention
        `(B, H, N, N)`.

    Raises:
        InvalidInput: for an argument out of its range, or sizes that a residual connection cannot
            add.

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
        self.supports_masking = True

    def build(self, inputs_shape: Shape) -> None:
        self.attention.build(inputs_shape)
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

    def call(
        self,
        inputs: Tensor,
        mask: Tensor | None = None,
        entity: int | None = None,
        training: bool = False,
        return_attention_scores: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        if entity is not None and self.norm == "joint":
            raise InvalidInput(
                f"norm='joint' needs all entities, so none has an output alone; "
                f"received entity={entity!r}"
            )
        x, scores = self.attention(
            inputs,
            mask=mask,
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
        entity: int | None = None,
        training: bool = False,
        return_attention_scores: bool = False,
    ) -> keras.KerasTensor | tuple[keras.KerasTensor, keras.KerasTensor]:
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
        }
