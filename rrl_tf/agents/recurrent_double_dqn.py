"""Define `RecurrentDoubleDQN`, an agent with memory that learns from replayed sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from rrl_tf._arguments import natural, number_from, positive_int
from rrl_tf._typing import Tensor
from rrl_tf.agents.double_dqn import DoubleDQN, State
from rrl_tf.agents.losses import double_dqn_loss, double_dqn_target
from rrl_tf.errors import InvalidInput
from rrl_tf.models import RecurrentQNetwork


class RecurrentDoubleDQN(DoubleDQN):
    """A `DoubleDQN` with a recurrent network that learns from sequences, like R2D2.

    A replayed sequence has three parts. The burn-in steps only update the recurrent state, with
    the current weights. The unrolled steps have a loss. The last n steps provide bootstrap values.
    The target of step t is

        r_t + γ r_t+1 + ... + γ^n Q'(t + n, argmax_a Q(t + n, a)),

    without the terms after the end of the episode. If the observed return is known, the target is
    at least that return. A step has no loss if a truncation occurs within its n steps, because
    sequences do not contain the last observation of an episode. The priority of a sequence is
    `η max |δ| + (1 - η) mean |δ|` over its unrolled steps.

    Args:
        network: built `RecurrentQNetwork`; one with `core="none"` has no memory.
        preprocess: as for `DoubleDQN`.
        burn_in: number of burn-in steps; may be 0.
        n_step: n, number of rewards before bootstrapping.
        discount: γ in [0, 1], discount factor.
        priority_max_weight: η in [0, 1], weight of the largest error in the priority.
        stored_state: start a sequence from the memory stored while acting; otherwise from the
            initial memory.
        **options: further arguments of `DoubleDQN`. `jit_compile` compiles only acting, because
            XLA needs minutes to compile the unrolled training step.

    Raises:
        InvalidInput: if an argument is out of range or the network is not built.

    Example:
        >>> from rrl_tf.envs import doorkey_task
        >>> task = doorkey_task()
        >>> network = RecurrentQNetwork.from_preset("lstm", task.preprocessor, num_actions=5)
        >>> network.build({"observation": (None, *task.preprocessor.shape)})
        >>> agent = RecurrentDoubleDQN(network, task.preprocessor)
        >>> observation = tf.zeros((3, 7, 7, 4), tf.uint8)
        >>> action, memory = agent.act(observation, agent.initial_state(3), 0.1, (0, 0))
        >>> action.shape, memory.shape
        (TensorShape([3]), TensorShape([3, 128]))

    Source: Kapturowski et al., "Recurrent experience replay in distributed reinforcement learning"
    (2019), without its rescaled values.
    """

    _jit_update = False

    def __init__(
        self,
        network: RecurrentQNetwork,
        preprocess: Callable[[Any], Any],
        *,
        burn_in: int = 5,
        n_step: int = 3,
        discount: float = 0.97,
        priority_max_weight: float = 0.9,
        stored_state: bool = True,
        **options: Any,
    ) -> None:
        self.burn_in = natural("burn_in", burn_in)
        self.n_step = positive_int("n_step", n_step)
        self.discount = number_from("discount", discount, 0, 1)
        self.priority_max_weight = number_from("priority_max_weight", priority_max_weight, 0, 1)
        self.stored_state = stored_state
        super().__init__(network, preprocess, **options)

    def initial_state(self, num_envs: int, network: keras.Model | None = None) -> State:
        """Return the recurrent state at the start of E episodes.

        It is a dict of `memory` `(E, M)`, `previous_action` `(E,)`, which is -1, and
        `previous_reward` `(E,)`.

        Args:
            num_envs: E.
            network: network that acts and provides the initial memory, which may be learned; by
                default the online network.
        """
        return (network or self.network).initial_state(num_envs)

    def next_state(self, memory: Tensor, action: Tensor, reward: Tensor, done: Tensor) -> State:
        """Return the recurrent state after a step; it is the initial state if an episode is done.

        Args:
            memory, action, reward, done: as for `DoubleDQN.next_state`.
        """
        return self.network.next_state(memory, action, reward, done)

    def values(self, network: keras.Model, observation: Any, state: State) -> tuple[Tensor, Tensor]:
        """Return Q values `(E, A)` float32 and the next memory `(E, M)`.

        Args:
            network, observation, state: as for `DoubleDQN.values`.
        """
        inputs = {**state, "observation": self.preprocess(observation)}
        values, memory = network(inputs, inputs.pop("memory"), training=False)
        return tf.cast(values, tf.float32), memory

    def greedy_policy(self) -> GreedyRecurrentPolicy:
        """Return the greedy `policy` as the argument `act` of `rrl_tf.agents.evaluate`."""
        return GreedyRecurrentPolicy(self)

    def _gradients(self, batch: Mapping[str, Tensor]) -> tuple[dict[str, Any], Tensor]:
        """Return a dict of `loss`, `q_mean` and `gradients`, and the sequences' priorities `(B,)`.

        Args:
            batch: sequences that `SequenceReplayBuffer.sample` returned.
        """
        begin, end = self.burn_in, batch["action_t"].shape[1] - self.n_step
        if begin >= end:
            raise InvalidInput(
                "a sequence must have more than `burn_in` + `n_step` = "
                f"{begin} + {self.n_step} steps; received {end + self.n_step}."
            )
        steps = self._network_inputs(batch)
        memory = batch["memory"]
        if not self.stored_state:
            memory = self.network.initial_memory(memory.shape[0])
        with tf.name_scope("target"):
            q_target, _ = self.target.unroll(*_slice(steps, memory, 0, None))
            if begin:
                _, memories = self.network.unroll(*_slice(steps, memory, 0, begin))
                memory = tf.stop_gradient(memories[:, -1])
        weights = [variable.value for variable in self.network.trainable_variables]
        with tf.GradientTape() as tape:
            tape.watch(weights)
            with tf.name_scope("forward"):
                q_t, memories = self.network.unroll(
                    *_slice(steps, memory, begin, end), training=True
                )
            last = tf.stop_gradient(memories[:, -1])
            q_after, _ = self.network.unroll(*_slice(steps, last, end, None))
            q_online = tf.concat([q_t, tf.stop_gradient(q_after)], axis=1)
            loss, error, counted = self._loss(batch, q_online, q_target[:, begin:], begin, end)
            sums, scaled_loss = self._device_sums(loss, q_t)
        with tf.name_scope("backward"):
            sums["gradients"] = tape.gradient(scaled_loss, weights)
        size = tf.abs(error) * counted
        mean = tf.reduce_sum(size, axis=1) / tf.maximum(tf.reduce_sum(counted, axis=1), 1.0)
        eta = self.priority_max_weight
        return sums, eta * tf.reduce_max(size, axis=1) + (1 - eta) * mean

    def _network_inputs(self, batch):
        count, length, *shape = batch["observation_t"].shape
        views = tf.reshape(batch["observation_t"], (count * length, *shape))
        views = tf.nest.map_structure(
            lambda x: tf.reshape(x, (count, length, *x.shape[1:])), self.preprocess(views)
        )
        return {
            "observation": views,
            "previous_action": batch["previous_action"],
            "previous_reward": batch["previous_reward"],
        }

    def _loss(self, batch, q_online, q_target, begin, end):
        """Return the mean loss, errors `(B, unrolled)`, and a mask, 1 for steps with a loss."""
        n, unrolled = self.n_step, slice(begin, end)
        done = tf.cast(batch["over"], tf.float32)
        truncated = done * (1.0 - tf.cast(batch["terminated"], tf.float32))
        continues, return_t, counted = 1.0, 0.0, 1.0
        for k in range(n):
            later = slice(begin + k, end + k)
            return_t += self.discount**k * continues * batch["reward_t"][:, later]
            counted *= 1.0 - continues * truncated[:, later]
            continues *= 1.0 - done[:, later]
        target_t = double_dqn_target(
            q_online[:, :-n] if self.select_at_t else q_online[:, n:],
            q_target[:, n:],
            return_t,
            self.discount**n * continues,
            batch["return_lower_bound"][:, unrolled],
        )
        weight_t = counted * batch["weight_t"][:, None]
        loss, error = double_dqn_loss(
            q_online[:, :-n], batch["action_t"][:, unrolled], target_t, weight_t, self.loss
        )
        return loss, error, counted


class GreedyRecurrentPolicy:
    """The greedy policy of a recurrent agent, with NumPy arrays as inputs and outputs.

    Args:
        agent: `RecurrentDoubleDQN`.

    Example:
        >>> network = RecurrentQNetwork.from_preset("lstm-dense", num_actions=2)
        >>> network.build({"observation": (None, 4)})
        >>> policy = RecurrentDoubleDQN(network, preprocess=tf.identity).greedy_policy()
        >>> state = policy.initial_state(3)
        >>> action, memory = policy(np.zeros((3, 4), "float32"), state)
        >>> done = np.array([True, False, False])
        >>> state = policy.next_state(memory, action, np.ones(3, "float32"), done)
        >>> state["previous_reward"]
        array([0., 1., 1.], dtype=float32)
    """

    def __init__(self, agent: RecurrentDoubleDQN) -> None:
        self.agent = agent
        self._values = tf.function(agent.policy_values, reduce_retracing=True, autograph=False)

    def initial_state(self, num_envs: int) -> dict[str, np.ndarray]:
        """Return the recurrent state at the start of `num_envs` episodes."""
        return _arrays(self.agent.initial_state(num_envs, self.agent.policy))

    def __call__(
        self, observation: np.ndarray, state: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return actions `(B,)` and the new memory `(B, M)` for raw observations `(B, ...)`."""
        values, memory = self._values(*tf.nest.map_structure(tf.constant, (observation, state)))
        return values.numpy().argmax(axis=-1).astype(np.int32), memory.numpy()

    def next_state(
        self, memory: np.ndarray, action: np.ndarray, reward: np.ndarray, done: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return the recurrent state after a step; it is the initial state if an episode is done.

        Args:
            memory: `(B, M)` memory as returned by a call of the policy.
            action: `(B,)` actions taken.
            reward: `(B,)` rewards received.
            done: `(B,)` bool, True where an episode is done.
        """
        step = memory, action.astype(np.int32), reward.astype(np.float32), done
        return _arrays(self.agent.policy.next_state(*map(tf.constant, step)))


def _arrays(state):
    return {name: value.numpy() for name, value in state.items()}


def _slice(steps: Any, memory: Any, begin: int, end: int | None) -> tuple[Any, Any, Any]:
    """Return the arguments of `unroll` for the steps from `begin` to `end`.

    They are the inputs, the memory, and a mask of the steps at which an episode begins.
    """
    inputs = tf.nest.map_structure(lambda value: value[:, begin:end], steps)
    return inputs, memory, inputs["previous_action"] < 0
