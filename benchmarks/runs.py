"""Training runs in processes of their own, and what the tables of the docs are made of.

The results of a run called `fast-seed0` are `fast-seed0.csv`, its metrics, and `fast-seed0.json`,
its last evaluation. Tables and figures are made of these files alone, so anyone can draw them up.
"""

import concurrent.futures
import contextlib
import csv
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from typing import Literal

import keras
import numpy as np
import psutil

import rrl_tf.models  # noqa: F401 - stored networks are of these classes
from benchmarks import headlines
from benchmarks.tables import fill, write_text
from rrl_tf import viz
from rrl_tf.errors import InvalidInput
from rrl_tf.training.config import require_positive


def any_of(names):
    """The type of an option that takes any of some names: its help lists them."""
    return tuple[Literal[tuple(names)], ...]


@dataclasses.dataclass(frozen=True)
class Config:
    """Which runs, and how many at a time."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of each. The tables take in whatever seeds lie in the results folder."""
    runs: str = "runs"
    """Where runs are kept; those that are there already are not trained again."""
    jobs: int = 1
    """Runs at a time."""
    threads: int = 1
    """Of each run."""
    train: bool = True
    """Train what is missing, or only draw up tables and figures again."""

    def __post_init__(self):
        require_positive(self, "jobs", "threads")


def train_all(config, train, wanted):
    """Calls `train(config, *run)` for all that is wanted, `config.jobs` of them at a time.

    Who ends this process ends its trainings with it; these save themselves first.
    """
    if not config.train:
        return
    with _exit_when_terminated(), concurrent.futures.ThreadPoolExecutor(config.jobs) as pool:
        trainings = [pool.submit(train, config, *run) for run in wanted]
        try:
            for training in trainings:
                training.result()
        except BaseException as error:
            # Before any is ended: in its place the next would begin.
            pool.shutdown(wait=False, cancel_futures=True)
            if isinstance(error, SystemExit):
                _end(trainings)
            raise


@contextlib.contextmanager
def _exit_when_terminated():
    """Being terminated raises `SystemExit` in the main thread."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(trainings):
    """Terminates the processes of trainings, those of one that was just about to begin as well."""
    told = set()
    while not all(training.done() for training in trainings):
        for child in set(psutil.Process().children()) - told:
            child.terminate()
            told.add(child)
        time.sleep(0.05)


def train(config, script, preset, seed, *arguments, name=None):
    """Runs a training script to its end, in a process of its own.

    Args:
        config: `Config`.
        script: name in `train_scripts`.
        preset: one of its presets.
        seed: int.
        arguments: more of its options.
        name: of the run, if not the script's own, `<preset>-seed<seed>`.

    Returns:
        The run's folder.

    Raises:
        InvalidInput: if it fails, with the last line of what it says.
    """
    own = f"{preset}-seed{seed}"
    command = [sys.executable, "-m", f"train_scripts.{script}", f"--preset={preset}"]
    command += [f"--seed={seed}", f"--runs={config.runs}", *arguments]
    command += [f"--name={name}"] if name not in (None, own) else []
    print(f"{script} {name or own} ...", file=sys.stderr)
    limits = {"TF_NUM_INTRAOP_THREADS": str(config.threads), "TF_NUM_INTEROP_THREADS": "1"}
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
    return pathlib.Path(config.runs) / (name or own)


def keep(run, results, **more):
    """Writes the metrics of the run folder `run`, and its last evaluation with `more`."""
    results.mkdir(parents=True, exist_ok=True)
    shutil.copy(run / "metrics.csv", results / f"{run.name}.csv")
    write_json(results / f"{run.name}.json", evaluation(run) | more)


def evaluation(run):
    """The last evaluation of a run folder."""
    return json.loads((run / "evaluation.json").read_text())


def keep_pictures(run, folder, name, *more):
    """Copies what a run drew last of an episode, for the docs."""
    for picture in ("attention.png", "episode.gif", *more):
        shutil.copy(run / "figures" / picture, pathlib.Path(folder) / f"{name}-{picture}")


def configuration(run, config_class):
    """What a run folder was trained with."""
    stored = json.loads((run / "config.json").read_text())
    names = [field.name for field in dataclasses.fields(config_class)]
    # JSON has no tuples.
    values = {name: stored[name] for name in names if name in stored}
    return config_class(
        **{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    )


def network(run):
    """The network of the last checkpoint of a run folder."""
    [file] = (run / "checkpoints").glob("*/model.keras")
    return keras.models.load_model(file)


def write_json(path, content):
    """Writes a JSON file that appears complete or not at all."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def publish(results, tables, figures):
    """Draws up tables and figures from a results folder, and fills the slots of the docs.

    Args:
        results: the folder.
        tables: dict file name without a suffix → function of the folder that returns Markdown.
        figures: dict file name without a suffix → function of the folder that returns a figure, or
            `None` where there is nothing to draw.
    """
    for name, make in tables.items():
        write_text(results / f"{name}.md", make(results))
        print(make(results))
    for name, make in figures.items():
        if (figure := make(results)) is not None:
            viz.save_figure(figure, results / f"{name}.png")
    headlines.draw_up()
    fill()


def files(results, name, suffix):
    """The files of all seeds of a run, in the order of the seeds."""
    paths = results.glob(f"{name}-seed*.{suffix}")
    return sorted(paths, key=seed_of)


def seed_of(path):
    """The seed of a results file."""
    return int(path.stem.rpartition("-seed")[2])


def summaries(results, name):
    """The last evaluations of all seeds of a run, as dicts."""
    return [_summary(path) for path in files(results, name, "json")]


def _summary(path):
    """The last evaluation in a results file."""
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise InvalidInput(f"{path} is damaged, not JSON: {error}") from None


def logs(results, name):
    """The metrics of all seeds of a run, each a list of dicts of the numbers that are there."""
    return [metrics(path) for path in files(results, name, "csv")]


def metrics(path):
    """The rows of a log, as dicts of the numbers that are there."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    try:
        return [{name: float(cell) for name, cell in row.items() if cell != ""} for row in rows]
    except (TypeError, ValueError) as error:  # too few or too many cells; not a number
        raise InvalidInput(f"{path} is damaged, not a table of numbers: {error}") from None


def curve(results, name, column):
    """Steps `(P,)` that all seeds have, and the values `(seeds, P)` of a column there."""
    series = [
        {row["step"]: row[column] for row in log if column in row} for log in logs(results, name)
    ]
    steps = sorted(set.intersection(*map(set, series)))
    return np.array(steps), np.array([[each[step] for step in steps] for each in series])


def curves(results, labels, column, *arguments, draw=viz.learning_curves, **options):
    """A figure, `draw`, of a column: a curve for each name → label that has logs."""
    found = {name: label for name, label in labels.items() if files(results, name, "csv")}
    if not found:
        return None
    lines = {label: curve(results, name, column) for name, label in found.items()}
    return draw(lines, *arguments, **options)


def spread(values, form=".1f", unit=""):
    """Mean of the seeds, and their range where it reads as one.

    Example:
        >>> spread([90.0, 95.0], unit=" %")
        '92.5 % (90.0 to 95.0)'
    """
    low, high = (f"{end(values):{form}}" for end in (min, max))
    text = f"{np.mean(values):{form}}{unit}"
    return text + (f" ({low} to {high})" if low != high else "")


def in_words(steps):
    """The first step of something in each of several runs, `None` where it never was."""
    return ", ".join("never" if step is None else f"{step:,}" for step in steps)


def percent(found, name, form=".1f"):
    """Mean and range over the seeds of a share, in percent."""
    return spread([100 * run[name] for run in found], form, " %")
