"""The cost of one double DQN update: ours against the same computation in PyTorch.

    python -m benchmarks.update              # two to three minutes, most of them compiling
    python -m benchmarks.update --no-compiled --presets fast

Both sides do what one training step does, from a batch of raw observations in NumPy to the loss and
the temporal-difference errors in NumPy: prepare the observations, three forward passes (online and
target network at t + n, online network at t), the gradient, clipping by its global norm, Adam, the
target network. Ours is `DoubleDQN.update` of `train_scripts.train_doorkey`'s presets, without and
with XLA. Theirs is `benchmarks.torch_double_dqn`, eager and with `torch.compile`. They begin with
the same weights, and the first loss must be the same.

How it's measured: one process, one thread on either side, CPU time of all threads, contestants
taking turns; the table holds medians. Matrix products in an update are counted by PyTorch's
`FlopCounterMode`; the share of the matrix-product rate is that count, divided by the time, divided
by the rate of a large product in TensorFlow of the same precision, which takes turns with the rest.
"""

import dataclasses
from typing import Literal

import numpy as np
import tensorflow as tf
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
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
from benchmarks.torch_double_dqn import PREPARATIONS, TorchDoubleDQN
from benchmarks.torch_networks import NETWORKS, copy_weights
from train_scripts import command_line, train_doorkey

OURS, OURS_XLA = "ours", "ours, XLA"
EAGER, COMPILED = "PyTorch eager", "PyTorch compiled"
COLUMNS = (
    "network",
    "precision",
    "update",
    "ms",
    "10 to 90 %",
    "share of the product rate",
    "of PyTorch eager",
    "of PyTorch compiled",
    "of PyTorch eager in float32",
)


@dataclasses.dataclass(frozen=True)
class Config:
    """What is compared, and how long."""

    presets: tuple[Literal["book", "fast"], ...] = ("book", "fast")
    """Presets of `train_scripts.train_doorkey`."""
    precisions: tuple[Literal["float32", "bfloat16"], ...] = ("float32", "bfloat16")
    """float32, and bfloat16 with float32 weights."""
    compiled: bool = True
    """Compare with `torch.compile` too; its compilation is most of the time this takes."""
    rounds: int = 25
    """Turns of each contestant."""
    updates: int = 4
    """Updates measured in a turn, after one that isn't."""
    product_size: int = 1024
    """Rows and columns of the large matrix product."""


def main(config):
    """Measures the CPU time of one double DQN update, ours and PyTorch's."""
    use_one_thread()
    torch.set_num_threads(1)
    tf.get_logger().setLevel("ERROR")  # it warns that one function is traced for several agents
    updates = {}
    products = {}
    for preset in config.presets:
        products[preset] = add_contestants(updates, preset, config)
    rates = {
        precision: large_product(precision, config.product_size) for precision in config.precisions
    }
    contestants = {**updates, **rates}
    seconds = alternate(
        {name: lambda f=f: timed(f, config.updates) for name, f in contestants.items()},
        config.rounds,
    )
    rate = {p: 2 * config.product_size**3 / np.median(seconds[p]) for p in rates}
    rows = [row(seconds, name, products[name[0]], rate[name[1]]) for name in updates]
    Report(
        "update",
        "Cost of one update",
        COLUMNS,
        rows,
        own_notes(products) + notes(rate),
        vars(config),
    ).write()


def add_contestants(updates, preset, config):
    """Adds `(preset, precision, who) → function` for all that update a preset's network.

    Returns:
        Floating-point operations of the matrix products of one update.

    Raises:
        ValueError: if ours and PyTorch's compute something else.
    """
    training = train_doorkey.PRESETS[preset]
    batch = gather_batch(training)
    for precision in config.precisions:
        agents = {OURS: our_agent(training, precision, jit_compile=False)}
        weights = {w.path: w.numpy() for w in agents[OURS].network.weights}
        agents[OURS_XLA] = our_agent(training, precision, jit_compile=True)
        agents[OURS_XLA].set_state(agents[OURS].get_state())
        agents[EAGER] = torch_agent(training, precision, weights)
        if config.compiled:
            agents[COMPILED] = torch_agent(training, precision, weights, compiled=True)
        check_equal({who: first_loss(agent, batch) for who, agent in agents.items()}, precision)
        for who, agent in agents.items():
            updates[preset, precision, who] = lambda agent=agent: agent.update(batch)
    return count_products(torch_agent(training, "float32", weights), batch)


def gather_batch(training):
    """A batch of real transitions."""
    loop = train_doorkey.make_loop(dataclasses.replace(training, learning_starts=1_000_000))
    for _ in loop.run(1000):
        pass
    return loop.replay.sample(training.batch_size, np.random.default_rng(0))


def our_agent(training, precision, jit_compile):
    """The agent that a training preset makes, in some precision."""
    env = train_doorkey.make_env(training)
    training = dataclasses.replace(training, dtype=PRECISIONS[precision], jit_compile=jit_compile)
    return train_doorkey.make_agent(training, env.observation_space, env.action_space)


def torch_agent(training, precision, weights, compiled=False):
    """The same agent in PyTorch, beginning with `weights`."""
    network = NETWORKS[training.network](num_actions=5)
    copy_weights(network, weights)
    return TorchDoubleDQN(
        network,
        PREPARATIONS[training.preparation],
        learning_rate=training.learning_rate,
        clip_norm=training.clip_norm,
        loss=training.loss,
        target_period=training.target_period,
        target_rate=training.target_rate,
        bfloat16=precision == "bfloat16",
        compiled=compiled,
    )


def first_loss(agent, batch):
    """The loss of an agent's first update."""
    metrics, _ = agent.update(batch)
    return metrics["loss"]


def count_products(agent, batch):
    """Floating-point operations of the matrix products in an update.

    The fused attention is taken apart for it, as the counter does not look inside.
    """
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        agent.update(batch)
    return counter.get_total_flops()


def row(seconds, name, products, rate):
    """A line of the table."""
    preset, precision, who = name
    eager, compiled = (preset, precision, EAGER), (preset, precision, COMPILED)
    values = (
        preset,
        precision,
        who,
        *milliseconds(seconds[name]),
        f"{products / np.median(seconds[name]) / rate:.0%}",
        *ratios(seconds, name, (eager, compiled, (preset, "float32", EAGER))),
    )
    return dict(zip(COLUMNS, values))


def own_notes(products):
    """What the table leaves out."""
    counts = ", ".join(f"{name} {value / 1e9:.2f}" for name, value in products.items())
    return (
        "CPU time of an update, one thread; the last three columns are ratios of medians.",
        f"Matrix products of an update, in GFLOP: {counts}.",
    )


if __name__ == "__main__":
    command_line.run(main, Config)
