"""The cost of one double DQN update: ours against the same computation in PyTorch.

Both sides do what one training step does, from a batch of raw observations in NumPy to the loss and
the temporal-difference errors in NumPy: prepare the observations, three forward passes (online and
target network at t + n, online network at t), the gradient, clipping by its global norm, Adam, the
target network. Ours is `DoubleDQN.update` of the presets of `train_scripts.train_doorkey`, `book`
and `fast`, and of Box-World's, without and with XLA. Theirs is `benchmarks.pytorch.double_dqn`,
eager and with `torch.compile`, as one would write it there.

All of these compute every cell. A line more is of ours without those that nothing attends to, by
`max_entities`, as `--preset quick` and Box-World's agent are trained: no value changes.
"""

import dataclasses

import numpy as np
from rrl_tf.agents.loops import make_loop
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import untrained
from benchmarks.pytorch import comparison
from benchmarks.pytorch.comparison import (
    COMPILED,
    EAGER,
    OURS,
    OURS_FEWER,
    OURS_XLA,
    PRECISIONS,
)
from benchmarks.pytorch.double_dqn import PREPROCESSORS, TorchDoubleDQN
from benchmarks.pytorch.networks import NETWORKS, copy_weights
from benchmarks.runs import any_of
from rrl_tf.envs.minigrid_view import most_in_sight
from train_scripts import train_box_world, train_doorkey

PRESETS = {
    "book": train_doorkey.PRESETS["book"],
    "fast": train_doorkey.PRESETS["fast"],
    # Its own optimiser, Muon, is not the same in both libraries; experience is gathered in Python.
    "box-world": train_box_world.Config(
        optimizer="adam", loop="python", learning_starts=0, replay_capacity=9000
    ),
}
MOST_ATTENDED = {
    "fast": most_in_sight(5),
    "box-world": train_box_world.max_entities(PRESETS["box-world"]),
}
"""The most cells that anything attends to, where these are not all."""


@dataclasses.dataclass(frozen=True)
class Config(comparison.Config):
    """What is compared, and how long."""

    presets: any_of(PRESETS) = tuple(PRESETS)
    """Presets of `train_scripts.train_doorkey` and `train_scripts.train_box_world`."""
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
        {name: products[name[0]] for name in updates if name[-1] != OURS_FEWER},
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
    training = PRESETS[preset]
    batch = gather_batch(training)
    for precision in config.precisions:
        agents = {OURS: our_agent(training, precision, jit_compile=False)}
        weights = {w.path: w.numpy() for w in agents[OURS].network.weights}
        agents[OURS_XLA] = our_agent(training, precision, jit_compile=True)
        if preset in MOST_ATTENDED:
            fewer = MOST_ATTENDED[preset]
            agents[OURS_FEWER] = our_agent(training, precision, False, max_entities=fewer)
        for agent in agents.values():
            agent.set_state(agents[OURS].get_state())
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
    never = dataclasses.replace(training, learning_starts=training.replay_capacity - 1)
    task, agent = untrained.double_dqn(never)
    loop = make_loop(task, agent.network, never)
    for _ in loop.run(max(1000, 2 * training.batch_size)):
        pass
    return loop.replay.sample(training.batch_size, np.random.default_rng(0))


def our_agent(training, precision, jit_compile, max_entities=None):
    """The agent that a training preset makes, of so many cells or of all, in some precision."""
    training = dataclasses.replace(training, dtype=PRECISIONS[precision], jit_compile=jit_compile)
    return untrained.double_dqn(training, max_entities=max_entities)[1]


def torch_agent(training, precision, weights, compiled=False):
    """The same agent in PyTorch, beginning with `weights`."""
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
