"""The cost of one double DQN update: ours against the same computation in PyTorch.

Both sides do what one training step does, from a batch of raw observations in NumPy to the loss and
the temporal-difference errors in NumPy: prepare the observations, three forward passes (online and
target network at t + n, online network at t), the gradient, clipping by its global norm, Adam, the
target network. Ours is `DoubleDQN.update` of `train_scripts.train_doorkey`'s presets, without and
with XLA. Theirs is `benchmarks.pytorch.double_dqn`, eager and with `torch.compile`.
"""

import dataclasses
from typing import Literal

import numpy as np
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import untrained
from benchmarks.pytorch import comparison
from benchmarks.pytorch.comparison import COMPILED, EAGER, OURS, OURS_XLA, PRECISIONS
from benchmarks.pytorch.double_dqn import PREPARATIONS, TorchDoubleDQN
from benchmarks.pytorch.networks import NETWORKS, copy_weights
from rrl_tf.training.loops import make_loop
from train_scripts import train_doorkey


@dataclasses.dataclass(frozen=True)
class Config(comparison.Config):
    """What is compared, and how long."""

    presets: tuple[Literal["book", "fast"], ...] = ("book", "fast")
    """Presets of `train_scripts.train_doorkey`."""
    compiled: bool = True
    """Compare with `torch.compile` too; its compilation is most of the time this takes."""
    rounds: int = 25
    calls: int = 4


def main(config):
    """Measures the CPU time of one double DQN update, ours and PyTorch's."""
    updates, products = {}, {}
    for preset in config.presets:
        products[preset] = add_contestants(updates, preset, config)
    counts = ", ".join(f"{name} {value / 1e9:.2f}" for name, value in products.items())
    return comparison.compare(
        config,
        "Cost of one update",
        ("network", "precision", "update"),
        updates,
        {name: products[name[0]] for name in updates},
        lambda seconds: (
            "CPU time of an update, one thread; the last three columns are ratios of medians.",
            f"Matrix products of an update, in GFLOP: {counts}.",
        ),
    )


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
        comparison.check_equal(
            {who: first_loss(agent, batch) for who, agent in agents.items()}, precision
        )
        for who, agent in agents.items():
            updates[preset, precision, who] = lambda agent=agent: agent.update(batch)
    return count_products(torch_agent(training, "float32", weights), batch)


def gather_batch(training):
    """A batch of real transitions."""
    task = train_doorkey.make_task(training)
    network = train_doorkey.make_network(training, task)
    never = dataclasses.replace(training, learning_starts=training.replay_capacity - 1)
    loop = make_loop(task, network, never)
    for _ in loop.run(1000):
        pass
    return loop.replay.sample(training.batch_size, np.random.default_rng(0))


def our_agent(training, precision, jit_compile):
    """The agent that a training preset makes, in some precision."""
    training = dataclasses.replace(training, dtype=PRECISIONS[precision], jit_compile=jit_compile)
    return untrained.double_dqn(training)[1]


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
