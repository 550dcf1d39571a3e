"""Which hosts share a run, and which of them this one is: by `TF_CONFIG` or by Slurm."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Literal

from rrl_tf.errors import InvalidInput

ClusterKind = Literal["tf_config", "slurm"]
JOBS = ("chief", "worker")
_EXPECTED = (
    '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}, the '
    "index alone another one on each host"
)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The hosts that share a run.

    Attributes:
        addresses: job, `"worker"` and perhaps `"chief"` → `host:port` of each of its tasks.
        job: this process's job.
        index: its number in that job.

    Example:
        >>> Cluster({"worker": ("one:2222", "two:2222")}, "worker", 1).is_chief
        False
    """

    addresses: Mapping[str, tuple[str, ...]]
    job: str
    index: int

    @property
    def size(self) -> int:
        """How many hosts there are."""
        return sum(map(len, self.addresses.values()))

    @property
    def is_chief(self) -> bool:
        """Whether this is the one that writes: the chief or, where there is none, worker 0."""
        return self.index == 0 and self.job == ("chief" if "chief" in self.addresses else "worker")


def find_cluster(kind: ClusterKind, environment: Mapping[str, str]) -> Cluster | None:
    """The cluster that the environment of this process names; `None` where it names no other host.

    Args:
        kind: `"tf_config"` reads the variable `TF_CONFIG`, `"slurm"` those of a Slurm step.
        environment: such as `os.environ`. Slurm's is always this process's.

    Raises:
        InvalidInput: if what it says is no cluster that this process is part of.

    Example:
        >>> find_cluster("tf_config", {}) is None
        True
    """
    if kind == "slurm":
        cluster = _from_slurm()
    else:
        text = environment.get("TF_CONFIG", "").strip()
        if text in ("", "{}"):
            return None
        cluster = _from_tf_config(text)
    return cluster if cluster.size > 1 else None


def _from_tf_config(text: str) -> Cluster:
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"TF_CONFIG must be JSON, {_EXPECTED}; received {text!r}") from error
    if not isinstance(config, dict) or not {"cluster", "task"} <= config.keys():
        raise InvalidInput(
            f'TF_CONFIG must have "cluster" and "task", {_EXPECTED}; received {text}'
        )
    addresses, task = config["cluster"], config["task"]
    if not _are_addresses(addresses):
        raise InvalidInput(
            'cluster in TF_CONFIG must give "worker", and "chief" if there is one, a list of '
            f"different addresses host:port; received {json.dumps(addresses)}"
        )
    if not isinstance(task, dict) or task.get("type") not in [*addresses]:
        raise InvalidInput(
            f"task in TF_CONFIG must have as type one of {', '.join(addresses)}, and an index; "
            f"received {json.dumps(task)}"
        )
    job, index = task["type"], task.get("index")
    count = len(addresses[job])
    if type(index) is not int or not 0 <= index < count:
        raise InvalidInput(
            f"task index in TF_CONFIG must be from 0 to {count - 1}, as its cluster has {count} of "
            f"type {job}; received {index!r}"
        )
    return Cluster({name: tuple(each) for name, each in addresses.items()}, job, index)


def _are_addresses(addresses: Any) -> bool:
    if not isinstance(addresses, dict) or not {"worker"} <= addresses.keys() <= {*JOBS}:
        return False
    if not all(isinstance(each, list) and each for each in addresses.values()):
        return False
    flat = [address for each in addresses.values() for address in each]
    return all(isinstance(a, str) and _has_port(a) for a in flat) and len({*flat}) == len(flat)


def _has_port(address: str) -> bool:
    host, _, port = address.rpartition(":")
    return bool(host) and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 2**16


def _from_slurm() -> Cluster:
    import tensorflow as tf

    try:
        # Which devices a task sees is Slurm's business (--gpus-per-task); told of none, this
        # resolver fails, so it is told of more than there can be and sets nothing.
        resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
            gpus_per_node=2**16, gpus_per_task=1, auto_set_gpu=False
        )
        addresses = resolver.cluster_spec().as_dict()
        job, index = resolver.get_task_info()
    except (RuntimeError, ValueError, LookupError) as error:
        raise InvalidInput(
            f"cluster slurm needs the variables of a Slurm step, so start with srun: {error}"
        ) from error
    return Cluster({name: tuple(each) for name, each in addresses.items()}, job, index)
