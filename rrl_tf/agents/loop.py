"""The training loop: a generator of records; logs, evaluation and checkpoints subscribe to it."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from rrl_tf._arguments import natural, number_from
from rrl_tf.agents.replay import ReplayBuffer
from rrl_tf.envs.vector import SeededVectorEnv

if TYPE_CHECKING:  # it loads TensorFlow
    from rrl_tf.agents.double_dqn import DoubleDQN


@dataclasses.dataclass(frozen=True)
class Record:
    """What happened during one step of all environments.

    Attributes:
        step: int, environment steps so far, over all environments.
        updates: int, gradient steps so far.
        epsilon: float, share of random actions.
        episodes: list of dicts `return`, `length` and, where the environment tells, `success`:
            those that ended now.
        metrics: dict of floats from the last update of this step, empty without one.
        seconds: dict of floats, where the time of this step went: `act`, `environment`,
            `replay`, `update`; `graph` alone of a `GraphLoop`, `wait` instead of the first two of
            an `ActorLoop`.
        gauges: dict of floats, what else is logged under `time/`, as it is now.
    """

    step: int
    updates: int
    epsilon: float
    episodes: list
    metrics: dict
    seconds: dict
    gauges: dict = dataclasses.field(default_factory=dict)


class Loop:
    """Lets an agent act, remember and learn until a number of environment steps is reached.

    `run` yields a `Record` after every step of the environments. Between two records everything
    is at rest, so that is where a subscriber may evaluate, draw or save.

    Args:
        agent: `DoubleDQN`.
        env: `SeededVectorEnv` of E environments.
        replay: `ReplayBuffer` fed by E environments.
        epsilon: function of the step → share of random actions.
        updates_per_step: float, gradient steps per environment step (0.25: one every four).
        batch_size: int, transitions per gradient step; at most the replay's capacity.
        learning_starts: int, transitions in the replay before the first gradient step.
        seed: int, of actions and samples.
        trace: function of `act`, `environment`, `replay` or `update` → context manager, entered
            round each such part of a step; `tf.profiler.experimental.Trace` shows it in a profile.

    Raises:
        InvalidInput: if a number is out of range.

    Example:
        >>> from rrl_tf.agents import DoubleDQN
        >>> from rrl_tf.envs import gymnasium_task
        >>> from rrl_tf.models import dense_q_network
        >>> task, network = gymnasium_task("CartPole-v1"), dense_q_network(2)
        >>> network.build((None, 4))
        >>> agent = DoubleDQN(network, task.preprocessor, jit_compile=False)
        >>> env = SeededVectorEnv(task.make_env, num_envs=2, seed=0)
        >>> replay = ReplayBuffer(100, (4,), "float32", num_envs=2)
        >>> numbers = {"updates_per_step": 0.5, "batch_size": 8, "learning_starts": 5, "seed": 0}
        >>> loop = Loop(agent, env, replay, epsilon=lambda step: 0.1, **numbers)
        >>> [(record.step, record.updates) for record in loop.run(until_step=12)]
        [(2, 0), (4, 0), (6, 1), (8, 2), (10, 3), (12, 4)]
    """

    def __init__(
        self,
        agent: DoubleDQN,
        env: SeededVectorEnv,
        replay: ReplayBuffer,
        *,
        epsilon: Callable[[int], float],
        updates_per_step: float,
        batch_size: int,
        learning_starts: int,
        seed: int,
        trace: Callable[[str], AbstractContextManager] = contextlib.nullcontext,
    ) -> None:
        for name, value, least in (
            ("updates_per_step", updates_per_step, 0),
            ("learning_starts", learning_starts, 0),
        ):
            number_from(name, value, least)
        number_from("batch_size", batch_size, 1, replay.capacity)
        self.agent = agent
        self.env = env
        self.replay = replay
        self.epsilon = epsilon
        self.updates_per_step = updates_per_step
        self.batch_size = batch_size
        self.learning_starts = learning_starts
        self.seed = seed
        self.trace = trace
        self._rng = np.random.default_rng(seed)
        self._step = 0
        self._updates = 0
        self._updates_owed = 0.0
        self._observation: Any = None

    @property
    def step(self) -> int:
        """Environment steps so far."""
        return self._step

    def run(self, until_step: int) -> Iterator[Record]:
        """Yields a `Record` per step of the environments until `until_step` is reached."""
        if self._observation is None:
            self._observation, _ = self.env.reset()
        while self._step < until_step:
            yield self._advance()

    def _advance(self):
        epsilon = self.epsilon(self._step)
        clock = Clock("act", "environment", "replay", "update", trace=self.trace)
        with clock("act"):
            action_t = self.agent.act(self._observation, epsilon, self._rng)
        with clock("environment"):
            observation, reward_t, terminated, truncated, info = self.env.step(action_t)
        with clock("replay"):
            self.replay.add(
                self._observation,
                action_t,
                reward_t,
                terminated | info.get("life_lost", False),
                truncated,
                info["final_obs"],
            )
        self._observation = observation
        self._step += len(action_t)
        metrics = self._learn(clock) if len(self.replay) > self.learning_starts else {}
        episodes = finished_episodes(info)
        return Record(self._step, self._updates, epsilon, episodes, metrics, clock.seconds)

    def _learn(self, clock):
        metrics = {}
        self._updates_owed += self.updates_per_step * self.env.num_envs
        while self._updates_owed >= 1:
            with clock("replay"):
                batch = self.replay.sample(self.batch_size, self._rng)
            with clock("update"):
                metrics, error = self.agent.update(batch)
            with clock("replay"):
                self.replay.set_priorities(batch.index, error)
            self._updates += 1
            self._updates_owed -= 1
        return metrics

    def get_state(self) -> dict[str, dict[str, Any]]:
        """State of the loop, its agent, replay and environments, each as a dict of its own.

        The values are arrays or JSON-able. Restored in another process, a run goes on as if it
        had never stopped.
        """
        return {
            "loop": {
                "step": self._step,
                "updates": self._updates,
                "updates_owed": self._updates_owed,
                "random": self._rng.bit_generator.state,
            },
            "environment": self.env.get_state(),
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
        self._observation = self.env.set_state(state["environment"])
        self._step, self._updates, self._updates_owed = stored_counts(state["loop"])
        self._rng.bit_generator.state = state["loop"]["random"]


class Clock:
    """Seconds spent under each name; `trace` is entered round each part, as of `Loop`."""

    def __init__(
        self, *names: str, trace: Callable[[str], AbstractContextManager] = contextlib.nullcontext
    ) -> None:
        self.seconds = dict.fromkeys(names, 0.0)
        self._trace = trace

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Adds the time until it is left to a name's."""
        begun = time.perf_counter()
        with self._trace(name):
            yield
        self.seconds[name] += time.perf_counter() - begun


def stored_counts(stored: Mapping[str, Any]) -> tuple[int, int, float]:
    """Steps, updates and the part of an update that is owed, from the state of a loop."""
    return (
        natural("loop.step", stored["step"]),
        natural("loop.updates", stored["updates"]),
        float(number_from("loop.updates_owed", stored["updates_owed"], 0, 1)),
    )


def finished_episodes(info: Mapping[str, Any]) -> list[dict[str, float]]:
    """The episodes that ended in a step of a vector environment, as `Record` has them."""
    if "_episode" not in info:
        return []
    episode = info["episode"]
    return [
        {
            name: episode[name][env].item()
            for name in ("return", "length", "success")
            if name != "success" or episode["_success"][env]
        }
        for env in np.flatnonzero(info["_episode"])
    ]
