"""Train relational, convolutional, patch-attention and dense classifiers on MNIST."""

import functools

import numpy as np
import tensorflow as tf

from benchmarks.reproduction import (
    Reproduction,
    Training,
    learning_curves,
    load_network,
    percent,
    read_config,
)
from rrl_tf import viz
from rrl_tf.data.mnist import load_mnist
from rrl_tf.data.perturb import add_spots, rotate_and_shift, scaled
from train_scripts import train_mnist


def variant(label, preset, seeds, *options):
    """Return the training of a classifier."""
    return Training(label, "train_mnist", preset, options, tuple(range(seeds)))


PATCHES, CONVOLUTIONAL, RELATIONAL = (
    "blog, attention on patches",
    "book, convolutional",
    "book, relational",
)
TRAININGS = {
    "fast": variant("ours", "fast", 5),
    "book": variant(RELATIONAL, "book", 5),
    "book-cnn": variant(CONVOLUTIONAL, "book-cnn", 5),
    "patch-mnist": variant(PATCHES, "patch-mnist", 3),
    "patch-mnist-mlp": variant("blog, MLP", "patch-mnist-mlp", 3),
    "patch-mnist-perturbed": variant(PATCHES, "patch-mnist", 1, "--perturbed"),
    "patch-mnist-mlp-perturbed": variant("blog, MLP", "patch-mnist-mlp", 1, "--perturbed"),
    "book-cnn-clean": variant(CONVOLUTIONAL, "book-cnn", 1, "--no-perturbed"),
    "book-clean": variant(RELATIONAL, "book", 1, "--no-perturbed"),
    "fast-long": variant("ours, longer", "fast-long", 1),
}
CURVES = {
    RELATIONAL: "relational",
    CONVOLUTIONAL: "convolutional",
    PATCHES: "patch attention",
    "blog, MLP": "MLP",
}
"""Dict from a label in the table to the label in the robustness figure, in the figure's order."""
STRENGTHS = {
    "rotation [degrees]": (0, 15, 30, 45, 60, 75, 90),
    "shift along both axes [pixels]": (0, 2, 4, 6, 8, 10),
    "spots": (0, 10, 20, 40, 60, 80, 100),
}
SEEN_IN_TRAINING = dict(zip(STRENGTHS, ((0, 30), (0, 6), (10, 20))))


def measure(run):
    """Return the accuracy under each perturbation alone, for classifiers that the figure shows."""
    if TRAININGS[run.name.rpartition("-seed")[0]].label not in CURVES:
        return {}
    network, data = load_network(run), read_config(run, train_mnist.Config).data
    found = {axis: {} for axis in STRENGTHS}
    for (axis, strength), images in perturbed_images(data).items():
        logits = network.predict(images, batch_size=250, verbose=0)
        labels = load_mnist(data)["test"].labels
        found[axis][str(strength)] = train_mnist.accuracy(logits, labels)
    return {"robustness": found}


@functools.cache
def perturbed_images(data):
    """Return dict (axis, strength) → the test images under one perturbation."""
    return dict(perturbed_one_by_one(load_mnist(data)["test"]))


def perturbed_one_by_one(test):
    """Yield ((axis, strength), images) of all test images under one perturbation at a time.

    Every second image is rotated in the opposite direction, and images are shifted along both
    diagonals.
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


def learns_from(training):
    """Return "perturbed" or "clean", the kind of digits that a classifier is trained on."""
    perturbed = train_mnist.PRESETS[training.preset].perturbed ^ bool(training.options)
    return "perturbed digits" if perturbed else "clean digits"


def table(results):
    """Return the test accuracies."""
    return [
        {
            "classifier": training.label,
            "parameters": f"{found[0]['parameters']:,}",
            "trained on": learns_from(training),
            "updates × batch": "{:,} × {}".format(
                found[0]["step"], train_mnist.PRESETS[training.preset].batch_size
            ),
            "seeds": len(found),
            "accuracy, perturbed test digits": percent(found, "test/perturbed", ".2f"),
            "accuracy, clean test digits": percent(found, "test/clean", ".2f"),
        }
        for training, found in results.of_each(TRAININGS)
    ]


def seeds(results):
    """Return the accuracy of the relational and the convolutional networks for each seed."""
    rows = {}
    for name in ("fast", "book", "book-cnn"):
        for each in results.of(name):
            row = rows.setdefault(each["seed"], {"seed": each["seed"]})
            row[TRAININGS[name].label] = f"{100 * each['test/perturbed']:.2f} %"
    return [rows[seed] for seed in sorted(rows)]


def robust_runs(results):
    """Return (curve, training digits, evaluations) of each classifier, perturbed digits first."""
    rows = [
        (CURVES[training.label], learns_from(training), results.of(name))
        for name, training in TRAININGS.items()
        if training.label in CURVES
    ]
    order = list(CURVES.values())
    return sorted(rows, key=lambda row: (row[1] == "clean digits", order.index(row[0])))


def robustness(results):
    """Return the accuracy at the largest strengths of training and beyond them."""
    rows = []
    for label, kind, found in robust_runs(results):
        row = {"classifier": label, "trained on": kind}
        for axis, strengths in STRENGTHS.items():
            for strength in (strengths[2], strengths[4], strengths[-1]):
                mean = np.mean([each["robustness"][axis][str(strength)] for each in found])
                row[f"{axis.partition(' ')[0]} {strength}"] = f"{100 * mean:.1f} %"
        rows.append(row)
    return rows


def robustness_figure(results):
    """Draw the accuracy against the strength of each perturbation."""
    panels = {
        axis: {
            f"{label} · {kind}": (
                strengths,
                [[each["robustness"][axis][str(s)] for s in strengths] for each in found],
            )
            for label, kind, found in robust_runs(results)
        }
        for axis, strengths in STRENGTHS.items()
    }
    ylabel = "accuracy on 10,000 test images"
    return viz.robustness_figure(panels, ylabel, SEEN_IN_TRAINING)


def curves(column, ylabel):
    """Return the figure function of a column of the log."""
    labels = {name: TRAININGS[name].label for name in ("fast", "book", "book-cnn")}
    xlabel = "updates, 300 perturbed digits each"
    return learning_curves(column, ylabel, labels, xlabel=xlabel, ylim=(0, 1))


REPRODUCTION = Reproduction(
    page="mnist",
    trainings=TRAININGS,
    tables={"table": table, "seeds": seeds, "robustness": robustness},
    figures={
        "curves": curves("eval/accuracy", "validation accuracy"),
        "loss": curves("train/loss", "training loss"),
        "robustness": robustness_figure,
    },
    curves=("eval/accuracy", "train/loss"),
    measure=measure,
    pictures={
        "fast-seed0": ("attention.png",),
        "book-seed0": ("attention.png",),
        "patch-mnist-seed0": ("attention.png",),
    },
)
