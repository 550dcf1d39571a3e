"""What every value-based agent here is trained by: optimiser and target network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import keras
import numpy as np
import tensorflow as tf

from rrl_tf._arguments import not_finite, one_of, positive_int
from rrl_tf._typing import Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.training.optimizers import OptimizerName, make_optimizer


class Learner:
    """A network, its optimiser, and a target network that follows.

    After every `target_period` updates the target network moves `target_rate` of the way to the
    online one: `(100, 1.0)` copies it every 100 updates, `(1, 0.01)` lets it follow softly. A
    target that follows softly is a running average of the online weights, with less noise in its
    values: then it is the `policy`, which is evaluated and exported, while the online network
    gathers experience.

    Args:
        network: a built `keras.Model`.
        learning_rate: float or Keras schedule, the optimiser's step size.
        clip_norm: float or None, largest global norm of the gradient.
        target_period: int ≥ 1, updates between moves of the target network.
        target_rate: float in (0, 1], how far it moves.
        optimizer: `"adam"` or `"muon"`, see `make_optimizer`.

    Attributes:
        network, target, optimizer: see above.

    Raises:
        InvalidInput: if an argument is out of range or the network is not built.

    Example:
        >>> network = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        >>> learner = Learner(network, learning_rate=1e-3, clip_norm=10.0)
        >>> with tf.GradientTape() as tape:
        ...     loss = tf.reduce_mean(network(tf.ones((8, 4))) ** 2)
        >>> norm = learner.apply(tape.gradient(loss, network.trainable_variables))
        >>> learner.policy is learner.target
        True

    Source: Mnih et al. (2015) for the target network.
    """

    def __init__(
        self,
        network: keras.Model,
        learning_rate: Any = 1e-3,
        clip_norm: float | None = 10.0,
        target_period: int = 1,
        target_rate: float = 0.01,
        optimizer: OptimizerName = "adam",
    ) -> None:
        if not network.built:
            raise InvalidInput(
                f"network {network.name!r} has no weights yet: call its build() first"
            )
        if not 0 < target_rate <= 1:
            raise InvalidInput(f"target_rate must be in (0, 1]; received {target_rate}")
        self.network = network
        self.target = _copy(network)
        name = one_of("optimizer", optimizer, get_args(OptimizerName))
        self.optimizer = _built(
            network, name, learning_rate=learning_rate, global_clipnorm=clip_norm
        )
        self.target_period = positive_int("target_period", target_period)
        self.target_rate = target_rate

    @property
    def policy(self) -> keras.Model:
        """The network to evaluate and export: the averaged one, if there is one."""
        return self.target if self.target_rate < 1 else self.network

    def apply(self, gradients: Sequence[Tensor]) -> Tensor:
        """One step of the optimiser, after which the target follows; the gradient's norm."""
        scale = self.optimizer.scale_loss(1.0)
        with tf.name_scope("optimizer"):
            self.optimizer.apply(gradients, self.network.trainable_variables)
            self._follow()
        return tf.linalg.global_norm(gradients) / scale

    def _follow(self):
        due = tf.equal(self.optimizer.iterations % self.target_period, 0)
        rate = tf.where(due, self.target_rate, 0.0)
        for target, online in zip(self.target.variables, self.network.variables):
            if keras.backend.is_float_dtype(target.dtype):  # the state of a random seed is none
                target.assign_add(rate * (online - target))

    def get_state(self) -> dict[str, np.ndarray]:
        """All weights, target weights and optimiser variables as a dict name → array."""
        return {name: np.asarray(variable.numpy()) for name, variable in self._variables().items()}

    def set_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restores what `get_state` returned.

        Raises:
            InvalidInput: naming what is missing, unknown, of another shape or not finite, three of
                them; nothing is changed then.
        """
        variables = self._variables()
        wrong = [f"missing {name}" for name in variables if name not in arrays]
        wrong += [f"unknown {name}" for name in arrays if name not in variables]
        wrong += [
            f"{name} is {arrays[name].shape}, expected {tuple(variable.shape)}"
            for name, variable in variables.items()
            if name in arrays and arrays[name].shape != tuple(variable.shape)
        ]
        wrong += [
            f"{name} holds {received}, expected finite numbers"
            for name, array in arrays.items()
            if (received := not_finite(array)) is not None
        ]
        if wrong:
            more = f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
            raise InvalidInput(f"agent state does not fit this agent: {'; '.join(wrong[:3])}{more}")
        for name, variable in variables.items():
            variable.assign(arrays[name])

    def _variables(self):
        groups = {
            "online": self.network.variables,
            "target": self.target.variables,
            "optimizer": self.optimizer.variables,
        }
        return {
            f"{group}/{position:03d}": variable
            for group, variables in groups.items()
            for position, variable in enumerate(variables)
        }


def _built(network, name, **options):
    optimizer = make_optimizer(name, **options)
    # Small gradients would be zeros in half precision.
    if any(layer.compute_dtype == "float16" for layer in (network, *network.layers)):
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    optimizer.build(network.trainable_variables)
    return optimizer


def _copy(network):
    """A second network of the same configuration and weights."""
    twin = network.__class__.from_config(network.get_config())
    twin.build_from_config(network.get_build_config())
    twin.set_weights(network.get_weights())
    return twin
