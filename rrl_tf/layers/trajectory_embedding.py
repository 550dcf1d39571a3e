"""Steps of a trajectory as tokens of a sequence."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import dropout_rate, one_of, positive_int
from rrl_tf._typing import Initializer, Shape, Tensor
from rrl_tf.layers._layer_norm import LayerNormalization
from rrl_tf.layers._shapes import dense_on_rows, tensor_spec

POSITIONS = ("episode", "window")


@keras.saving.register_keras_serializable(package="rrl_tf")
class TrajectoryEmbedding(keras.layers.Layer):
    """Turns every step into three tokens: the return still to come, the state and the action.

    Each has its own linear map, to whose result a learned vector of the step's position is added;
    the sequence `r_0 s_0 a_0 r_1 s_1 a_1 ...` then goes through a norm.

    The original's positions are time steps of the episode. With the state, they tell one recorded
    step from all others, so that a network may learn by heart what noise was played there. Places
    in the window, counted from its newest step, only tell what came when.

    Args:
        width: F, the size of a token.
        max_timestep: number of positions that have a vector; later ones share the last.
        dropout: rate at which the tokens' features are dropped in training.
        epsilon: added to the variance in the norm; PyTorch's 1e-5.
        kernel_initializer: initialiser of every matrix.
        embeddings_initializer: initialiser of the table of positions.
        seed: seed of the dropout.
        positions: what has a vector, a time step of the `"episode"` or a place in the `"window"`,
            which does not look at `"timesteps"`.

    Call arguments:
        inputs: dict of `"states"` `(B, K, S)`; `"actions"` `(B, K, A)`, one-hot where they are
            discrete; `"returns_to_go"` `(B, K, 1)`; `"timesteps"` `(B, K)`, integers.
        training: whether to apply dropout.

    Returns:
        Tokens `(B, 3 K, F)`.

    Raises:
        InvalidInput: for an argument out of its range.

    Example:

    >>> inputs = {
    ...     "states": keras.ops.ones((1, 20, 17)),
    ...     "actions": keras.ops.ones((1, 20, 6)),
    ...     "returns_to_go": keras.ops.ones((1, 20, 1)),
    ...     "timesteps": keras.ops.zeros((1, 20), "int32"),
    ... }
    >>> tuple(TrajectoryEmbedding(width=32, max_timestep=1000)(inputs).shape)
    (1, 60, 32)

    References:
        - [Chen et al., 2021](https://arxiv.org/abs/2106.01345)
    """

    def __init__(
        self,
        width: int,
        max_timestep: int = 4096,
        dropout: float = 0.0,
        epsilon: float = 1e-5,
        kernel_initializer: Initializer = "glorot_uniform",
        embeddings_initializer: Initializer = "random_normal",
        seed: int | None = None,
        positions: str = "episode",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.width = positive_int("width", width)
        self.max_timestep = positive_int("max_timestep", max_timestep)
        self.positions = one_of("positions", positions, POSITIONS)
        self.dropout = dropout_rate("dropout", dropout)
        self.epsilon = epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.seed = seed

    def build(self, inputs_shape: dict[str, Shape]) -> None:
        self.timestep = keras.layers.Embedding(
            self.max_timestep,
            self.width,
            embeddings_initializer=self.embeddings_initializer,
            dtype=self.dtype_policy,
            name="timestep",
        )
        self.timestep.build((None, None))
        self.return_to_go = self._dense("return_to_go", inputs_shape["returns_to_go"][-1])
        self.state = self._dense("state", inputs_shape["states"][-1])
        self.action = self._dense("action", inputs_shape["actions"][-1])
        self.norm = LayerNormalization(epsilon=self.epsilon, dtype=self.dtype_policy, name="norm")
        self.norm.build((None, None, self.width))
        self.token_dropout = keras.layers.Dropout(
            self.dropout, seed=self.seed, dtype=self.dtype_policy, name="dropout"
        )

    def _dense(self, name, features):
        dense = keras.layers.Dense(
            self.width,
            # A clone, as one unseeded initialiser gives the same numbers at every use.
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name=name,
        )
        dense.build((None, features))
        return dense

    def call(self, inputs: dict[str, Tensor], training: bool = False) -> Tensor:
        position = self.timestep(self._positions(inputs["timesteps"]))  # (B, K, F) or (K, F)
        tokens = [
            dense_on_rows(self.return_to_go, inputs["returns_to_go"]) + position,
            dense_on_rows(self.state, inputs["states"]) + position,
            dense_on_rows(self.action, inputs["actions"]) + position,
        ]
        tokens = ops.stack(tokens, axis=2)  # (B, K, 3, F)
        tokens = ops.reshape(tokens, (-1, 3 * ops.shape(tokens)[1], self.width))
        return self.token_dropout(self.norm(tokens), training=training)

    def _positions(self, timesteps):
        if self.positions == "window":
            # From the newest step on, as windows are padded in front.
            timesteps = ops.arange(ops.shape(timesteps)[1] - 1, -1, -1)
        return ops.clip(timesteps, 0, self.max_timestep - 1)

    def compute_output_shape(self, inputs_shape: dict[str, Shape]) -> Shape:
        batch, steps = inputs_shape["timesteps"]
        return (batch, None if steps is None else 3 * steps, self.width)

    def compute_output_spec(
        self, inputs: dict[str, Tensor], training: bool = False
    ) -> keras.KerasTensor:
        shapes = {name: tensor.shape for name, tensor in inputs.items()}
        return tensor_spec(self, self.compute_output_shape(shapes))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "width": self.width,
            "max_timestep": self.max_timestep,
            "positions": self.positions,
            "dropout": self.dropout,
            "epsilon": self.epsilon,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
            "seed": self.seed,
        }
