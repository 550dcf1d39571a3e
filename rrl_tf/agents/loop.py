"""The training loop: acting, replay and updates run in TensorFlow between two log rows."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rrl_tf._arguments import natural, number_from, positive_int
from rrl_tf.agents import random
from rrl_tf.agents.replay import ReplayBuffer
from rrl_tf.errors import InvalidInput

_METRICS = ("loss", "q_mean", "gradient_norm")


@dataclasses.dataclass(frozen=True)
class Record:
    """What happened since the previous record.

    Attributes:
        step: environment steps so far, over all environments.
        updates: gradient steps so far.
        epsilon: fraction of random actions in the last step, averaged over the environments.
        episodes: list of dicts `return`, `length` and, where the environment reports it, `success`:
            the episodes that ended.
        metrics: dict of floats, means over the updates; empty without an update.
        seconds: wall-clock seconds.
        gauges: dict of floats, further values logged under `time/`.
    """

    step: int
    updates: int
    epsilon: float
    episodes: list
    metrics: dict
    seconds: float
    gauges: dict = dataclasses.field(default_factory=dict)


class Loop:
    """Collects experience, stores it, and updates the agent.

    Everything up to the next pause is one call of a `tf.function`. Between two records the loop is
    at rest: evaluate, draw or save there. Acting and the environments' step are compiled with XLA
    where both allow it.

    Args:
        agent: `DoubleDQN` or `RecurrentDoubleDQN`.
        collector: `Collector` or `ActorCollector` of E environments.
        replay: `ReplayBuffer` or `SequenceReplayBuffer` of E environments.
        epsilon: function of the step -> fraction of random actions, a float or `(E,)`.
        updates_per_step: gradient steps per environment step; 0.25 is one every four.
        batch_size: transitions or sequences per gradient step.
        learning_starts: transitions that can be drawn before the first gradient step.
        seed: seed of the samples.
        pauses: the loop yields a record at every multiple of each of these numbers of steps.

    Raises:
        InvalidInput: if a number is out of range, or replay and collector differ in E.

    Example:
        >>> from rrl_tf.agents import Collector, DoubleDQN, PythonEnvs
        >>> from rrl_tf.envs import SeededVectorEnv, gymnasium_task
        >>> from rrl_tf.models import dense_q_network
        >>> task, network = gymnasium_task("CartPole-v1"), dense_q_network(2)
        >>> network.build((None, 4))
        >>> agent = DoubleDQN(network, task.preprocessor, jit_compile=False)
        >>> env = PythonEnvs(SeededVectorEnv(task.make_env, num_envs=4, seed=0))
        >>> replay = ReplayBuffer(400, (4,), "float32", num_envs=4, jit_compile=False)
        >>> numbers = {"updates_per_step": 0.25, "batch_size": 8, "learning_starts": 40}
        >>> loop = Loop(
        ...     agent, Collector(agent, env, seed=0), replay,
        ...     epsilon=lambda step: 0.1, seed=0, pauses=(80,), **numbers,
        ... )
        >>> [(record.step, record.updates) for record in loop.run(until_step=200)]
        [(80, 10), (160, 30), (200, 40)]
    """

    def __init__(
        self,
        agent: Any,
        collector: Any,
        replay: ReplayBuffer,
        *,
        epsilon: Callable[[int], Any],
        updates_per_step: float,
        batch_size: int,
        learning_starts: int,
        seed: int,
        pauses: Sequence[int],
    ) -> None:
        self.updates_per_step = number_from("updates_per_step", updates_per_step, 0)
        # With a larger number no update would ever take place.
        most = replay.drawable(replay.steps) - 1
        self.learning_starts = number_from("learning_starts", learning_starts, 0, most)
        if replay.num_envs != collector.num_envs:
            raise InvalidInput(
                f"The replay must be of {collector.num_envs} environments; received one of "
                f"{replay.num_envs}."
            )
        self.agent = agent
        self.collector = collector
        self.replay = replay
        self.epsilon = epsilon
        self.batch_size = positive_int("batch_size", batch_size)
        self.seed = seed
        self.pauses = tuple(positive_int("pauses", pause) for pause in pauses)
        self._step = 0
        self._updates = 0
        self._updates_owed = 0.0
        self._carry: Any = None
        self._collect = tf.function(
            self._collect_step, jit_compile=agent.jit_compile and collector.jit_compile
        )
        self._advance = tf.function(self._advance_in_graph, reduce_retracing=True)

    @property
    def step(self) -> int:
        """Environment steps so far."""
        return self._step

    def run(self, until_step: int) -> Iterator[Record]:
        """Yield a `Record` at each pause until `until_step` is reached."""
        with self.collector.running():
            while self._step < until_step:
                pauses = [self._step // every * every + every for every in self.pauses]
                yield self._advance_to(min(until_step, *pauses))

    def _advance_to(self, step):
        began, num_envs = time.perf_counter(), self.collector.num_envs
        self._carry, available = self.collector.prepare(
            self._carry, self.epsilon(self._step), self._updates
        )
        count = min(math.ceil((step - self._step) / num_envs), available)
        first = self._step // num_envs
        epsilons = [self.epsilon(self._step + i * num_envs) for i in range(count)]
        updates = [self._due(first + i + 1) for i in range(count)]
        self._carry, episodes, sums = self._advance(
            self._carry,
            tf.constant(epsilons, tf.float32),
            tf.constant(updates, tf.int32),
            tf.constant(first, tf.int64),
            tf.constant(self._updates, tf.int64),
            tf.constant(self.collector.level, tf.int32),
        )
        self._step += count * num_envs
        self._updates += sum(updates)
        return Record(
            self._step,
            self._updates,
            float(np.mean(epsilons[-1])),
            _finished(episodes.numpy()),
            {name: float(value) / sum(updates) for name, value in sums.items() if any(updates)},
            time.perf_counter() - began,
            self.collector.gauges(self._updates),
        )

    def _due(self, added):
        """Return the number of updates after the step that is the `added`-th in the replay."""
        if self.replay.drawable(added) <= self.learning_starts:
            return 0
        self._updates_owed += self.updates_per_step * self.collector.num_envs
        due = int(self._updates_owed)
        self._updates_owed -= due
        return due

    def _advance_in_graph(self, carry, epsilons, updates, first_step, first_update, level):
        steps = tf.shape(epsilons)[0]
        episodes = tf.TensorArray(tf.float32, steps, element_shape=(4, self.collector.num_envs))
        sums = dict.fromkeys(_METRICS, tf.constant(0.0))
        done = first_update
        for i in tf.range(steps):
            number = first_step + tf.cast(i, tf.int64)
            carry, episode = self._collect(carry, epsilons[i], number, level)
            episodes = episodes.write(i, episode)
            for _ in tf.range(updates[i]):
                metrics = self._update_once(done)
                sums = {name: sums[name] + metrics[name] for name in _METRICS}
                done += 1
        return carry, episodes.stack(), sums

    def _collect_step(self, carry, epsilon, number, level):
        carry, transition, episode = self.collector.step(carry, epsilon, number, level)
        with tf.name_scope("replay"):
            self.replay.add(**transition)
        return carry, episode

    def _update_once(self, number):
        with tf.name_scope("replay"):
            # The draws of an update do not depend on where a run was interrupted.
            seed = random.fold_in((self.seed, random.SAMPLES), number)
            batch, index = self.replay.sample(self.batch_size, seed)
        with tf.name_scope("update"):
            metrics, error = self.agent.update(batch)
        with tf.name_scope("replay"):
            self.replay.set_priorities(index, error)
        return metrics

    def get_state(self) -> dict[str, dict[str, Any]]:
        """Return the state of the loop, the agent, the replay and the environments.

        Each part is a dict of arrays and JSON-compatible values. A loop restored from it in another
        process continues bit for bit (with actors: without the steps that they had not sent).
        """
        self._carry, _ = self.collector.prepare(
            self._carry, self.epsilon(self._step), self._updates
        )
        return {
            "loop": {
                "step": self._step,
                "updates": self._updates,
                "updates_owed": self._updates_owed,
            },
            **self.collector.get_state(self._carry),
            "agent": self.agent.get_state(),
            "replay": self.replay.get_state(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `get_state` returned.

        Raises:
            InvalidInput: if a part does not fit this loop's agent, replay or environments.
            KeyError, TypeError, ...: if something is missing or of another type.
        """
        self.agent.set_state(state["agent"])
        self.replay.set_state(state["replay"])
        self._carry = self.collector.set_state(state)
        stored = state["loop"]
        self._step = natural("loop.step", stored["step"])
        self._updates = natural("loop.updates", stored["updates"])
        self._updates_owed = float(number_from("loop.updates_owed", stored["updates_owed"], 0, 1))


def _finished(episodes):
    """Return a dict per finished episode of `(steps, 4, E)`: over, return, length, success."""
    steps, envs = np.nonzero(episodes[:, 0])
    return [
        {"return": float(returned), "length": int(length)}
        | ({} if np.isnan(success) else {"success": bool(success)})
        for _, returned, length, success in episodes[steps, :, envs]
    ]
