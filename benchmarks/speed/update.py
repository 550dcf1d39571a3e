"""The cost of one double DQN update: ours against the same computation in PyTorch.

Both sides do one training step, from a batch of raw observations in NumPy to the loss and the
temporal-difference errors in NumPy: preprocess the observations, three forward passes (online and
target network at t + n, online network at t), the gradient, clipping by its global norm, Adam, the
target network. Ours is `DoubleDQN.update` with the presets `book` and `fast` of
`train_scripts.train_doorkey` and with that of Box-World, without and with XLA. Theirs is
`benchmarks.pytorch.double_dqn`, eager and with `torch.compile`.

All of these compute every cell. One more row is ours without the cells that nothing attends to,
by `max_entities`, which is how `--preset quick` and Box-World's agent train: no value changes.
"""

import dataclasses
from typing import Literal

import numpy as np
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
from rrl_tf.agents.loops import make_loop
from rrl_tf.envs.minigrid_view import most_in_sight
from train_scripts import train_box_world, train_doorkey

PRESETS = {
    "book": train_doorkey.PRESETS["book"],
    "fast": train_doorkey.PRESETS["fast"],
    # Muon, its own optimiser, differs between the libraries; experience is gathered in Python.
    "box-world": train_box_world.Config(
        optimizer="adam", loop="python", learning_starts=0, replay_capacity=9000
    ),
}
VISIBLE = {
    "fast": most_in_sight(5),
    "box-world": train_box_world.max_entities(PRESETS["box-world"]),
}
"""Largest number of cells that anything attends to, where not all."""


@dataclasses.dataclass(frozen=True)
class Config(comparison.Config):
    """What is compared, and how long is measured."""

    presets: tuple[Literal["book", "fast", "box-world"], ...] = ("book", "fast", "box-world")
    """Presets of `train_scripts.train_doorkey` and `train_scripts.train_box_world`."""
    compiled: bool = True
    """Also compare with `torch.compile`, whose compilation takes most of the time."""
    rounds: int = 25
    calls: int = 4


def main(config):
    """Measure the CPU time of one double DQN update."""
    sides, flops = {}, {}
    for preset in config.presets:
        flops[preset] = add_sides(sides, preset, config)
    counts = ", ".join(f"{name} {value / 1e9:.2f}" for name, value in flops.items())
    return comparison.compare(
        config,
        "Cost of one update",
        sides,
        {name: flops[name[0]] for name in sides if name[-1] != OURS_VISIBLE},
        lambda seconds: (
            "CPU time of an update, one thread; the last three columns are ratios of medians.",
            f"Matrix products of an update, in GFLOP: {counts}.",
        ),
    )


def add_sides(sides, preset, config):
    """Add `(preset, precision, side) → function` for all sides that update a preset's network.

    Returns:
        Floating-point operations of the matrix products of one update.

    Raises:
        ValueError: if the sides compute different losses.
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
        agents[EAGER] = torch_agent(training, precision, weights)
        if config.compiled:
            agents[COMPILED] = torch_agent(training, precision, weights, compiled=True)
        losses = {side: agent.update(batch)[0]["loss"] for side, agent in agents.items()}
        comparison.check_equal(losses, precision)
        for side, agent in agents.items():
            sides[preset, precision, side] = lambda agent=agent: agent.update(batch)
    return count_flops(torch_agent(training, "float32", weights), batch)


def gather_batch(training):
    """Return a batch of real transitions."""
    acting = dataclasses.replace(training, learning_starts=training.replay_capacity - 1)
    task, agent = double_dqn(acting)
    loop = make_loop(task, agent.network, acting)
    for _ in loop.run(max(1000, 2 * training.batch_size)):
        pass
    return loop.replay.sample(training.batch_size, np.random.default_rng(0))


def our_agent(training, precision, jit_compile, max_entities=None):
    """Return the agent of a preset in some precision, with at most `max_entities` cells."""
    training = dataclasses.replace(training, dtype=PRECISIONS[precision], jit_compile=jit_compile)
    return double_dqn(training, max_entities=max_entities)[1]


def torch_agent(training, precision, weights, compiled=False):
    """Return the same agent in PyTorch, with the weights of ours."""
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

    The counter does not see inside the fused attention, which is replaced for it.
    """
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        agent.update(batch)
    return counter.get_total_flops()
