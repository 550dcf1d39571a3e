"""Whether a training holds on to more and more: its memory, descriptors and threads over time.

    python -m benchmarks speed/long_training
    python -m benchmarks speed/long_training --script train_mnist --options=--preset=fast

The training runs in a process of its own, as a user would start it, and is told to stop (SIGTERM,
which saves) when the time is over. The same command goes on with it.
"""

import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import psutil

from benchmarks.report import Report

WARM_UP = 0.25
"""Share of the time in which graphs are made, caches fill and the replay grows."""


@dataclasses.dataclass(frozen=True)
class Config:
    """What is trained, and how long."""

    script: str = "train_doorkey"
    """Name in `train_scripts`."""
    options: tuple[str, ...] = ("--steps=100000000", "--name=long", "--learning-rate-updates=10000")
    """Of its command line."""
    minutes: float = 60.0
    every: float = 15.0
    """Seconds between two looks."""
    rows: int = 12
    """Of the table."""


def main(config):
    """Watches a training's memory, descriptors and threads."""
    command = [sys.executable, "-m", f"train_scripts.{config.script}", *config.options]
    limits = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
    with tempfile.TemporaryFile("w+", errors="replace") as said:  # a pipe would be full soon
        training = subprocess.Popen(
            command, env={**os.environ, **limits}, stdout=subprocess.DEVNULL, stderr=said
        )
        try:
            looks = watch(training, config)
        finally:
            training.send_signal(signal.SIGTERM)
            training.wait()
        if training.returncode not in (0, 128 + signal.SIGTERM):
            said.seek(0)
            last = said.read().strip().splitlines()[-1:]
            raise ValueError(f"{' '.join(command[1:])} failed: {last or training.returncode}")
    title = f"Training for {config.minutes:g} minutes"
    return Report(title, table(looks, config.rows), notes(command, looks))


def watch(training, config):
    """Minutes, MiB, descriptors and threads, as rows `(looks, 4)`, until it ends or time is up."""
    process, begun, looks = psutil.Process(training.pid), time.monotonic(), []
    while training.poll() is None and time.monotonic() - begun < 60 * config.minutes:
        time.sleep(config.every)
        try:
            memory = process.memory_full_info().uss / 2**20
            counts = process.num_fds(), process.num_threads()
        except psutil.NoSuchProcess:
            break
        looks.append(((time.monotonic() - begun) / 60, memory, *counts))
    if not looks:
        raise ValueError(f"the training ended within {config.every} seconds")
    return np.array(looks)


def table(looks, rows):
    """Some of the looks, evenly spaced."""
    chosen = looks[np.unique(np.linspace(0, len(looks) - 1, rows).astype(int))]
    return [
        {
            "minute": f"{minute:.0f}",
            "MiB of its own": f"{memory:,.0f}",
            "descriptors": int(descriptors),
            "threads": int(threads),
        }
        for minute, memory, descriptors, threads in chosen
    ]


def notes(command, looks):
    """What was run, and how much came and went after the beginning."""
    later = looks[looks[:, 0] > WARM_UP * looks[-1, 0]]
    slope, start = np.polyfit(later[:, 0], later[:, 1], 1) if len(later) > 1 else (0.0, 0.0)
    grown = slope * (later[-1, 0] - later[0, 0]) / (start + slope * later[0, 0])
    return (
        f"`{' '.join(['python', *command[1:]])}`, one thread.",
        f"From minute {later[0, 0]:.0f} on: a straight line through the memory rises by "
        f"{100 * grown:+.1f} %, {later[:, 1].min():,.0f} to {later[:, 1].max():,.0f} MiB; "
        f"descriptors {later[:, 2].min():.0f} to {later[:, 2].max():.0f}, threads "
        f"{later[:, 3].min():.0f} to {later[:, 3].max():.0f}.",
    )
