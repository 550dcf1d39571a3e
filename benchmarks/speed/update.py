"""Measure an update of our double DQN and the same computation in PyTorch.

An update starts with a batch of raw observations as a tensor and ends with the loss and the
temporal-difference errors in NumPy. It consists of preprocessing, three forward passes (online and
target network at t + n, online network at t), the gradient, clipping by its global norm, Adam, and
the update of the target network. Our implementation is `DoubleDQN.update` with the presets `book`
and `fast` of `train_scripts.train_doorkey` and with that of Box-World, without and with XLA. The
other is `benchmarks.pytorch.double_dqn`, eager and with `torch.compile`.

All of these compute every cell. Another row measures our implementation with `max_entities`, which
leaves out the cells that nothing attends to. The presets `quick` and `box-world` train in this way.
The values do not change.
"""

import dataclasses
import functools
from typing import Literal

import tensorflow as tf
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.pytorch import comparison
from benchmarks.pytorch.comparison import (
    COMPILED,
    EAGER,
    OURS,
    OURS_VISIBLE,
    OURS_XLA,
    PRECISIONS,
)
from benchmarks.pytorch.double_dqn import PREPROCESSORS, TorchDoubleDQN
from benchmarks.pytorch.networks import NETWORKS, copy_weights
from benchmarks.untrained import double_dqn
from rrl_tf.agents import make_loop
from rrl_tf.envs.minigrid_view import most_in_sight
from train_scripts import train_box_world, train_doorkey

PRESETS = {
    "book": train_doorkey.PRESETS["book"],
    "fast": train_doorkey.PRESETS["fast"],
    # Adam, because Muon, the preset's optimiser, differs between the libraries. The environment in
    # Python suffices to collect transitions.
    "box-world": dataclasses.replace(
        train_box_world.PRESETS["box-world"],
        optimizer="adam",
        loop="python",
        learning_starts=0,
        replay_capacity=9000,
    ),
}
VISIBLE = {
    "fast": most_in_sight(5),
    "box-world": train_box_world.max_entities(PRESETS["box-world"]),
}
"""Largest number of cells that anything attends to, for presets where this is not every cell."""


@dataclasses.dataclass(frozen=True)
class Config(comparison.Config):
    """Select the networks and the implementations, and set the number of measurements."""

    presets: tuple[Literal["book", "fast", "box-world"], ...] = ("book", "fast", "box-world")
    """Presets of `train_scripts.train_doorkey` and `train_scripts.train_box_world`."""
    compiled: bool = True
    """Also compare with `torch.compile`, whose compilation takes most of the time."""
    rounds: int = 25
    calls: int = 4


def main(config):
    """Measure the CPU time of one double DQN update."""
    updates, flops = {}, {}
    for preset in config.presets:
        flops[preset] = add_updates(updates, preset, config)
    counts = ", ".join(f"{name} {value / 1e9:.2f}" for name, value in flops.items())
    return comparison.compare(
        config,
        "Cost of one update",
        updates,
        {name: flops[name[0]] for name in updates if name[-1] != OURS_VISIBLE},
        lambda seconds: (
            "CPU time of an update, one thread; the last three columns are ratios of medians.",
            f"Matrix products of an update, in GFLOP: {counts}.",
        ),
    )


def add_updates(updates, preset, config):
    """Add the updates of a preset to `updates`, by (preset, precision, implementation).

    Returns:
        Floating-point operations of the matrix products of one update.

    Raises:
        ValueError: if the implementations compute different losses.
    """
    training = PRESETS[preset]
    batch = gather_batch(training)
    for precision in config.precisions:
        agents = {OURS: our_agent(training, precision, jit_compile=False)}
        weights = {w.path: w.numpy() for w in agents[OURS].network.weights}
        agents[OURS_XLA] = our_agent(training, precision, jit_compile=True)
        if preset in VISIBLE:
            agents[OURS_VISIBLE] = our_agent(training, precision, False, VISIBLE[preset])
        for agent in agents.values():
            agent.set_state(agents[OURS].get_state())
        added = {
            implementation: our_update(agent, batch) for implementation, agent in agents.items()
        }
        theirs = {EAGER: False, COMPILED: True} if config.compiled else {EAGER: False}
        for implementation, compiled in theirs.items():
            agent = torch_agent(training, precision, weights, compiled)
            added[implementation] = functools.partial(agent.update, batch)
        losses = {implementation: update()[0]["loss"] for implementation, update in added.items()}
        comparison.check_equal(losses, precision)
        updates |= {
            (preset, precision, implementation): update for implementation, update in added.items()
        }
    return count_flops(torch_agent(training, "float32", weights), batch)


def our_update(agent, batch):
    """Return a function that updates our agent and returns the same as the update in PyTorch."""
    tensors = {name: tf.constant(array) for name, array in batch.items()}

    def update():
        metrics, error = agent.update(tensors)
        return {name: float(value) for name, value in metrics.items()}, error.numpy()

    return update


def gather_batch(training):
    """Return a batch of real transitions, a dict of NumPy arrays."""
    acting = dataclasses.replace(training, learning_starts=training.replay_capacity // 2)
    task, agent = double_dqn(acting)
    loop = make_loop(task, agent.network, acting)
    for _ in loop.run(max(1000, 2 * training.batch_size)):
        pass
    batch, _ = loop.replay.sample(training.batch_size, (0, 0))
    return {name: tensor.numpy() for name, tensor in batch.items()}


def our_agent(training, precision, jit_compile, max_entities=None):
    """Return the agent of a preset with the given precision and at most `max_entities` cells."""
    training = dataclasses.replace(training, dtype=PRECISIONS[precision], jit_compile=jit_compile)
    return double_dqn(training, max_entities=max_entities)[1]


def torch_agent(training, precision, weights, compiled=False):
    """Return the same agent in PyTorch, with the same weights."""
    network = NETWORKS[training.preset](num_actions=4 if training.preset == "box-world" else 5)
    copy_weights(network, weights)
    return TorchDoubleDQN(
        network,
        PREPROCESSORS[training.preset],
        learning_rate=training.learning_rate,
        clip_norm=training.clip_norm,
        loss=training.loss,
        target_period=training.target_period,
        target_rate=training.target_rate,
        bfloat16=precision == "bfloat16",
        compiled=compiled,
    )


def count_flops(agent, batch):
    """Count the floating-point operations of the matrix products in an update.

    The fused attention is replaced by separate products, because the counter cannot look inside it.
    """
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        agent.update(batch)
    return counter.get_total_flops()
