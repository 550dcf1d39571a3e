"""Define reproductions: training runs, and the tables and figures of their results in the docs.

`docs/results/<page>/runs.json` holds the last evaluation of every run, one run per line, and
`docs/results/<page>/curves.csv` the learning curves that the figures show, down-sampled. Tables
and figures are made from these two files alone.
"""

import csv
import dataclasses
import fnmatch
import functools
import json
import pathlib
import shutil
import threading
from collections.abc import Callable, Mapping

import keras
import numpy as np
from PIL import Image

import rrl_tf.models  # noqa: F401 - registers the classes of stored networks
from benchmarks import runner
from benchmarks.tables import markdown_table, write_text
from rrl_tf import viz
from rrl_tf.errors import InvalidInput

POINTS = 60
"""Points of a stored learning curve."""
_lock = threading.Lock()


@dataclasses.dataclass(frozen=True)
class Training:
    """One row of a table: a training script with its options.

    Attributes:
        label: name of the row in tables and figures.
        script: name in `train_scripts`.
        preset: preset of the script.
        options: further options of the script.
        seeds: seeds that the tables show.
    """

    label: str
    script: str
    preset: str
    options: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0, 1, 2)

    def run(self, runs, name, seed, threads=1):
        """Train in the folder `runs/name`, or resume its run unless the run is finished."""
        arguments = [f"--preset={self.preset}", f"--seed={seed}", f"--runs={runs}", *self.options]
        runner.run_script(self.script, [*arguments, f"--name={name}"], threads)


class Results:
    """The evaluations and learning curves of all runs of one page.

    Args:
        folder: contains `runs.json` and `curves.csv`; a missing file counts as empty.
    """

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    @functools.cached_property
    def evaluations(self):
        """Dict from the name of each run to its last evaluation."""
        file = self.folder / "runs.json"
        try:
            return json.loads(file.read_text()) if file.exists() else {}
        except ValueError as error:
            raise InvalidInput(f"{file} must contain JSON: {error}") from None

    @functools.cached_property
    def log(self):
        """Rows of `curves.csv`, dicts of strings."""
        file = self.folder / "curves.csv"
        return list(csv.DictReader(file.read_text().splitlines())) if file.exists() else []

    def of(self, variant):
        """Evaluations of a variant, in the order of the seeds, each with its `seed`."""
        names = (run.rpartition("-seed") for run in self.evaluations)
        seeds = sorted(int(seed) for name, _, seed in names if name == variant)
        return [self.evaluations[f"{variant}-seed{seed}"] | {"seed": seed} for seed in seeds]

    def of_each(self, variants):
        """Yield the value and the evaluations of every key of `variants` that has results."""
        for name, value in variants.items():
            if found := self.of(name):
                yield value, found

    def curve(self, variant, column):
        """Return steps `(P,)` and values `(seeds, P)` of a column of a variant's learning curves.

        Every seed is interpolated at the steps of the shortest run.
        """
        lines = {f"{variant}-seed{each['seed']}": [] for each in self.of(variant)}
        for row in self.log:
            if row["run"] in lines and row[column]:
                lines[row["run"]].append((float(row["step"]), float(row[column])))
        lines = [np.array(line).T for line in lines.values() if line]
        steps = min((line[0] for line in lines), key=lambda each: each[-1], default=np.zeros(0))
        return steps, np.array([np.interp(steps, *line) for line in lines])

    def keep(self, run, evaluation, log, columns):
        """Store the evaluation of a run and the given columns of its log.

        Args:
            run: name of the run.
            evaluation: JSON-able dict.
            log: rows of its `metrics.csv`, as `read_log` returns them.
            columns: names of the columns whose curves are kept.
        """
        rows = [row for row in log if any(column in row for column in columns)]
        chosen = np.unique(np.linspace(0, len(rows) - 1, POINTS).astype(int)) if rows else []
        points = [
            {"run": run, "step": int(rows[i]["step"])}
            | {column: f"{rows[i][column]:.4g}" for column in columns if column in rows[i]}
            for i in chosen
        ]
        with _lock:
            stored = Results(self.folder)
            evaluations = {**stored.evaluations, run: evaluation}
            lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(evaluations.items())]
            write_text(self.folder / "runs.json", "{\n" + ",\n".join(lines) + "\n}\n")
            if points:
                log = [row for row in stored.log if row["run"] != run] + points
                write_csv(self.folder / "curves.csv", sorted(log, key=lambda row: row["run"]))


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """The training runs of a docs page, and the tables and figures made from their results.

    Attributes:
        page: name of the folder in `docs/results`.
        trainings: dict variant → `Training`, or a function of the configuration that returns it.
        tables: dict name → function of `Results` that returns rows, a list of dicts.
        figures: dict name → function of `Results` that returns a figure.
        curves: columns of `metrics.csv` that the figures show.
        measure: function of a run folder that returns further numbers of its evaluation.
        pictures: dict run name → files in its `figures` folder that the docs show.
        runs: folder of the runs.
        config_class: dataclass of the options, `runner.Config` or a subclass.
    """

    page: str
    trainings: Mapping[str, Training] | Callable
    tables: Mapping[str, Callable]
    figures: Mapping[str, Callable] = dataclasses.field(default_factory=dict)
    curves: tuple[str, ...] = ()
    measure: Callable = lambda run: {}
    pictures: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    runs: str = ""
    config_class: type = runner.Config

    @property
    def results(self):
        """Results of the page: those in the repository, and those of runs on this machine."""
        return Results(pathlib.Path("docs/results", self.page))

    def main(self, config):
        """Train the missing runs, store their results, and update tables and figures."""
        if config.train:
            runner.train_all(
                functools.partial(self.train, config), self.wanted(config), config.jobs
            )
        for name, table in self.tables.items():
            print(f"{name}:\n{markdown_table(table(self.results))}")
        for name, figure in self.figures.items():
            save_figure(figure(self.results), self.results.folder / f"{name}.png")

    def wanted(self, config):
        """Return (variant, training, seed) of every run that the configuration selects."""
        trainings = self.trainings(config) if callable(self.trainings) else self.trainings
        wanted = [
            (variant, training, seed)
            for variant, training in trainings.items()
            if any(fnmatch.fnmatch(variant, pattern) for pattern in config.variants)
            for seed in config.seeds or training.seeds
        ]
        if not wanted:
            raise InvalidInput(
                f"variants must select some of {', '.join(trainings)}; "
                f"received {' '.join(config.variants)}"
            )
        return sorted(wanted, key=lambda run: run[-1])

    def train(self, config, variant, training, seed):
        """Train one run and store its results."""
        name = f"{variant}-seed{seed}"
        runs = pathlib.Path(config.runs or self.runs or f"runs/{self.page}")
        training.run(runs, name, seed, config.threads)
        run, log = runs / name, read_log(runs / name)
        evaluation = json.loads((run / "evaluation.json").read_text())
        if "time/cpu_minutes" in log[-1]:
            evaluation["cpu_minutes"] = log[-1]["time/cpu_minutes"]
        self.results.keep(name, evaluation | self.measure(run), log, self.curves)
        for picture in self.pictures.get(name, ()):
            target = self.results.folder / f"{variant}-{picture}"
            shutil.copy(run / "figures" / picture, target)
            shrink(target)


def read_log(run):
    """Rows of the `metrics.csv` of a run folder, dicts of the numbers that are present."""
    with (run / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [{name: float(cell) for name, cell in row.items() if cell} for row in rows]


def write_csv(path, rows):
    """Write rows, dicts column → cell, as a CSV file."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = [columns, *([str(row.get(column, "")) for column in columns] for row in rows)]
    write_text(path, "".join(",".join(line) + "\n" for line in lines))


def read_config(run, config_class):
    """Return the configuration that a run folder was trained with."""
    stored = json.loads((run / "config.json").read_text())
    names = {field.name for field in dataclasses.fields(config_class)} & set(stored)
    values = {name: stored[name] for name in names}
    return config_class(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def load_network(run):
    """Load the network of the last checkpoint of a run folder."""
    [file] = (run / "checkpoints").glob("*/model.keras")
    return keras.models.load_model(file)


def learning_curves(column, ylabel, labels, **options):
    """Return a function of `Results` that draws a column, one curve per variant with results.

    Args:
        column: name in the log.
        ylabel: label of the vertical axis.
        labels: dict variant → label.
        options: further arguments of `viz.learning_curves`.
    """

    def figure(results):
        lines = {labels[name]: results.curve(name, column) for name in labels if results.of(name)}
        return viz.learning_curves(lines, ylabel, **options)

    return figure


def save_figure(figure, path):
    """Save a figure as a PNG file with a palette."""
    viz.save_figure(figure, path)
    shrink(path)


def shrink(path, width=1300):
    """Reduce a PNG file to a palette and a maximum width, in place; do not change other files."""
    if path.suffix == ".png":
        image = Image.open(path).convert("RGB")
        image.thumbnail((width, 10 * width))
        image.quantize(256, Image.Quantize.MEDIANCUT).save(path, optimize=True)


def spread(values, form=".1f", unit=""):
    """Format the mean over seeds, and their range unless it is rounded to a single number.

    Example:
        >>> spread([90.0, 95.0], unit=" %")
        '92.5 % (90.0 to 95.0)'
    """
    low, high = (f"{end(values):{form}}" for end in (min, max))
    text = f"{np.mean(values):{form}}{unit}"
    return text + (f" ({low} to {high})" if low != high else "")


def percent(evaluations, name, form=".1f"):
    """Format the mean and range over seeds of a fraction as a percentage."""
    return spread([100 * each[name] for each in evaluations], form, " %")


def first_steps(steps):
    """Format the step at which each seed reached a goal; `None` is a seed that never did."""
    return ", ".join("never" if step is None else f"{step:,}" for step in steps)


def last_step(evaluations):
    """Format the largest number of steps of several runs."""
    return f"{max(each['step'] for each in evaluations):,}"
