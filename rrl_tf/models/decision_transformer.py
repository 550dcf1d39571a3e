"""A policy learned as sequence modelling: what action leads to the return that is asked for?"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import positive_int
from rrl_tf._typing import Activation, Initializer, Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers import CausalTransformerBlock, TrajectoryEmbedding
from rrl_tf.layers.layer_normalization import LayerNormalization
from rrl_tf.layers.base import dense_on_rows, same_shape, tensor_spec
from rrl_tf.models._actions import activation, distribution_layer, predicted, predicted_specs
from rrl_tf.models._from_preset import FromPreset
from rrl_tf.models.presets import DECISION_TRANSFORMER

HEADS = ("action", "state", "return")
_OF_A_BLOCK = ("num_heads", "dropout", "dropout_placement", "norm", "activation", "epsilon")


@keras.saving.register_keras_serializable(package="rrl_tf")
class DecisionTransformer(FromPreset, keras.Model, presets=DECISION_TRANSFORMER):
    """Reads the last K steps and the return still wanted, and says what was done there.

    Every step is three tokens, return-to-go, state and action (`TrajectoryEmbedding`), which go
    through causal transformer blocks. The action is predicted from the state's token, which has
    seen the return-to-go and everything before it; state and return from the action's token.

    One padding convention for training, evaluation and serving: windows shorter than K are padded
    with zeros in front, and `mask` is false there. A padded step changes nothing in a real one.

    Args:
        state_size: S, size of a state.
        action_size: A, size of a continuous action, or the number of discrete ones.
        width: F, size of a token.
        num_blocks: number of transformer blocks.
        num_heads: H, heads of each.
        context_length: K, the steps of a window.
        max_timestep: number of time steps that have an embedding; later ones share the last.
        dropout: rate in the blocks in training.
        embedding_dropout: rate at which the tokens' features are dropped in training.
        dropout_placement: what a block drops within its attention, the `"output"` of the heads or
            the `"probabilities"`.
        norm: of the blocks, `"post"` or `"pre"`; with `"pre"`, another norm follows the last block.
        activation: of the blocks.
        epsilon: added to the variance in the norms.
        discrete: whether there are A actions to choose from. The prediction is their logits then;
            a continuous point goes through `tanh`.
        distribution: of continuous actions, a `"point"` or a `"censored_normal"`
            (`rrl_tf.layers.CensoredNormal`).
        played_noise: of a censored normal.
        heads: what is predicted: `"action"`, and of `"state"` and `"return"` what is wanted, in
            any order. With the action alone, the last block updates the states' tokens only,
            which is all it needs.
        kernel_initializer: initialiser of the matrices outside the blocks.
        block_initializer: initialiser of the matrices in the blocks.
        embeddings_initializer: initialiser of the table of positions.
        positions: what has an embedding, a time step of the `"episode"`, as in the originals, or a
            place in the `"window"`, of which there are K.

    Call arguments:
        inputs: dict of `"states"` `(B, K, S)`; `"actions"` `(B, K, A)`, one-hot where they are
            discrete; `"returns_to_go"` `(B, K, 1)`; `"timesteps"` `(B, K)`, integers; `"mask"`
            `(B, K)`, true or 1 for real steps. No action sees itself or a later one.
        last_action: whether only the last step's action is wanted, `(B, A)`.
        training: whether to apply dropout.
        return_attention_scores: whether to return the attention as well.

    Returns:
        Dict head → predictions, float32 also under a mixed policy: `"action"` `(B, K, A)`,
        `"state"` `(B, K, S)`, `"return"` `(B, K, 1)`, and where there is one the action's
        `"distribution"` `(B, K, 2 A)`. With `return_attention_scores`, a pair of it
        and of a dict `"block_1"`, ... → `(B, H, 3 K, 3 K)`, whose rows and columns are
        `r_0 s_0 a_0 r_1 ...`.

    Raises:
        InvalidInput: for an argument out of its range.

    Example:

    >>> model = DecisionTransformer.from_preset("min-dt", state_size=17, action_size=6)
    >>> window = {
    ...     "states": keras.ops.ones((1, 20, 17)),
    ...     "actions": keras.ops.ones((1, 20, 6)),
    ...     "returns_to_go": keras.ops.ones((1, 20, 1)),
    ...     "timesteps": keras.ops.zeros((1, 20), "int32"),
    ...     "mask": keras.ops.ones((1, 20)),
    ... }
    >>> tuple(model(window)["action"].shape), model.count_params()
    ((1, 20, 6), 1125912)

    References:
        - [Chen et al., 2021](https://arxiv.org/abs/2106.01345)
    """

    def __init__(
        self,
        state_size: int,
        action_size: int,
        width: int = 128,
        num_blocks: int = 3,
        num_heads: int = 1,
        context_length: int = 20,
        max_timestep: int = 4096,
        dropout: float = 0.1,
        embedding_dropout: float = 0.0,
        dropout_placement: str = "output",
        norm: str = "post",
        activation: Activation = "gelu",
        epsilon: float = 1e-5,
        discrete: bool = False,
        distribution: str = "point",
        played_noise: float = 1.0,
        heads: Collection[str] = HEADS,
        kernel_initializer: Initializer = "glorot_uniform",
        block_initializer: Initializer = "glorot_uniform",
        embeddings_initializer: Initializer = "random_normal",
        positions: str = "episode",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.state_size = positive_int("state_size", state_size)
        self.action_size = positive_int("action_size", action_size)
        self.context_length = positive_int("context_length", context_length)
        self.max_timestep = positive_int("max_timestep", max_timestep)
        self.discrete = bool(discrete)
        self.distribution, self.played_noise = distribution, played_noise
        self.action_distribution = distribution_layer(distribution, discrete, played_noise)
        self.heads = _checked_heads(heads)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.embedding = self._embedding(
            width,
            positions,
            dropout=embedding_dropout,
            epsilon=epsilon,
            kernel_initializer=kernel_initializer,
            embeddings_initializer=embeddings_initializer,
        )
        self.blocks = [
            CausalTransformerBlock(
                num_heads,
                activation=activation,
                norm=norm,
                dropout=dropout,
                dropout_placement=dropout_placement,
                epsilon=epsilon,
                kernel_initializer=keras.initializers.get(block_initializer).clone(),
                dtype=self.dtype_policy,
                name=f"block_{i}",
            )
            for i in range(1, positive_int("num_blocks", num_blocks) + 1)
        ]
        self._take_arguments()
        self.final_norm = self._final_norm() if self.norm == "pre" else None
        self.predictors = {head: self._predictor(head) for head in self.heads}

    def _embedding(self, width, positions, **arguments):
        number = self.context_length if positions == "window" else self.max_timestep
        arguments = {**arguments, "dtype": self.dtype_policy, "name": "embedding"}
        return TrajectoryEmbedding(width, number, positions=positions, **arguments)

    def _take_arguments(self):
        """The arguments that the layers have checked, as attributes."""
        block, embedding = self.blocks[0], self.embedding
        self.num_blocks = len(self.blocks)
        for name in _OF_A_BLOCK:
            setattr(self, name, getattr(block, name))
        self.block_initializer = block.kernel_initializer
        self.width, self.positions = embedding.width, embedding.positions
        self.embedding_dropout = embedding.dropout
        self.embeddings_initializer = embedding.embeddings_initializer

    def _final_norm(self):
        return LayerNormalization(epsilon=self.epsilon, dtype=self.dtype_policy, name="final_norm")

    def _predictor(self, head):
        sizes = {"action": self.action_size, "state": self.state_size, "return": 1}
        return keras.layers.Dense(
            sizes[head],
            activation=activation(self.distribution, self.discrete) if head == "action" else None,
            kernel_initializer=self.kernel_initializer.clone(),
            # Full precision under a mixed policy: the loss takes differences of predictions.
            dtype=self.dtype_policy.variable_dtype,
            name=f"predict_{head}",
        )

    def build(self, inputs_shape: dict[str, Shape] | None = None) -> None:
        if inputs_shape is not None:
            self._check_shapes(inputs_shape)
        self.embedding.build(
            {
                "states": (None, None, self.state_size),
                "actions": (None, None, self.action_size),
                "returns_to_go": (None, None, 1),
                "timesteps": (None, None),
            }
        )
        norms = [] if self.final_norm is None else [self.final_norm]
        for layer in (*self.blocks, *norms):
            layer.build((None, None, self.width))
        for predictor in self.predictors.values():
            predictor.build((None, self.width))
        if self.action_distribution is not None:
            self.action_distribution.build((None, self.action_size))

    def _check_shapes(self, shapes):
        wanted = {
            "states": (self.state_size,),
            "actions": (self.action_size,),
            "returns_to_go": (1,),
            "timesteps": (),
            "mask": (),
        }
        if not isinstance(shapes, dict) or shapes.keys() != wanted.keys():
            names = sorted(shapes) if isinstance(shapes, dict) else shapes
            raise InvalidInput(
                f"DecisionTransformer takes a dict of {', '.join(wanted)}; received {names}"
            )
        for name, last in wanted.items():
            if len(shapes[name]) != 2 + len(last) or tuple(shapes[name][2:]) != last:
                raise InvalidInput(
                    f"`{name}` must be of the shape {('B', 'K', *last)}; "
                    f"received {tuple(shapes[name])}"
                )

    def call(
        self,
        inputs: dict[str, Tensor],
        last_action: bool = False,
        training: bool = False,
        return_attention_scores: bool = False,
    ) -> dict[str, Tensor] | tuple[dict[str, Tensor], dict[str, Tensor]]:
        x = self.embedding(inputs, training=training)  # (B, 3 K, F)
        mask = inputs["mask"]
        if not same_shape(mask.shape, inputs["timesteps"].shape):  # one row would do for a batch
            raise InvalidInput(
                f"`mask` must be of the timesteps' shape {tuple(inputs['timesteps'].shape)}; "
                f"received {tuple(mask.shape)}"
            )
        mask = ops.repeat(ops.cast(mask, "bool"), 3, axis=1)
        # The last block updates only the rows that are read, unless its attention is to be shown.
        rows = slice(-2, -1) if last_action else slice(1, None, 3)
        few = (last_action or self.heads == ("action",)) and not return_attention_scores
        attention = {}
        for block in self.blocks:
            some = {"rows": rows} if few and block is self.blocks[-1] else {}
            if return_attention_scores:
                x, attention[block.name] = block(
                    x, mask=mask, training=training, return_attention_scores=True
                )
            else:
                x = block(x, mask=mask, training=training, **some)
        x = x if self.final_norm is None else self.final_norm(x)
        states = x if few else x[:, rows]
        states = states[:, 0] if last_action else states
        action = dense_on_rows(self.predictors["action"], states)
        predictions = predicted(action, self.action_distribution)
        if not last_action:
            for head in self.heads[1:]:
                predictions[head] = dense_on_rows(self.predictors[head], x[:, 2::3])
        return (predictions, attention) if return_attention_scores else predictions

    def compute_output_shape(self, inputs_shape: dict[str, Shape]) -> dict[str, Shape]:
        specs = self._specs(inputs_shape["timesteps"], self.heads)
        return {name: spec.shape for name, spec in specs.items()}

    def _specs(self, rows, heads):
        """Symbolic tensors of what is predicted for so many rows, `(B, K)` or `(B,)`."""
        action = tensor_spec(self.predictors["action"], (*rows, self.action_size))
        specs = predicted_specs(action, self.action_distribution)
        sizes = {"state": self.state_size, "return": 1}
        for head in heads[1:]:
            specs[head] = tensor_spec(self.predictors[head], (*rows, sizes[head]))
        return specs

    def compute_output_spec(
        self,
        inputs: dict[str, Tensor],
        last_action: bool = False,
        training: bool = False,
        return_attention_scores: bool = False,
    ) -> dict[str, keras.KerasTensor] | tuple[dict[str, keras.KerasTensor], ...]:
        batch, steps = inputs["timesteps"].shape
        if last_action:
            predictions = self._specs((batch,), ("action",))
        else:
            predictions = self._specs((batch, steps), self.heads)
        if not return_attention_scores:
            return predictions
        tokens = None if steps is None else 3 * steps
        shape = (batch, self.num_heads, tokens, tokens)
        return predictions, {block.name: tensor_spec(block, shape) for block in self.blocks}

    def get_config(self) -> dict[str, Any]:
        block, embedding = self.blocks[0].get_config(), self.embedding.get_config()
        return {
            **super().get_config(),
            "state_size": self.state_size,
            "action_size": self.action_size,
            "width": self.width,
            "num_blocks": self.num_blocks,
            "context_length": self.context_length,
            "max_timestep": self.max_timestep,
            "positions": self.positions,
            "embedding_dropout": self.embedding_dropout,
            "discrete": self.discrete,
            "distribution": self.distribution,
            "played_noise": self.played_noise,
            "heads": self.heads,
            "kernel_initializer": embedding["kernel_initializer"],
            "block_initializer": block["kernel_initializer"],
            "embeddings_initializer": embedding["embeddings_initializer"],
            **{name: block[name] for name in _OF_A_BLOCK},
        }


def _checked_heads(heads):
    """The heads in one order."""
    if not {"action"} <= set(heads) <= set(HEADS):
        raise InvalidInput(f'`heads` must be "action" and others of {HEADS}; received {heads!r}')
    return tuple(head for head in HEADS if head in heads)
