"""Microseconds until one observation has become an action, in this process.

A network with new weights is exported to a temporary folder and asked in every way there is:
`rrl_tf.export.load_policy(...).act`, which is what the server runs as well, against Keras' own
`predict`, an eager call of the model, and a `tf.function`. All of them begin with the raw
observation in NumPy and end with an integer, and the integers must be equal.
"""

import dataclasses
import functools
import tempfile
from typing import Literal

import numpy as np
import tensorflow as tf

from benchmarks import untrained
from benchmarks.measure import Rounds, latencies
from benchmarks.report import Report
from rrl_tf.export import export_policy, load_policy
from train_scripts import train_doorkey

SERVED = "load_policy(...).act"


@dataclasses.dataclass(frozen=True)
class Config(Rounds):
    """What is asked, and how often."""

    presets: tuple[Literal["fast", "book", "zambaldi"], ...] = ("fast", "book")
    """Presets of `train_scripts.train_doorkey`."""


def main(config):
    """Measures how long one action takes in process."""
    rows = []
    for preset in config.presets:
        with tempfile.TemporaryDirectory() as folder:
            contestants = ways(train_doorkey.PRESETS[preset], folder)
            check_equal(contestants)
            cells = latencies(contestants, config, SERVED)
        rows += [{"network": preset, "how": how, **cells[how]} for how in contestants]
    notes = (f"Aim: at most 400 µs for one observation by `{SERVED}`.",)
    return Report("Time of one action", rows, notes)


def ways(training, folder):
    """Name → function that returns the action of one raw observation."""
    task, agent = untrained.double_dqn(training)
    version = export_policy(folder, agent.policy, agent.prepare, task.observation_space.shape)
    observation, _ = task.make_env().reset(seed=0)
    model, prepare = agent.policy, agent.prepare

    @tf.function
    def compiled(batch):
        return tf.argmax(model(prepare(batch)), axis=-1)

    batch = observation[np.newaxis]
    return {
        SERVED: functools.partial(load_policy(version).act, observation),
        "DoubleDQN.greedy": lambda: int(agent.greedy(batch)[0]),
        "tf.function": lambda: int(compiled(tf.convert_to_tensor(batch))[0]),
        "eager call": lambda: int(np.argmax(model(prepare(batch)))),
        "model.predict": lambda: int(np.argmax(model.predict(np.array(prepare(batch)), verbose=0))),
    }


def check_equal(contestants):
    """Raises a `ValueError` unless all ways give the same action."""
    actions = {how: act() for how, act in contestants.items()}
    if len(set(actions.values())) > 1:
        raise ValueError(f"the actions differ: {actions}")
