"""Define the training loop, which acts, stores transitions and trains inside a `tf.function`.

`Collector` acts in the environments. `Loop` stores the transitions and trains the agent.
`RolloutStatistics` averages the records of the loop for the log.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import tensorflow as tf

from rrl_tf._arguments import finite, natural, number_from, positive_int, stored_arrays
from rrl_tf._typing import Tensor
from rrl_tf.agents import random
from rrl_tf.agents.environments import GraphEnvs, PythonEnvs
from rrl_tf.agents.replay import ReplayBuffer
from rrl_tf.errors import InvalidInput

_METRICS = ("loss", "q_mean", "gradient_norm")


@dataclasses.dataclass(frozen=True)
class Record:
    """Describes what a training loop did since its previous record.

    Attributes:
        step: number of environment steps so far, over all environments.
        updates: number of gradient steps so far.
        new_updates: number of gradient steps since the previous record.
        epsilon: probability of a random action in the last step, averaged over the environments.
        episodes: episodes that ended, a list of dicts with `return`, `length` and, if the
            environment reports it, `success`.
        sums: dict of floats, metrics summed over the new gradient steps; empty if there are none.
        seconds: wall-clock seconds since the previous record.
        gauges: dict of floats, further values logged under `time/`.
    """

    step: int
    updates: int
    new_updates: int
    epsilon: float
    episodes: list
    sums: dict
    seconds: float
    gauges: dict = dataclasses.field(default_factory=dict)


class Collector:
    """Lets an agent act in E environments of this process.

    `step` takes and returns a `carry`, a structure of tensors with the state of environments and
    agent, so that a `tf.function` can take many steps.

    Args:
        agent: `DoubleDQN` or `RecurrentDoubleDQN`.
        env: `GraphEnvs` or `PythonEnvs` of E environments.
        seed: seed of the random actions and, with `GraphEnvs`, of the episodes.

    Attributes:
        num_envs: E, number of parallel environments.
        jit_compile: whether XLA can compile `step`.

    Example:
        >>> from rrl_tf.agents import DoubleDQN
        >>> from rrl_tf.envs import SeededVectorEnv, gymnasium_task
        >>> from rrl_tf.models import dense_q_network
        >>> task, network = gymnasium_task("CartPole-v1"), dense_q_network(2)
        >>> network.build((None, 4))
        >>> env = PythonEnvs(SeededVectorEnv(task.make_env, num_envs=4, seed=0))
        >>> collector = Collector(DoubleDQN(network, task.preprocessor), env, seed=0)
        >>> carry, _ = collector.prepare(None)
        >>> carry, transition, episode = collector.step(carry, epsilon=0.1, number=0, level=0)
        >>> transition["observation_tp1"].shape
        TensorShape([4, 4])
    """

    def __init__(self, agent: Any, env: GraphEnvs | PythonEnvs, seed: int) -> None:
        self.agent = agent
        self.env = env
        self.seed = seed
        self.num_envs = env.num_envs
        self.jit_compile = env.jit_compile

    @property
    def reset_options(self) -> dict[str, Any] | None:
        """The `options` of `env.reset` for new episodes; `{"level": number}` sets the level."""
        return self.env.reset_options

    @reset_options.setter
    def reset_options(self, options: dict[str, Any] | None) -> None:
        self.env.reset_options = options

    def running(self) -> AbstractContextManager[None]:
        """Return the context manager to call `step` in, which re-raises environments' errors."""
        return self.env.errors_as_raised()

    def gauges(self, updates: int) -> dict[str, float]:
        """Return further metrics to log after `updates` gradient steps; none for this class."""
        return {}

    def prepare(self, carry: Any, epsilon: Any = 0.0, updates: int = 0) -> tuple[Any, int]:
        """Return the carry for `step`, and the number of steps that can be taken with it.

        Args:
            carry: as returned by `step` or `set_state`; `None` begins new episodes.
            epsilon, updates: not used by this class; see `ActorCollector.prepare`.
        """
        if carry is None:
            carry = self._new_carry(*self.env.begin(self._seed(random.RESETS, -1)))
        return carry, sys.maxsize

    def _new_carry(self, env_state, observation):
        return {
            "env": env_state,
            "observation": observation,
            "state": self.agent.initial_state(self.num_envs),
            "return": tf.zeros((self.num_envs,)),
            "length": tf.zeros((self.num_envs,)),
        }

    def step(
        self, carry: Any, epsilon: Any, number: Any, level: Any
    ) -> tuple[Any, dict[str, Any], Tensor]:
        """Take one step in every environment.

        Args:
            carry: as returned by `prepare` or `step`.
            epsilon: probability of a random action, a scalar or `(E,)`.
            number: number of the step, which seeds the random numbers.
            level: current level of the curriculum for new episodes.

        Returns:
            A tuple of the next carry; a dict of the arguments of `ReplayBuffer.add`; and a tensor
            `(4, E)` float32. Its rows are: whether the episode is done, its return so far, its
            length so far, and its success (nan if unknown).
        """
        observation_t, state_t = carry["observation"], carry["state"]
        with tf.name_scope("act"):
            seed = self._seed(random.ACTIONS, number)
            action_t, memory = self.agent.act(observation_t, state_t, epsilon, seed)
        with tf.name_scope("environment"):
            seed = self._seed(random.RESETS, number)
            env_state, observation, outcome, done, success = self.env.step_and_reset(
                carry["env"], action_t, seed, level
            )
        transition = {
            "observation_t": observation_t,
            "action_t": action_t,
            **outcome,
            "episode_step": tf.cast(carry["length"], tf.int32),
            "state": state_t,
        }
        reward_t = outcome["reward_t"]
        returned, length = carry["return"] + reward_t, carry["length"] + 1.0
        episode = [tf.cast(each, tf.float32) for each in (done, returned, length, success)]
        carry = {
            "env": env_state,
            "observation": observation,
            "state": self.agent.next_state(memory, action_t, reward_t, done),
            "return": tf.where(done, 0.0, returned),
            "length": tf.where(done, 0.0, length),
        }
        return carry, transition, tf.stack(episode)

    def _seed(self, stream, number):
        return random.fold_in((self.seed, stream), number)

    def get_state(self, carry: Any) -> dict[str, dict[str, Any]]:
        """Return the parts `environment`, `episodes` and `recurrent_state` of the loop's state."""
        return {
            "environment": self.env.get_state(carry["env"]),
            "episodes": {name: carry[name].numpy() for name in ("return", "length")},
            "recurrent_state": {name: value.numpy() for name, value in carry["state"].items()},
        }

    def set_state(self, state: Mapping[str, Any]) -> Any:
        """Restore a state from `get_state`, and return the carry for `step`.

        Raises:
            InvalidInput: if the state does not fit the agent or the environments.
        """
        carry = self._new_carry(*self.env.set_state(state["environment"]))
        episodes = {name: carry[name] for name in ("return", "length")}
        carry |= _restored("episodes", state["episodes"], episodes)
        carry["state"] = _restored("recurrent_state", state["recurrent_state"], carry["state"])
        return carry


def _restored(part, stored, example):
    """Return stored arrays as tensors; names, shapes and dtypes must be those of `example`."""
    expected = {
        name: (tuple(value.shape), value.dtype.as_numpy_dtype) for name, value in example.items()
    }
    return {
        name: tf.constant(array) for name, array in stored_arrays(part, stored, expected).items()
    }


class Loop:
    """Collects experience, stores it in a replay buffer, and trains the agent.

    `run` yields a record at regular pauses, where the caller can evaluate, draw or save. All steps
    between two pauses are one call of a `tf.function`. Acting and the environments are compiled
    with XLA if both agent and collector support it.

    Args:
        agent: `DoubleDQN` or `RecurrentDoubleDQN`.
        collector: `Collector` or `ActorCollector` of E environments.
        replay: `ReplayBuffer` or `SequenceReplayBuffer` for E environments.
        epsilon: function of the step that returns the probability of a random action, a float or
            `(E,)`.
        updates_per_step: gradient steps per environment step; 0.25 is one every four steps.
        batch_size: transitions or sequences per gradient step.
        learning_starts: training starts when the replay buffer has more than this many complete
            rows; see `ReplayBuffer.complete_rows`.
        seed: seed for sampling from the replay buffer.
        pauses: intervals in environment steps. `run` pauses at every multiple of each interval.

    Raises:
        InvalidInput: if a number is out of range, or `replay` and `collector` have different E.

    Example:
        >>> from rrl_tf.agents import DoubleDQN
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
        # With a larger value, training would never start.
        most = replay.complete_rows(replay.steps) - 1
        self.learning_starts = number_from("learning_starts", learning_starts, 0, most)
        if replay.num_envs != collector.num_envs:
            raise InvalidInput(
                f"`replay` must be for the {collector.num_envs} environments of `collector`; "
                f"received one for {replay.num_envs}."
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
        jit_compile = agent.jit_compile and collector.jit_compile
        self._collect = tf.function(self._collect_step, jit_compile=jit_compile, autograph=False)
        self._advance = tf.function(self._advance_in_graph, reduce_retracing=True)

    @property
    def step(self) -> int:
        """Number of environment steps so far, over all environments."""
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
        arguments = (
            self._carry,
            tf.constant(epsilons, tf.float32),
            tf.constant(updates, tf.int32),
            tf.constant(first, tf.int64),
            tf.constant(self._updates, tf.int64),
            tf.constant((self.collector.reset_options or {}).get("level", 0), tf.int32),
        )
        if not self._advance.experimental_get_tracing_count():
            carry, *specs = tf.nest.map_structure(tf.TensorSpec.from_tensor, arguments)
            for i in (0, 1):  # trace once for any number of steps
                specs[i] = tf.TensorSpec((None, *specs[i].shape[1:]), specs[i].dtype)
            self._advance.get_concrete_function(carry, *specs)
        self._carry, episodes, sums = self._advance(*arguments)
        self._step += count * num_envs
        self._updates += sum(updates)
        return Record(
            self._step,
            self._updates,
            sum(updates),
            float(np.mean(epsilons[-1])),
            _finished(episodes.numpy()),
            {name: float(value) for name, value in sums.items() if any(updates)},
            time.perf_counter() - began,
            self.collector.gauges(self._updates),
        )

    def _due(self, added):
        """Return how many gradient steps follow once `added` steps per environment are stored."""
        if self.replay.complete_rows(added) <= self.learning_starts:
            return 0
        self._updates_owed += self.updates_per_step * self.collector.num_envs
        due = int(self._updates_owed)
        self._updates_owed -= due
        return due

    def _advance_in_graph(self, carry, epsilons, updates, first_step, first_update, level):
        steps = tf.shape(epsilons)[0]
        episodes = tf.TensorArray(tf.float32, steps, element_shape=(4, self.collector.num_envs))
        sums = dict.fromkeys(_METRICS, tf.constant(0.0))
        update = first_update
        for i in tf.range(steps):
            number = first_step + tf.cast(i, tf.int64)
            carry, episode = self._collect(carry, epsilons[i], number, level)
            episodes = episodes.write(i, episode)
            for _ in tf.range(updates[i]):
                metrics = self._update_once(update)
                sums = {name: sums[name] + metrics[name] for name in _METRICS}
                update += 1
        return carry, episodes.stack(), sums

    def _collect_step(self, carry, epsilon, number, level):
        carry, transition, episode = self.collector.step(carry, epsilon, number, level)
        with tf.name_scope("replay"):
            self.replay.add(**transition)
        return carry, episode

    @tf.autograph.experimental.do_not_convert
    def _update_once(self, number):
        with tf.name_scope("replay"):
            # The seed depends only on the number of the update, so a resumed run draws the same.
            seed = random.fold_in((self.seed, random.SAMPLES), number)
            batch, index = self.replay.sample(self.batch_size, seed)
        with tf.name_scope("update"):
            metrics, error = self.agent.update(batch)
        with tf.name_scope("replay"):
            self.replay.set_priorities(index, error)
        return metrics

    def get_state(self) -> dict[str, dict[str, Any]]:
        """Return the state of the loop, the agent, the replay buffer and the environments.

        Each part is a dict of arrays and JSON-serialisable values. A loop that is restored from
        this state, also in another process, continues with bit-equal results. This does not hold
        with actors, whose rollouts in progress are lost.
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
        """Restore a state from `get_state`.

        Raises:
            InvalidInput: if a part does not fit the agent, the replay buffer or the environments.
            KeyError, TypeError, ...: if a part is missing or has the wrong type.
        """
        options = state["environment"]["reset_options"]
        if not isinstance(options, dict | None):
            raise InvalidInput(f"`reset_options` must be a dict or None; received {options!r}.")
        self.agent.set_state(state["agent"])
        self.replay.set_state(state["replay"])
        self._carry = self.collector.set_state(state)
        stored = state["loop"]
        self._step = natural("loop.step", stored["step"])
        self._updates = natural("loop.updates", stored["updates"])
        self._updates_owed = float(number_from("loop.updates_owed", stored["updates_owed"], 0, 1))


def _finished(episodes):
    """Return a dict for each finished episode.

    Args:
        episodes: `(steps, 4, E)`, stacked results of `Collector.step`.
    """
    steps, envs = np.nonzero(episodes[:, 0])
    return [
        {"return": float(returned), "length": int(length)}
        | ({} if np.isnan(success) else {"success": bool(success)})
        for _, returned, length, success in episodes[steps, :, envs]
    ]


class RolloutStatistics:
    """Averages the records of a training loop for the log.

    Returns, lengths and successes are averaged over the last `window` episodes. Losses and times
    are averaged since the last call of `averages`; every gradient step has the same weight. CPU
    minutes include earlier processes of a resumed run.

    Args:
        window: number of episodes to average.

    Example:
        >>> statistics = RolloutStatistics()
        >>> episodes = [{"return": 1.0, "success": 1.0}, {"return": 0.0, "success": 0.0}]
        >>> record = {"step": 16, "updates": 4, "new_updates": 4, "epsilon": 0.1, "seconds": 0.3}
        >>> statistics.add(Record(**record, episodes=episodes, sums={"loss": 1.0}))
        >>> averages = statistics.averages()
        >>> averages["rollout/success"], averages["train/loss"]
        (0.5, 0.25)
    """

    def __init__(self, window: int = 100) -> None:
        self._episodes: collections.deque[dict[str, float]] = collections.deque(maxlen=window)
        self._latest = Record(0, 0, 0, float("nan"), [], {}, 0.0)
        self._earlier_minutes = 0.0
        self._clear()

    def _clear(self):
        self._sums: dict[str, float] = collections.defaultdict(float)
        self._new_updates = 0
        self._seconds = 0.0
        self._first_step = self._latest.step

    def add(self, record: Record) -> None:
        """Add a record of the loop.

        Raises:
            InvalidInput: if a number of an episode is not finite; nothing is added.
        """
        self._add_episodes(record.episodes)
        for name, value in record.sums.items():
            self._sums[name] += value
        self._new_updates += record.new_updates
        self._seconds += record.seconds
        self._latest = record

    def _add_episodes(self, episodes):
        for episode in episodes:
            for name, value in episode.items():
                finite(f"the {name} of an episode", np.asarray(value, "float64"))
        self._episodes.extend(episodes)

    def averages(self) -> dict[str, float]:
        """Return metrics under `rollout/`, `train/` and `time/`; clear sums for the next call."""
        averages = {
            **self._episode_means(),
            **{f"train/{name}": value / self._new_updates for name, value in self._sums.items()},
            "train/epsilon": self._latest.epsilon,
            "train/updates": self._latest.updates,
            "time/steps_per_second": (self._latest.step - self._first_step)
            / (self._seconds or 1.0),
            "time/cpu_minutes": self._cpu_minutes(),
            **{f"time/{name}": value for name, value in self._latest.gauges.items()},
        }
        self._clear()
        return averages

    def _cpu_minutes(self):
        return self._earlier_minutes + time.process_time() / 60

    def _episode_means(self):
        means = {}
        for name in ("success", "return", "length"):
            if any(name in episode for episode in self._episodes):
                values = [episode.get(name, 0.0) for episode in self._episodes]
                means[f"rollout/{name}"] = float(np.mean(values))
        return means

    def get_state(self) -> dict[str, Any]:
        """Return the state as a JSON-serialisable dict; call `averages` first.

        The state does not include the losses and times since the last call of `averages`.
        """
        return {
            "episodes": list(self._episodes),
            "step": self._latest.step,
            "cpu_minutes": self._cpu_minutes(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state from `get_state`."""
        self._add_episodes(
            [{name: float(x) for name, x in episode.items()} for episode in state["episodes"]]
        )
        self._latest = Record(int(state["step"]), 0, 0, float("nan"), [], {}, 0.0)
        self._first_step = self._latest.step
        # Leave out the CPU time that this process used before it resumed the run.
        self._earlier_minutes = float(state["cpu_minutes"]) - time.process_time() / 60
