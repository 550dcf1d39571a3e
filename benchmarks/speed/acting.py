"""Measure the time from one observation to an action, in this process.

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
    """Select the networks, and set the number of measurements."""

    presets: tuple[Literal["fast", "book", "zambaldi"], ...] = ("fast", "book")
    """Presets of `train_scripts.train_doorkey`."""


def main(config):
    """Measure how long one action takes."""
    rows = []
    for preset in config.presets:
        with tempfile.TemporaryDirectory() as folder:
            methods = make_methods(train_doorkey.PRESETS[preset], folder)
            check_equal(methods)
            rows += [{"network": preset, **row} for row in latencies(methods, config)]
    return Report(
        "Time of one action", rows, (f"Target: at most 400 µs for one observation by `{SERVED}`.",)
    )


def make_methods(training, folder):
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


def check_equal(methods):
    """Raise a `ValueError` unless all methods return the same action."""
    actions = {how: act() for how, act in methods.items()}
    if len(set(actions.values())) > 1:
        raise ValueError(f"all methods must return the same action; received {actions}")


def latencies(methods, config):
    """Return one row for each method, with the medians of wall time and CPU time."""
    waited, worked = (
        take_turns(methods, config, clock) for clock in (time.perf_counter, time.process_time)
    )
    return [
        {
            "how": name,
            "µs of wall time": 1e6 * median(waited[name]),
            "10 to 90 %": middle(1e6 * waited[name], ",.0f"),
            "µs of CPU time": 1e6 * median(worked[name]),
            f"of {SERVED}": median(waited[name]) / median(waited[SERVED]),
        }
        for name in methods
    ]
