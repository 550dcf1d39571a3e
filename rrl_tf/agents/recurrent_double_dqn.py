"""The double DQN with a memory: acts on what it remembers, and learns from sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from rrl_tf._arguments import natural, number_from, one_of, positive_int
from rrl_tf._typing import Tensor
from rrl_tf.agents import graph_random
from rrl_tf.agents.learner import Learner
from rrl_tf.agents.losses import LOSSES, double_dqn_loss, double_dqn_target
from rrl_tf.errors import InvalidInput
from rrl_tf.models import RecurrentQNetwork
from rrl_tf.training.optimizers import OptimizerName

Recall = dict[str, Tensor]
"""What an agent knows of E episodes before it looks: `memory` `(E, M)`, `previous_action` `(E,)`,
-1 where an episode begins, and `previous_reward` `(E,)`."""


class RecurrentDoubleDQN:
    """R2D2's way of training a network that remembers, with the targets of `DoubleDQN`.

    A sequence of L = burn-in + learned + n steps is gone through from the memory that was stored
    when it was played. The first steps only bring that memory up to date with today's weights; on
    the last n nothing is learned, as they are what the learned ones bootstrap from. The target of
    step t is

        r_t + γ r_t+1 + ... + γ^n Q'(t + n, argmax_a Q(t + n, a)),

    up to the end of the episode, and never below a return that was observed. A step whose n steps
    are cut by a time-out is left out, as nobody saw what would have followed. A sequence's priority
    is `η max |δ| + (1 - η) mean |δ|` over its learned steps.

    Args:
        network: built `RecurrentQNetwork`; one without memory, `core="none"`, is the special case.
        prepare: `Preprocessor`, or another function of `keras.ops` from raw observations to
            preprocessed ones; runs in the graph.
        burn_in: steps before those that are learned from; 0 for none.
        n_step: n.
        discount: γ, in [0, 1].
        max_share: η.
        stored_memory: whether a sequence begins with the memory it was played with, or with none.
        loss: `"huber"` or `"mse"`.
        learning_rate, clip_norm, target_period, target_rate, optimizer: as in `Learner`.

    Raises:
        InvalidInput: if an argument is out of range or the network is not built.

    Example:
        >>> from rrl_tf.envs import doorkey_task
        >>> task = doorkey_task()
        >>> network = RecurrentQNetwork.from_preset("lstm", task.preprocessor, num_actions=5)
        >>> network.build({"observation": (None, *task.preprocessor.shape)})
        >>> agent = RecurrentDoubleDQN(network, task.preprocessor)
        >>> observation = tf.zeros((3, 7, 7, 4), tf.uint8)
        >>> action, memory = agent.act_in_graph(observation, agent.initial_recall(3), 0.1, (0, 0))
        >>> action.shape, memory.shape
        (TensorShape([3]), TensorShape([3, 128]))

    Source: Kapturowski et al., "Recurrent experience replay in distributed reinforcement learning"
    (2019), without its rescaled values.
    """

    jit_compile = True
    """Acting, that is; XLA takes long to compile an update that is written out step by step."""

    def __init__(
        self,
        network: RecurrentQNetwork,
        prepare: Callable[[Any], Any],
        *,
        burn_in: int = 5,
        n_step: int = 3,
        discount: float = 0.97,
        max_share: float = 0.9,
        stored_memory: bool = True,
        loss: str = "huber",
        learning_rate: Any = 1e-3,
        clip_norm: float | None = 10.0,
        target_period: int = 1,
        target_rate: float = 0.01,
        optimizer: OptimizerName = "adam",
    ) -> None:
        self.network = network
        self.prepare = prepare
        self.burn_in = natural("burn_in", burn_in)
        self.n_step = positive_int("n_step", n_step)
        self.discount = number_from("discount", discount, 0, 1)
        self.max_share = number_from("max_share", max_share, 0, 1)
        self.stored_memory = stored_memory
        self.loss = one_of("loss", loss, LOSSES)
        self.learner = Learner(
            network, learning_rate, clip_norm, target_period, target_rate, optimizer
        )
        self.update_in_graph = tf.function(self._update_step, autograph=False)

    @property
    def policy(self) -> RecurrentQNetwork:
        """The network to evaluate and export: the averaged one, if there is one."""
        return self.learner.policy

    def initial_recall(self, num_envs: int, network: RecurrentQNetwork | None = None) -> Recall:
        """What is known at the start of E episodes.

        Args:
            num_envs: E.
            network: which plays them, as it may have learned what to begin with; `None` is the one
                that gathers experience.
        """
        return {
            "memory": (network or self.network).initial_memory(num_envs),
            "previous_action": tf.fill((num_envs,), -1),
            "previous_reward": tf.zeros((num_envs,)),
        }

    def next_recall(
        self, recall: Recall, memory: Tensor, action: Tensor, reward: Tensor, over: Tensor
    ) -> Recall:
        """What is known after a step; nothing where an episode is over."""
        return {
            "memory": self.network.reset_memory(memory, over),
            "previous_action": tf.where(over, -1, action),
            "previous_reward": tf.where(over, 0.0, reward),
        }

    def act_in_graph(
        self, observation: Tensor, recall: Recall, epsilon: Any, seed: Any
    ) -> tuple[Tensor, Tensor]:
        """Actions `(E,)` to gather experience with, and the memory after looking, `(E, M)`.

        Args:
            observation: `(E, ...)`, raw.
            recall: as `initial_recall` or `next_recall` gave it.
            epsilon: share of random actions.
            seed: two integers, or a tensor `(2,)`.
        """
        values, memory = self.values(self.network, observation, recall)
        return graph_random.epsilon_greedy(values, epsilon, seed), memory

    def values(
        self, network: RecurrentQNetwork, observation: Tensor, recall: Recall
    ) -> tuple[Tensor, Tensor]:
        """Q values `(E, A)` float32 of raw observations `(E, ...)`, and the memory after them."""
        inputs = {**recall, "observation": self.prepare(observation)}
        values, memory = network(inputs, inputs.pop("memory"), training=False)
        return tf.cast(values, tf.float32), memory

    def policy_values(self, observation: Tensor, recall: Recall) -> tuple[Tensor, Tensor]:
        """`values` of the `policy`."""
        return self.values(self.policy, observation, recall)

    def greedy_player(self) -> GreedyPlayer:
        """The `policy`, as `rrl_tf.agents.evaluate` plays it."""
        return GreedyPlayer(self)

    def _update_step(self, sequence: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        """One gradient step.

        Args:
            sequence: what `SequenceTimeline.sample` draws: `(B, L, ...)`, but `memory` `(B, M)` and
                `weight_t` `(B,)`.

        Returns:
            A dict of scalars `loss`, `q_mean`, `gradient_norm`, and the sequences' new priorities
            `(B,)`.
        """
        begin, end = self.burn_in, sequence["action_t"].shape[1] - self.n_step
        if begin >= end:
            raise InvalidInput(
                f"a sequence must be longer than burn_in and n_step, {begin} + {self.n_step}; "
                f"received {end + self.n_step} steps"
            )
        steps = self._network_inputs(sequence)
        memory = sequence["memory"]
        if not self.stored_memory:
            memory = self.network.initial_memory(memory.shape[0])
        with tf.name_scope("target"):
            q_target, _ = self.learner.target.unroll(*_part(steps, memory, 0, None))
            if begin:
                _, memories = self.network.unroll(*_part(steps, memory, 0, begin))
                memory = tf.stop_gradient(memories[:, -1])
        weights = [variable.value for variable in self.network.trainable_variables]
        with tf.GradientTape() as tape:
            tape.watch(weights)
            with tf.name_scope("forward"):
                q_t, memories = self.network.unroll(
                    *_part(steps, memory, begin, end), training=True
                )
            last = tf.stop_gradient(memories[:, -1])
            q_after, _ = self.network.unroll(*_part(steps, last, end, None))
            q_online = tf.concat([q_t, tf.stop_gradient(q_after)], axis=1)
            loss, error, counted = self._loss(sequence, q_online, q_target[:, begin:], begin, end)
            scaled_loss = self.learner.optimizer.scale_loss(loss)
        with tf.name_scope("backward"):
            gradients = tape.gradient(scaled_loss, weights)
        norm = self.learner.apply(gradients)
        size = tf.abs(error) * counted
        mean = tf.reduce_sum(size, axis=1) / tf.maximum(tf.reduce_sum(counted, axis=1), 1.0)
        priority = self.max_share * tf.reduce_max(size, axis=1) + (1 - self.max_share) * mean
        metrics = {"loss": loss, "q_mean": tf.reduce_mean(q_t), "gradient_norm": norm}
        return metrics, priority

    def _network_inputs(self, sequence):
        batch, length, *shape = sequence["observation_t"].shape
        views = tf.reshape(sequence["observation_t"], (batch * length, *shape))
        views = self.prepare(views)
        return {
            "observation": tf.reshape(views, (batch, length, *views.shape[1:])),
            "previous_action": sequence["previous_action"],
            "previous_reward": sequence["previous_reward"],
        }

    def _loss(self, sequence, q_online, q_target, begin, end):
        """Mean loss, errors `(B, learned)`, and which of them count."""
        n, learned = self.n_step, slice(begin, end)
        over = tf.cast(sequence["over"], tf.float32)
        cut = over * (1.0 - tf.cast(sequence["terminated"], tf.float32))
        going_on, return_t, counted = 1.0, 0.0, 1.0
        for k in range(n):
            later = slice(begin + k, end + k)
            return_t += self.discount**k * going_on * sequence["reward_t"][:, later]
            counted *= 1.0 - going_on * cut[:, later]
            going_on *= 1.0 - over[:, later]
        target_t = double_dqn_target(
            q_online[:, n:],
            q_target[:, n:],
            return_t,
            self.discount**n * going_on,
            sequence["floor_t"][:, learned],
        )
        weight_t = counted * sequence["weight_t"][:, None]
        loss, error = double_dqn_loss(
            q_online[:, :-n], sequence["action_t"][:, learned], target_t, weight_t, self.loss
        )
        return loss, error, counted

    def get_state(self) -> dict[str, np.ndarray]:
        """All weights, target weights and optimiser variables as a dict name → array."""
        return self.learner.get_state()

    def set_state(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restores what `get_state` returned.

        Raises:
            InvalidInput: if it does not fit; nothing is changed then.
        """
        self.learner.set_state(arrays)


class GreedyPlayer:
    """Plays what `policy` values most, remembering: arrays in, arrays out.

    Args:
        agent: `RecurrentDoubleDQN`.

    Example:
        >>> network = RecurrentQNetwork.from_preset("lstm-dense", num_actions=2)
        >>> network.build({"observation": (None, 4)})
        >>> player = RecurrentDoubleDQN(network, prepare=tf.identity).greedy_player()
        >>> recall = player.initial_recall(3)
        >>> action, memory = player(np.zeros((3, 4), "float32"), recall)
        >>> over = np.array([True, False, False])
        >>> recall = player.next_recall(recall, memory, action, np.ones(3), over)
        >>> recall["previous_reward"]
        array([0., 1., 1.], dtype=float32)
    """

    def __init__(self, agent: RecurrentDoubleDQN) -> None:
        self.agent = agent
        self._values = tf.function(agent.policy_values, reduce_retracing=True)
        self._beginning: Mapping[str, np.ndarray] | None = None

    def initial_recall(self, num_envs: int) -> dict[str, np.ndarray]:
        """What is known at the start of episodes."""
        first = self.agent.initial_recall(1, self.agent.policy)
        self._beginning = {name: np.asarray(value) for name, value in first.items()}
        return {name: np.repeat(value, num_envs, 0) for name, value in self._beginning.items()}

    def __call__(
        self, observation: np.ndarray, recall: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Actions `(B,)` and the memory after looking, `(B, M)`."""
        values, memory = self._values(*tf.nest.map_structure(tf.constant, (observation, recall)))
        return values.numpy().argmax(axis=-1).astype(np.int32), memory.numpy()

    def next_recall(self, recall: Any, *step: np.ndarray) -> dict[str, np.ndarray]:
        """What is known after a step: memory, action, reward, and which episodes are over."""
        memory, action, reward, over = step
        after = {"memory": memory, "previous_action": action, "previous_reward": reward}
        beginning = self._beginning or self.initial_recall(1)
        # `next_recall` of the agent, in arrays: an evaluation takes thousands of such steps.
        return {
            name: np.where(over[:, None] if first.ndim > 1 else over, first, after[name]).astype(
                first.dtype
            )
            for name, first in beginning.items()
        }


def _part(steps: Any, memory: Any, begin: int, end: int | None) -> tuple[Any, Any, Any]:
    """Arguments of `unroll` for some of the steps: inputs, memory, which steps are an episode's
    first."""
    inputs = {name: value[:, begin:end] for name, value in steps.items()}
    return inputs, memory, inputs["previous_action"] < 0
