"""Microseconds until one observation has become an action, in this process.

    python -m benchmarks.acting

A network with new weights is exported to a temporary folder and asked in every way there is:
`rrl_tf.export.load_policy(...).act`, which is what the server runs as well, against Keras' own
`predict`, an eager call of the model, and a `tf.function`. All of them begin with the raw
observation in NumPy and end with an integer, and the integers must be equal.

How it's measured: one thread, ways taking turns, medians. Wall time is what a caller waits; CPU
time is what it costs, and changes little with who else uses the machine.
"""

import dataclasses
import functools
import tempfile
import time
from typing import Literal

import numpy as np
import tensorflow as tf

from benchmarks.measure import alternate, timed, use_one_thread
from benchmarks.report import Report
from rrl_tf.export import export_policy, load_policy
from train_scripts import command_line, train_doorkey

SERVED = "load_policy(...).act"
COLUMNS = ("network", "how", "µs of wall time", "10 to 90 %", "µs of CPU time", "of " + SERVED)


@dataclasses.dataclass(frozen=True)
class Config:
    """What is asked, and how often."""

    presets: tuple[Literal["fast", "book", "zambaldi"], ...] = ("fast", "book")
    """Presets of `train_scripts.train_doorkey`."""
    rounds: int = 20
    """Turns of each way."""
    actions: int = 50
    """Actions in a turn; a tenth of it for `predict` and eager calls, which take long."""


def main(config):
    """Measures how long one action takes in process."""
    use_one_thread()
    rows = []
    for preset in config.presets:
        with tempfile.TemporaryDirectory() as folder:
            contestants = ways(train_doorkey.PRESETS[preset], folder)
            check_equal(contestants)
            wall = measure(contestants, config, time.perf_counter)
            cpu = measure(contestants, config, time.process_time)
        rows += [row(preset, how, wall, cpu) for how in contestants]
    notes = (f"Aim: at most 400 µs for one observation by `{SERVED}`.",)
    Report("acting", "Time of one action", COLUMNS, rows, notes, vars(config)).write()


def ways(training, folder):
    """Name → function that returns the action of one raw observation."""
    env = train_doorkey.make_env(training)
    agent = train_doorkey.make_agent(training, env.observation_space, env.action_space)
    version = export_policy(folder, agent.policy, agent.prepare, env.observation_space.shape)
    observation, _ = env.reset(seed=0)
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


def measure(contestants, config, clock):
    """Seconds of every action, name → array."""
    slow = ("eager call", "model.predict")
    turns = {}
    for how, act in contestants.items():
        repeats = max(1, config.actions // 10) if how in slow else config.actions
        turns[how] = functools.partial(timed, act, repeats, clock)
    return alternate(turns, config.rounds)


def row(preset, how, wall, cpu):
    """A line of the table."""
    median = np.median(wall[how])
    low, high = 1e6 * np.quantile(wall[how], (0.1, 0.9))
    ratio = float(median / np.median(wall[SERVED]))
    spread = f"{low:,.0f} to {high:,.0f}"
    values = (preset, how, float(1e6 * median), spread, float(1e6 * np.median(cpu[how])), ratio)
    return dict(zip(COLUMNS, values))


if __name__ == "__main__":
    command_line.run(main, Config)
