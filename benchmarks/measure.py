"""Measure times on a machine that other processes also use, and write reports of them.

CPU time includes all threads of the process and depends little on the load of the machine. Wall
time is the time that a user waits. The implementations take turns, so that a change in the
machine's speed affects all of them. The tables show medians.
"""

import dataclasses
import importlib.metadata
import json
import os
import pathlib
import platform
import sys
import time

import numpy as np
import tensorflow as tf

from benchmarks.tables import markdown_table, write_text
from rrl_tf.training.devices import cpu

RESULTS = pathlib.Path(__file__).parent / "results"
_PACKAGES = ("tensorflow", "keras", "torch", "numpy", "gymnasium", "minigrid")
_CPU_FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16")


@dataclasses.dataclass(frozen=True)
class Rounds:
    """Set how many times each implementation is measured."""

    rounds: int = 20
    """Number of turns of each implementation."""
    calls: int = 10
    """Number of measured calls in a turn; one warm-up call comes before them."""


def use_one_thread():
    """Run TensorFlow, and PyTorch if it is imported, on one thread.

    Raises:
        RuntimeError: if TensorFlow has already executed operations.
    """
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.get_logger().setLevel("ERROR")  # TensorFlow warns if a function is traced for several models
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def timed(function, calls, clock=time.process_time):
    """Call a function `calls` times after a warm-up call, and return the seconds of each call.

    Args:
        function: function without arguments.
        calls: int, measured calls.
        clock: function that returns seconds: `time.process_time` or `time.perf_counter`.

    Example:
        >>> len(timed(lambda: sum(range(1000)), calls=3))
        3
    """
    function()
    seconds = []
    for _ in range(calls):
        begun = clock()
        function()
        seconds.append(clock() - begun)
    return seconds


def take_turns(functions, config, clock=time.process_time):
    """Measure functions in turns, and return the seconds of every call.

    Args:
        functions: dict name → function.
        config: `Rounds`.
        clock: as for `timed`.

    Returns:
        A dict name → array of `rounds * calls` seconds.

    Example:
        >>> functions = {"a": lambda: sum(range(9)), "b": lambda: sum(range(999))}
        >>> take_turns(functions, Rounds(rounds=2, calls=3))["a"].shape
        (6,)
    """
    seconds = {name: [] for name in functions}
    for _ in range(config.rounds):
        for name, function in functions.items():
            seconds[name].extend(timed(function, config.calls, clock))
    return {name: np.array(values) for name, values in seconds.items()}


def median(values):
    """Return the median as a Python float, which JSON can hold."""
    return float(np.median(values))


def middle(values, form=".3g"):
    """Format the range of the middle 80 % of values."""
    low, high = np.quantile(values, (0.1, 0.9))
    return f"{low:{form}} to {high:{form}}"


@dataclasses.dataclass(frozen=True)
class Report:
    """The result of a benchmark.

    Attributes:
        title: heading.
        rows: rows of the table, JSON-able dicts column → cell.
        notes: sentences about the table.
        apart_with_amx: whether a CPU with AMX writes a separate file, `<name>_amx.json`.
    """

    title: str
    rows: list
    notes: tuple = ()
    apart_with_amx: bool = False

    def write(self, name, config, folder=RESULTS):
        """Print the table, and write it with its settings and the machine as a JSON file.

        Args:
            name: name of the benchmark, such as `speed/update`.
            config: its configuration, a dataclass.
            folder: folder of the file `<last part of the name>.json`.
        """
        document = {
            "name": name,
            "title": self.title,
            "machine": machine(),
            "settings": dataclasses.asdict(config),
            "rows": self.rows,
            "notes": self.notes,
        }
        amx = "_amx" if self.apart_with_amx and has_amx() else ""
        file = pathlib.Path(folder) / f"{name.rpartition('/')[2]}{amx}.json"
        write_text(file, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        print(f"\n{self.title}\n\n{markdown_table(self.rows)}", *self.notes, file, sep="\n")


def machine():
    """Return a JSON-able dict of the CPU, its special instructions, the load and the versions."""
    name, features = cpu()
    return {
        "cpu": name,
        "cores": os.cpu_count(),
        "features": sorted(set(_CPU_FEATURES) & features),
        "amx": has_amx(),
        "load": round(os.getloadavg()[0], 1),
        "versions": {"python": platform.python_version()}
        | {name: _version(name) for name in _PACKAGES},
    }


def has_amx():
    """Return whether the CPU multiplies bfloat16 matrices in tiles."""
    return {"amx_tile", "amx_bf16"} <= cpu()[1]


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
