"""The devices and hosts that share a run; with one of each, nothing is different at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from rrl_tf.errors import InvalidInput
from rrl_tf.training.cluster import Cluster, find_cluster
from rrl_tf.training.config import RunConfig
from rrl_tf.training.data_parallel import DataParallel, require_even_parts


class Replicas:
    """The devices that share every batch of a run: one, several of this host, or of many hosts.

    Args:
        strategy: `MirroredStrategy`, `MultiWorkerMirroredStrategy`, or `None` for one device.
        cluster: the hosts, `None` for one.

    Attributes:
        count: devices of all hosts.
        hosts: how many there are.
        is_chief: whether this host is the one that writes.

    Example:
        >>> Replicas().count
        1
    """

    def __init__(
        self, strategy: tf.distribute.Strategy | None = None, cluster: Cluster | None = None
    ) -> None:
        self._strategy = strategy
        self.count: int = 1 if strategy is None else strategy.num_replicas_in_sync
        self.hosts = 1 if cluster is None else cluster.size
        self.is_chief = cluster is None or cluster.is_chief

    def spread(self, compute: Callable[[Any], tuple[Any, Any]], *args: Any, **options: Any) -> Any:
        """`compute` on all devices, see `DataParallel`; to be called with more than one."""
        assert self._strategy is not None
        return DataParallel(self._strategy, compute, *args, **options)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any host; all hosts call it, and wait for each other."""
        return flag if self.hosts == 1 else bool(self._sum(np.array([flag]))[0])

    def from_chief(self, content: bytes) -> bytes:
        """What the chief has; the others pass anything. All hosts call it."""
        if self.hosts == 1:
            return content
        size = int(self._sum(np.array([len(content) * self.is_chief]))[0])
        words = np.zeros(-(-size // 4), "uint32")
        if self.is_chief:
            words = np.frombuffer(content.ljust(4 * len(words), b"\0"), "uint32")
        return self._sum(words).astype("uint32").tobytes()[:size]

    def _sum(self, array):
        """The sum of what all hosts have, exact below 2**53."""
        strategy = self._strategy
        local = strategy.num_replicas_in_sync // self.hosts

        def on_replica():
            context = tf.distribute.get_replica_context()
            is_first = int(tf.get_static_value(context.replica_id_in_sync_group)) % local == 0
            return tf.constant(array if is_first else np.zeros_like(array), "float64")

        with self.losses_told():
            return strategy.reduce("SUM", strategy.run(on_replica), axis=None).numpy()

    @contextlib.contextmanager
    def losses_told(self) -> Iterator[None]:
        """A host that is lost, while this is entered, is told in one sentence.

        Raises:
            ConnectionError: instead of whatever TensorFlow raises.
        """
        try:
            yield
        except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
            if self.hosts == 1:
                raise
            raise ConnectionError(
                "another host of this run has ended or cannot be reached; the same command on all "
                "of them goes on from the last checkpoint"
            ) from error


def make_replicas(config: RunConfig, batch_size: int) -> Replicas:
    """The devices and hosts that a configuration and the environment ask for.

    Several hosts find each other here, before anything else makes TensorFlow start.

    Args:
        config: `devices` of each host, and where the hosts are named.
        batch_size: of all of them together.

    Raises:
        InvalidInput: if there are not so many devices, the batch cannot be shared evenly, what
            names the hosts cannot be understood, or TensorFlow has started already.

    Example:
        >>> replicas = make_replicas(RunConfig(devices=1), batch_size=64)
        >>> replicas.count, replicas.hosts, replicas.is_chief
        (1, 1, True)
    """
    cluster = find_cluster(config.cluster, os.environ)
    require_even_parts(batch_size, config.devices * (cluster.size if cluster else 1))
    if cluster:
        return Replicas(_joined(cluster, config.devices), cluster)
    if config.devices == 1:
        return Replicas()
    kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    names = [device.name for device in tf.config.list_logical_devices(kind)]
    _require_devices(config.devices, len(names), kind)
    return Replicas(tf.distribute.MirroredStrategy(names[: config.devices]))


def _joined(cluster, devices):
    """The strategy of all hosts, when all are there."""
    gpus = len(tf.config.list_physical_devices("GPU"))
    # With several hosts TensorFlow uses one CPU device of each.
    _require_devices(devices, gpus or 1, "GPU" if gpus else "CPU")
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({job: list(each) for job, each in cluster.addresses.items()}),
        task_type=cluster.job,
        task_id=cluster.index,
        num_accelerators={"GPU": devices if gpus else 0},
        rpc_layer="grpc",
    )
    print(f"{cluster.job} {cluster.index} waits for all {cluster.size} hosts", flush=True)
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(resolver)
    except RuntimeError as error:
        raise InvalidInput(
            "hosts must find each other before anything else uses TensorFlow, so make_replicas "
            f"comes first: {error}"
        ) from error


def _require_devices(wanted, found, kind):
    if wanted > found:
        more = " (docs/scale.md tells how to try several)" if kind == "CPU" else ""
        raise InvalidInput(
            f"devices must be at most {found}, as there are so many {kind} devices for it here"
            f"{more}; received {wanted}"
        )
