"""Measure an update of our recurrent double DQN and of PyTorch's, and a step of a policy.

Both implementations process the same sequences of DoorKey: the target network over all steps, the
burn-in without a gradient, the unrolled steps with a gradient, and the bootstrap steps without one.
Clipping, Adam and the update of the target network follow. Ours is `RecurrentDoubleDQN` of
`train_scripts.train_recurrent --preset doorkey-6x6`, from tensors to tensors as inside its training
loop. The other is `benchmarks.pytorch.recurrent_double_dqn` in eager PyTorch.

Both compute every cell. Another row measures our implementation with `--bound-entities`, as the
preset sets it, which leaves out the cells that nothing attends to. The values do not change.
"""

import dataclasses
import tempfile

import numpy as np

from benchmarks.measure import median
from benchmarks.pytorch import comparison
from benchmarks.pytorch.comparison import EAGER, OURS, OURS_VISIBLE
from benchmarks.pytorch.networks import copy_weights
from benchmarks.pytorch.recurrent_double_dqn import RelationalLSTM, TorchRecurrentDoubleDQN
from rrl_tf.agents import make_loop as make_training_loop
from rrl_tf.export import export_recurrent_policy, load_policy
from serving.sessions import MemorySession
from train_scripts import train_recurrent

PRESET = "doorkey-6x6"
PRECISION = "float32"


@dataclasses.dataclass(frozen=True)
class Config(comparison.Config):
    """Select our networks, and set the number of measurements."""

    precisions: tuple[str, ...] = (PRECISION,)
    networks: tuple[str, ...] = ("lstm", "relational-memory", "relational-memory-entities")
    """Our networks. In PyTorch there is only the LSTM."""
    rounds: int = 15
    calls: int = 4


def main(config):
    """Measure the CPU time of one recurrent update, and of a served step."""
    updates, served = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for name in config.networks:
            loop = started_loop(name)
            sequence, _ = loop.replay.sample(loop.batch_size, (0, 0))
            updates[name, PRECISION, OURS] = our_update(loop.agent, sequence)
            if name == "lstm":
                add_updates(updates, name, loop.agent, sequence)
            served[name] = served_step(f"{folder}/{name}", loop)
        return comparison.compare(
            config, "Cost of one recurrent update", updates, {}, notes, baselines=(EAGER,), **served
        )


def add_updates(updates, name, agent, sequence):
    """Add two updates to `updates`: ours with the visible cells only, and PyTorch's.

    Raises:
        ValueError: if the implementations compute different losses.
    """
    visible = make_loop(name, bound_entities=True).agent
    visible.set_state(agent.get_state())
    added = {
        OURS: updates[name, PRECISION, OURS],
        OURS_VISIBLE: our_update(visible, sequence),
        EAGER: torch_update(agent, sequence),
    }
    comparison.check_equal(
        {implementation: update() for implementation, update in added.items()}, PRECISION
    )
    updates |= {
        (name, PRECISION, implementation): update for implementation, update in added.items()
    }


def notes(seconds):
    """Return the notes that are printed below the table."""
    networks = [name for name in seconds if isinstance(name, str) and name not in (PRECISION,)]
    served = (f"{name} {1e3 * median(seconds[name]):.2f} ms" for name in networks)
    training = train_recurrent.PRESETS[PRESET]
    steps = f"{training.burn_in} + {training.unroll_length} + {training.n_step}"
    return (
        f"CPU time of an update of {training.batch_size} sequences of {steps} steps, one thread; "
        "the last columns are ratios of medians. Target: at most 0.6 of PyTorch eager.",
        "A step with its memory, of one environment, by `MemorySession` in the process: "
        f"{', '.join(served)}. Target: at most 0.5 ms.",
    )


def started_loop(network):
    """Return a training loop whose replay holds some sequences."""
    loop = make_loop(network, learning_starts=20_000, log_every=4000)
    for _ in loop.run(4000):
        pass
    return loop


def make_loop(network, bound_entities=False, **changes):
    """Return the training loop of the preset, which computes every cell, with changed options."""
    changes |= {"network": network, "bound_entities": bound_entities}
    config = dataclasses.replace(train_recurrent.PRESETS[PRESET], **changes)
    task = train_recurrent.make_task(config)
    return make_training_loop(task, train_recurrent.make_network(config, task), config)


def our_update(agent, sequence):
    """Return a function that updates the agent and returns the loss."""

    def update():
        metrics, priority = agent.update(sequence)
        priority.numpy()
        return float(metrics["loss"])

    return update


def torch_update(agent, sequence):
    """Return a function that updates the same agent in PyTorch and returns the loss."""
    network, config = RelationalLSTM(agent.network.num_actions), train_recurrent.PRESETS[PRESET]
    copy_weights(network, torch_weights(agent.network))
    theirs = TorchRecurrentDoubleDQN(
        network,
        **{
            name: getattr(agent, name)
            for name in ("burn_in", "n_step", "discount", "priority_max_weight")
        },
        **{name: getattr(config, name) for name in ("learning_rate", "clip_norm", "target_rate")},
    )
    arrays = {key: value.numpy() for key, value in sequence.items()}
    return lambda: theirs.update(arrays)[0]["loss"]


def torch_weights(network):
    """Return the network's weights under the names that `copy_weights` accepts."""
    weights = {}
    for weight in network.weights:
        path = weight.path.replace("/encoder/", "/")
        path = path.replace("core/input_projection/kernel", "core/weight_ih")
        path = path.replace("core/input_projection/bias", "core/bias_ih")
        path = path.replace("core/recurrent_projection/kernel", "core/weight_hh")
        array = weight.numpy()
        weights[path] = array.T if "weight_" in path else array
    bias = next(array for path, array in weights.items() if path.endswith("core/bias_ih"))
    return {**weights, "network/core/bias_hh": np.zeros_like(bias)}


def served_step(folder, loop):
    """Return a function that gets one action of an exported policy in this process."""
    shape = loop.replay.sample(1, (0, 0))[0]["observation_t"].shape[2:]
    export_recurrent_policy(folder, loop.agent.policy, loop.agent.preprocess, shape, "uint8")
    session = MemorySession(load_policy(folder))
    observation = np.zeros(shape, "uint8")
    return lambda: session.act(observation)
