"""The hosts that share a run, from TF_CONFIG or Slurm, and the run folder they receive."""

from __future__ import annotations

import atexit
import dataclasses
import io
import os
import pathlib
import shutil
import tarfile
import tempfile

import tensorflow as tf

from rrl_tf.errors import InvalidInput
from rrl_tf.training.config import ClusterKind


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The hosts that share a run.

    Attributes:
        spec: `tf.train.ClusterSpec` with the job `worker`, and optionally `chief`.
        job: job of this process.
        index: index of this process in its job.

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
        """Whether this host writes the run folder: the chief or, without one, worker 0."""
        return self.index == 0 and self.job == min(self.spec.jobs)


def find_cluster(kind: ClusterKind) -> Cluster | None:
    """Return the cluster in this process's environment, or `None` if there is no other host.

    Args:
        kind: `"tf_config"` reads the variable `TF_CONFIG`, `"slurm"` those of a Slurm step.

    Raises:
        InvalidInput: if the variables do not describe a cluster with this process in it.

    Example:
        >>> find_cluster("tf_config") is None
        True
    """
    resolvers = tf.distribute.cluster_resolver
    try:
        if kind == "slurm":
            # Slurm assigns the devices (--gpus-per-task). Without these arguments the resolver
            # looks for GPUs and fails if there are none.
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
                raise ValueError(f"its jobs are {spec.jobs}")
        spec.task_address(job, index)  # raises unless the cluster has such a task
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InvalidInput(
            f"cluster slurm needs the variables of a Slurm step, so start with srun: {error}"
            if kind == "slurm"
            else 'TF_CONFIG must be JSON such as {"cluster": {"worker": ["host:port", ...]}, '
            '"task": {"type": "worker", "index": 0}}, with another index on each host '
            f"({type(error).__name__}: {error}); received {os.environ['TF_CONFIG']}"
        ) from error
    cluster = Cluster(spec, job, index)
    return cluster if cluster.size > 1 else None


def pack_run(path: pathlib.Path, model_file: pathlib.Path | None) -> bytes:
    """Return a tar archive of the files that a run resumes from.

    Args:
        path: the run folder.
        model_file: `RunFolder.model_file`; its folder is the newest checkpoint.
    """
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        files = [*path.glob("[!.]*.json"), *path.glob("[!.]*.csv")]
        if model_file:
            files += [model_file.with_name("arrays.npz"), model_file.with_name("state.json")]
        for file in files:
            archive.add(file, file.relative_to(path))
    return content.getvalue()


def unpack_run(content: bytes) -> pathlib.Path:
    """Unpack the archive of `pack_run` to a folder that is removed when the process ends."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="rrl_tf-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(path, filter="data")
    return path
