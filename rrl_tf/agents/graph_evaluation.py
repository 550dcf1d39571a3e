"""Playing given starts to the end inside the graph: one call for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rrl_tf.agents import graph_random
from rrl_tf.agents.evaluation import Evaluation
from rrl_tf.envs.graph import GraphEnv


class GraphEvaluation:
    """Plays one episode per start in one compiled call, as `evaluate` does step by step in Python.

    Greedy episodes are the same. What is random is drawn by another generator.

    Args:
        agent: `DoubleDQN` or `RecurrentDoubleDQN`, whose policy plays.
        env: `GraphEnv` whose rules are played by, such as a `DoorKeyGraph`.
        starts: one an episode, as the `state_of` of the environment takes them.

    Raises:
        InvalidInput: if there is no start, or one that is none of the environment's.

    Example:
        >>> import keras
        >>> from rrl_tf.agents import DoubleDQN
        >>> from rrl_tf.envs import DoorKeyGraph, doorkey_task, enumerate_starts
        >>> task = doorkey_task((5,))
        >>> layers = [keras.layers.Flatten(), keras.layers.Dense(task.num_actions)]
        >>> network = keras.Sequential(layers)
        >>> network.build((None, *task.preprocessor.shape))
        >>> agent = DoubleDQN(network, task.preprocessor)
        >>> play = GraphEvaluation(agent, DoorKeyGraph(5), enumerate_starts(5))
        >>> play().length.shape, play(epsilon=0.05).length.shape
        ((48,), (48,))
    """

    def __init__(self, agent: Any, env: GraphEnv, starts: Sequence[Any]) -> None:
        self.agent = agent
        self.remembers = bool(agent.initial_recall(1))
        self.env = env
        self._start = env.state_of(starts)
        self._count = len(starts)
        self._limit = env.time_limit
        self._step = tf.function(self._one_step, jit_compile=True)
        self._play = tf.function(self._to_the_end)

    def __call__(self, epsilon: float = 0.0, seed: int = 0) -> Evaluation:
        """Outcome of M episodes, one per start.

        Args:
            epsilon: share of random actions mixed in; loops are only counted at 0.
            seed: of the random actions.
        """
        outcome = self._play(tf.constant(epsilon), tf.constant((seed, 0), tf.int64))
        success, length, reward, loop = (each.numpy() for each in outcome)
        return Evaluation(
            success, length, reward.astype(np.float64), None if self.remembers else loop
        )

    def _to_the_end(self, epsilon, seed):
        state = self._start
        observation, key = self.env.observe(state), self.env.state_key(state)
        no = tf.zeros((self._count,), tf.bool)
        over, success, loop = no, no, no
        length, reward = tf.zeros((self._count,), tf.int32), tf.zeros((self._count,))
        # Row t is where the episodes were after t steps; nothing is at -1.
        visited = tf.fill((self._limit + 1, self._count), tf.constant(-1, tf.int64))
        recall = self.agent.initial_recall(self._count, self.agent.policy)
        steps = 0
        while steps < self._limit and not tf.reduce_all(over):
            visited = tf.tensor_scatter_nd_update(visited, [[steps]], key[None])
            steps += 1
            action, memory = self._act(observation, recall, over, epsilon, seed, steps)
            state, observation, key, reward_t, terminated, truncated = self._step(state, action)
            recall = self.agent.next_recall(recall, memory, action, reward_t, over)
            length += tf.cast(~over, tf.int32)
            reward += tf.where(over, 0.0, reward_t)
            success |= self.env.succeeded(reward_t, terminated) & ~over
            ended = over | terminated | truncated
            over = ended
            if not self.remembers:  # who does may act otherwise where it comes back to
                returned = tf.reduce_any(visited[:steps] == key, axis=0) & (epsilon == 0) & ~ended
                loop |= returned
                over |= returned
        return success, length, reward, loop

    def _act(self, observation, recall, over, epsilon, seed, steps):
        """Actions and memories of all episodes; those that are over are not looked at."""
        running = tf.where(~over)
        seen, known = tf.nest.map_structure(
            lambda x: tf.gather(x, running[:, 0]), (observation, recall)
        )
        values, memory = self.agent.policy_values(seen, known)
        seed = graph_random.fold_in(seed, steps)
        action = graph_random.epsilon_greedy(values, epsilon, seed)
        # Together, as nothing can be scattered of a memory without numbers.
        both = tf.concat([tf.cast(action, memory.dtype)[:, None], memory], axis=-1)
        shape = tf.constant((over.shape[0], both.shape[1]), running.dtype)
        everyone = tf.scatter_nd(running, both, shape)
        return tf.cast(everyone[:, 0], tf.int32), everyone[:, 1:]

    def _one_step(self, state, action):
        state, observation, *outcome = self.env.step(state, action)
        return state, observation, self.env.state_key(state), *outcome
