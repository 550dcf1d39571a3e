"""Trains every MNIST classifier that the docs report, several seeds each, and writes their tables.

    python -m benchmarks.mnist             # trains what is missing (two hours on one core)
    python -m benchmarks.mnist --no-train  # tables and figures from docs/results/mnist alone

What a run leaves for the tables (its metrics, its test, its accuracy under each perturbation) is
copied to `docs/results/mnist`; the tables and most figures beside them are made from those copies.
"""

import concurrent.futures
import dataclasses
import json
import pathlib
import shutil

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from benchmarks import tables, training_runs
from rrl_tf import viz
from rrl_tf.data.mnist import load_mnist
from rrl_tf.data.mnist_batches import prepared
from rrl_tf.data.perturb import add_spots, clean, rotate_and_shift, scaled
from rrl_tf.layers import AppendCoordinates
from rrl_tf.training import atomic_file
from train_scripts import command_line, mnist_pictures, train_mnist

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
class Config:
    """Which runs, and how many at a time."""

    agents: tuple[str, ...] = tuple(AGENTS)
    """Names of what is trained, in this order."""
    seeds: int | None = None
    """So many of each, from 0; by default what the docs report."""
    runs: str = "runs/mnist"
    """Where runs are kept; those that are there already are not trained again."""
    data: str | None = None
    """As for `train_scripts.train_mnist`."""
    jobs: int = 1
    """Runs at a time, one thread each."""
    train: bool = True
    """Train what is missing, or only draw up tables and figures again."""


def main(config):
    """Trains the MNIST classifiers that the docs report and writes their tables and figures."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    if config.train:
        most = max(AGENTS[name].seeds for name in config.agents)
        wanted = [
            (name, seed)
            for seed in range(most)
            for name in config.agents
            if seed < (config.seeds or AGENTS[name].seeds)
        ]
        with concurrent.futures.ThreadPoolExecutor(config.jobs) as pool:
            list(pool.map(lambda run: train(config, *run), wanted))
        measure(config, wanted)
    for name, make in (("table", table), ("seeds", seeds_table), ("robustness", robustness_table)):
        with atomic_file(RESULTS / f"{name}.md") as draft:
            draft.write_text(make(RESULTS))
    draw(RESULTS)
    tables.main()
    print((RESULTS / "table.md").read_text())


def train(config, name, seed):
    """Trains one classifier in a process of its own."""
    agent = AGENTS[name]
    arguments = [f"--preset={agent.preset}", f"--seed={seed}", f"--runs={config.runs}"]
    arguments += [] if name == agent.preset else [f"--name={name}-seed{seed}"]
    arguments += [] if config.data is None else [f"--data={config.data}"]
    training_runs.train("train_mnist", *arguments, *agent.arguments)
    run = pathlib.Path(config.runs) / f"{name}-seed{seed}"
    shutil.copy(run / "metrics.csv", RESULTS / f"{run.name}.csv")
    if seed == 0 and name == agent.preset:
        for picture in (run / "figures").glob("*.png"):
            shutil.copy(picture, RESULTS / f"{name}-{picture.name}")


def measure(config, wanted):
    """Writes down every run's test, and its accuracy under each perturbation alone."""
    test = load_mnist(config.data)["test"]
    inputs = None
    for name, seed in wanted:
        run = pathlib.Path(config.runs) / f"{name}-seed{seed}"
        summary = json.loads((run / "evaluation.json").read_text())
        file = RESULTS / f"{run.name}.json"
        known = json.loads(file.read_text()) if file.exists() else {}
        if "robustness" in known and all(known.get(key) == summary[key] for key in summary):
            continue
        if AGENTS[name].curve:
            inputs = inputs or dict(perturbed_one_by_one(test))
            model = trained(run)
            summary["robustness"] = {
                axis: {
                    str(strength): accuracy(model, x, test.labels)
                    for (other, strength), x in inputs.items()
                    if other == axis
                }
                for axis in STRENGTHS
            }
        with atomic_file(file) as draft:
            draft.write_text(json.dumps(summary, indent=2) + "\n")
    if {("book", 0), ("fast", 0)} <= set(wanted):
        book, fast = (trained(pathlib.Path(config.runs) / f"{n}-seed0") for n in ("book", "fast"))
        digits, _ = mnist_pictures.one_of_each(*prepared(test, clean, 0))
        errors = equivariance(book, fast, digits[4:5])
        viz.save_figure(viz.equivariance_figure(errors), RESULTS / "equivariance.png")


def trained(run):
    """The classifier of a finished run."""
    [file] = (run / "checkpoints").glob("*/model.keras")
    return keras.models.load_model(file)


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


def equivariance(book, fast, image):
    """How far layers f are from `f(g(x)) = g(f(x))`, for a shift and for a permutation g.

    Returns:
        Dict movement → dict layer → `(rows, columns)`, norm of the difference in each cell
        relative to the largest norm of the output.
    """
    grid = image
    for layer in fast.grid_layers[:3]:  # the first convolution, its norm and ReLU
        grid = layer(grid)
    convolution = fast.grid_layers[3]
    cells = ops.convert_to_numpy(grid)  # (1, rows, columns, F)
    nodes = places(fast, image)
    coordinates = AppendCoordinates(**fast.coordinates)
    block, joint = fast.relations.blocks[0], book.relations.blocks[0]
    layers = {
        "convolution": (cells, convolution),
        "relations, places\nmove along": (nodes, on_grid(block)),
        "relations, places\nstay": (nodes[..., :-2], lambda x: on_grid(block)(coordinates(x))),
        "the book's relations,\nplaces move along": (places(book, image), on_grid(joint)),
    }
    return {
        movement: {name: difference(f, x, order(*x.shape[1:3])) for name, (x, f) in layers.items()}
        for movement, order in (("rolled by (1, 2)", rolled), ("cells shuffled", shuffled))
    }


def places(model, image):
    """What the relational block takes, as a grid `(1, rows, columns, F)`."""
    for layer in model.grid_layers:
        image = layer(image)
    return ops.convert_to_numpy(image)


def on_grid(block):
    """A block over entities as a function over a grid of them."""

    def apply(x):
        _, rows, columns, features = x.shape
        y = block(ops.reshape(x, (1, rows * columns, features)))
        return ops.reshape(y, (1, rows, columns, -1))

    return apply


def rolled(rows, columns):
    """Where each cell of a grid comes from when it is rolled by (1, 2)."""
    return np.roll(np.arange(rows * columns).reshape(rows, columns), (1, 2), (0, 1)).ravel()


def shuffled(rows, columns):
    """Where each cell of a grid comes from when cells change places at random."""
    return np.random.default_rng(0).permutation(rows * columns)


def difference(f, x, order):
    """`|f(g(x)) - g(f(x))|` in each cell, relative to the largest `|f(x)|`."""

    def moved(grid):
        _, rows, columns, features = grid.shape
        return grid.reshape(1, rows * columns, features)[:, order].reshape(grid.shape)

    expected = moved(ops.convert_to_numpy(f(x)))
    found = ops.convert_to_numpy(f(moved(x)))
    largest = np.linalg.norm(expected, axis=-1).max()
    return np.linalg.norm(found - expected, axis=-1)[0] / largest


def table(results):
    """The runs' tests as a Markdown table."""
    lines = [
        "| classifier | parameters | learns from | updates × batch | seeds | "
        "10,000 perturbed test images | the same, clean |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, agent in AGENTS.items():
        found = training_runs.summaries(results, name)
        if not found:
            continue
        preset = train_mnist.PRESETS[agent.preset]
        perturbed = preset.perturbed ^ bool(agent.arguments)
        cells = [
            agent.label,
            f"{found[0]['parameters']:,}",
            "perturbed digits" if perturbed else "clean digits",
            f"{found[0]['step']:,} × {preset.batch_size}",
            str(len(found)),
            percent(found, "test/perturbed"),
            percent(found, "test/clean"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def percent(found, name):
    """Mean and range over the seeds, in percent."""
    return training_runs.spread([100 * run[name] for run in found], digits=2, unit=" %")


def seeds_table(results):
    """Relations against convolutions, seed by seed, as a Markdown table."""
    names = ("fast", "book", "book-cnn")
    columns = {name: training_runs.summaries(results, name) for name in names}
    lines = [
        f"| seed | {' | '.join(AGENTS[name].label for name in names)} |",
        "|---|---|---|---|",
    ]
    for seed in range(max((len(found) for found in columns.values()), default=0)):
        cells = [
            f"{100 * found[seed]['test/perturbed']:.2f} %" if seed < len(found) else ""
            for found in columns.values()
        ]
        lines.append(f"| {seed} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def robustness_table(results):
    """Accuracy under the strongest perturbations of training and beyond, as a Markdown table."""
    picks = [(axis, s) for axis, ss in STRENGTHS.items() for s in (ss[2], ss[4], ss[-1])]
    picks = list(dict.fromkeys(picks))
    heads = [f"{axis.partition(' ')[0]} {strength}" for axis, strength in picks]
    lines = [f"| classifier | learns from | {' | '.join(heads)} |", "|---" * (2 + len(heads)) + "|"]
    for label, kind, found in robust_runs(results):
        cells = [
            f"{100 * np.mean([run['robustness'][axis][str(s)] for run in found]):.1f} %"
            for axis, s in picks
        ]
        lines.append(f"| {label} | {kind} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def robust_runs(results):
    """(Name of the model, what it learns from, runs), those that learn perturbed digits first."""
    rows = []
    for name, agent in AGENTS.items():
        found = [run for run in training_runs.summaries(results, name) if "robustness" in run]
        if found:
            perturbed = train_mnist.PRESETS[agent.preset].perturbed ^ bool(agent.arguments)
            kind = "perturbed digits" if perturbed else "clean digits"
            rows.append((agent.curve, kind, found))
    models = list(dict.fromkeys(agent.curve for agent in AGENTS.values()))
    return sorted(rows, key=lambda row: (row[1] == "clean digits", models.index(row[0])))


def draw(results):
    """Training curves and robustness, from the results folder."""
    for column, ylabel, ylim, file in (
        ("eval/accuracy", "accuracy on images kept from training", (0, 1), "curves"),
        ("train/loss", "training loss", (0, 2.4), "loss"),
    ):
        lines = {
            AGENTS[name].label: curve(results, name, column)
            for name in ("fast", "book", "book-cnn")
            if list(results.glob(f"{name}-seed*.csv"))
        }
        if lines:
            figure = viz.learning_curves(
                lines, ylabel, ylim=ylim, xlabel="updates, 300 perturbed digits each"
            )
            viz.save_figure(figure, results / f"{file}.png")
    panels = {
        axis: {
            f"{label} · {kind}": (
                strengths,
                [[run["robustness"][axis][str(s)] for s in strengths] for run in found],
            )
            for label, kind, found in robust_runs(results)
        }
        for axis, strengths in STRENGTHS.items()
    }
    if any(panels.values()):
        figure = viz.robustness_figure(panels, "share of 10,000 test images right", MET_IN_TRAINING)
        viz.save_figure(figure, results / "robustness.png")


def curve(results, name, column):
    """Updates `(P,)` and values `(seeds, P)` of a column of the runs' metrics."""
    logs = [training_runs.metrics(path) for path in training_runs.files(results, name, "csv")]
    series = [{int(row["step"]): row[column] for row in log} for log in logs]
    steps = sorted(set.intersection(*map(set, series)))
    return np.array(steps), np.array([[each[step] for step in steps] for each in series])


if __name__ == "__main__":
    command_line.run(main, Config)
