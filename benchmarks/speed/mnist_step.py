"""The cost of one training step of the book's relational classifier: ours against PyTorch.

Both sides do what one step of the book's protocol does, from 300 perturbed digits in NumPy to the
loss as a number: forward, gradient, Adam. Ours is what `fit` runs for
`train_scripts.train_mnist --preset book`; theirs is `benchmarks.pytorch.networks.BookClassifier`,
eager, images with the channels first.
"""

import dataclasses
import functools

import numpy as np
import tensorflow as tf
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.pytorch import comparison
from benchmarks.pytorch.comparison import EAGER, OURS, PRECISIONS
from benchmarks.pytorch.networks import BookClassifier
from rrl_tf.convert import deep_rl_in_action
from rrl_tf.data.perturb import Perturbation
from train_scripts import train_mnist

DATA = "float32", "perturbing the batch (`tf.data`)"


@dataclasses.dataclass(frozen=True)
class Config(comparison.Config):
    """What is compared, and how long."""

    batch_size: int = 300


def main(config):
    """Measures the CPU time of one training step, ours and PyTorch's."""
    batch = make_batch(config.batch_size)
    steps = {}
    for precision in config.precisions:
        ours, theirs = our_step(precision), torch_step(precision)
        comparison.check_equal({OURS: ours(batch), EAGER: theirs(batch)}, precision)
        steps[precision, OURS], steps[precision, EAGER] = ours, theirs
    with FlopCounterMode(display=False) as counter:
        torch_step("float32")(batch)
    products = counter.get_total_flops()
    return comparison.compare(
        config,
        "Cost of one training step of the book's relational classifier",
        ("precision", "step"),
        {n: functools.partial(f, batch) for n, f in steps.items()} | {DATA: perturbing(config)},
        dict.fromkeys(steps, products),
        lambda seconds: (
            "CPU time of a step, one thread; the last two columns are ratios of medians.",
            f"Convolutions and matrix products of a step: {products / 1e9:.1f} GFLOP.",
        ),
        versus=(EAGER,),
    )


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


def perturbing(config):
    """What `tf.data` does for a batch, as a function."""
    images = np.random.default_rng(0).integers(0, 256, (config.batch_size, 28, 28), np.uint8)
    perturb = tf.function(Perturbation())
    images, seed = tf.constant(images), tf.constant([0, 0])
    return lambda: perturb(images, seed).numpy()
