"""A policy learned by imitation alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import dropout_rate, positive_int, positive_ints
from rrl_tf._typing import Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.models._actions import activation, distribution_layer, predicted, predicted_specs


@keras.saving.register_keras_serializable(package="rrl_tf")
class BehaviorCloning(keras.Model):
    """Says what was done in a state: what a Decision Transformer must beat.

    A network of ReLU layers that sees the state of a step and nothing else, or the return that is
    asked for as well (RvS-R, Emmons et al., 2021). It is called as `DecisionTransformer` is.
    Trained on the best episodes only, it is known as %BC.

    Args:
        state_size: S, size of a state.
        action_size: A, size of a continuous action, or the number of discrete ones.
        hidden_units: sizes of the ReLU layers.
        dropout: rate after each of them in training.
        discrete: whether there are A actions to choose from. The prediction is their logits then;
            a continuous point goes through `tanh`.
        return_conditioned: whether the network sees `"returns_to_go"`.
        distribution: of continuous actions, a `"point"` or a `"censored_normal"`
            (`rrl_tf.layers.CensoredNormal`).
        played_noise: of a censored normal.
        members: M, networks that are trained side by side, each on its share of every batch; what
            is played is the mean of their predictions.

    Call arguments:
        inputs: dict with `"states"` `(B, K, S)`, and `"returns_to_go"` `(B, K, 1)` where it is
            conditioned on them; what else is in it is not looked at.
        last_action: whether only the last step's action is wanted, `(B, A)`.
        training: whether to apply dropout.

    Returns:
        Dict `"action"` → `(B, K, A)`, and `"distribution"` → `(B, K, 2 A)` where there is one,
        float32 also under a mixed policy.

    Raises:
        InvalidInput: for an argument out of its range, or a batch in training that the members
            cannot share.

    Example:

    >>> model = BehaviorCloning(state_size=17, action_size=6)
    >>> tuple(model({"states": keras.ops.ones((2, 1, 17))})["action"].shape)
    (2, 1, 6)

    References:
        - [Emmons et al., 2021](https://arxiv.org/abs/2112.10751)
    """

    context_length = 1

    def __init__(
        self,
        state_size: int,
        action_size: int,
        hidden_units: Sequence[int] = (256, 256),
        dropout: float = 0.1,
        discrete: bool = False,
        return_conditioned: bool = False,
        distribution: str = "point",
        played_noise: float = 1.0,
        members: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.state_size = positive_int("state_size", state_size)
        self.action_size = positive_int("action_size", action_size)
        self.hidden_units = positive_ints("hidden_units", hidden_units)
        self.dropout = dropout_rate("dropout", dropout)
        self.discrete, self.return_conditioned = bool(discrete), bool(return_conditioned)
        self.distribution, self.played_noise = distribution, played_noise
        self.action_distribution = distribution_layer(distribution, discrete, played_noise)
        self.members = positive_int("members", members)
        self.networks = [self._network(i) for i in range(self.members)]

    def _network(self, number):
        layers = []
        for i, units in enumerate(self.hidden_units, start=1):
            layers += [
                keras.layers.Dense(units, "relu", dtype=self.dtype_policy, name=f"hidden_{i}"),
                keras.layers.Dropout(self.dropout, dtype=self.dtype_policy, name=f"dropout_{i}"),
            ]
        head = keras.layers.Dense(
            self.action_size,
            activation=activation(self.distribution, self.discrete),
            dtype=self.dtype_policy.variable_dtype,
            name="head",
        )
        return keras.Sequential([*layers, head], name=f"member_{number}")

    def build(self, inputs_shape: dict[str, Shape] | None = None) -> None:
        for network in self.networks:
            network.build((None, self.state_size + self.return_conditioned))
        if self.action_distribution is not None:
            self.action_distribution.build((None, self.action_size))

    def call(
        self, inputs: dict[str, Tensor], last_action: bool = False, training: bool = False
    ) -> dict[str, Tensor]:
        x = inputs["states"]
        if self.return_conditioned:
            x = ops.concatenate([x, ops.cast(inputs["returns_to_go"], x.dtype)], axis=-1)
        x = x[:, -1] if last_action else x
        rows = ops.reshape(x, (-1, x.shape[-1]))
        prediction = self._parts(rows) if training else self._mean(rows)
        prediction = ops.reshape(prediction, (*ops.shape(x)[:-1], self.action_size))
        return predicted(prediction, self.action_distribution)

    def _mean(self, rows):
        """The mean of all members' predictions for every row."""
        return sum(network(rows) for network in self.networks) / self.members

    def _parts(self, rows):
        """Every member's predictions for its share of the rows."""
        if isinstance(rows.shape[0], int) and rows.shape[0] % self.members:
            raise InvalidInput(
                f"a batch must be shared by {self.members} members; received {rows.shape[0]} steps"
            )
        parts = zip(self.networks, ops.split(rows, self.members))
        return ops.concatenate([network(part, training=True) for network, part in parts])

    def compute_output_shape(self, inputs_shape: dict[str, Shape]) -> dict[str, Shape]:
        specs = self._specs((*inputs_shape["states"][:-1], self.action_size))
        return {name: spec.shape for name, spec in specs.items()}

    def _specs(self, shape):
        spec = keras.KerasTensor(shape, dtype=self.dtype_policy.variable_dtype)
        return predicted_specs(spec, self.action_distribution)

    def compute_output_spec(
        self, inputs: dict[str, Tensor], last_action: bool = False, training: bool = False
    ) -> dict[str, keras.KerasTensor]:
        batch, steps, _ = inputs["states"].shape
        shape = (batch, self.action_size) if last_action else (batch, steps, self.action_size)
        return self._specs(shape)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "state_size": self.state_size,
            "action_size": self.action_size,
            "hidden_units": self.hidden_units,
            "dropout": self.dropout,
            "discrete": self.discrete,
            "return_conditioned": self.return_conditioned,
            "distribution": self.distribution,
            "played_noise": self.played_noise,
            "members": self.members,
        }
