"""The cost of one training step of the book's relational classifier: ours against PyTorch.

    python -m benchmarks.mnist_step        # one to two minutes

Both sides do what one step of the book's protocol does, from 300 perturbed digits in NumPy to the
loss as a number: forward, gradient, Adam. Ours is what `fit` runs for
`train_scripts.train_mnist --preset book`; theirs is `benchmarks.torch_networks.BookClassifier`,
eager, images with the channels first. They begin with the same weights, and the first loss must be
the same.

How it's measured: one process, one thread on either side, CPU time of all threads, contestants
taking turns; the table holds medians. The share of the matrix-product rate is as in
`benchmarks.update`: operations of the convolutions and matrix products by PyTorch's
`FlopCounterMode`, over the time, over the rate of a large product that takes turns with the rest.
"""

import dataclasses
from typing import Literal

import numpy as np
import tensorflow as tf
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.against_torch import (
    PRECISIONS,
    check_equal,
    large_product,
    milliseconds,
    notes,
    ratios,
)
from benchmarks.measure import alternate, timed, use_one_thread
from benchmarks.report import Report
from benchmarks.torch_networks import BookClassifier
from rrl_tf.convert import deep_rl_in_action
from rrl_tf.data.perturb import Perturbation
from train_scripts import command_line, train_mnist

OURS, EAGER = "ours", "PyTorch eager"
DATA = "float32", "perturbing the batch (`tf.data`)"
COLUMNS = (
    "precision",
    "step",
    "ms",
    "10 to 90 %",
    "share of the product rate",
    "of PyTorch eager",
    "of PyTorch eager in float32",
)


@dataclasses.dataclass(frozen=True)
class Config:
    """What is compared, and how long."""

    precisions: tuple[Literal["float32", "bfloat16"], ...] = ("float32", "bfloat16")
    """float32, and bfloat16 with float32 weights."""
    batch_size: int = 300
    rounds: int = 15
    """Turns of each contestant."""
    steps: int = 2
    """Steps measured in a turn, after one that isn't."""
    product_size: int = 1024
    """Rows and columns of the large matrix product."""


def main(config):
    """Measures the CPU time of one training step, ours and PyTorch's."""
    use_one_thread()
    torch.set_num_threads(1)
    batch = make_batch(config.batch_size)
    steps = {}
    for precision in config.precisions:
        ours, theirs = our_step(precision), torch_step(precision)
        check_equal({OURS: ours(batch), EAGER: theirs(batch)}, precision)
        steps[precision, OURS], steps[precision, EAGER] = ours, theirs
    with FlopCounterMode(display=False) as counter:
        torch_step("float32")(batch)
    products = counter.get_total_flops()
    rates = {
        precision: large_product(precision, config.product_size) for precision in config.precisions
    }
    steps[DATA] = perturbing(config.batch_size)
    contestants = {name: lambda f=f: f(batch) for name, f in steps.items()} | rates
    seconds = alternate(
        {name: lambda f=f: timed(f, config.steps) for name, f in contestants.items()},
        config.rounds,
    )
    rate = {p: 2 * config.product_size**3 / np.median(seconds[p]) for p in rates}
    rows = [row(seconds, name, products, rate[name[0]]) for name in steps]
    title = "Cost of one training step of the book's relational classifier"
    Report(
        "mnist_step", title, COLUMNS, rows, own_notes(products) + notes(rate), vars(config)
    ).write()


def make_batch(size):
    """Perturbed noise of the size of digits, and labels: what is in them costs nothing."""
    rng = np.random.default_rng(0)
    return rng.random((size, 28, 28, 1), np.float32), rng.integers(0, 10, size)


def our_step(precision):
    """A step of `fit`, as a function of the batch that returns the loss."""
    config = train_mnist.PRESETS["book"]
    model = train_mnist.make_model(dataclasses.replace(config, dtype=PRECISIONS[precision]))
    deep_rl_in_action(model, initial_network().state_dict())
    return lambda batch: float(model.train_on_batch(*batch)[0])


def torch_step(precision):
    """The same step in PyTorch."""
    network = initial_network()
    optimizer = torch.optim.Adam(network.parameters(), train_mnist.BOOK.learning_rate)

    def step(batch):
        images, labels = batch
        x = torch.from_numpy(images).permute(0, 3, 1, 2)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            logits = network(x)
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels))
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def initial_network():
    """The network whose weights both sides begin with."""
    torch.manual_seed(0)
    return BookClassifier()


def perturbing(size):
    """What `tf.data` does for a batch, as a function like a step."""
    images = np.random.default_rng(0).integers(0, 256, (size, 28, 28), np.uint8)
    perturb = tf.function(Perturbation())
    images, seed = tf.constant(images), tf.constant([0, 0])
    return lambda batch: perturb(images, seed).numpy()


def row(seconds, name, products, rate):
    """A line of the table."""
    precision, who = name
    values = (
        precision,
        who,
        *milliseconds(seconds[name]),
        None if name == DATA else f"{products / np.median(seconds[name]) / rate:.0%}",
        *ratios(seconds, name, ((precision, EAGER), ("float32", EAGER))),
    )
    return dict(zip(COLUMNS, values))


def own_notes(products):
    """What the table leaves out."""
    return (
        "CPU time of a step, one thread; the last two columns are ratios of medians.",
        f"Convolutions and matrix products of a step: {products / 1e9:.1f} GFLOP.",
    )


if __name__ == "__main__":
    command_line.run(main, Config)
