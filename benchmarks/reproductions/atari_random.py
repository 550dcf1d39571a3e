"""What random play scores in Alien, by the protocol that agents are evaluated by."""

import dataclasses

import numpy as np

from benchmarks.report import Report
from rrl_tf.agents import evaluate
from rrl_tf.envs import atari_task


@dataclasses.dataclass(frozen=True)
class Config:
    """How much is played."""

    env: str = "ALE/Alien-v5"
    """Id of the game."""
    games: int = 500
    """Full ones."""
    at_once: int = 50
    """Of them."""


def main(config):
    """Plays at random."""
    task = atari_task(config.env)
    resets = task.evaluation_resets(-1, config.games)
    played = [
        play(task, resets[first : first + config.at_once], seed=first)
        for first in range(0, config.games, config.at_once)
    ]
    reward = np.concatenate([each.reward for each in played])
    length = np.concatenate([each.length for each in played])
    row = {
        "game": config.env,
        "games": f"{len(reward):,}",
        "score, mean": f"{reward.mean():.1f}",
        "its standard error": f"{reward.std(ddof=1) / len(reward) ** 0.5:.1f}",
        "median": f"{np.median(reward):.0f}",
        "steps, mean": f"{length.mean():.0f}",
    }
    notes = ("Uniform random actions in full games, begun with 1 to 30 no-ops.",)
    return Report("Random play in Alien", [row], notes)


def play(task, resets, seed):
    """An `Evaluation` of random play."""

    def act(seen):
        return np.zeros(len(seen), int)  # all of them are replaced

    return evaluate(act, task.make_test_env, resets, epsilon=1.0, seed=seed)
