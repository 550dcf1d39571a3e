"""Define `BehaviorCloning`, a policy that imitates recorded actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import dropout_rate, positive_int, positive_ints
from rrl_tf._typing import Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.models.base import ActionModel


@keras.saving.register_keras_serializable(package="rrl_tf")
class BehaviorCloning(ActionModel):
    """Predict the recorded action from the state, as a baseline for the Decision Transformer.

    The model is a network of ReLU layers that reads the state of a step and, optionally, the
    return-to-go (RvS-R, Emmons et al., 2021). It has the same call arguments as
    `DecisionTransformer`. Training it on the best episodes only is known as %BC.

    Args:
        state_size: S, size of a state.
        action_size: A, size of a continuous action, or number of discrete actions.
        hidden_units: sizes of the ReLU layers.
        dropout: dropout rate after each ReLU layer in training.
        discrete: whether actions are discrete. The model then predicts logits. Otherwise, with
            `distribution="point"`, a `tanh` follows the last layer.
        return_conditioned: whether the network reads `"returns_to_go"`.
        distribution: what the model predicts for continuous actions: the action (`"point"`) or a
            distribution (`"censored_normal"`, see `rrl_tf.layers.CensoredNormal`).
        noise_scale: the `noise_scale` of the `CensoredNormal` layer.
        members: M, number of networks in the ensemble. In training, each member learns from its own
            part of every batch. Otherwise, the result is the mean of their predictions.

    Call arguments:
        inputs: dict with `"states"` `(B, K, S)`, and with `return_conditioned` also
            `"returns_to_go"` `(B, K, 1)`. Other keys are ignored.
        last_action: whether to return only the action of the last step, `(B, A)`.
        training: whether to apply dropout.

    Returns:
        Dict of `"action"` `(B, K, A)` and, with a censored normal distribution, `"distribution"`
        `(B, K, 2 A)`. They are float32 also under a mixed-precision policy.

    Raises:
        InvalidInput: for an argument out of its range, or for a training batch whose number of
            steps is not a multiple of `members`.

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
        noise_scale: float = 1.0,
        members: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set_action(state_size, action_size, discrete, distribution, noise_scale)
        self.hidden_units = positive_ints("hidden_units", hidden_units)
        self.dropout = dropout_rate("dropout", dropout)
        self.return_conditioned = bool(return_conditioned)
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
            activation=self._action_activation,
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
        return self._actions(prediction)

    def _mean(self, rows):
        """Return the mean of the predictions of all members for every row."""
        return sum(network(rows) for network in self.networks) / self.members

    def _parts(self, rows):
        """Split the rows into one part per member, and return each member's predictions for it."""
        if isinstance(rows.shape[0], int) and rows.shape[0] % self.members:
            raise InvalidInput(
                f"the number of steps in a batch must be a multiple of members={self.members}; "
                f"received {rows.shape[0]}"
            )
        parts = zip(self.networks, ops.split(rows, self.members))
        return ops.concatenate([network(part, training=True) for network, part in parts])
