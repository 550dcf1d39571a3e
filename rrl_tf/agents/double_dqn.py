"""The double DQN agent: acts, and learns from batches of replayed experience."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from rrl_tf.agents import graph_random
from rrl_tf.agents.learner import Learner
from rrl_tf.agents.losses import LOSSES, double_dqn_loss, double_dqn_target
from rrl_tf.agents.replay import Batch
from rrl_tf.errors import InvalidInput
from rrl_tf.training.optimizers import OptimizerName


class DoubleDQN:
    """A Q network, its slowly following target network, and one compiled update of both.

    The online network chooses the action at `t + n`, the target network values it
    (`double_dqn_target`). How the target follows, and which of the two is the `policy`, is said in
    `Learner`.

    Args:
        network: any built `keras.Model`, preprocessed observations `(B, ...)` → Q values `(B, A)`.
        prepare: `Preprocessor`, or another function of `keras.ops` from raw observations to
            preprocessed ones; runs in the graph.
        learning_rate, clip_norm, target_period, target_rate, optimizer: as in `Learner`.
        loss: `"huber"` or `"mse"`.
        select_at_t: bool. The book's mistake, kept to measure what it costs: the action that is
            valued at `t + n` is chosen from the Q values at `t`.
        jit_compile: bool, compile the update with XLA.
        spread: what computes a function of a batch on several devices, such as
            `rrl_tf.training.Replicas.spread`; `None` for one.

    Raises:
        ValueError: if an argument is out of range or the network is not built.

    Example:
        >>> from rrl_tf.envs import doorkey_task
        >>> from rrl_tf.models import RelationalQNetwork
        >>> task = doorkey_task()
        >>> network = RelationalQNetwork.from_preset("fast", task.preprocessor, num_actions=5)
        >>> network.build((None, *task.preprocessor.shape))
        >>> agent = DoubleDQN(network, task.preprocessor)
        >>> observation = np.zeros((4, 7, 7, 4), "uint8")  # of four environments
        >>> agent.act(observation, epsilon=0.1, rng=np.random.default_rng(0)).shape
        (4,)

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
        optimizer: OptimizerName = "adam",
        select_at_t: bool = False,
        jit_compile: bool = True,
        spread: Callable[..., Callable[[Any], tuple[Any, Any]]] | None = None,
    ) -> None:
        if loss not in LOSSES:
            raise InvalidInput(f"loss must be one of {LOSSES}; received {loss!r}")
        self.network = network
        self.prepare = prepare
        self.learner = Learner(
            network, learning_rate, clip_norm, target_period, target_rate, optimizer
        )
        self.loss = loss
        self.select_at_t = select_at_t
        self.jit_compile = jit_compile
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
        self._policy_values = _compiled_values(self.policy, prepare)

    @property
    def policy(self) -> keras.Model:
        """The network to evaluate and export: the averaged one, if there is one."""
        return self.learner.policy

    def q_values(self, observation: Any) -> np.ndarray:
        """Q values `(B, A)` float32 that the online network gives raw observations `(B, ...)`."""
        return self._values(tf.convert_to_tensor(observation)).numpy()

    def initial_recall(self, num_envs: int, network: keras.Model | None = None) -> dict[str, Any]:
        """What is known before E episodes' first look: nothing, as it remembers nothing."""
        return {}

    def next_recall(self, recall: Any, *step: Any) -> dict[str, Any]:
        """What is known after a step: nothing."""
        return {}

    def act_in_graph(
        self, observation: Any, recall: Any, epsilon: Any, seed: Any
    ) -> tuple[Any, Any]:
        """As `act`, of tensors, and a memory, which is empty.

        Args:
            observation: `(E, ...)`, raw observations.
            recall: as `initial_recall` or `next_recall` gave it.
            epsilon: share of random actions.
            seed: two integers, or a tensor `(2,)`.

        Returns:
            Actions `(E,)` int32, and `(E, 0)`.
        """
        values = self.network(self.prepare(observation), training=False)
        return graph_random.epsilon_greedy(values, epsilon, seed), values[:, :0]

    def policy_values(self, observation: Any, recall: Any) -> tuple[Any, Any]:
        """What `policy` thinks actions are worth, `(B, A)`, and a memory, which is empty: tensors.

        Args:
            observation, recall: as for `act_in_graph`.
        """
        values = self._policy_values(observation)
        return values, values[:, :0]

    def greedy(self, observation: Any) -> np.ndarray:
        """Actions `(B,)` that `policy` values most for raw observations `(B, ...)`."""
        return self._policy_values(tf.convert_to_tensor(observation)).numpy().argmax(axis=-1)

    def greedy_player(self) -> Callable[[Any], np.ndarray]:
        """`greedy`, as `rrl_tf.agents.evaluate` plays it."""
        return self.greedy

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
        norm = self.learner.apply(sums["gradients"])
        metrics = {"loss": sums["loss"], "q_mean": sums["q_mean"], "gradient_norm": norm}
        return metrics, error

    def _gradients(self, batch):
        """What an update needs of a batch: means over its rows, and each row's error.

        Of a part of a batch, the means are this part's share in those of the batch.
        """
        observation_t, action_t, return_t, discount_t, floor_t, observation_tpn, weight_t = batch
        with tf.name_scope("target"):
            next_input = self.prepare(observation_tpn)
            q_tpn_target = tf.cast(self.learner.target(next_input, training=False), "float32")
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
            scaled_loss = self.learner.optimizer.scale_loss(loss)
        with tf.name_scope("backward"):
            gradients = tape.gradient(scaled_loss, weights)
        return {"loss": loss, "q_mean": q_mean, "gradients": gradients}, error

    def _read_by_gradients(self):
        scale = getattr(self.learner.optimizer, "dynamic_scale", None)  # where losses are scaled
        return [
            *(*self.network.variables, *self.learner.target.variables),
            *([] if scale is None else [scale]),
        ]

    def get_state(self) -> dict[str, np.ndarray]:
        """All weights, target weights and optimiser variables as a dict name → array."""
        return self.learner.get_state()

    def set_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restores what `get_state` returned.

        Raises:
            InvalidInput: naming what is missing, unknown or of another shape, three of them;
                nothing is changed then.
        """
        self.learner.set_state(arrays)


def _compiled_values(network, prepare):
    def values(observation):
        return tf.cast(network(prepare(observation), training=False), "float32")

    return tf.function(values, reduce_retracing=True)
