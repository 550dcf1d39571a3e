"""Run training scripts in separate processes, several at a time."""

import concurrent.futures
import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time

import psutil

from rrl_tf.errors import InvalidInput
from rrl_tf.training.config import require_positive


@dataclasses.dataclass(frozen=True)
class Config:
    """Select the runs to train, and how many run at a time."""

    variants: tuple[str, ...] = ("*",)
    """Names of the variants, or shell patterns such as `memory-s7-*`."""
    seeds: tuple[int, ...] = ()
    """Seeds of each variant; by default those of the tables."""
    runs: str = ""
    """Folder of the runs; by default the one that the docs name. Finished runs are not repeated."""
    jobs: int = 1
    """Number of runs at a time."""
    threads: int = 1
    """Threads of each run."""
    train: bool = True
    """Train missing runs; otherwise only update tables and figures."""

    def __post_init__(self):
        require_positive(self, "jobs", "threads")


def train_all(train, wanted, jobs):
    """Call `train(*run)` for each wanted run, `jobs` of them at a time.

    SIGTERM also terminates the child processes, which save a checkpoint first.

    Args:
        train: function that trains in a child process and returns when the child has ended.
        wanted: list of argument tuples.
        jobs: int, number of threads that call `train`.
    """
    with _exit_when_terminated(), concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        trainings = [pool.submit(train, *run) for run in wanted]
        try:
            for training in trainings:
                training.result()
        except BaseException as error:
            # Cancel the queue first: otherwise the next run starts when the first one ends.
            pool.shutdown(wait=False, cancel_futures=True)
            if isinstance(error, SystemExit):
                _terminate_children(trainings)
            raise


def run_script(script, arguments, threads=1):
    """Run a training script to its end in a child process.

    Args:
        script: name in `train_scripts`.
        arguments: its options, a list of strings.
        threads: int, threads of TensorFlow in the child process.

    Raises:
        InvalidInput: if the script fails; the message holds the last line of its output.
    """
    command = [sys.executable, "-m", f"train_scripts.{script}", *arguments]
    print(f"{script} {' '.join(arguments)} ...", file=sys.stderr)
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
        raise InvalidInput(f"{' '.join(command[1:])} failed: {last}")


@contextlib.contextmanager
def _exit_when_terminated():
    """Raise `SystemExit` in the main thread on SIGTERM."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate_children(trainings):
    """Terminate the child processes, including one that is about to start."""
    terminated = set()
    while not all(training.done() for training in trainings):
        for child in set(psutil.Process().children()) - terminated:
            child.terminate()
            terminated.add(child)
        time.sleep(0.05)
