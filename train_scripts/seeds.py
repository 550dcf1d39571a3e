"""Run the same command with several seeds, and draw the band of their learning curves."""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import functools
import pathlib
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from rrl_tf.errors import InvalidInput


def train_seeds(config: Any, seeds: Sequence[int], jobs: int) -> pathlib.Path | None:
    """Repeat this process' command for each seed in a child process, and return the figure.

    Without an evaluation or a `train/loss` in every log, there is no figure.

    Each seed has its own run folder, so the same command resumes. The output of a child is in a
    file next to its folder. If this process receives SIGINT, SIGTERM or SIGHUP, the children save
    a checkpoint and stop.

    Args:
        config: configuration of the command.
        seeds: the seeds, each once.
        jobs: number of children at a time.

    Raises:
        InvalidInput: if a number is out of range, or a child fails.
    """
    if jobs < 1 or len(set(seeds)) < len(seeds):
        raise InvalidInput(
            f"`jobs` must be positive and `seeds` distinct; received {jobs} and {tuple(seeds)}"
        )
    runs = [
        dataclasses.replace(config, seed=seed, name=config.name and f"{config.name}-seed{seed}")
        for seed in seeds
    ]
    children: list[subprocess.Popen] = []
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # `nohup` ignores SIGHUP
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        try:
            list(pool.map(functools.partial(_train, children), runs))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in children:
                child.terminate()  # does nothing if the child has ended
            raise
    return _draw(runs, seeds)


def _train(children, config):
    """Run the command with the seed and the name of a configuration to its end."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--seeds", nargs="+")
    parser.add_argument("--jobs")
    _, options = parser.parse_known_args()
    script = ["-m", spec.name] if (spec := sys.modules["__main__"].__spec__) else sys.argv[:1]
    options += [f"--seed={config.seed}", f"--name={config.name}"]
    log = config.path.with_name(f"{config.path.name}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    print(f"seed {config.seed}: trains in {config.path}, output in {log}", flush=True)
    with log.open("w") as file:
        # In a separate session, because a terminal sends SIGINT to the whole process group, and
        # a second signal stops a run without a checkpoint.
        child = subprocess.Popen(
            [sys.executable, *script, *options],
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        children.append(child)
        if child.wait():
            lines = log.read_text().replace("\r", "\n").strip().splitlines()
            last = (lines or [f"exit code {child.returncode}"])[-1]
            raise InvalidInput(f"{shlex.join(options)} failed: {last}")


def _draw(runs, seeds):
    """Draw the metric that ranks the evaluations, and print its last values."""
    from rrl_tf import viz
    from rrl_tf.training import MetricsLog
    from rrl_tf.training.summary import evaluations

    logs = [MetricsLog(run.path, loggers=()).rows for run in runs]
    names = evaluations([row for rows in logs for row in rows])[0], "train/loss"
    in_all = [name for name in names if all(any(name in row for row in rows) for rows in logs)]
    if not in_all:
        print("no figure: not every log has an evaluation or a train/loss")
        return None
    metric = in_all[0]
    curves = [np.array([(r["step"], r[metric]) for r in rows if metric in r]).T for rows in logs]
    steps = min((curve[0] for curve in curves), key=lambda each: each[-1])  # the shortest run's
    values = np.array([np.interp(steps, *curve) for curve in curves])
    last = values[:, -1]
    print(
        f"{metric} at step {steps[-1]:,.0f}: {', '.join(f'{each:.4g}' for each in last)}; "
        f"mean {last.mean():.4g}, {last.min():.4g} to {last.max():.4g} over {len(runs)} seeds"
    )
    label = runs[0].path.name.removesuffix(f"-seed{seeds[0]}")
    file = runs[0].path.with_name(f"{label}-seeds-{'-'.join(map(str, seeds))}.png")
    figure = viz.learning_curves({label: (steps, values)}, metric, xlabel="step")
    print(f"written: {viz.save_figure(figure, file)}")
    return file
