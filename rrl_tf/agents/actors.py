"""Collect experience in other processes that act with copies of the network."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import logging
import os
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rrl_tf._arguments import positive_int
from rrl_tf._typing import Tensor
from rrl_tf.agents.environments import PythonEnvs
from rrl_tf.agents.loop import Collector
from rrl_tf.envs.vector import SeededVectorEnv
from rrl_tf.errors import InvalidInput

PATIENCE = 60.0
"""Seconds to wait for a rollout before the loop prints that it is still waiting."""
MAX_RESTARTS = 10
"""Maximum number of times that Ray restarts each actor."""
NICENESS = 10
"""Niceness of the actors' processes, so that the learner has priority if there are few cores."""


@dataclasses.dataclass(frozen=True)
class RolloutRequest:
    """A request to an actor to take T steps in its environments.

    Attributes:
        steps: T, number of steps in every environment.
        epsilon: `(E,)` probability of a random action in each environment.
        reset_options: `options` of `env.reset` for new episodes.
        version: version of the weights to act with: the number of updates that produced them.
        step: number of environment steps of the learner so far; it seeds a new actor.
    """

    steps: int
    epsilon: np.ndarray
    reset_options: dict[str, Any] | None
    version: int
    step: int


@dataclasses.dataclass(frozen=True)
class Rollout:
    """T steps of the E environments of one actor. They continue its previous rollout.

    Attributes:
        transitions: the arguments of `ReplayBuffer.add`, `(T, E, ...)` each.
        episodes: `(T, 4, E)`, as returned by `Collector.step`.
        version: version of the weights that chose the actions.
        actor: identifier of the actor; a restarted actor has a new one.
    """

    transitions: dict[str, Any]
    episodes: np.ndarray
    version: int
    actor: str


class Actor:
    """Acts in E environments with a copy of the learner's network.

    Args:
        make_agent: function without arguments that returns the agent; the actor never trains it.
        make_env: function of a seed that returns a `SeededVectorEnv`.
        seed: sequence of integers, seed of this actor.

    Example:
        >>> from rrl_tf.agents import DoubleDQN
        >>> from rrl_tf.envs import gymnasium_task
        >>> from rrl_tf.models import dense_q_network
        >>> task, network = gymnasium_task("CartPole-v1"), dense_q_network(2)
        >>> network.build((None, 4))
        >>> actor = Actor(
        ...     lambda: DoubleDQN(network, task.preprocessor),
        ...     lambda seed: SeededVectorEnv(task.make_env, num_envs=2, seed=seed),
        ...     seed=(0, 1),
        ... )
        >>> epsilon = np.full(2, 0.1, "float32")
        >>> request = RolloutRequest(8, epsilon, reset_options=None, version=0, step=0)
        >>> actor.play(request, network.get_weights).transitions["reward_t"].shape
        (8, 2)
    """

    def __init__(
        self,
        make_agent: Callable[[], Any],
        make_env: Callable[[int], SeededVectorEnv],
        seed: Sequence[int],
    ) -> None:
        self._agent = make_agent()
        self._make_env = make_env
        self._seed = tuple(seed)
        self._name = uuid.uuid4().hex
        self._version: int | None = None
        self._collector: Collector | None = None
        self._carry: Any = None
        self._number = 0

    def play(self, request: RolloutRequest, weights: Callable[[], Sequence[np.ndarray]]) -> Rollout:
        """Take `request.steps` steps in all environments.

        Args:
            request: the request.
            weights: function that returns the network's weights of `request.version`; it is called
                if the actor has another version.
        """
        if request.version != self._version:
            self._agent.network.set_weights(weights())
            self._version = request.version
        if self._collector is None:
            self._begin(request.step)
        assert self._collector is not None
        self._collector.reset_options = request.reset_options
        with self._collector.running():
            steps = [self._take_step(request.epsilon) for _ in range(request.steps)]
        transitions, episodes = tf.nest.map_structure(lambda *each: np.stack(each), *steps)
        return Rollout(transitions, episodes, request.version, self._name)

    def _begin(self, step):
        # The step is part of the seed, so a restarted actor does not repeat its episodes.
        sequence = np.random.SeedSequence((*self._seed, step))
        seed, env_seed = sequence.generate_state(2, np.uint64).astype(np.int64) & (2**62 - 1)
        self._collector = Collector(
            self._agent, PythonEnvs(self._make_env(int(env_seed))), int(seed)
        )
        self._step = tf.function(self._collector.step, reduce_retracing=True, autograph=False)
        self._carry, _ = self._collector.prepare(None)

    def _take_step(self, epsilon):
        number = tf.constant(self._number, tf.int64)
        self._carry, transition, episode = self._step(self._carry, epsilon, number, tf.constant(0))
        self._number += 1
        return tf.nest.map_structure(lambda tensor: tensor.numpy(), (transition, episode))


class ActorCollector:
    """A collector that gathers the steps of N actors with E environments each.

    While the learner trains on one rollout of every actor, the actors play the next rollouts. The
    order in which actors finish does not affect the result. A restarted actor begins new episodes.
    A checkpoint does not include rollouts in progress, so a resumed run differs from an
    uninterrupted one.

    Args:
        agent: the learner's agent.
        pool: `RayPool` of `count` actors, or another object with its methods.
        count: N, number of actors.
        num_envs: E, number of environments per actor.

    Attributes:
        num_envs: N * E, number of environments of all actors.
        rollout_length: T, number of steps in every environment per rollout.
        reset_options: `options` of `env.reset` for new episodes.
    """

    jit_compile = True
    rollout_length = 16

    def __init__(self, agent: Any, pool: Any, count: int, num_envs: int) -> None:
        self.agent = agent
        self.pool = pool
        self.count = positive_int("count", count)
        self.num_envs = self.count * positive_int("num_envs", num_envs)
        self.reset_options: dict[str, Any] | None = None
        self.restarts = 0
        self._actors: dict[int, str] = {}
        self._in_flight: list[concurrent.futures.Future[Rollout]] = []
        self._published: int | None = None
        self._version = 0
        self._steps = 0
        self._running = False

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the actors inside the `with` block."""
        with self.pool:
            self._running = True
            try:
                yield
            finally:
                self._running, self._published = False, None
                self._in_flight, self._actors = [], {}

    def gauges(self, updates: int) -> dict[str, float]:
        """Return further metrics: the lag of the actors' weights in updates, and the restarts."""
        return {"actor_lag": updates - self._version, "actor_restarts": self.restarts}

    def prepare(self, carry: Any, epsilon: Any = 0.0, updates: int = 0) -> tuple[Any, int]:
        """Return the carry for `step`, and the number of steps that it contains.

        If all steps of the current rollouts are used, wait for the next rollout of every actor and
        send new requests.

        Args:
            carry: as returned by `step`, or `None` at the start.
            epsilon: probability of a random action, a scalar or `(N * E,)`.
            updates: number of updates so far.
        """
        left = 0 if carry is None else self.rollout_length - int(carry["position"])
        if left or not self._running:
            return carry, left
        rollouts = [self._wait(each) for each in self._in_flight or self._submit(epsilon, updates)]
        self._steps += self.rollout_length * self.num_envs
        self._in_flight = self._submit(epsilon, updates)
        self._note_restarts(rollouts)
        self._version = min(rollout.version for rollout in rollouts)
        transitions = tf.nest.map_structure(
            lambda *each: tf.constant(np.concatenate(each, axis=1)),
            *[rollout.transitions for rollout in rollouts],
        )
        episodes = tf.constant(np.concatenate([each.episodes for each in rollouts], axis=2))
        carry = {"transitions": transitions, "episodes": episodes, "position": tf.constant(0)}
        return carry, self.rollout_length

    def _submit(self, epsilon, updates):
        if updates != self._published:
            self.pool.publish(self.agent.network.get_weights())
            self._published = updates
        epsilons = np.broadcast_to(np.float32(epsilon), self.num_envs).reshape(self.count, -1)
        return [
            self.pool.submit(
                index,
                RolloutRequest(self.rollout_length, each, self.reset_options, updates, self._steps),
            )
            for index, each in enumerate(epsilons)
        ]

    def _wait(self, future):
        while not concurrent.futures.wait([future], PATIENCE).done:
            print(f"\nStill waiting for a rollout after {PATIENCE:.0f} s.", file=sys.stderr)
        return future.result()

    def _note_restarts(self, rollouts):
        for index, rollout in enumerate(rollouts):
            self.restarts += self._actors.get(index, rollout.actor) != rollout.actor
            self._actors[index] = rollout.actor

    def step(
        self, carry: Any, epsilon: Any, number: Any, level: Any
    ) -> tuple[Any, dict[str, Any], Tensor]:
        """Return the next step of the rollouts in the format of `Collector.step`."""
        position = carry["position"]
        transition = tf.nest.map_structure(lambda column: column[position], carry["transitions"])
        return {**carry, "position": position + 1}, transition, carry["episodes"][position]

    def get_state(self, carry: Any) -> dict[str, dict[str, Any]]:
        """Return the part `environment` of the loop's state, which holds only `reset_options`."""
        return {"environment": {"reset_options": self.reset_options}}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state from `get_state`; all actors begin new episodes."""
        self.reset_options = state["environment"]["reset_options"]


class RayPool:
    """Runs actors as Ray processes, on the cluster at `RAY_ADDRESS` or, by default, locally.

    If this process is already connected to Ray, the pool uses that connection and leaves it open.
    Each actor takes one CPU core and no GPU, and has a lower priority than the learner.

    Args:
        agent: the learner's agent; every actor builds a network with the same configuration.
        make_env: picklable function of a seed that returns a `SeededVectorEnv`.
        count: number of actors.
        seed: seed of the run.

    Raises:
        InvalidInput: if Ray is not installed, or the agent or `make_env` cannot be pickled.

    Example:
        >>> pool = RayPool(agent, make_env, count=2, seed=0)  # doctest: +SKIP
        >>> collector = ActorCollector(agent, pool, count=2, num_envs=16)  # doctest: +SKIP
    """

    def __init__(
        self, agent: Any, make_env: Callable[[int], SeededVectorEnv], count: int, seed: int
    ) -> None:
        # Turn off Ray's usage statistics and a warning about an upcoming change.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            import ray
        except ImportError as error:
            raise InvalidInput(
                "`actors` needs the package ray, which is not installed. Use pip install '.[ray]'."
            ) from error
        network = agent.network
        make_agent = functools.partial(
            _new_agent,
            type(agent),
            *(type(network), network.get_config(), network.get_build_config(), agent.preprocess),
        )
        try:
            self._parts: bytes = ray.cloudpickle.dumps((make_agent, make_env))
        except Exception as error:  # a user's environment can raise anything
            raise InvalidInput(
                f"`actors` needs a task and a network that can be pickled: {error}."
            ) from error
        self._ray = ray
        self._count = positive_int("actors", count)
        self._seed = seed
        self._weights: Any = None
        self._actors: list[Any] = []
        self._pending: dict[int, Any] = {}
        self._connected = False

    def __enter__(self) -> RayPool:
        if not self._ray.is_initialized():
            with _signal_handlers_kept():
                self._connect()
            self._connected = True
        options = {"max_restarts": MAX_RESTARTS, "max_task_retries": MAX_RESTARTS}
        process = self._ray.remote(num_cpus=1, **options)(_process_class())
        self._actors = [
            process.remote(self._parts, (self._seed, index), NICENESS)
            for index in range(self._count)
        ]
        return self

    def _connect(self):
        address = os.environ.get("RAY_ADDRESS")
        options = {"log_to_driver": False, "logging_level": logging.ERROR}
        if not address:
            local = {"num_cpus": self._count, "num_gpus": 0, "include_dashboard": False}
            self._ray.init("local", **local, **options)
            return
        try:
            self._ray.init(address, **options)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ConnectionError(
                "RAY_ADDRESS must be the address of a cluster that runs Ray "
                f"{self._ray.__version__}; received {address!r}: {error}. If the cluster needs a "
                "token, set RAY_AUTH_MODE=token."
            ) from error

    def __exit__(self, *exception: object) -> None:
        # Wait, because Ray prints a warning for each actor that is killed during a task.
        pending = [*self._pending.values()]
        if pending:
            self._ray.wait(pending, num_returns=len(pending), timeout=10)
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors, self._pending, self._weights = [], {}, None
        if self._connected:
            self._ray.shutdown()
            self._connected = False

    def publish(self, weights: Sequence[np.ndarray]) -> None:
        """Store the weights that actors use for all requests from now on."""
        self._weights = self._ray.put(weights)

    def submit(self, index: int, request: RolloutRequest) -> concurrent.futures.Future[Rollout]:
        """Send a request to an actor and return a future of its rollout.

        The future raises the exception that the actor's environment or network raised, or
        `ConnectionError` if the actor cannot start or was restarted too often.
        """
        # Inside a list, Ray passes a reference: the actor only fetches weights that it needs.
        self._pending[index] = self._actors[index].play.remote(request, [self._weights])
        result: concurrent.futures.Future[Rollout] = concurrent.futures.Future()
        sent = self._pending[index].future()
        sent.add_done_callback(functools.partial(self._pass_on, result))
        return result

    def _pass_on(self, result, sent):
        try:
            result.set_result(sent.result())
        except self._ray.exceptions.RayTaskError as error:
            result.set_exception(error.cause)
        except self._ray.exceptions.RayError as error:
            lost = ConnectionError(
                f"An actor could not start, or failed after {MAX_RESTARTS} restarts: {error}. "
                "rrl_tf and the environment must be installed on every machine of the cluster. Run "
                "the same command again to resume from the last checkpoint."
            )
            result.set_exception(lost)
        except Exception as error:  # otherwise the learner would wait forever
            result.set_exception(error)


def _new_agent(agent_class, network_class, network_config, build_config, preprocess):
    network = network_class.from_config(network_config)
    network.build_from_config(build_config)
    return agent_class(network, preprocess, jit_compile=False)


def _process_class():
    """Return the class that Ray instantiates in the actors' processes.

    Because the class is defined inside a function, Ray pickles it by value. Its process therefore
    does not import this module, and TensorFlow, before the environment variables are set.
    """

    class ActorProcess:
        def __init__(self, parts, seed, niceness):
            import os

            os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
            os.environ["KERAS_BACKEND"] = "tensorflow"

            from rrl_tf._tf_logging import load_tensorflow

            load_tensorflow()
            import ray
            import tensorflow as tf

            from rrl_tf.agents.actors import Actor

            tf.config.threading.set_intra_op_parallelism_threads(1)
            tf.config.threading.set_inter_op_parallelism_threads(1)
            self.fetch = ray.get
            self.actor = Actor(*ray.cloudpickle.loads(parts), seed)
            os.nice(niceness)  # last, so that the start has normal priority

        def play(self, request, weights):
            return self.actor.play(request, lambda: self.fetch(weights[0]))

    return ActorProcess


@contextlib.contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """Restore the handlers of SIGINT and SIGTERM, which Ray replaces, at the end of the block."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)
