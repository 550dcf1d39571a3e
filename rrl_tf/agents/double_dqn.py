"""Define `DoubleDQN`, an agent that learns from batches of replayed transitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import keras
import numpy as np
import tensorflow as tf

from rrl_tf._arguments import assign_arrays, one_of, positive_int, variable_arrays
from rrl_tf._typing import Tensor
from rrl_tf.agents import random
from rrl_tf.agents.losses import LOSSES, double_dqn_loss, double_dqn_target
from rrl_tf.errors import InvalidInput
from rrl_tf.training.names import OptimizerName
from rrl_tf.training.optimizers import limit_loss_scale, make_optimizer

State = dict[str, Tensor]
"""Recurrent state of E environments, a dict name → `(E, ...)`; empty for a network without
memory."""


class DoubleDQN:
    """Double DQN agent: an online network, a target network, and a compiled training step.

    The online network selects the action at `t + n`, and the target network evaluates it
    (`double_dqn_target`). Every `target_period` gradient steps, the target network moves towards
    the online network by the fraction `target_rate`. For example, `target_period=100,
    target_rate=1.0` copies the weights every 100 gradient steps, and `target_period=1,
    target_rate=0.01` keeps an exponential moving average. A moving average has less noisy Q values.
    It is therefore the `policy` that is evaluated and exported, while the online network collects
    experience.

    Args:
        network: built `keras.Model` that maps preprocessed observations `(B, ...)` to Q values
            `(B, A)`.
        preprocess: `Preprocessor`, or another function that maps raw to preprocessed observations.
            It must use `keras.ops`, because it runs in the graph.
        learning_rate: float or Keras schedule.
        clip_norm: maximum global norm of the gradient; `None` does not clip.
        loss: `"huber"` or `"mse"`.
        target_period: number of gradient steps between updates of the target network.
        target_rate: fraction in (0, 1] by which such an update moves the target network.
        optimizer: `"adam"` or `"muon"`, see `make_optimizer`.
        select_at_t: select the bootstrap action from the Q values at `t` instead of `t + n`. The
            published code of the book contains this error; use it only to measure its effect.
        jit_compile: compile acting and the training step with XLA.
        spread: function that computes gradients on several devices, such as
            `rrl_tf.training.Replicas.spread`; `None` for one device.

    Raises:
        InvalidInput: if an argument is out of range or the network is not built.

    Example:
        >>> from rrl_tf.envs import doorkey_task
        >>> from rrl_tf.models import RelationalQNetwork
        >>> task = doorkey_task()
        >>> network = RelationalQNetwork.from_preset("fast", task.preprocessor, num_actions=5)
        >>> network.build((None, *task.preprocessor.shape))
        >>> agent = DoubleDQN(network, task.preprocessor)
        >>> agent.greedy(np.zeros((4, 7, 7, 4), "uint8")).shape  # in four environments
        (4,)

    Source: van Hasselt, Guez and Silver (2016); Mnih et al. (2015) for the target network.
    """

    _jit_update = True

    def __init__(
        self,
        network: keras.Model,
        preprocess: Callable[[Any], Any],
        *,
        learning_rate: Any = 1e-3,
        clip_norm: float | None = 10.0,
        loss: str = "huber",
        target_period: int = 1,
        target_rate: float = 0.01,
        optimizer: OptimizerName = "adam",
        select_at_t: bool = False,
        jit_compile: bool = True,
        spread: Callable[..., Callable[[Any], tuple[Any, Any]]] | None = None,
    ) -> None:
        if not network.built:
            raise InvalidInput(
                f"`network` must be built; received {network.name!r} without weights. Call its "
                "`build` method first."
            )
        if not 0 < target_rate <= 1:
            raise InvalidInput(f"`target_rate` must be in (0, 1]; received {target_rate}.")
        self.network = network
        self.target = _copy(network)
        self.preprocess = preprocess
        self.loss = one_of("loss", loss, LOSSES)
        self.target_period = positive_int("target_period", target_period)
        self.target_rate = target_rate
        self.select_at_t = select_at_t
        self.jit_compile = jit_compile
        name = one_of("optimizer", optimizer, get_args(OptimizerName))
        self.optimizer = make_optimizer(
            name, learning_rate=learning_rate, global_clipnorm=clip_norm
        )
        # Half precision would round small gradients to zero.
        if any(layer.compute_dtype == "float16" for layer in (network, *network.layers)):
            self.optimizer = keras.optimizers.LossScaleOptimizer(self.optimizer)
        self.optimizer.build(network.trainable_variables)
        self._gradients_of_batch: Callable[[Any], tuple[Any, Any]] = self._gradients
        if spread:
            scale = getattr(self.optimizer, "dynamic_scale", None)  # read where losses are scaled
            read = [*network.variables, *self.target.variables, *filter(None, [scale])]
            self._gradients_of_batch = spread(self._gradients, read, jit_compile=jit_compile)
        jit_update = jit_compile and self._jit_update and not spread
        self.update = tf.function(self._update, jit_compile=jit_update, autograph=False)
        self._policy_values = tf.function(
            self.policy_values, reduce_retracing=True, autograph=False
        )

    @property
    def policy(self) -> keras.Model:
        """The network to evaluate and export: the target network if it is a moving average
        (`target_rate` < 1), otherwise the online network."""
        return self.target if self.target_rate < 1 else self.network

    def initial_state(self, num_envs: int, network: keras.Model | None = None) -> State:
        """Return the recurrent state at the start of E episodes; an empty dict for this agent.

        Args:
            num_envs: E.
            network: network that acts; by default the online network.
        """
        return {}

    def next_state(self, memory: Tensor, action: Tensor, reward: Tensor, done: Tensor) -> State:
        """Return the recurrent state after a step; an empty dict for this agent.

        Args:
            memory: `(E, M)` memory as returned by `act`.
            action: `(E,)` actions taken.
            reward: `(E,)` rewards received.
            done: `(E,)` bool, True where an episode is done and the next one begins.
        """
        return {}

    def values(self, network: keras.Model, observation: Any, state: State) -> tuple[Tensor, Tensor]:
        """Return Q values `(E, A)` float32 and the memory `(E, M)`; M is 0 for this agent.

        Args:
            network: the agent's `network` or `target`.
            observation: raw observations `(E, ...)`.
            state: as returned by `initial_state` or `next_state`.
        """
        values = tf.cast(network(self.preprocess(observation), training=False), tf.float32)
        return values, values[:, :0]

    def act(self, observation: Any, state: State, epsilon: Any, seed: Any) -> tuple[Tensor, Tensor]:
        """Return epsilon-greedy actions `(E,)` of the online network, and the memory `(E, M)`.

        Args:
            observation, state: as for `values`.
            epsilon: probability of a random action, a scalar or `(E,)`.
            seed: two integers or a tensor `(2,)`.
        """
        values, memory = self.values(self.network, observation, state)
        return random.epsilon_greedy(values, epsilon, seed), memory

    def policy_values(self, observation: Any, state: State) -> tuple[Tensor, Tensor]:
        """Return the result of `values` for the network `policy`."""
        return self.values(self.policy, observation, state)

    def greedy(self, observation: Any) -> np.ndarray:
        """Return the greedy actions `(B,)` of the `policy` for raw observations `(B, ...)`."""
        values, _ = self._policy_values(tf.convert_to_tensor(observation), {})
        return values.numpy().argmax(axis=-1)

    def greedy_policy(self) -> Any:
        """Return the greedy `policy` as the argument `act` of `rrl_tf.agents.evaluate`."""
        return self.greedy

    def _update(self, batch: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        """Take one gradient step on a batch that `ReplayBuffer.sample` returned.

        Returns:
            A dict of scalars `loss`, `q_mean` and `gradient_norm`, and the temporal-difference
            errors `(B,)`.
        """
        sums, error = self._gradients_of_batch(batch)
        norm = self._apply(sums["gradients"])
        return {"loss": sums["loss"], "q_mean": sums["q_mean"], "gradient_norm": norm}, error

    def _apply(self, gradients: Sequence[Tensor]) -> Tensor:
        """Apply the gradients, update the target network and return the gradient norm."""
        scale = self.optimizer.scale_loss(1.0)
        with tf.name_scope("optimizer"):
            self.optimizer.apply(gradients, self.network.trainable_variables)
            limit_loss_scale(self.optimizer)
            due = tf.equal(self.optimizer.iterations % self.target_period, 0)
            rate = tf.where(due, self.target_rate, 0.0)
            for target, online in zip(self.target.variables, self.network.variables):
                if keras.backend.is_float_dtype(target.dtype):  # skip random generator states
                    target.assign_add(rate * (online - target))
        norm = tf.linalg.global_norm(gradients) / scale
        if isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer):
            # The optimizer has skipped an update whose scaled gradients overflow.
            norm = tf.where(tf.math.is_finite(norm), norm, 0.0)
        return norm

    def _gradients(self, batch: Mapping[str, Tensor]) -> tuple[dict[str, Any], Tensor]:
        """Return a dict of `loss`, `q_mean` and `gradients`, and each transition's error.

        If R devices share a batch, the dict contains this device's contribution: adding up the
        dicts of all devices yields the values of the whole batch.
        """
        with tf.name_scope("target"):
            next_input = self.preprocess(batch["observation_tpn"])
            q_tpn_target = tf.cast(self.target(next_input, training=False), tf.float32)
            if not self.select_at_t:
                q_select = tf.cast(self.network(next_input, training=False), tf.float32)
        weights = [variable.value for variable in self.network.trainable_variables]
        with tf.GradientTape() as tape:
            tape.watch(weights)  # with several devices, these are tensors and not variables
            with tf.name_scope("forward"):
                q_t = self.network(self.preprocess(batch["observation_t"]), training=True)
                q_t = tf.cast(q_t, tf.float32)
            target_t = double_dqn_target(
                q_t if self.select_at_t else q_select,
                q_tpn_target,
                batch["return_t"],
                batch["discount_t"],
                batch["return_lower_bound"],
            )
            loss, error = double_dqn_loss(
                q_t, batch["action_t"], target_t, batch["weight_t"], self.loss
            )
            sums, scaled_loss = self._device_sums(loss, q_t)
        with tf.name_scope("backward"):
            return {**sums, "gradients": tape.gradient(scaled_loss, weights)}, error

    def _device_sums(self, loss, q_t):
        """Return this device's share of `loss` and `q_mean`, and the scaled loss for gradients."""
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        loss, q_mean = loss / replicas, tf.reduce_mean(q_t) / replicas
        return {"loss": loss, "q_mean": q_mean}, self.optimizer.scale_loss(loss)

    def get_state(self) -> dict[str, np.ndarray]:
        """Return the weights, target weights and optimizer variables as a dict name → array."""
        return variable_arrays(self._variables())

    def set_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore a state from `get_state`; raise `InvalidInput` if the arrays do not fit."""
        assign_arrays("the agent", self._variables(), arrays)

    def _variables(self):
        return {
            "online": self.network.variables,
            "target": self.target.variables,
            "optimizer": self.optimizer.variables,
        }


def _copy(network):
    """Return a second network of the same configuration and weights."""
    twin = network.__class__.from_config(network.get_config())
    twin.build_from_config(network.get_build_config())
    twin.set_weights(network.get_weights())
    return twin
