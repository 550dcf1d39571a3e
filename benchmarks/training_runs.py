"""Training runs in processes of their own, and what the tables of the docs are made of.

The results of a run called `fast-seed0` are `fast-seed0.csv`, its metrics, and `fast-seed0.json`,
its last evaluation.
"""

import csv
import json
import os
import shutil
import subprocess
import sys

import numpy as np


def train(script, *arguments, threads=1):
    """Runs `train_scripts.<script>` to its end, on one thread of TensorFlow's or so many.

    Raises:
        ValueError: if it fails, with the last line of what it says.
    """
    command = [sys.executable, "-m", f"train_scripts.{script}", *arguments]
    limits = {"TF_NUM_INTRAOP_THREADS": str(threads), "TF_NUM_INTEROP_THREADS": "1"}
    result = subprocess.run(
        command,
        env={**os.environ, **limits},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if result.returncode:
        last = (result.stderr.strip().splitlines() or [f"exit code {result.returncode}"])[-1]
        raise ValueError(f"{' '.join(command[1:])} failed: {last}")


def keep(run, results):
    """Copies the metrics and the last evaluation of the run folder `run` to `results`."""
    shutil.copy(run / "metrics.csv", results / f"{run.name}.csv")
    shutil.copy(run / "evaluation.json", results / f"{run.name}.json")


def files(results, name, suffix):
    """The files of all seeds of a run, in the order of the seeds."""
    paths = results.glob(f"{name}-seed*.{suffix}")
    return sorted(paths, key=lambda path: int(path.stem.rpartition("-seed")[2]))


def summaries(results, name):
    """The last evaluations of all seeds of a run, as dicts."""
    return [json.loads(path.read_text()) for path in files(results, name, "json")]


def metrics(path):
    """The rows of a log, as dicts of the numbers that are there."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [{name: float(cell) for name, cell in row.items() if cell != ""} for row in rows]


def spread(values, digits=1, unit=""):
    """Mean of the seeds, and their range where they differ.

    Example:
        >>> spread([90.0, 95.0], unit=" %")
        '92.5 % (90.0 to 95.0)'
    """
    low, high = min(values), max(values)
    text = f"{np.mean(values):.{digits}f}{unit}"
    return text + (f" ({low:.{digits}f} to {high:.{digits}f})" if low < high else "")
