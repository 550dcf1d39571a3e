"""Microseconds from one observation to an action, in this process.

A network with new weights is exported to a temporary folder. `rrl_tf.export.load_policy(...).act`,
which the server also runs, is compared with Keras' own `predict`, with an eager call of the model
and with a `tf.function`. All of them start with the raw observation in NumPy and end with an
integer, and the integers must be equal.
"""

import dataclasses
import functools
import tempfile
import time
from typing import Literal

import numpy as np
import tensorflow as tf

from benchmarks.measure import Report, Rounds, median, middle, take_turns
from benchmarks.untrained import double_dqn
from rrl_tf.export import export_policy, load_policy
from train_scripts import train_doorkey

SERVED = "load_policy(...).act"


@dataclasses.dataclass(frozen=True)
class Config(Rounds):
    """Which networks, and how long is measured."""

    presets: tuple[Literal["fast", "book", "zambaldi"], ...] = ("fast", "book")
    """Presets of `train_scripts.train_doorkey`."""


def main(config):
    """Measure how long one action takes."""
    rows = []
    for preset in config.presets:
        with tempfile.TemporaryDirectory() as folder:
            sides = make_sides(train_doorkey.PRESETS[preset], folder)
            check_equal(sides)
            rows += [{"network": preset, **row} for row in latencies(sides, config)]
    return Report(
        "Time of one action", rows, (f"Target: at most 400 µs for one observation by `{SERVED}`.",)
    )


def make_sides(training, folder):
    """Return dict name → function that returns the action for one raw observation."""
    task, agent = double_dqn(training)
    version = export_policy(folder, agent.policy, agent.preprocess, task.observation_space.shape)
    observation, _ = task.make_env().reset(seed=0)
    model, preprocess = agent.policy, agent.preprocess

    @tf.function
    def compiled(batch):
        return tf.argmax(model(preprocess(batch)), axis=-1)

    batch = observation[np.newaxis]
    return {
        SERVED: functools.partial(load_policy(version).act, observation),
        "DoubleDQN.greedy": lambda: int(agent.greedy(batch)[0]),
        "tf.function": lambda: int(compiled(tf.convert_to_tensor(batch))[0]),
        "eager call": lambda: int(np.argmax(model(preprocess(batch)))),
        "model.predict": lambda: int(
            np.argmax(model.predict(np.array(preprocess(batch)), verbose=0))
        ),
    }


def check_equal(sides):
    """Raise a `ValueError` unless all implementations give the same action."""
    actions = {how: act() for how, act in sides.items()}
    if len(set(actions.values())) > 1:
        raise ValueError(f"all sides must give the same action; received {actions}")


def latencies(sides, config):
    """Return the rows of sides: medians of wall time and of CPU time."""
    waited, worked = (
        take_turns(sides, config, clock) for clock in (time.perf_counter, time.process_time)
    )
    return [
        {
            "how": name,
            "µs of wall time": 1e6 * median(waited[name]),
            "10 to 90 %": middle(1e6 * waited[name], ",.0f"),
            "µs of CPU time": 1e6 * median(worked[name]),
            f"of {SERVED}": median(waited[name]) / median(waited[SERVED]),
        }
        for name in sides
    ]
