"""Trains a relational and a convolutional agent on Box-World, several seeds each.

    python -m benchmarks reproductions/box_world --networks fast convolutional

What is finished is not trained again, and what was stopped goes on.
"""

import dataclasses
import json
import pathlib

from benchmarks import runs
from benchmarks.runs import percent, spread, summaries
from benchmarks.tables import markdown_table
from rrl_tf.agents.agent_evaluation import NOISE
from train_scripts.train_box_world import KINDS

RESULTS = pathlib.Path("docs/results/box_world")
PRESET = "box-world"
NETWORKS = {"fast": "relational, ours", "convolutional": "convolutional", "zambaldi": "the paper's"}
"""Networks of `train_scripts.train_box_world`, in the words of the tables."""
STEPS = {"zambaldi": 2_000_000}
"""Where not the preset's: a step of the paper's network costs several of ours."""
SHOWN = ("fast", 0)
"""Whose pictures are in the docs."""


@dataclasses.dataclass(frozen=True)
class Config(runs.Config):
    """Which runs, and how many at a time."""

    networks: runs.any_of(NETWORKS) = ("fast", "convolutional")
    """Ours, and whom it is compared with."""
    runs: str = "runs/box_world"


def main(config):
    """Trains the agents that the docs report and writes their tables and figures."""
    wanted = [(network, seed) for seed in config.seeds for network in config.networks]
    runs.train_all(config, train, wanted)
    runs.publish(RESULTS, {"table": table}, {"curves": curves})


def train(config, network, seed):
    """Trains one agent, and keeps what the tables need."""
    run = trained(config, network, seed)
    minutes = runs.metrics(run / "metrics.csv")[-1]["time/cpu_minutes"]
    parameters = json.loads((run / "config.json").read_text())["parameters"]
    runs.keep(run, RESULTS, cpu_minutes=minutes, parameters=parameters)
    if (network, seed) == SHOWN:
        runs.keep_pictures(run, RESULTS, network)


def trained(config, network, seed):
    """The folder of a run that is trained if it is missing."""
    options = [f"--network={network}"]
    options += [f"--steps={STEPS[network]}"] if network in STEPS else []
    return runs.train(
        config, "train_box_world", PRESET, seed, *options, name=f"{network}-seed{seed}"
    )


def table(results):
    """The runs' last evaluations, on levels of each kind, as a Markdown table."""
    rows = []
    for network, label in NETWORKS.items():
        if not (found := summaries(results, network)):
            continue
        told = [run["generalization"] for run in found]
        row = {
            "agent": label,
            "parameters": f"{found[0]['parameters']:,}",
            "seeds": len(found),
            "steps": f"{max(run['step'] for run in found):,}",
        }
        for kind in KINDS:
            row[kind] = percent(told, kind)
            row[f"{kind}, ε = {NOISE}"] = percent(told, f"{kind}, ε = {NOISE}")
        row["CPU minutes"] = spread([run["cpu_minutes"] for run in found], ".0f")
        rows.append(row)
    return markdown_table(rows)


def curves(results):
    """Greedy success on the level that is trained against steps, a line a network."""
    return runs.curves(results, NETWORKS, "eval/success", "greedy success", ylim=(-0.02, 1.02))
