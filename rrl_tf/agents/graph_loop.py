"""The training loop inside TensorFlow's graph: many steps and updates in one compiled call."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rrl_tf._arguments import number_from, positive_int, stored_arrays
from rrl_tf.agents import graph_random
from rrl_tf.agents.graph_envs import CurriculumGraph, PythonEnvs
from rrl_tf.agents.loop import Record, stored_counts
from rrl_tf.agents.timeline import Timeline
from rrl_tf.errors import InvalidInput

_ACTIONS, _RESETS, _SAMPLES = range(3)  # streams of random numbers, so that none is used twice
_METRICS = ("loss", "q_mean", "gradient_norm")


class GraphLoop:
    """Acts, remembers and learns as `Loop` does, without leaving the graph between two pauses.

    The agent, the environments and the replay are all in TensorFlow, so what happens up to the
    next pause is one call of a `tf.function`: nothing but the outcome comes back to Python. What
    is drawn at random is drawn by other generators than `Loop`'s, so that two runs of one seed are
    alike in distribution and not in numbers. A step of the environments is compiled with XLA where
    agent and environments allow it.

    Args:
        agent: `DoubleDQN`, or `RecurrentDoubleDQN`.
        env: `CurriculumGraph` of E environments, or `PythonEnvs`.
        replay: `Timeline` fed by E environments, or `SequenceTimeline`.
        epsilon, updates_per_step, batch_size, learning_starts, seed: as for `Loop`; `epsilon` may
            give each environment its own, `(E,)`.
        pauses: a record is made at every multiple of these numbers of steps.

    Raises:
        InvalidInput: if a number is out of range, or replay and environments differ in E.

    Example:
        >>> from rrl_tf.agents import DoubleDQN
        >>> from rrl_tf.envs import SeededVectorEnv, gymnasium_task
        >>> from rrl_tf.models import dense_q_network
        >>> task, network = gymnasium_task("CartPole-v1"), dense_q_network(2)
        >>> network.build((None, 4))
        >>> agent = DoubleDQN(network, task.preprocessor, jit_compile=False)
        >>> env = PythonEnvs(SeededVectorEnv(task.make_env, num_envs=4, seed=0))
        >>> replay = Timeline(400, (4,), "float32", num_envs=4, jit_compile=False)
        >>> numbers = {"updates_per_step": 0.25, "batch_size": 8, "learning_starts": 40, "seed": 0}
        >>> loop = GraphLoop(agent, env, replay, epsilon=lambda step: 0.1, pauses=(80,), **numbers)
        >>> [(record.step, record.updates) for record in loop.run(until_step=200)]
        [(80, 10), (160, 30), (200, 40)]
    """

    def __init__(
        self,
        agent: Any,
        env: CurriculumGraph | PythonEnvs,
        replay: Timeline,
        *,
        epsilon: Callable[[int], Any],
        updates_per_step: float,
        batch_size: int,
        learning_starts: int,
        seed: int,
        pauses: Sequence[int],
    ) -> None:
        number_from("updates_per_step", updates_per_step, 0)
        # Never more can be drawn at once, so beyond it nothing would ever be learned.
        most = replay.drawable(replay.steps) - 1
        number_from("learning_starts", learning_starts, 0, most)
        if replay.num_envs != env.num_envs:
            raise InvalidInput(
                f"the replay must be fed by {env.num_envs} environments; received one of "
                f"{replay.num_envs}"
            )
        self.agent = agent
        self.env = env
        self.replay = replay
        self.epsilon = epsilon
        self.updates_per_step = updates_per_step
        self.batch_size = positive_int("batch_size", batch_size)
        self.learning_starts = learning_starts
        self.seed = seed
        self.pauses = tuple(positive_int("pauses", pause) for pause in pauses)
        self._step = 0
        self._updates = 0
        self._updates_owed = 0.0
        self._now: Any = None
        self._play = tf.function(self._play_one, jit_compile=agent.jit_compile and env.jit_compile)
        self._advance = tf.function(self._advance_many)

    @property
    def step(self) -> int:
        """Environment steps so far."""
        return self._step

    def run(self, until_step: int) -> Iterator[Record]:
        """Yields a `Record` per pause until `until_step` is reached."""
        if self._now is None:
            self._now = self._begun()
        while self._step < until_step:
            pauses = [self._step // every * every + every for every in self.pauses]
            yield self._advance_to(min(until_step, *pauses))

    def _begun(self):
        return self._from(*self.env.begin(self._seed(_RESETS, -1)))

    def _from(self, state, observation):
        nothing = tf.zeros((self.env.num_envs,))
        return {
            "state": state,
            "observation": observation,
            "recall": self.agent.initial_recall(self.env.num_envs),
            "return": nothing,
            "length": nothing,
        }

    def _advance_to(self, step):
        began, num_envs = time.perf_counter(), self.env.num_envs
        first = self._step // num_envs
        count = math.ceil((step - self._step) / num_envs)
        epsilons = [self.epsilon(self._step + i * num_envs) for i in range(count)]
        updates = [self._due(first + i + 1) for i in range(count)]
        with self.env.errors_as_raised():
            self._now, episodes, sums = self._advance(
                self._now,
                tf.constant(epsilons, tf.float32),
                tf.constant(updates, tf.int32),
                tf.constant(first, tf.int64),
                tf.constant(self._updates, tf.int64),
                tf.constant(self.env.level, tf.int32),
            )
        self._step += count * num_envs
        self._updates += sum(updates)
        metrics = {
            name: float(value) / sum(updates) for name, value in sums.items() if any(updates)
        }
        finished = _finished(episodes.numpy())
        seconds = {"graph": time.perf_counter() - began}
        epsilon = float(np.mean(epsilons[-1]))
        return Record(self._step, self._updates, epsilon, finished, metrics, seconds)

    def _due(self, added):
        """How many updates follow the step after which so many are in the replay."""
        if self.replay.drawable(added) <= self.learning_starts:
            return 0
        self._updates_owed += self.updates_per_step * self.env.num_envs
        due = int(self._updates_owed)
        self._updates_owed -= due
        return due

    def _advance_many(self, now, epsilons, updates, first_step, first_update, level):
        steps = tf.shape(epsilons)[0]
        episodes = tf.TensorArray(tf.float32, steps, element_shape=(4, self.env.num_envs))
        sums = dict.fromkeys(_METRICS, tf.constant(0.0))
        done = first_update
        for i in tf.range(steps):
            number = first_step + tf.cast(i, tf.int64)
            now, outcome = self._play(now, epsilons[i], number, level)
            episodes = episodes.write(i, outcome)
            for _ in tf.range(updates[i]):
                with tf.name_scope("replay"):
                    seed = self._seed(_SAMPLES, done)
                    batch, index = self.replay.sample(self.batch_size, seed)
                with tf.name_scope("update"):
                    metrics, error = self.agent.update_in_graph(*batch)
                with tf.name_scope("replay"):
                    self.replay.set_priorities(index, error)
                sums = {name: sums[name] + metrics[name] for name in _METRICS}
                done += 1
        return now, episodes.stack(), sums

    def _play_one(self, now, epsilon, number, level):
        seen, recall = now["observation"], now["recall"]
        with tf.name_scope("act"):
            seed = self._seed(_ACTIONS, number)
            action_t, memory = self.agent.act_in_graph(seen, recall, epsilon, seed)
        with tf.name_scope("environment"):
            seed = self._seed(_RESETS, number)
            state, observation, outcome, over, success = self.env.step_and_restart(
                now["state"], action_t, seed, level
            )
        with tf.name_scope("replay"):
            self.replay.add(seen, action_t, *outcome, recall)
        reward_t, *_ = outcome
        returned, length = now["return"] + reward_t, now["length"] + 1.0
        episode = [tf.cast(each, tf.float32) for each in (over, returned, length, success)]
        now = {
            "state": state,
            "observation": observation,
            "recall": self.agent.next_recall(recall, memory, action_t, reward_t, over),
            "return": tf.where(over, 0.0, returned),
            "length": tf.where(over, 0.0, length),
        }
        return now, tf.stack(episode)

    def _seed(self, stream, number):
        # What one seed draws must not depend on where a run was stopped and continued.
        return graph_random.fold_in((self.seed, stream), number)

    def get_state(self) -> dict[str, dict[str, Any]]:
        """State of the loop, its agent, replay and environments, as `Loop.get_state`."""
        if self._now is None:
            self._now = self._begun()  # kept, as environments in Python begin others the next time
        now = self._now
        return {
            "loop": {
                "step": self._step,
                "updates": self._updates,
                "updates_owed": self._updates_owed,
            },
            "environment": self.env.get_state(now["state"]),
            "episodes": {name: now[name].numpy() for name in ("return", "length")},
            "recall": {name: value.numpy() for name, value in now["recall"].items()},
            "agent": self.agent.get_state(),
            "replay": self.replay.get_state(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restores what `get_state` returned.

        Raises:
            InvalidInput: if a part does not fit this loop's agent, replay or environments.
            KeyError, TypeError, ...: if something is missing, or of another type.
        """
        self.agent.set_state(state["agent"])
        self.replay.set_state(state["replay"])
        state_now, observation = self.env.set_state(state["environment"])
        now = self._from(state_now, observation)
        episodes = {name: now[name] for name in ("return", "length")}
        self._now = now | _restored("episodes", state["episodes"], episodes)
        self._now["recall"] = _restored("recall", state["recall"], now["recall"])
        self._step, self._updates, self._updates_owed = stored_counts(state["loop"])


def _restored(part, stored, example):
    """Tensors like those of an example, of a part of a state."""
    expected = {
        name: (tuple(value.shape), value.dtype.as_numpy_dtype) for name, value in example.items()
    }
    return {
        name: tf.constant(array) for name, array in stored_arrays(part, stored, expected).items()
    }


def _finished(episodes):
    """Dicts of the episodes that ended, from `(steps, 4, E)`: whether, return, length, success.

    Whose success nobody tells, nan, has none.
    """
    steps, envs = np.nonzero(episodes[:, 0])
    return [
        {"return": float(returned), "length": int(length)}
        | ({} if np.isnan(success) else {"success": bool(success)})
        for _, returned, length, success in episodes[steps, :, envs]
    ]
