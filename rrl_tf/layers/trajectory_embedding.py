"""Define `TrajectoryEmbedding`, which embeds the steps of a trajectory as tokens."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import dropout_rate, one_of, positive_int
from rrl_tf._typing import Initializer, Shape, Tensor
from rrl_tf.layers.base import BaseLayer, dense_on_rows, make_dense, make_norm

POSITIONS = ("episode", "window")


@keras.saving.register_keras_serializable(package="rrl_tf")
class TrajectoryEmbedding(BaseLayer):
    """Embed every step of a trajectory as three tokens: return-to-go, state and action.

    A linear layer for each of the three computes the tokens. A learned vector for the position of
    the step is added to them. The sequence `r_0 s_0 a_0 r_1 s_1 a_1 ...` is then normalised.

    In the original, the position of a step is its time step in the episode (`"episode"`). A model
    can recognise a recorded step by its state and time step, and so memorise the noise in the
    recorded action. With `positions="window"`, the position is counted from the newest step of the
    window, which gives the model only the order of the steps.

    Args:
        width: F, the size of a token.
        max_timestep: number of position vectors; all later positions use the last vector.
        dropout: dropout rate of the tokens' features in training.
        epsilon: added to the variance in the norm; the default is PyTorch's.
        kernel_initializer: initialiser of every matrix.
        embeddings_initializer: initialiser of the position vectors.
        seed: seed of the dropout.
        positions: `"episode"` (a vector per time step of the episode) or `"window"` (a vector per
            position in the window; the values of `"timesteps"` have no effect).

    Call arguments:
        inputs: dict of `"states"` `(B, K, S)`; `"actions"` `(B, K, A)`, one-hot if they are
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
        sizes = {name: shape[-1] for name, shape in inputs_shape.items()}
        self.return_to_go = make_dense(self, "return_to_go", self.width, sizes["returns_to_go"])
        self.state = make_dense(self, "state", self.width, sizes["states"])
        self.action = make_dense(self, "action", self.width, sizes["actions"])
        self.norm = make_norm(self, "norm", (None, None, self.width), self.epsilon)
        self.token_dropout = keras.layers.Dropout(
            self.dropout, seed=self.seed, dtype=self.dtype_policy, name="dropout"
        )

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
            # Counted from the newest step, because windows are padded in front.
            timesteps = ops.arange(ops.shape(timesteps)[1] - 1, -1, -1)
        return ops.clip(timesteps, 0, self.max_timestep - 1)

    def compute_output_shape(self, inputs_shape: dict[str, Shape]) -> Shape:
        batch, steps = inputs_shape["timesteps"]
        return (batch, None if steps is None else 3 * steps, self.width)
