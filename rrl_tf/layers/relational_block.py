"""One round of message passing between entities."""

import keras

from rrl_tf._arguments import one_of, positive_ints
from rrl_tf.errors import InvalidInput
from rrl_tf.layers._layer_norm import LayerNormalization
from rrl_tf.layers._shapes import attention_mask, carried_mask, dense_on_rows, tensor_spec
from rrl_tf.layers.multi_head_dot_product_attention import MultiHeadDotProductAttention

NORMS = (None, "entity", "joint")


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
        mask: true where attention is allowed; broadcasts to `(B, H, N, N)`.
        entity: index of the only entity whose output is wanted: `(B, 1, units[-1])`.
        training: whether to apply dropout.
        return_attention_scores: whether to return the scores as well.

    Returns:
        `(B, N, units[-1])`; with `return_attention_scores`, a pair of that and of the attention
        `(B, H, N, N)`.

    Raises:
        ValueError: for an argument out of its range, or sizes that a residual connection cannot
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
        num_heads,
        key_size,
        value_size=None,
        units=None,
        activation=None,
        residual=True,
        norm=None,
        score="dot",
        qkv_norm=None,
        use_bias=True,
        dropout=0.0,
        kernel_initializer="glorot_uniform",
        norm_initializer="ones",
        norm_epsilon=1e-5,
        seed=None,
        **kwargs,
    ):
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
        self.units = None if units is None else positive_ints("units", units)
        self.activation = keras.activations.get(activation)
        self.residual = residual
        self.norm = one_of("norm", norm, NORMS)
        self.supports_masking = True

    def build(self, inputs_shape):
        self.attention.build(inputs_shape)
        units = self.units or (inputs_shape[-1],)
        if self.residual and units[-1] != inputs_shape[-1]:
            raise InvalidInput(
                "A residual connection adds the inputs to the result, so the last of `units` must "
                f"be the size of the entities, {inputs_shape[-1]}. Received: units={units}"
            )
        shape = self.attention.compute_output_shape(inputs_shape)
        self.dense_layers = []
        for i, size in enumerate(units, start=1):
            dense = keras.layers.Dense(
                size,
                activation=self.activation,
                use_bias=self.attention.use_bias,
                kernel_initializer=self.attention.kernel_initializer.clone(),
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
                epsilon=self.attention.norm_epsilon,
                gamma_initializer=self.attention.norm_initializer.clone(),
                dtype=self.dtype_policy,
                name="output_norm",
            )
            self.output_norm.build(shape)

    def call(self, inputs, mask=None, entity=None, training=False, return_attention_scores=False):
        if entity is not None and self.norm == "joint":
            raise InvalidInput("norm='joint' needs all entities, so it has no output for one alone")
        x, scores = self.attention(
            inputs,
            mask=attention_mask(inputs, mask),
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
        return (x, scores) if return_attention_scores else x

    def compute_mask(self, inputs, previous_mask):
        return carried_mask(inputs)

    def compute_output_shape(self, inputs_shape):
        return (*inputs_shape[:-1], self.units[-1] if self.units else inputs_shape[-1])

    def compute_output_spec(
        self, inputs, mask=None, entity=None, training=False, return_attention_scores=False
    ):
        batch, nodes, features = inputs.shape
        updated = nodes if entity is None else 1
        output = tensor_spec(self, self.compute_output_shape((batch, updated, features)))
        scores = tensor_spec(self, (batch, self.attention.num_heads, updated, nodes))
        return (output, scores) if return_attention_scores else output

    def get_config(self):
        attention = self.attention.get_config()
        shared = ("num_heads", "key_size", "value_size", "score", "qkv_norm", "use_bias", "dropout")
        initial = ("kernel_initializer", "norm_initializer", "norm_epsilon", "seed")
        return {
            **super().get_config(),
            **{name: attention[name] for name in shared + initial},
            "units": self.units,
            "activation": keras.activations.serialize(self.activation),
            "residual": self.residual,
            "norm": self.norm,
        }
