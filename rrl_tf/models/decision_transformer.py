"""Define `DecisionTransformer`, a policy that is conditioned on a target return."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import positive_int
from rrl_tf._typing import Activation, Initializer, Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers import CausalTransformerBlock, TrajectoryEmbedding
from rrl_tf.layers.base import LayerNormalization, dense_on_rows, make_dense, same_shape
from rrl_tf.models.architectures import DECISION_TRANSFORMER
from rrl_tf.models.base import ActionModel

HEADS = ("action", "state", "return")
_OF_A_BLOCK = ("num_heads", "dropout", "dropout_placement", "norm", "activation", "epsilon")


@keras.saving.register_keras_serializable(package="rrl_tf")
class DecisionTransformer(ActionModel, architectures=DECISION_TRANSFORMER):
    """Predict the actions of a window of steps from states, earlier actions and returns-to-go.

    `TrajectoryEmbedding` turns every step into three tokens, return-to-go, state and action. They
    are the input of causal transformer blocks. The output at a state token, which attends to the
    return-to-go of its step and to all earlier tokens, predicts the action. The output at an action
    token predicts the next state and return-to-go.

    Training, evaluation and serving use the same padding: windows with fewer than K steps have
    zeros in front, where `mask` is false. Padding does not affect the other steps.

    Args:
        state_size: S, size of a state.
        action_size: A, size of a continuous action, or number of discrete actions.
        width: F, size of a token.
        num_blocks: number of transformer blocks.
        num_heads: H, number of heads of each block.
        context_length: K, number of steps in a window.
        max_timestep: number of time steps with their own embedding; all later time steps use the
            last one.
        dropout: dropout rate in the blocks.
        embedding_dropout: dropout rate of the tokens' features.
        dropout_placement: where dropout is applied within the attention of a block: `"output"`, the
            output of the heads, or `"probabilities"`, the attention probabilities.
        norm: position of the norms in the blocks, `"post"` or `"pre"`. With `"pre"`, another norm
            follows the last block.
        activation: activation in the blocks.
        epsilon: added to the variance in the norms.
        discrete: whether actions are discrete. The model then predicts logits. Otherwise, with
            `distribution="point"`, a `tanh` follows the last layer.
        distribution: what the model predicts for continuous actions: the action (`"point"`) or a
            distribution (`"censored_normal"`, see `rrl_tf.layers.CensoredNormal`).
        noise_scale: the `noise_scale` of the `CensoredNormal` layer.
        heads: names of the predictions: `"action"`, and optionally `"state"` and `"return"`. If the
            action is the only prediction, the last block updates the tokens of the states only.
        kernel_initializer: initialiser of the matrices outside the blocks.
        block_initializer: initialiser of the matrices in the blocks.
        embeddings_initializer: initialiser of the position embeddings.
        positions: `"episode"` (an embedding per time step of the episode, as in the originals) or
            `"window"` (an embedding per position in the window).

    Call arguments:
        inputs: dict of `"states"` `(B, K, S)`; `"actions"` `(B, K, A)`, one-hot if discrete;
            `"returns_to_go"` `(B, K, 1)`; `"timesteps"` `(B, K)`, integers; `"mask"`
            `(B, K)`, false or 0 for padding. The prediction of an action does not depend on that
            action or on later steps.
        last_action: whether to return only the action of the last step, `(B, A)`.
        training: whether to apply dropout.
        return_attention_scores: whether to return the attention as well.

    Returns:
        Dict of predictions: `"action"` `(B, K, A)`, `"state"` `(B, K, S)`, `"return"` `(B, K, 1)`
        and, with a censored normal distribution, `"distribution"` `(B, K, 2 A)`. They are float32
        also under a mixed-precision policy. With `return_attention_scores`, a pair of this dict and
        a dict `"block_1"`, ... -> attention `(B, H, 3 K, 3 K)`, whose rows and columns are
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
        noise_scale: float = 1.0,
        heads: Collection[str] = HEADS,
        kernel_initializer: Initializer = "glorot_uniform",
        block_initializer: Initializer = "glorot_uniform",
        embeddings_initializer: Initializer = "random_normal",
        positions: str = "episode",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set_action(state_size, action_size, discrete, distribution, noise_scale)
        self.context_length = positive_int("context_length", context_length)
        self.max_timestep = positive_int("max_timestep", max_timestep)
        self.num_blocks = positive_int("num_blocks", num_blocks)
        self.heads = _checked_heads(heads)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.embedding = TrajectoryEmbedding(
            width,
            self.context_length if positions == "window" else self.max_timestep,
            positions=positions,
            dropout=embedding_dropout,
            epsilon=epsilon,
            kernel_initializer=kernel_initializer,
            embeddings_initializer=embeddings_initializer,
            dtype=self.dtype_policy,
            name="embedding",
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
            for i in range(1, self.num_blocks + 1)
        ]
        self._take_arguments()
        self.final_norm = self._make_final_norm() if self.norm == "pre" else None
        self.predictors = self._make_predictors()

    def _take_arguments(self):
        """Store the arguments that the layers have checked as attributes of the model."""
        for name in _OF_A_BLOCK:
            setattr(self, name, getattr(self.blocks[0], name))
        self.block_initializer = self.blocks[0].kernel_initializer
        self.width, self.positions = self.embedding.width, self.embedding.positions
        self.embedding_dropout = self.embedding.dropout
        self.embeddings_initializer = self.embedding.embeddings_initializer

    def _make_final_norm(self):
        return LayerNormalization(epsilon=self.epsilon, dtype=self.dtype_policy, name="final_norm")

    def _make_predictors(self):
        sizes = {"action": self.action_size, "state": self.state_size, "return": 1}
        return {
            head: make_dense(
                self,
                f"predict_{head}",
                sizes[head],
                activation=self._action_activation if head == "action" else None,
                full_precision=True,
            )
            for head in self.heads
        }

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
        layers = [*self.blocks, *self.predictors.values()]
        for layer in layers if self.final_norm is None else [*layers, self.final_norm]:
            layer.build((None, None, self.width))
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
            raise InvalidInput(f"`inputs` must be a dict of {', '.join(wanted)}; received {names}")
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
        if not same_shape(mask.shape, inputs["timesteps"].shape):  # one row would broadcast
            raise InvalidInput(
                f"`mask` must have the shape of `timesteps`, {tuple(inputs['timesteps'].shape)}; "
                f"received {tuple(mask.shape)}"
            )
        mask = ops.repeat(ops.cast(mask, "bool"), 3, axis=1)
        # The last block computes only the rows that are used, unless its attention is returned.
        rows = slice(-2, -1) if last_action else slice(1, None, 3)
        few = (last_action or self.heads == ("action",)) and not return_attention_scores
        attention = {}
        for block in self.blocks:
            x, attention[block.name] = block(
                x,
                mask=mask,
                rows=rows if few and block is self.blocks[-1] else None,
                training=training,
                return_attention_scores=True,
            )
        x = x if self.final_norm is None else self.final_norm(x)
        states = x if few else x[:, rows]
        states = states[:, 0] if last_action else states
        action = dense_on_rows(self.predictors["action"], states)
        predictions = self._actions(action)
        if not last_action:
            for head in self.heads[1:]:
                predictions[head] = dense_on_rows(self.predictors[head], x[:, 2::3])
        return (predictions, attention) if return_attention_scores else predictions


def _checked_heads(heads):
    """Return the names of the predictions in the order of `HEADS`."""
    if not {"action"} <= set(heads) <= set(HEADS):
        raise InvalidInput(
            f'`heads` must contain "action" and only names of {HEADS}; received {heads!r}'
        )
    return tuple(head for head in HEADS if head in heads)
