"""Distribute training over the devices and hosts that share every batch of a run.

The variables live on the first device of every host. A training step sends their values to each
device, where a part of the batch is processed, then adds up the results and updates the variables
once per host. Models, optimizers, checkpoints and exports are therefore the same as on a single
device, and gradient clipping uses the gradient of the whole batch. All hosts apply the same sum to
equal variables, so their variables stay equal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import platform
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from rrl_tf.errors import InvalidInput
from rrl_tf.training.config import RunConfig
from rrl_tf.training.names import ClusterKind


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Describe the hosts that share a run, and the role of this process.

    Attributes:
        spec: `tf.train.ClusterSpec` with the job `worker`, and optionally `chief`.
        job: name of the job that this process belongs to.
        index: task index of this process within its job.

    Example:
        >>> Cluster(tf.train.ClusterSpec({"worker": ["one:2222", "two:2222"]}), "worker", 1).size
        2
    """

    spec: tf.train.ClusterSpec
    job: str
    index: int

    @property
    def size(self) -> int:
        """Number of hosts."""
        return sum(map(self.spec.num_tasks, self.spec.jobs))

    @property
    def is_chief(self) -> bool:
        """Whether this host writes the run folder: the chief, or worker 0 if there is no chief."""
        return self.index == 0 and self.job == min(self.spec.jobs)


def find_cluster(kind: ClusterKind) -> Cluster | None:
    """Read the cluster from environment variables; return `None` if there is only one host.

    Args:
        kind: `"tf_config"` reads `TF_CONFIG`; `"slurm"` reads the variables that `srun` sets.

    Raises:
        InvalidInput: if the variables do not describe a cluster that contains this process.

    Example:
        >>> find_cluster("tf_config") is None
        True
    """
    resolvers = tf.distribute.cluster_resolver
    try:
        if kind == "slurm":
            # Slurm assigns the GPUs itself (--gpus-per-task). Without these arguments the resolver
            # searches for GPUs and fails if there are none.
            resolver = resolvers.SlurmClusterResolver(
                gpus_per_node=2**16, gpus_per_task=1, auto_set_gpu=False
            )
            spec = resolver.cluster_spec()
            job, index = resolver.get_task_info()
        else:
            resolver = resolvers.TFConfigClusterResolver()
            spec, job, index = resolver.cluster_spec(), resolver.task_type, resolver.task_id
            if not spec.jobs:
                return None
            if not {"worker"} <= {*spec.jobs} <= {"chief", "worker"}:
                raise ValueError(f"the jobs are {spec.jobs}")
        spec.task_address(job, index)  # raises unless the cluster has such a task
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InvalidInput(
            f"`cluster` slurm needs the variables that srun sets; start the run with srun: {error}"
            if kind == "slurm"
            else 'TF_CONFIG must be JSON such as {"cluster": {"worker": ["host:port", ...]}, '
            '"task": {"type": "worker", "index": 0}}, with a different index on each host '
            f"({type(error).__name__}: {error}); received {os.environ['TF_CONFIG']}"
        ) from error
    cluster = Cluster(spec, job, index)
    return cluster if cluster.size > 1 else None


class Replicas:
    """Compute batches on one device, on several devices of this host, or on several hosts.

    Args:
        strategy: `MirroredStrategy`, `MultiWorkerMirroredStrategy`, or `None` for one device.
        cluster: the hosts; `None` for one host.

    Attributes:
        count: number of devices on all hosts together.
        hosts: number of hosts.
        is_chief: whether this host writes the run folder.

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

    def __str__(self) -> str:
        kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
        details = [
            tf.config.experimental.get_device_details(gpu).get("device_name", "")
            for gpu in tf.config.list_physical_devices("GPU")[:1]
        ]
        names = [f"{self.count} {kind}", *details, f"{os.cpu_count()} CPU cores"]
        return ", ".join(names) + (f" each, {self.hosts} hosts" if self.hosts > 1 else "")

    def spread(
        self,
        compute: Callable[[Any], tuple[Any, Any]],
        variables: Sequence[keras.Variable],
        *,
        jit_compile: bool = False,
    ) -> Callable[[Any], tuple[Any, Any]]:
        """Return a function that processes a batch on all R devices, for use in a `tf.function`.

        Each device draws different random numbers; the first device draws the same numbers as a
        run on a single device.

        Args:
            compute: function of a part of the batch, `(B / R, ...)`, that returns `(sums, rows)`.
                The tensors in `sums` are added up over the parts. The tensors in `rows` have one
                row per example and are concatenated.
            variables: variables that `compute` reads.
            jit_compile: compile `compute` with XLA.

        Returns:
            Function of a batch, a structure of tensors `(B, ...)` that is equal on all hosts. It
            returns `(sums, rows)` of the whole batch and updates the states of random generators.
            R must divide B.

        Example:
            >>> replicas = Replicas(tf.distribute.MirroredStrategy(["CPU:0"]))
            >>> double = replicas.spread(lambda x: (tf.reduce_sum(x), 2 * x), [])
            >>> total, rows = tf.function(double)(tf.range(4.0))
            >>> float(total), rows.numpy().tolist()
            (6.0, [0.0, 2.0, 4.0, 6.0])
        """
        assert self._strategy is not None
        return _SpreadStep(self._strategy, compute, variables, jit_compile)

    def any(self, flag: bool) -> bool:
        """Return whether `flag` is True on any host; every host must call this method."""
        return flag if self.hosts == 1 else bool(self._sum(np.array([flag]))[0])

    def from_chief(self, content: bytes) -> bytes:
        """Return the `content` that the chief passes; every host must call this method."""
        size = int(self._sum(np.array([len(content) * self.is_chief]))[0])
        words = np.zeros(-(-size // 4), "uint32")
        if self.is_chief:
            words = np.frombuffer(content.ljust(4 * len(words), b"\0"), "uint32")
        return self._sum(words).astype("uint32").tobytes()[:size]

    def _sum(self, array: np.ndarray) -> np.ndarray:
        """Return the sum of the hosts' arrays; integers are exact below 2**53."""
        assert self._strategy is not None
        local = self.count // self.hosts

        def on_device():
            first = _replica_index() % local == 0
            return tf.constant(array if first else np.zeros_like(array), "float64")

        with self.translate_worker_errors():
            return self._strategy.reduce("SUM", self._strategy.run(on_device), axis=None).numpy()

    @contextlib.contextmanager
    def translate_worker_errors(self) -> Iterator[None]:
        """Replace TensorFlow's errors for a lost host by a clear `ConnectionError`.

        Raises:
            ConnectionError: instead of TensorFlow's error.
        """
        try:
            yield
        except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
            if self.hosts == 1:
                raise
            raise ConnectionError(
                "another host of this run has stopped or cannot be reached; run the same command "
                "on all hosts to resume from the last checkpoint"
            ) from error


class _SpreadStep:
    """The function that `Replicas.spread` returns."""

    def __init__(self, strategy, compute, variables, jit_compile):
        self._strategy, self._compute = strategy, compute
        self._count = strategy.num_replicas_in_sync
        self._variables = list(variables)
        self._compute_with = self._with_values
        if jit_compile:
            self._compute_with = tf.function(self._with_values, jit_compile=True, autograph=False)

    def __call__(self, batch):
        values = [tf.convert_to_tensor(variable.value) for variable in self._variables]
        on_device = tf.autograph.experimental.do_not_convert(self._on_device)
        results, vector, local = self._strategy.run(on_device, (values, batch))
        sums, (rows, slices) = self._add_up(self._first(results), vector)
        seeds, shapes = self._first(local)
        for i, value in seeds.items():
            self._variables[i].assign(value)
        flat = tf.nest.flatten(sums)
        for i, (numbers, indices) in slices.items():
            flat[i] = tf.IndexedSlices(numbers, indices, shapes[i])
        return tf.nest.pack_sequence_as(sums, flat), rows

    def _on_device(self, values, batch):
        """Process this device's part, and pad its rows to the whole batch.

        Returns the padded results, the same numbers as one vector for a single reduction, and
        values that are not summed: the states of random generators, and shapes of sparse gradients.
        """
        index = _replica_index()
        with tf.device("CPU:0"):
            part = tf.nest.map_structure(lambda rows: tf.split(rows, self._count)[index], batch)
            for i, variable in enumerate(self._variables):
                if _is_seed(variable):
                    values[i] = _shifted_seed(values[i], index)
        sums, rows, changed = self._compute_with(values, part)
        seeds = {i: _shifted_seed(seed, -index) for i, seed in changed.items()}
        # The gradient of an embedding stays sparse (one row per use), because Keras clips the rows
        # before it adds them up.
        flat = tf.nest.flatten(sums)
        sparse = {i: x for i, x in enumerate(flat) if isinstance(x, tf.IndexedSlices)}
        slices = {i: (x.values, x.indices) for i, x in sparse.items()}
        shapes = {i: x.dense_shape for i, x in sparse.items()}
        dense = [tf.zeros([]) if i in sparse else x for i, x in enumerate(flat)]
        padded = tf.nest.map_structure(lambda x: _padded(x, index, self._count), (rows, slices))
        results = tf.nest.pack_sequence_as(sums, dense), padded
        numbers = [tf.reshape(tf.cast(x, "float32"), [-1]) for x in tf.nest.flatten(results)]
        return results, tf.concat(numbers, axis=0), (seeds, shapes)

    def _add_up(self, like, vector):
        """Add up the devices' results, with one reduction for all tensors.

        `reduce` is called outside the replica context, because `all_reduce` and `all_gather` fail
        in a process with several strategies: their collectives collide.
        """
        total = self._strategy.reduce("SUM", vector, axis=None)
        parts = tf.split(total, [tf.size(x) for x in tf.nest.flatten(like)])
        whole = [
            tf.ensure_shape(tf.cast(tf.reshape(part, tf.shape(x)), x.dtype), x.shape)
            for part, x in zip(parts, tf.nest.flatten(like))
        ]
        return tf.nest.pack_sequence_as(like, whole)

    def _first(self, results):
        """Return the results of the first device of this host."""
        return tf.nest.map_structure(
            lambda x: self._strategy.experimental_local_results(x)[0], results
        )

    def _with_values(self, values, part):
        """Call `compute` with the given variable values; also return the values that it changes."""
        mapping = list(zip(self._variables, values))
        with keras.StatelessScope(mapping, initialize_variables=False) as scope:
            sums, rows = self._compute(part)
            after = [scope.get_current_value(variable) for variable in self._variables]
        changed = {i: new for i, (new, old) in enumerate(zip(after, values)) if new is not old}
        for i in changed:
            if not _is_seed(self._variables[i]):
                raise InvalidInput(
                    "with several devices, only gradients may update weights, but a layer updates "
                    f"{self._variables[i].path} in its `call`"
                )
        return sums, rows, changed


def _replica_index() -> int:
    context = tf.distribute.get_replica_context()
    return int(tf.get_static_value(context.replica_id_in_sync_group))


def _is_seed(variable):
    return variable.name == "seed_generator_state"


def _shifted_seed(seed, index):
    """Return the random generator state that the device with this index uses."""
    return seed + tf.constant([index * 0x9E3779B1, 0], seed.dtype)


def _padded(rows, index, count):
    """Return a tensor of the whole batch, with zeros around the rows of one part."""
    size = tf.shape(rows)[0]
    return tf.pad(
        rows, [[index * size, (count - 1 - index) * size], *[[0, 0]] * (rows.shape.rank - 1)]
    )


def make_replicas(config: RunConfig, batch_size: int) -> Replicas:
    """Return the devices and hosts that a configuration and the environment variables select.

    If there are several hosts, they connect here. Call this function before anything else
    initializes TensorFlow.

    Args:
        config: `RunConfig` with the number of `devices` per host and the kind of `cluster`.
        batch_size: number of examples in a batch, over all devices.

    Raises:
        InvalidInput: if this host has too few devices, their number does not divide the batch size,
            the cluster variables are invalid, or TensorFlow is already initialized.

    Example:
        >>> replicas = make_replicas(RunConfig(devices=1), batch_size=64)
        >>> replicas.count, replicas.hosts, replicas.is_chief
        (1, 1, True)
    """
    cluster = find_cluster(config.cluster)
    count = config.devices * (cluster.size if cluster else 1)
    if batch_size % count:
        raise InvalidInput(
            f"`batch_size` must be a multiple of the {count} devices; received {batch_size}"
        )
    if cluster:
        return Replicas(_connect(cluster, config.devices), cluster)
    if config.devices == 1:
        return Replicas()
    kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    names = [device.name for device in tf.config.list_logical_devices(kind)]
    _require_devices(config.devices, len(names), kind)
    return Replicas(tf.distribute.MirroredStrategy(names[: config.devices]))


def _connect(cluster, devices):
    """Wait until every host has connected, and return the strategy of all hosts."""
    gpus = len(tf.config.list_physical_devices("GPU"))
    # With several hosts, TensorFlow uses one CPU device per host.
    _require_devices(devices, gpus or 1, "GPU" if gpus else "CPU")
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster.spec,
        task_type=cluster.job,
        task_id=cluster.index,
        num_accelerators={"GPU": devices if gpus else 0},
        rpc_layer="grpc",
    )
    print(f"{cluster.job} {cluster.index} waits for all {cluster.size} hosts", flush=True)
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(resolver)
    except (RuntimeError, tf.errors.OpError) as error:
        raise InvalidInput(
            "the hosts cannot connect; call make_replicas before anything else uses TensorFlow; "
            f"received {type(error).__name__}: {error}"
        ) from error


def _require_devices(wanted, found, kind):
    if wanted > found:
        hint = "; docs/how_to/scale.md explains virtual CPU devices" if kind == "CPU" else ""
        raise InvalidInput(
            f"`devices` must be at most {found}, the number of {kind} devices on this host{hint}; "
            f"received {wanted}"
        )


def cpu() -> tuple[str, set[str]]:
    """Return name and instruction sets of the CPU, no sets where /proc/cpuinfo is missing."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown CPU", set()
    fields = {
        name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    return fields.get("model name", platform.machine()), set(fields.get("flags", "").split())


def hardware() -> str:
    """Return the names of the CPU and the GPUs of this process, such as `Xeon, 2 cores`."""
    gpus = map(tf.config.experimental.get_device_details, tf.config.list_physical_devices("GPU"))
    names = [gpu.get("device_name", "GPU") for gpu in gpus]
    return ", ".join([f"{cpu()[0]}, {os.cpu_count()} cores", *names])
