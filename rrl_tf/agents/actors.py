"""Learning from actors that play elsewhere: who is asked for what, and who is lost."""

from __future__ import annotations

import concurrent.futures
import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rrl_tf._arguments import positive_int
from rrl_tf.agents.actor import Order, Rollout
from rrl_tf.agents.loop import Clock, Loop, Record
from rrl_tf.agents.replay import ReplayBuffer
from rrl_tf.errors import InvalidInput

if TYPE_CHECKING:  # it loads TensorFlow
    from rrl_tf.agents.double_dqn import DoubleDQN

EXPONENT = 7.0
"""How much less the last actor explores than the first (Ape-X)."""
PATIENCE = 60.0
"""Seconds without a rollout after which the user is told."""
LOSSES = 10
"""So many losses of each actor, with nothing from any of them between, are no accidents."""


class Launcher(Protocol):
    """Where actors run. It is entered while they play; leaving it ends them all."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *exception: object) -> None: ...

    def start(self, index: int, seed: int) -> None:
        """Begins actor `index`; one of that number that still runs is ended."""

    def publish(self, weights: Sequence[np.ndarray]) -> None:
        """Takes the weights that all orders from now on are to be played with."""

    def ask(self, index: int, order: Order) -> concurrent.futures.Future:
        """Has an actor play; returns at once."""

    def take(self, future: concurrent.futures.Future) -> Rollout | None:
        """What came of an order; `None` if the actor is lost. What it raised is raised."""


class Actors:
    """N actors of E environments each, of which every one is asked for one rollout ahead.

    So the learner finds a rollout ready and actors never run far ahead of it: what is in flight
    is N rollouts, each played with weights about N rollouts old. An actor that is lost is replaced
    by one that plays other episodes, and the others go on.

    Args:
        launcher: where they run.
        count: N.
        num_envs: E.
        seed: int, of the run.
        rollout_length: T, steps of every environment in a rollout.

    Attributes:
        reset_options: of every episode that begins, as in `SeededVectorEnv`.
        restarts: int, actors that were lost and replaced since this object was made.

    Example: that of `rrl_tf.agents.ray_actors.RayLauncher`.
    """

    def __init__(
        self,
        launcher: Launcher,
        count: int,
        *,
        num_envs: int,
        seed: int,
        rollout_length: int = 16,
    ) -> None:
        self.count = positive_int("count", count)
        self.num_envs = positive_int("num_envs", num_envs)
        self.rollout_length = positive_int("rollout_length", rollout_length)
        self.seed = seed
        self.reset_options: dict[str, Any] | None = None
        self.restarts = 0
        self._launcher = launcher
        self._in_flight: dict[int, concurrent.futures.Future] = {}  # the first asked first
        self._published: int | None = None
        self._losses = 0

    @contextlib.contextmanager
    def playing(self) -> Iterator[None]:
        """The time in which there are actors."""
        with self._launcher:
            try:
                yield
            finally:
                self._in_flight = {}
                self._published = None

    def next(
        self, step: int, epsilon: float, version: int, weights: Callable[[], Sequence[np.ndarray]]
    ) -> tuple[int, Rollout]:
        """Waits for a rollout; who played it is asked for the next one at once.

        Args:
            step: environment steps so far.
            epsilon: share of random actions, from which each actor gets its own.
            version: of the learner's weights: the updates so far.
            weights: gives them.

        Returns:
            The actor's index, and its rollout.

        Raises:
            ConnectionError: if actors are lost again and again, and none sends anything.
        """
        if version != self._published:
            self._launcher.publish(weights())
            self._published = version

        def ask(index):
            share = actor_epsilon(epsilon, index, self.count)
            order = Order(self.rollout_length, share, self.reset_options, version)
            self._in_flight[index] = self._launcher.ask(index, order)

        for index in sorted({*range(self.count)} - {*self._in_flight}):
            self._start(index, step)
            ask(index)
        while True:
            index = self._first_done()
            rollout = self._launcher.take(self._in_flight.pop(index))
            if rollout is None:
                self._note_loss()
                self._start(index, step)
            else:
                self._losses = 0
            ask(index)
            if rollout is not None:
                return index, rollout

    def _start(self, index, step):
        """An actor whose episodes nobody has seen: those of an earlier one began at another step,
        or none of them was ever sent."""
        sequence = np.random.SeedSequence((self.seed, index, step))
        self._launcher.start(index, int(sequence.generate_state(1, np.uint64)[0]))

    def _first_done(self):
        while True:
            done, _ = concurrent.futures.wait(
                self._in_flight.values(), PATIENCE, concurrent.futures.FIRST_COMPLETED
            )
            if done:
                return next(index for index, each in self._in_flight.items() if each in done)
            print(
                f"\nno actor has sent anything for {PATIENCE:.0f} s; still waiting",
                file=sys.stderr,
            )

    def _note_loss(self):
        self.restarts += 1
        self._losses += 1
        if self._losses >= LOSSES * self.count:
            raise ConnectionError(
                f"actors were lost {self._losses} times in a row and sent nothing between; the "
                "same command goes on from the last checkpoint"
            )

    def get_state(self) -> dict[str, Any]:
        """What actors are told to reset with, ready for JSON; their episodes are not kept."""
        return {"reset_options": self.reset_options}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restores what `get_state` returned; all actors begin new episodes."""
        options = state["reset_options"]
        if not isinstance(options, dict | None):
            raise InvalidInput(f"options must be a dict or None; received {options!r}")
        self.reset_options = options


class ActorLoop(Loop):
    """A `Loop` whose steps come from actors; it keeps to its updates per environment step.

    Every record is one step of one actor's E environments. The replay is fed by N · E of them. What
    actors had not sent when a state was saved is played anew after it is restored, so a resumed
    run is not the same to the bit; nor are two runs, as rollouts come in any order.

    Args:
        agent, epsilon, updates_per_step, batch_size, learning_starts, seed: as for `Loop`; of
            `epsilon`, `actor_epsilon` gives each actor its own.
        actors: N actors.
        replay: `ReplayBuffer` fed by N · E environments.

    Raises:
        InvalidInput: if a number is out of range.
    """

    def __init__(
        self, agent: DoubleDQN, actors: Actors, replay: ReplayBuffer, **options: Any
    ) -> None:
        super().__init__(agent, actors, replay, **options)  # type: ignore[arg-type]
        self.env: Any = actors

    def run(self, until_step: int) -> Iterator[Record]:
        """Yields a `Record` per step of an actor's environments until `until_step` is reached."""
        if self._step >= until_step:
            return
        with self.env.playing():
            while True:
                for record in self._next_rollout():
                    yield record
                    if self._step >= until_step:
                        return

    def _next_rollout(self):
        clock = self._new_clock()
        count, width = self.env.count, self.env.num_envs
        weights, epsilon = self.agent.network.get_weights, self.epsilon(self._step)
        with clock("wait"):
            index, rollout = self.env.next(self._step, epsilon, self._updates, weights)
        envs = range(index * width, (index + 1) * width)
        if rollout.begins:
            self.replay.forget_episodes(envs)
        for t in range(len(rollout)):
            with clock("replay"):
                self._remember(rollout, t, envs)
            self._step += width
            metrics = self._learn(clock) if len(self.replay) > self.learning_starts else {}
            epsilon = self.epsilon(self._step)
            yield Record(
                self._step,
                self._updates,
                float(np.mean([actor_epsilon(epsilon, i, count) for i in range(count)])),
                rollout.episodes[t],
                metrics,
                clock.seconds,
                {
                    "actor_lag": self._updates - rollout.version,
                    "actor_restarts": self.env.restarts,
                },
            )
            clock = self._new_clock()

    def _new_clock(self):
        return Clock("wait", "replay", "update", trace=self.trace)

    def _remember(self, rollout, t, envs):
        self.replay.add(
            rollout.observation_t[t],
            rollout.action_t[t],
            rollout.reward_t[t],
            rollout.terminated[t],
            rollout.truncated[t],
            rollout.observation_tp1[t],
            envs,
        )


def actor_epsilon(epsilon: float, index: int, count: int) -> float:
    """The share of random actions of actor i of N: ε^(1 + 7 i / (N − 1)).

    The first plays with ε itself, the last with its eighth power; a single one with ε.

    Example:
        >>> [round(actor_epsilon(0.4, i, 3), 4) for i in range(3)]
        [0.4, 0.0162, 0.0007]

    Source: Horgan et al., "Distributed prioritized experience replay" (2018), where ε is 0.4.
    """
    return epsilon ** (1 + EXPONENT * index / max(count - 1, 1))
