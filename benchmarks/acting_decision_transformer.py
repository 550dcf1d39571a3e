"""Microseconds until one observation has become a Decision Transformer's action, in this process.

    python -m benchmarks.acting_decision_transformer

Our preset with new weights, in the shape of Walker2d, plays its two ways, `recompute` and `cached`,
one episode or a hundred side by side, and is asked as an export through `WindowSession`. Windows
are full before anything is timed. One thread, ways taking turns, medians.
"""

import dataclasses
import functools
import tempfile
import time

import numpy as np

from benchmarks.measure import alternate, timed, use_one_thread
from benchmarks.offline_data import ACTIONS, STATES
from benchmarks.report import Report
from rrl_tf.agents.trajectory_policy import ACTING, TrajectoryPolicy
from rrl_tf.data.scaling import Scaling
from rrl_tf.export import export_decision_transformer, load_policy
from rrl_tf.models import DecisionTransformer
from serving.sessions import WindowSession
from train_scripts import command_line
from train_scripts.train_decision_transformer import FAST

RECOMPUTE, EXPORT = ACTING[0], "export, WindowSession"
COLUMNS = ("K", "episodes", "how", "µs of a step", "10 to 90 %", "µs of CPU time", "of recompute")


@dataclasses.dataclass(frozen=True)
class Config:
    """What is asked, and how often."""

    context_lengths: tuple[int, ...] = (FAST.context_length, 20)
    """K: ours, and the originals'."""
    episodes: tuple[int, ...] = (1, 100)
    """Played side by side."""
    rounds: int = 20
    """Turns of each way."""
    steps: int = 20
    """Steps in a turn."""


def main(config):
    """Measures how long a step of acting takes."""
    use_one_thread()
    rows = []
    for length in config.context_lengths:
        model, scaling = untrained(length)
        for episodes in config.episodes:
            with tempfile.TemporaryDirectory() as folder:
                turns = {
                    how: functools.partial(timed, act, config.steps)
                    for how, act in ways(model, scaling, episodes, folder).items()
                }
                wall = alternate(
                    {h: functools.partial(f, clock=time.perf_counter) for h, f in turns.items()},
                    config.rounds,
                )
                cpu = alternate(turns, config.rounds)
            rows += [row(length, episodes, how, wall, cpu) for how in turns]
    notes = (f"One thread; {FAST.num_blocks} blocks of width {FAST.width}; full windows.",)
    name = "acting_decision_transformer"
    Report(
        name, "Time of one action of the Decision Transformer", COLUMNS, rows, notes, vars(config)
    ).write()


def untrained(length):
    """Our preset's network with new weights, and a scaling that changes nothing."""
    model = DecisionTransformer.from_preset(
        FAST.network,
        state_size=STATES,
        action_size=ACTIONS,
        width=FAST.width,
        num_blocks=FAST.num_blocks,
        num_heads=FAST.num_heads,
        context_length=length,
        heads=("action",),
    )
    model.build()
    bounds = np.full(ACTIONS, 1, "float32")
    return model, Scaling(np.zeros(STATES), np.ones(STATES), 1000.0, -bounds, bounds)


def ways(model, scaling, episodes, folder):
    """Name → function that plays one step."""
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(episodes, STATES)).astype("float32")
    rewards = np.ones(episodes)
    found = {}
    for acting in ACTING:
        policy = TrajectoryPolicy(model, scaling, acting)
        policy.begin(np.full(episodes, 3000.0))
        found[acting] = functools.partial(policy.act, observations, rewards)
    version = export_decision_transformer(folder, model, scaling, (STATES,))
    session = WindowSession(load_policy(version), 3000.0, num_envs=episodes)
    found[EXPORT] = functools.partial(session.act, observations, rewards)
    check_equal(found, model.context_length)
    return found


def check_equal(contestants, length):
    """Fills the windows, and raises a `ValueError` unless all ways act alike in them."""
    for step in range(length):
        actions = {how: act() for how, act in contestants.items()}
        for how, action in actions.items():
            if not np.allclose(action, actions[RECOMPUTE], atol=1e-4):
                raise ValueError(f"{how} acts differently in step {step}: {actions}")


def row(length, episodes, how, wall, cpu):
    """A line of the table."""
    low, high = 1e6 * np.quantile(wall[how], (0.1, 0.9))
    median = np.median(wall[how])
    values = (
        length,
        episodes,
        how,
        float(1e6 * median),
        f"{low:,.0f} to {high:,.0f}",
        float(1e6 * np.median(cpu[how])),
        float(median / np.median(wall[RECOMPUTE])),
    )
    return dict(zip(COLUMNS, values))


if __name__ == "__main__":
    command_line.run(main, Config)
