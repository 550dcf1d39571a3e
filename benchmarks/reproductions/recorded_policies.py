"""What the policies of MuJoCo's recipes play, to hold what was learned from them against.

    python -m benchmarks reproductions/recorded_policies --policy-folder FOLDER

A policy that was trained with noise may need it: it is played as it is, with the noise that it is
recorded with, and by the mean of what that noise does to an action that is clipped.
"""

import dataclasses
import pathlib

import keras
import numpy as np

from benchmarks.report import Report
from rrl_tf.layers import censored_normal_mean
from rrl_tf.offline.dense_policy import DensePolicy
from rrl_tf.offline.recipes import RECIPES
from rrl_tf.offline.trajectory_policy import play_episodes
from train_scripts.collect_dataset import make_env


@dataclasses.dataclass(frozen=True)
class Config:
    """How much is played."""

    policy_folder: str = "policies"
    """Holds `NAME.npz` for every policy that the recipes name."""
    episodes: int = 100
    """Of each, from the starts that trained agents are evaluated from."""


def main(config):
    """Plays every policy in every way."""
    folder = pathlib.Path(config.policy_folder)
    found = recorded()
    # All of them, and the environments, before the first is played.
    policies = {name: DensePolicy.load(folder / f"{name}.npz") for _, name, _ in found}
    names = {environment for environment, *_ in found}
    envs = {name: [make_env(name) for _ in range(config.episodes)] for name in names}
    rows = []
    for (environment, policy, level), kinds in found.items():
        row = {
            "policy (environment)": f"{policy} ({environment})",
            "recorded in": ", ".join(kinds),
            "noise": f"{level:g}",
        }
        for way, choose in WAYS.items():
            player = Recorded(policies[policy], level, choose)
            played = play_episodes(player, envs[environment], 0.0, range(config.episodes))
            row[way] = "{:,.0f} ± {:,.0f}".format(played["return"].mean(), played["return"].std())
        rows.append(row)
    notes = (f"Mean return of {config.episodes} episodes, and the standard deviation of one.",)
    return Report("What the recorded policies play", rows, notes)


def recorded():
    """Policies that recipes take from files: dict (environment, policy, noise) → kinds of data."""
    found = {}
    for name, recipe in RECIPES.items():
        _, _, kind = name.partition("-")
        for _, policy, level in recipe.lines:
            if isinstance(policy, str):
                found.setdefault((recipe.environment, policy, level), []).append(kind)
    return found


class Recorded:
    """A recorded policy, as `play_episodes` calls one; MuJoCo's actions are from -1 to 1."""

    def __init__(self, policy, level, choose):
        self.policy, self.level, self.choose = policy, level, choose

    def begin(self, target_returns, seeds):
        self.rng = np.random.default_rng(seeds)

    def act(self, observations, rewards):
        means = np.stack([self.policy(observation) for observation in observations])
        return np.clip(self.choose(means, self.level, self.rng), -1.0, 1.0).astype("float32")

    def keep(self, rows):
        pass


def as_it_is(means, level, rng):
    return means


def with_noise(means, level, rng):
    return means + level * rng.normal(size=means.shape)


def mean_under_noise(means, level, rng):
    return keras.ops.convert_to_numpy(censored_normal_mean(means, level))


WAYS = {"without noise": as_it_is, "with it": with_noise, "mean under it": mean_under_noise}
"""Column → function of actions `(B, A)`, the noise, a generator, that returns what is played."""
