"""Trains every MNIST classifier that the docs report, several seeds each, and writes the tables."""

import dataclasses
import functools
import json
import pathlib
import shutil

import numpy as np
import tensorflow as tf

from benchmarks import runs
from benchmarks.reproductions import equivariance
from benchmarks.runs import files, percent, seed_of, summaries
from benchmarks.tables import markdown_table
from rrl_tf import viz
from rrl_tf.data.mnist import load_mnist
from rrl_tf.data.perturb import add_spots, rotate_and_shift, scaled
from train_scripts import train_mnist

RESULTS = pathlib.Path("docs/results/mnist")


@dataclasses.dataclass(frozen=True)
class Agent:
    """What is trained.

    Attributes:
        label: its name in the tables.
        seeds: how many, from 0.
        preset: of `train_scripts.train_mnist`.
        arguments: what is changed in the preset.
        curve: its name in the robustness figure, or "" for none.
    """

    label: str
    seeds: int
    preset: str
    arguments: tuple[str, ...] = ()
    curve: str = ""

    @property
    def learns_from(self):
        """In words: the preset's digits, or the others where the arguments say so."""
        perturbed = train_mnist.PRESETS[self.preset].perturbed ^ bool(self.arguments)
        return "perturbed digits" if perturbed else "clean digits"


AGENTS = {
    "fast": Agent("ours", 5, "fast"),
    "book": Agent("book, relational", 5, "book", (), "relational"),
    "book-cnn": Agent("book, convolutional", 5, "book-cnn", (), "convolutional"),
    "patch-mnist": Agent("blog, attention on patches", 3, "patch-mnist", (), "patch attention"),
    "patch-mnist-mlp": Agent("blog, MLP", 3, "patch-mnist-mlp", (), "MLP"),
    "patch-mnist-perturbed": Agent(
        "blog, attention on patches", 1, "patch-mnist", ("--perturbed",), "patch attention"
    ),
    "patch-mnist-mlp-perturbed": Agent("blog, MLP", 1, "patch-mnist-mlp", ("--perturbed",), "MLP"),
    "book-cnn-clean": Agent(
        "book, convolutional", 1, "book-cnn", ("--no-perturbed",), "convolutional"
    ),
    "book-clean": Agent("book, relational", 1, "book", ("--no-perturbed",), "relational"),
    "fast-long": Agent("ours, longer", 1, "fast-long"),
}
STRENGTHS = {
    "rotation [degrees]": (0, 15, 30, 45, 60, 75, 90),
    "shift along both axes [pixels]": (0, 2, 4, 6, 8, 10),
    "spots": (0, 10, 20, 40, 60, 80, 100),
}
MET_IN_TRAINING = dict(zip(STRENGTHS, ((0, 30), (0, 6), (10, 20))))


@dataclasses.dataclass(frozen=True)
class Config(runs.Config):
    """Which runs, and how many at a time."""

    agents: tuple[str, ...] = tuple(AGENTS)
    """Names of what is trained, in this order."""
    seeds: tuple[int, ...] | None = None
    """Seeds of each; by default those that the docs report."""
    runs: str = "runs/mnist"
    data: str | None = None
    """As for `train_scripts.train_mnist`."""


def main(config):
    """Trains the MNIST classifiers that the docs report and writes their tables and figures."""
    wanted = [
        (name, seed)
        for name in config.agents
        for seed in (range(AGENTS[name].seeds) if config.seeds is None else config.seeds)
    ]
    runs.train_all(config, train, sorted(wanted, key=lambda run: run[1]))
    if config.train:
        measure(config, wanted)
    runs.publish(RESULTS, TABLES, FIGURES)


def train(config, name, seed):
    """Trains one classifier."""
    agent = AGENTS[name]
    data = [] if config.data is None else [f"--data={config.data}"]
    arguments = (*data, *agent.arguments)
    run = f"{name}-seed{seed}"
    run = runs.train(config, "train_mnist", agent.preset, seed, *arguments, name=run)
    if seed == 0 and name == agent.preset:
        for picture in (run / "figures").glob("*.png"):
            shutil.copy(picture, RESULTS / f"{name}-{picture.name}")


def measure(config, wanted):
    """Keeps every run's metrics and test, and its accuracy under each perturbation alone."""
    test = load_mnist(config.data)["test"]
    inputs = functools.cache(lambda: dict(perturbed_one_by_one(test)))
    for name, seed in wanted:
        run = pathlib.Path(config.runs) / f"{name}-seed{seed}"
        file = RESULTS / f"{run.name}.json"
        known = json.loads(file.read_text()) if file.exists() else {}
        if "robustness" in known and runs.evaluation(run).items() <= known.items():
            continue
        more = {}
        if AGENTS[name].curve:
            model = runs.network(run)
            shares = {key: accuracy(model, x, test.labels) for key, x in inputs().items()}
            more["robustness"] = {
                axis: {str(s): shares[axis, s] for s in strengths}
                for axis, strengths in STRENGTHS.items()
            }
        runs.keep(run, RESULTS, **more)
    if {("book", 0), ("fast", 0)} <= set(wanted):
        equivariance.measure(config)


def accuracy(model, inputs, labels):
    """Share of the images that are classified right."""
    return train_mnist.accuracy(model.predict(inputs, batch_size=250, verbose=0), labels)


def perturbed_one_by_one(test):
    """All test images under one perturbation at a time: ((axis, strength), inputs).

    Every second image is turned the other way, and images move along both diagonals.
    """
    rotation, shift, spots = STRENGTHS
    count = len(test.images)
    sign = tf.where(tf.range(count) % 2 == 0, 1, -1)
    signs = tf.stack([sign, tf.where(tf.range(count) % 4 < 2, 1, -1)], axis=1)
    images, still = scaled(test.images), tf.zeros((count, 2), tf.int32)
    for degrees in STRENGTHS[rotation]:
        yield (rotation, degrees), rotate_and_shift(images, degrees * sign, still).numpy()
    for pixels in STRENGTHS[shift]:
        moved = rotate_and_shift(images, tf.zeros(count), pixels * signs)
        yield (shift, pixels), moved.numpy()
    for number in STRENGTHS[spots]:
        drawn = tf.fill((count,), number)
        yield (spots, number), add_spots(images, drawn, (0, number), most=number).numpy()


def table(results):
    """The runs' tests as a Markdown table."""
    rows = []
    for name, agent in AGENTS.items():
        if found := summaries(results, name):
            batch_size = train_mnist.PRESETS[agent.preset].batch_size
            rows.append(
                {
                    "classifier": agent.label,
                    "parameters": f"{found[0]['parameters']:,}",
                    "learns from": agent.learns_from,
                    "updates × batch": f"{found[0]['step']:,} × {batch_size}",
                    "seeds": len(found),
                    "10,000 perturbed test images": percent(found, "test/perturbed", ".2f"),
                    "the same, clean": percent(found, "test/clean", ".2f"),
                }
            )
    return markdown_table(rows)


def seeds_table(results):
    """Relations against convolutions, seed by seed, as a Markdown table."""
    rows = {}
    for name in ("fast", "book", "book-cnn"):
        for path, run in zip(files(results, name, "json"), summaries(results, name)):
            row = rows.setdefault(seed_of(path), {"seed": seed_of(path)})
            row[AGENTS[name].label] = f"{100 * run['test/perturbed']:.2f} %"
    return markdown_table([rows[seed] for seed in sorted(rows)])


def robustness_table(results):
    """Accuracy under the strongest perturbations of training and beyond, as a Markdown table."""
    picks = [(axis, s) for axis, ss in STRENGTHS.items() for s in (ss[2], ss[4], ss[-1])]
    rows = []
    for label, kind, found in robust_runs(results):
        shares = {
            f"{axis.partition(' ')[0]} {s}": np.mean([r["robustness"][axis][str(s)] for r in found])
            for axis, s in picks
        }
        cells = {name: f"{100 * share:.1f} %" for name, share in shares.items()}
        rows.append({"classifier": label, "learns from": kind, **cells})
    return markdown_table(rows)


def robust_runs(results):
    """(Name of the model, what it learns from, runs), those that learn perturbed digits first."""
    rows = []
    for name, agent in AGENTS.items():
        found = [run for run in summaries(results, name) if "robustness" in run]
        if found:
            rows.append((agent.curve, agent.learns_from, found))
    models = list(dict.fromkeys(agent.curve for agent in AGENTS.values()))
    return sorted(rows, key=lambda row: (row[1] == "clean digits", models.index(row[0])))


def robustness_figure(results):
    """Accuracy against the strength of each perturbation."""
    found = robust_runs(results)
    panels = {
        axis: {
            f"{label} · {kind}": (
                strengths,
                [[run["robustness"][axis][str(s)] for s in strengths] for run in seeds],
            )
            for label, kind, seeds in found
        }
        for axis, strengths in STRENGTHS.items()
    }
    ylabel = "share of 10,000 test images right"
    return viz.robustness_figure(panels, ylabel, MET_IN_TRAINING) if found else None


def curves(results, column, ylabel, ylim):
    """A column of the logs against updates."""
    labels = {name: AGENTS[name].label for name in ("fast", "book", "book-cnn")}
    xlabel = "updates, 300 perturbed digits each"
    return runs.curves(results, labels, column, ylabel, ylim=ylim, xlabel=xlabel)


TABLES = {"table": table, "seeds": seeds_table, "robustness": robustness_table}
FIGURES = {
    "curves": functools.partial(
        curves,
        column="eval/accuracy",
        ylabel="accuracy on images kept from training",
        ylim=(0, 1),
    ),
    "loss": functools.partial(curves, column="train/loss", ylabel="training loss", ylim=(0, 1)),
    "robustness": robustness_figure,
    "equivariance": equivariance.figure,
}
