"""Actors as processes of Ray, on this machine or on a cluster; the learner knows nothing of it."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rrl_tf._arguments import positive_int
from rrl_tf.agents.actor import Actor, Order, Rollout
from rrl_tf.agents.actors import Actors
from rrl_tf.errors import InvalidInput

if TYPE_CHECKING:
    from rrl_tf.agents.double_dqn import DoubleDQN
    from rrl_tf.agents.double_dqn_run import DoubleDQNConfig
    from rrl_tf.envs import SeededVectorEnv
    from rrl_tf.training.devices import Replicas

NICENESS = 10
"""Of actors: where there are fewer cores than processes, the learner goes first."""


def ray_actors(
    agent: DoubleDQN,
    make_env: Callable[[int], SeededVectorEnv],
    config: DoubleDQNConfig,
    replicas: Replicas | None = None,
) -> Actors:
    """The actors that a configuration asks for; they begin to play when an `ActorLoop` runs.

    Args:
        agent: the learner's; every actor plays with a network of the same configuration.
        make_env: seed → the environments of an actor; it must be possible to pickle it.
        config: `actors`, `num_envs` and `seed`.
        replicas: the learner's devices, of one host.

    Raises:
        InvalidInput: if Ray is not installed, the learner is on several hosts, or what an actor is
            made of cannot be sent to another process.
    """
    if replicas and replicas.hosts > 1:
        raise InvalidInput(
            f"actors must be for a learner on one host, as hosts that share an update remember "
            f"alike; received {replicas.hosts} hosts"
        )
    network = agent.network
    parts = (type(network), network.get_config(), network.get_build_config(), agent.prepare)
    count = positive_int("actors", config.actors)
    launcher = RayLauncher(functools.partial(_new_actor, *parts, make_env), count)
    return Actors(launcher, count, num_envs=config.num_envs, seed=config.seed)


def _new_actor(network_class, network_config, shapes, prepare, make_env, seed):
    from rrl_tf.agents.double_dqn import DoubleDQN

    network = network_class.from_config(network_config)
    network.build_from_config(shapes)
    return Actor(DoubleDQN(network, prepare, jit_compile=False), make_env(seed), seed)


class RayLauncher:
    """Starts actors with Ray, on the cluster that `RAY_ADDRESS` names or else on this machine.

    Where the caller's process is connected to Ray already, that connection is used and kept.
    Actors take one core each, no GPU, and a lower priority than the learner.

    Args:
        make_actor: seed → `Actor`; it is sent to the processes.
        count: of actors.

    Raises:
        InvalidInput: if Ray is not installed, `make_actor` cannot be sent, or nothing listens at
            `RAY_ADDRESS`.

    Example:
        >>> from rrl_tf.agents import DoubleDQN
        >>> from rrl_tf.envs import SeededVectorEnv, gymnasium_task
        >>> from rrl_tf.models import dense_q_network
        >>> task = gymnasium_task("CartPole-v1")
        >>> def make_actor(seed):
        ...     network = dense_q_network(task.num_actions)
        ...     network.build((None, 4))
        ...     agent = DoubleDQN(network, task.preparation)
        ...     return Actor(agent, SeededVectorEnv(task.make_env, num_envs=16, seed=seed), seed)
        >>> launcher = RayLauncher(make_actor, count=2)  # doctest: +SKIP
        >>> actors = Actors(launcher, 2, num_envs=16, seed=0)  # doctest: +SKIP
    """

    def __init__(self, make_actor: Callable[[int], Actor], count: int) -> None:
        # It counts its users and announces changes of its own otherwise.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            import ray
        except ImportError as error:
            raise InvalidInput(
                f"actors need {error.name or 'ray'}: pip install '.[ray]'; received a Python "
                "without it"
            ) from error
        self._ray = ray
        self._count = count
        self._address = os.environ.get("RAY_ADDRESS")
        _require_listener(self._address)
        try:
            self._make_actor: bytes = ray.cloudpickle.dumps(make_actor)
        except Exception as error:  # whatever is in a user's environment
            raise InvalidInput(
                f"actors need a task and a network that can be pickled ({error})"
            ) from error
        self._handles: dict[int, Any] = {}
        self._weights: Any = None
        self._connected = False

    def __enter__(self) -> RayLauncher:
        if not self._ray.is_initialized():
            with _signal_handlers_kept():
                self._connect()
            self._connected = True
        self._process = self._ray.remote(num_cpus=1, max_restarts=0)(_process_class())
        return self

    def _connect(self):
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        if not self._address:
            local = {"num_cpus": self._count, "num_gpus": 0, "include_dashboard": False}
            self._ray.init("local", **local, **quiet)
            return
        try:
            self._ray.init(self._address, **quiet)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ConnectionError(
                f"the cluster at RAY_ADDRESS must be of Ray {self._ray.__version__}, and where "
                "it asks for a token RAY_AUTH_MODE=token must be set: "
                f"{_last_line(error)}; received {self._address!r}"
            ) from error

    def __exit__(self, *exception: object) -> None:
        for handle in self._handles.values():
            self._ray.kill(handle)
        self._handles = {}
        self._weights = None
        if self._connected:
            self._ray.shutdown()
            self._connected = False

    def start(self, index: int, seed: int) -> None:
        """Begins actor `index`; one of that number that still runs is ended."""
        if index in self._handles:
            self._ray.kill(self._handles.pop(index))
        self._handles[index] = self._process.remote(self._make_actor, seed, NICENESS)

    def publish(self, weights: Sequence[np.ndarray]) -> None:
        """Puts weights where actors fetch them, those that have others."""
        self._weights = self._ray.put(weights)

    def ask(self, index: int, order: Order) -> concurrent.futures.Future:
        """Has an actor play; returns at once."""
        # In a list it is sent as a reference, and not fetched for who has these weights already.
        return self._handles[index].play.remote(order, [self._weights]).future()

    def take(self, future: concurrent.futures.Future) -> Rollout | None:
        """What came of an order; `None` if the actor is lost.

        Raises:
            InvalidInput: if it could not begin.
            Exception: what its environment or network raised.
        """
        exceptions = self._ray.exceptions
        try:
            return future.result()
        except exceptions.RayTaskError as error:
            raise error.cause from error
        except exceptions.RayActorError as error:
            if error.actor_init_failed:
                raise InvalidInput(
                    "an actor could not begin; rrl_tf and the task's environment must be "
                    f"installed wherever actors run: {_last_line(error)}"
                ) from error
            return None
        except exceptions.RayError:  # with its machine, or for want of memory
            return None


def _process_class():
    """What Ray runs. Defined in here, it is sent whole: nothing is imported before TensorFlow's
    environment is set."""

    class ActorProcess:
        def __init__(self, make_actor, seed, niceness):
            import os

            os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
            os.environ["KERAS_BACKEND"] = "tensorflow"

            from rrl_tf._tf_logging import load_tensorflow

            load_tensorflow()
            import ray
            import tensorflow as tf

            tf.config.threading.set_intra_op_parallelism_threads(1)
            tf.config.threading.set_inter_op_parallelism_threads(1)
            self.fetch = ray.get
            self.actor = ray.cloudpickle.loads(make_actor)(seed)
            os.nice(niceness)  # not before: whoever replaces a lost one is in a hurry

        def play(self, order, weights):
            return self.actor.play(order, lambda: self.fetch(weights[0]))

    return ActorProcess


def _require_listener(address):
    """Tells at once of an address where nobody is; Ray would try for minutes."""
    host, _, port = (address or "").rpartition(":")
    if not port.isdecimal():  # no address, or one of Ray's names for one
        return
    try:
        socket.create_connection((host.rpartition("/")[2], int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise InvalidInput(
            f"RAY_ADDRESS must be where a cluster of Ray listens ({error}); received {address!r}"
        ) from error


@contextlib.contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """Ray replaces them, and a run has its own."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


def _last_line(error):
    return str(error).strip().splitlines()[-1].strip()
