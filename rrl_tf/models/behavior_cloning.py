"""A policy learned by imitation."""

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
    """Predicts the recorded action in a state, as a baseline for the Decision Transformer.

    A network of ReLU layers that reads the state of a step and, optionally, the return-to-go
    (RvS-R, Emmons et al., 2021). It has the call arguments of `DecisionTransformer`. Trained on the
    best episodes only, it is known as %BC.

    Args:
        state_size: S, size of a state.
        action_size: A, size of a continuous action, or the number of discrete ones.
        hidden_units: sizes of the ReLU layers.
        dropout: rate after each of them in training.
        discrete: whether actions are discrete. The prediction is their logits then; a continuous
            point has a `tanh`.
        return_conditioned: whether the network reads `"returns_to_go"`.
        distribution: prediction of continuous actions, a `"point"` or a `"censored_normal"`
            (`rrl_tf.layers.CensoredNormal`).
        noise_scale: that of a censored normal.
        members: M, number of networks, each trained on its part of every batch. The played action
            is the mean of their predictions.

    Call arguments:
        inputs: dict with `"states"` `(B, K, S)`, and with `return_conditioned` also
            `"returns_to_go"` `(B, K, 1)`; other keys are ignored.
        last_action: whether to return only the last step's action, `(B, A)`.
        training: whether to apply dropout.

    Returns:
        Dict of `"action"` `(B, K, A)` and, with a distribution, `"distribution"` `(B, K, 2 A)`,
        float32 also under a mixed policy.

    Raises:
        InvalidInput: for an argument out of its range, or a training batch that `members` does not
            divide.

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
        """Return the mean of all members' predictions for every row."""
        return sum(network(rows) for network in self.networks) / self.members

    def _parts(self, rows):
        """Return every member's predictions for its part of the rows."""
        if isinstance(rows.shape[0], int) and rows.shape[0] % self.members:
            raise InvalidInput(
                f"a batch must be a multiple of {self.members} steps, one part for each member; "
                f"received {rows.shape[0]}"
            )
        parts = zip(self.networks, ops.split(rows, self.members))
        return ops.concatenate([network(part, training=True) for network, part in parts])
