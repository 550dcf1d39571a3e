"""The double DQN agent: acts, and learns from batches of replayed experience."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from rrl_tf.agents import graph_random
from rrl_tf.agents.losses import LOSSES, double_dqn_loss, double_dqn_target
from rrl_tf.agents.replay import Batch
from rrl_tf.errors import InvalidInput


class DoubleDQN:
    """A Q network, its slowly following target network, and one compiled update of both.

    The online network chooses the action at `t + n`, the target network values it
    (`double_dqn_target`). After every `target_period` updates the target network moves
    `target_rate` of the way to the online one: `(100, 1.0)` copies it every 100 updates,
    `(1, 0.01)` lets it follow softly. A target that follows softly is a running average of the
    online weights, with less noise in its values: then it is the `policy`, which is evaluated and
    exported, while the online network gathers experience.

    Args:
        network: any built `keras.Model`, prepared observations `(B, ...)` → Q values `(B, A)`.
        prepare: `Preparation`, or another function of `keras.ops` from raw observations to
            prepared ones; runs in the graph.
        learning_rate: float or Keras schedule, Adam's step size.
        clip_norm: float or None, largest global norm of the gradient.
        loss: `"huber"` or `"mse"`.
        target_period: int ≥ 1, updates between moves of the target network.
        target_rate: float in (0, 1], how far it moves.
        select_at_t: bool. The book's mistake, kept to measure what it costs: the action that is
            valued at `t + n` is chosen from the Q values at `t`.
        jit_compile: bool, compile the update with XLA.
        spread: what computes a function of a batch on several devices, such as
            `rrl_tf.training.Replicas.spread`; `None` for one.

    Raises:
        ValueError: if an argument is out of range or the network is not built.

    Example:
        >>> task = doorkey_task()
        >>> network = RelationalQNetwork.from_preset("fast", task.preparation, num_actions=5)
        >>> network.build((None, *task.preparation.shape))
        >>> agent = DoubleDQN(network, task.preparation)
        >>> agent.act(observation, epsilon=0.0, rng=np.random.default_rng(0))  # (E,) actions

    Source: van Hasselt, Guez and Silver (2016); Mnih et al. (2015) for the target network.
    """

    def __init__(
        self,
        network: keras.Model,
        prepare: Callable[[Any], Any],
        *,
        learning_rate: Any = 1e-3,
        clip_norm: float | None = 10.0,
        loss: str = "huber",
        target_period: int = 1,
        target_rate: float = 0.01,
        select_at_t: bool = False,
        jit_compile: bool = True,
        spread: Callable[..., Callable[[Any], tuple[Any, Any]]] | None = None,
    ) -> None:
        if not network.built:
            raise InvalidInput(
                f"network {network.name!r} has no weights yet: call its build() first"
            )
        if loss not in LOSSES:
            raise InvalidInput(f"loss must be one of {LOSSES}; received {loss!r}")
        if target_period < 1:
            raise InvalidInput(f"target_period must be at least 1; received {target_period}")
        if not 0 < target_rate <= 1:
            raise InvalidInput(f"target_rate must be in (0, 1]; received {target_rate}")
        self.network = network
        self.prepare = prepare
        self.learning_rate = learning_rate
        self.clip_norm = clip_norm
        self.loss = loss
        self.target_period = target_period
        self.target_rate = target_rate
        self.select_at_t = select_at_t
        self.jit_compile = jit_compile
        self._target = _copy(network)
        self._optimizer = _optimizer(learning_rate, clip_norm, network)
        self._num_actions: int | None = None
        self._gradients_of_batch: Callable[[Any], tuple[Any, Any]] = self._gradients
        if spread:
            self._gradients_of_batch = spread(
                self._gradients, self._read_by_gradients(), jit_compile=jit_compile
            )
        # The same as `update`, of tensors, for a function that is itself compiled.
        self.update_in_graph = tf.function(
            self._update_step, jit_compile=jit_compile and not spread
        )
        self._values = _compiled_values(network, prepare)
        # Raw observations (B, ...) → what `policy` thinks their actions are worth (B, A), tensors.
        self.policy_values = _compiled_values(self.policy, prepare)

    @property
    def policy(self) -> keras.Model:
        """The network to evaluate and export: the averaged one, if there is one."""
        return self._target if self.target_rate < 1 else self.network

    def q_values(self, observation: Any) -> np.ndarray:
        """Q values `(B, A)` float32 that the online network gives raw observations `(B, ...)`."""
        return self._values(tf.convert_to_tensor(observation)).numpy()

    def act_in_graph(self, observation: Any, epsilon: Any, seed: Any) -> Any:
        """As `act`, of tensors: actions `(B,)` int32, drawn by a stateless seed of two integers."""
        values = self.network(self.prepare(observation), training=False)
        greedy = tf.argmax(values, axis=-1, output_type=tf.int32)
        for_whether, for_which = graph_random.split(seed, 2)
        explore = graph_random.uniform(greedy.shape, for_whether) < epsilon
        drawn = graph_random.integers(greedy.shape, for_which, values.shape[-1])
        return tf.where(explore, drawn, greedy)

    def greedy(self, observation: Any) -> np.ndarray:
        """Actions `(B,)` that `policy` values most for raw observations `(B, ...)`."""
        return self.policy_values(tf.convert_to_tensor(observation)).numpy().argmax(axis=-1)

    def act(self, observation: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
        """Actions `(B,)` to gather experience with: random ones with probability `epsilon`.

        The others are those the online network values most.

        Args:
            observation: `(B, ...)`, raw observations.
            epsilon: float in [0, 1].
            rng: `numpy.random.Generator`, drawn from equally often whatever `epsilon` is.
        """
        if self._num_actions is None:  # a Keras model does not tell before it has answered
            self._num_actions = self.q_values(observation).shape[-1]
        count = len(observation)
        explore = rng.random(count) < epsilon
        action = rng.integers(self._num_actions, size=count)
        if not explore.all():
            greedy = self.q_values(observation).argmax(axis=-1)
            action = np.where(explore, action, greedy)
        return action

    def update(self, batch: Batch) -> tuple[dict[str, float], np.ndarray]:
        """One gradient step on a `Batch`.

        Returns:
            A dict of floats (`loss`, `q_mean`, `gradient_norm`), and the temporal-difference
            errors `(B,)`.
        """
        metrics, error = self.update_in_graph(
            batch.observation_t,
            batch.action_t,
            batch.return_t,
            batch.discount_t,
            batch.floor_t,
            batch.observation_tpn,
            batch.weight_t,
        )
        return {name: float(value) for name, value in metrics.items()}, error.numpy()

    def _update_step(self, *batch):
        sums, error = self._gradients_of_batch(batch)
        gradients = sums["gradients"]
        scale = self._optimizer.scale_loss(1.0)
        with tf.name_scope("optimizer"):
            self._optimizer.apply(gradients, self.network.trainable_variables)
            self._follow()
        norm = tf.linalg.global_norm(gradients) / scale
        metrics = {"loss": sums["loss"], "q_mean": sums["q_mean"], "gradient_norm": norm}
        return metrics, error

    def _gradients(self, batch):
        """What an update needs of a batch: means over its rows, and each row's error.

        Of a part of a batch, the means are this part's share in those of the batch.
        """
        observation_t, action_t, return_t, discount_t, floor_t, observation_tpn, weight_t = batch
        with tf.name_scope("target"):
            next_input = self.prepare(observation_tpn)
            q_tpn_target = tf.cast(self._target(next_input, training=False), "float32")
            if not self.select_at_t:
                q_select = tf.cast(self.network(next_input, training=False), "float32")
        weights = [variable.value for variable in self.network.trainable_variables]
        with tf.GradientTape() as tape:
            tape.watch(weights)  # on several devices they are tensors
            with tf.name_scope("forward"):
                q_t = self.network(self.prepare(observation_t), training=True)
                q_t = tf.cast(q_t, "float32")
            if self.select_at_t:
                q_select = q_t
            target_t = double_dqn_target(q_select, q_tpn_target, return_t, discount_t, floor_t)
            loss, error = double_dqn_loss(q_t, action_t, target_t, weight_t, self.loss)
            q_mean = tf.reduce_mean(q_t)
            parts = tf.distribute.get_strategy().num_replicas_in_sync
            if parts > 1:
                loss, q_mean = loss / parts, q_mean / parts
            scaled_loss = self._optimizer.scale_loss(loss)
        with tf.name_scope("backward"):
            gradients = tape.gradient(scaled_loss, weights)
        return {"loss": loss, "q_mean": q_mean, "gradients": gradients}, error

    def _read_by_gradients(self):
        scale = getattr(self._optimizer, "dynamic_scale", None)  # where losses are scaled
        return [
            *(*self.network.variables, *self._target.variables),
            *([] if scale is None else [scale]),
        ]

    def _follow(self):
        due = tf.equal(self._optimizer.iterations % self.target_period, 0)
        rate = tf.where(due, self.target_rate, 0.0)
        for target, online in zip(self._target.variables, self.network.variables):
            if keras.backend.is_float_dtype(target.dtype):  # the state of a random seed is none
                target.assign_add(rate * (online - target))

    def get_state(self) -> dict[str, np.ndarray]:
        """All weights, target weights and optimiser variables as a dict name → array."""
        return {name: np.asarray(variable.numpy()) for name, variable in self._variables().items()}

    def set_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restores what `get_state` returned.

        Raises:
            InvalidInput: naming what is missing, unknown or of another shape, three of them;
                nothing is changed then.
        """
        variables = self._variables()
        wrong = [f"missing {name}" for name in variables if name not in arrays]
        wrong += [f"unknown {name}" for name in arrays if name not in variables]
        wrong += [
            f"{name} is {arrays[name].shape}, expected {tuple(variable.shape)}"
            for name, variable in variables.items()
            if name in arrays and arrays[name].shape != tuple(variable.shape)
        ]
        if wrong:
            more = f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
            raise InvalidInput(f"agent state does not fit this agent: {'; '.join(wrong[:3])}{more}")
        for name, variable in variables.items():
            variable.assign(arrays[name])

    def _variables(self):
        groups = {
            "online": self.network.variables,
            "target": self._target.variables,
            "optimizer": self._optimizer.variables,
        }
        return {
            f"{group}/{position:03d}": variable
            for group, variables in groups.items()
            for position, variable in enumerate(variables)
        }


def _compiled_values(network, prepare):
    def values(observation):
        return tf.cast(network(prepare(observation), training=False), "float32")

    return tf.function(values, reduce_retracing=True)


def _optimizer(learning_rate, clip_norm, network):
    adam = keras.optimizers.Adam(learning_rate, global_clipnorm=clip_norm)
    # Small gradients would be zeros in half precision.
    if any(layer.compute_dtype == "float16" for layer in (network, *network.layers)):
        adam = keras.optimizers.LossScaleOptimizer(adam)
    adam.build(network.trainable_variables)
    return adam


def _copy(network):
    """A second network of the same configuration and weights."""
    twin = network.__class__.from_config(network.get_config())
    twin.build_from_config(network.get_build_config())
    twin.set_weights(network.get_weights())
    return twin
