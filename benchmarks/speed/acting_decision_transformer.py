"""Microseconds until one observation has become a Decision Transformer's action, in this process.

Our presets with new weights, in the shape of Walker2d, play one episode or a hundred side by side,
and are asked as exports through `WindowSession`. Windows are full before anything is timed.
"""

import dataclasses
import functools
import itertools
import tempfile

import numpy as np

from benchmarks import untrained
from benchmarks.measure import Rounds, latencies
from benchmarks.report import Report
from benchmarks.speed.offline_data import STATES, made_up_data
from rrl_tf.export import export_decision_transformer, load_policy
from rrl_tf.offline.trajectory_policy import TrajectoryPolicy
from serving.sessions import WindowSession
from train_scripts.train_decision_transformer import PRESETS

LOCAL, EXPORT = "TrajectoryPolicy", "export, WindowSession"


@dataclasses.dataclass(frozen=True)
class Config(Rounds):
    """What is asked, and how often."""

    presets: tuple[str, ...] = ("fast", "transformer")
    """Of `train_scripts.train_decision_transformer`."""
    context_lengths: tuple[int, ...] = (10, 20)
    """K: ours, and the originals'."""
    episodes: tuple[int, ...] = (1, 100)
    """Played side by side."""
    calls: int = 20


def main(config):
    """Measures how long a step of acting takes."""
    rows, data = [], made_up_data(episodes=1, steps=50)
    for preset, length in itertools.product(config.presets, config.context_lengths):
        model, scaling = untrained.decision_transformer(data, preset, context_length=length)
        for episodes in config.episodes:
            with tempfile.TemporaryDirectory() as folder:
                contestants = ways(model, scaling, episodes, folder)
                cells = latencies(contestants, config, LOCAL, "µs of a step")
            task = {"preset": preset, "K": length, "episodes": episodes}
            rows += [{**task, "how": how, **each} for how, each in cells.items()]
    sizes = {name: PRESETS[name] for name in config.presets}
    blocks = [f"`{name}` {each.num_blocks} of width {each.width}" for name, each in sizes.items()]
    notes = (f"One thread; blocks: {', '.join(blocks)}; full windows.",)
    return Report("Time of one action of the Decision Transformer", rows, notes)


def ways(model, scaling, episodes, folder):
    """Name → function that plays one step."""
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(episodes, STATES)).astype("float32")
    rewards = np.ones(episodes)
    policy = TrajectoryPolicy(model, scaling)
    policy.begin(np.full(episodes, 3000.0))
    found = {LOCAL: functools.partial(policy.act, observations, rewards)}
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
            if not np.allclose(action, actions[LOCAL], atol=1e-4):
                raise ValueError(f"{how} acts differently in step {step}: {actions}")
