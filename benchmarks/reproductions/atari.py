"""Trains a relational and a convolutional agent on Alien, by the protocol of Atari 100k.

    python -m benchmarks reproductions/atari

What is finished is not trained again, and what was stopped goes on.
"""

import dataclasses
import json
import pathlib

from benchmarks import runs
from benchmarks.runs import spread, summaries
from benchmarks.tables import markdown_table
from rrl_tf.agents import evaluate
from rrl_tf.agents.agent_evaluation import NOISE
from rrl_tf.envs import atari_task
from rrl_tf.export import load_policy
from train_scripts.train_atari import Config as TrainConfig

RESULTS = pathlib.Path("docs/results/atari")
PRESET = "atari-100k"
NETWORKS = {"atari": "relational", "convolutional": "convolutional"}
"""Networks of `train_scripts.train_atari`, in the words of the tables."""
SHOWN = ("atari", 0)
"""Whose pictures are in the docs."""
EPSILONS = (0.0, NOISE)
PUBLISHED = {"random play, published": 227.8, "CURL": 558.2, "DrQ": 771.2}
"""Scores of others, as docs/atari.md cites them."""


@dataclasses.dataclass(frozen=True)
class Config(runs.Config):
    """Which runs, and how many at a time."""

    networks: runs.any_of(NETWORKS) = ("atari", "convolutional")
    """Ours, and whom it is compared with."""
    games: int = 100
    """That each trained agent plays in the end, of every kind."""
    runs: str = "runs/atari"


def main(config):
    """Trains the agents that the docs report and writes their tables and figures."""
    wanted = [(network, seed) for seed in config.seeds for network in config.networks]
    runs.train_all(config, train, wanted)
    runs.publish(RESULTS, {"table": table}, {"curves": curves})


def train(config, network, seed):
    """Trains one agent, and keeps what the tables need."""
    name = f"{network}-seed{seed}"
    run = runs.train(config, "train_atari", PRESET, seed, f"--network={network}", name=name)
    minutes = runs.metrics(run / "metrics.csv")[-1]["time/cpu_minutes"]
    parameters = json.loads((run / "config.json").read_text())["parameters"]
    told = scores(run, config.games)
    runs.keep(run, RESULTS, cpu_minutes=minutes, parameters=parameters, scores=told)
    if (network, seed) == SHOWN:
        runs.keep_pictures(run, RESULTS, network)


def scores(run, games):
    """What the exported policy of a run scores in full games: the mean for every ε."""
    trained = runs.configuration(run, TrainConfig)
    task = atari_task(trained.env, frames=trained.frames)
    act, resets = load_policy(run / "export").act, task.evaluation_resets(-1, games)
    played = {epsilon: evaluate(act, task.make_test_env, resets, epsilon) for epsilon in EPSILONS}
    return {str(epsilon): float(each.reward.mean()) for epsilon, each in played.items()}


def table(results):
    """The runs' scores with their last weights, as a Markdown table."""
    rows = []
    for network, label in NETWORKS.items():
        if not (found := summaries(results, network)):
            continue
        row = {
            "agent": label,
            "parameters": f"{found[0]['parameters']:,}",
            "seeds": len(found),
            "steps": f"{max(run['step'] for run in found):,}",
        }
        for epsilon in EPSILONS:
            kind = f"score, ε = {epsilon}" if epsilon else "score, greedy"
            row[kind] = spread([run["scores"][str(epsilon)] for run in found], ".0f")
        row["CPU minutes"] = spread([run["cpu_minutes"] for run in found], ".0f")
        rows.append(row)
    return markdown_table(rows)


def curves(results):
    """Scores of greedy play against steps, a line a network."""
    return runs.curves(results, NETWORKS, "eval/return", "score, greedy", references=PUBLISHED)
