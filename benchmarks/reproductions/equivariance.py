"""How far layers of the MNIST classifiers are from doing what moving their input should do.

Needs the runs `fast-seed0` and `book-seed0`; `reproductions/mnist` trains them and does this too.
The figure is drawn from `docs/results/mnist/equivariance.json`.
"""

import dataclasses
import json
import pathlib

import numpy as np
from keras import ops

from benchmarks import runs
from rrl_tf import viz
from rrl_tf.data import clean, preprocessed
from rrl_tf.data.mnist import load_mnist
from rrl_tf.layers import AppendCoordinates
from train_scripts import mnist_pictures

RESULTS = pathlib.Path("docs/results/mnist")


@dataclasses.dataclass(frozen=True)
class Config:
    """Which runs."""

    runs: str = "runs/mnist"
    """Where they are."""
    data: str | None = None
    """As for `train_scripts.train_mnist`."""


def main(config):
    """Measures where layers do not do what moving their input should do, and draws it."""
    measure(config)
    runs.publish(RESULTS, {}, {"equivariance": figure})


def measure(config):
    """Writes down the differences for two trained networks and one digit."""
    book, fast = (runs.network(pathlib.Path(config.runs) / f"{n}-seed0") for n in ("book", "fast"))
    images, _ = mnist_pictures.one_of_each(*preprocessed(load_mnist(config.data)["test"], clean, 0))
    errors = differences(book, fast, images[4:5])
    content = {
        movement: {layer: error.astype(float).round(8).tolist() for layer, error in row.items()}
        for movement, row in errors.items()
    }
    runs.write_json(RESULTS / "equivariance.json", content)


def figure(results):
    """The differences as they were written down; `None` where they were not."""
    file = results / "equivariance.json"
    return viz.equivariance_figure(json.loads(file.read_text())) if file.exists() else None


def differences(book, fast, image):
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
