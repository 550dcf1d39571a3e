"""Trains message passing on small graphs, with edges and without, and tests it on larger ones."""

import dataclasses
import pathlib
import shutil

import numpy as np

from benchmarks import runs
from benchmarks.runs import percent, spread, summaries
from benchmarks.tables import markdown_table

RESULTS = pathlib.Path("docs/results/graphs")
NETWORKS = {"fast": "along the edges", "without-edges": "from every node to every node"}
SHOWN = ("fast", 0)
"""Whose picture is in the docs."""


@dataclasses.dataclass(frozen=True)
class Config(runs.Config):
    """Which runs, and how many at a time."""

    runs: str = "runs/graphs"


def main(config):
    """Trains the networks that the docs report and writes their tables."""
    runs.train_all(config, train, [(name, seed) for seed in config.seeds for name in NETWORKS])
    runs.publish(RESULTS, TABLES, {})


def train(config, name, seed):
    """Trains one network, and keeps what the tables need."""
    run = runs.train(config, "train_graphs", name, seed)
    runs.keep(run, RESULTS)
    if (name, seed) == SHOWN:
        shutil.copy(run / "figures" / "attention.png", RESULTS)


def table(results):
    """The runs' last evaluations, and the best answer without the edges, as Markdown."""
    rows, small, large = [], "12 nodes", "24 nodes"
    for name, label in NETWORKS.items():
        found = summaries(results, name)
        rows.append(
            {
                "attention goes": label,
                "parameters": f"{found[0]['parameters']:,}",
                "seeds": len(found),
                "updates": f"{max(run['step'] for run in found):,}",
                small: percent(found, "test/accuracy", ".2f"),
                large: percent(found, "test/larger", ".2f"),
                f"{large}, whole graphs": percent(found, "test/larger_whole_graphs", ".2f"),
                f"{large}, 12 rounds": percent(found, "test/larger_same_rounds", ".2f"),
                "minutes of training": spread([run["training_minutes"] for run in found]),
            }
        )
    floor = summaries(results, "fast")[0]["floor"]
    rows.append({"attention goes": "*knowing no edges*", large: f"{100 * floor:.2f} %"})
    return markdown_table(rows)


def distances(results):
    """Accuracy by the distance from the marked node, on the larger graphs, as Markdown."""
    rows = []
    for name, label in NETWORKS.items():
        found = [run["test/larger_of_distance"] for run in summaries(results, name)]
        row = {"attention goes": label}
        for distance in sorted(found[0], key=_distance):
            row[distance] = f"{100 * np.mean([run[distance] for run in found]):.1f} %"
        rows.append(row)
    return markdown_table(rows)


def _distance(name):
    return -1 if name == "none" else int(name)


TABLES = {"table": table, "distances": distances}
