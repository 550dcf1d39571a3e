"""The cost of one recurrent double DQN update, ours against PyTorch's, and of a step with memory.

Both sides go through the same sequences of DoorKey: target network over all steps, burn-in without
a gradient, the learned steps with one, the bootstrap steps without; clipping, Adam, the target
network's step. Ours is `RecurrentDoubleDQN` of `train_scripts.train_recurrent --preset
doorkey-6x6`, from tensors to tensors as inside its training loop; theirs is
`benchmarks.pytorch.recurrent_double_dqn`, eager.

Both compute every cell. A line more is of ours with `--bound-entities`: without those that nothing
attends to, by which no value changes.
"""

import dataclasses
import tempfile

import numpy as np
import tensorflow as tf
import torch

from benchmarks.measure import median, use_one_thread
from benchmarks.pytorch import comparison
from benchmarks.pytorch.comparison import EAGER, OURS, OURS_FEWER
from benchmarks.pytorch.networks import copy_weights
from benchmarks.pytorch.recurrent_double_dqn import RelationalLSTM, TorchRecurrentDoubleDQN
from rrl_tf.agents.loops import make_recurrent_loop
from rrl_tf.export import export_recurrent_policy, load_policy
from serving.sessions import MemorySession
from train_scripts import train_recurrent

PRESET = "doorkey-6x6"
SERVED = "a served step, in process"


@dataclasses.dataclass(frozen=True)
class Config(comparison.Config):
    """What is compared, and how long."""

    precisions: tuple[str, ...] = ("float32",)
    networks: tuple[str, ...] = ("lstm", "relational-memory", "relational-memory-entities")
    """Ours; PyTorch's is the LSTM."""
    rounds: int = 15
    calls: int = 4


def main(config):
    """Measures the CPU time of one recurrent update, and the time of a step with memory."""
    use_one_thread()
    torch.set_num_threads(1)
    updates, acts = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for name in config.networks:
            loop = begun_loop(name)
            (sequence,), _ = loop.replay.sample(loop.batch_size, (0, 0))
            updates[name, "float32", OURS] = our_update(loop.agent, sequence)
            if name == "lstm":
                add_contestants(updates, name, loop.agent, sequence)
            acts[f"{SERVED}: {name}"] = served_step(f"{folder}/{name}", loop)
        return comparison.compare(
            config,
            "Cost of one recurrent update",
            ("network", "precision", "update"),
            updates,
            {},
            notes,
            versus=(EAGER,),
            **acts,
        )


def add_contestants(updates, name, agent, sequence):
    """Adds the same update by fewer cells, and in PyTorch.

    Raises:
        ValueError: if one of them computes something else.
    """
    fewer = make_loop(name, bound_entities=True).agent
    fewer.set_state(agent.get_state())
    updates[name, "float32", OURS_FEWER] = our_update(fewer, sequence)
    updates[name, "float32", EAGER] = torch_update(agent, sequence)
    losses = {who: updates[name, "float32", who]() for who in (OURS, OURS_FEWER, EAGER)}
    comparison.check_equal(losses, "float32")


def notes(seconds):
    """What the table does not hold."""
    served = (
        f"{name.removeprefix(SERVED + ': ')} {1e3 * median(seconds[name]):.2f} ms"
        for name in seconds
        if isinstance(name, str) and name.startswith(SERVED)
    )
    training = train_recurrent.PRESETS[PRESET]
    steps = f"{training.burn_in} + {training.learned_steps} + {training.n_step}"
    return (
        f"CPU time of an update of {training.batch_size} sequences of {steps} steps, one thread; "
        "the last columns are ratios of medians. Aim: at most 0.6 of PyTorch eager.",
        f"A step with its memory, of one environment, by `MemorySession` in the process: "
        f"{', '.join(served)}. Aim: at most 0.5 ms.",
    )


def begun_loop(network):
    """A training loop whose replay holds some play."""
    loop = make_loop(network, learning_starts=20_000, log_every=4000)
    for _ in loop.run(4000):
        pass
    return loop


def make_loop(network, **changes):
    """The training loop of the preset, with changes."""
    config = dataclasses.replace(train_recurrent.PRESETS[PRESET], network=network, **changes)
    task = train_recurrent.make_task(config)
    return make_recurrent_loop(task, train_recurrent.make_network(config, task), config)


def our_update(agent, sequence):
    """A function that updates the agent, and returns the loss."""

    def update():
        metrics, priority = agent.update_in_graph(sequence)
        priority.numpy()
        return float(metrics["loss"])

    return update


def torch_update(agent, sequence):
    """A function that updates the same agent in PyTorch, and returns the loss."""
    theirs = torch_agent(agent)
    arrays = {key: value.numpy() for key, value in sequence.items()}
    return lambda: theirs.update(arrays)[0]


def torch_agent(agent):
    """The same agent in PyTorch."""
    network = RelationalLSTM(agent.network.num_actions)
    copy_weights(network, torch_weights(agent.network))
    numbers = ("burn_in", "n_step", "discount", "max_share")
    learning = train_recurrent.PRESETS[PRESET]
    return TorchRecurrentDoubleDQN(
        network,
        **{name: getattr(agent, name) for name in numbers},
        **{name: getattr(learning, name) for name in ("learning_rate", "clip_norm", "target_rate")},
    )


def torch_weights(network):
    """The network's weights under the names that `copy_weights` understands."""
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
    """A function that asks an exported policy for one action, in this process."""
    export_recurrent_policy(
        folder, loop.agent.policy, loop.agent.prepare, *observation_of(loop.replay)
    )
    session = MemorySession(load_policy(folder))
    observation = np.zeros(*observation_of(loop.replay))
    return lambda: session.act(observation)


def observation_of(replay):
    """Shape and dtype of an observation that a replay holds."""
    column: tf.Variable = replay.sample(1, (0, 0))[0][0]["observation_t"]
    return tuple(column.shape[2:]), column.dtype.as_numpy_dtype
