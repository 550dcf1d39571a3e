"""Trains relations and convolutions on Sort-of-CLEVR, several seeds each, and writes the tables."""

import dataclasses
import pathlib
import shutil

import numpy as np

from benchmarks import runs
from benchmarks.runs import percent, spread, summaries
from benchmarks.tables import markdown_table
from rrl_tf.data.sort_of_clevr import TEXTS

RESULTS = pathlib.Path("docs/results/sort_of_clevr")
NETWORKS = {"fast": "relations", "cnn": "convolutions and dense layers"}
# The most frequent answer to each kind of question: a shape or a half by a coin, and of six
# objects most often three or four of the same shape (the one asked about and 2 or 3 of 5 others).
BLIND = {"non-relational": 0.5, "relational": (0.5 + 0.5 + 10 / 32) / 3}


@dataclasses.dataclass(frozen=True)
class Config(runs.Config):
    """Which runs, and how many at a time."""

    runs: str = "runs/sort_of_clevr"


def main(config):
    """Trains the networks that the docs report and writes their tables and figure."""
    runs.train_all(config, train, [(name, seed) for seed in config.seeds for name in NETWORKS])
    runs.publish(RESULTS, TABLES, {"curves": curves})


def train(config, name, seed):
    """Trains one network, and keeps what the tables need."""
    run = runs.train(config, "train_sort_of_clevr", name, seed)
    runs.keep(run, RESULTS)
    if (name, seed) == ("fast", 0):
        shutil.copy(run / "figures" / "attention.png", RESULTS / "attention.png")


def table(results):
    """The runs' last evaluations, and what can be had without looking, as a Markdown table."""
    rows = []
    for name, label in NETWORKS.items():
        if not (found := summaries(results, name)):
            continue
        minutes = [run["cpu_minutes"] for run in found if "cpu_minutes" in run]
        rows.append(
            {
                "network": label,
                "parameters": f"{found[0]['parameters']:,}",
                "seeds": len(found),
                "updates": f"{max(run['step'] for run in found):,}",
                "relational": percent(found, "test/relational"),
                "non-relational": percent(found, "test/non_relational"),
                "CPU minutes": spread(minutes, ".0f") if minutes else None,
            }
        )
    blind = {name: f"{100 * share:.1f} %" for name, share in BLIND.items()}
    return markdown_table([*rows, {"network": "*without looking at the picture*", **blind}])


def kinds(results):
    """Accuracy by the kind of question, a mean over the seeds, as a Markdown table."""
    found = {
        label: [run["test/of_kinds"] for run in summaries(results, name)]
        for name, label in NETWORKS.items()
        if summaries(results, name)
    }
    return markdown_table(
        [
            {
                "question": text,
                **{
                    label: f"{100 * np.mean([run[text] for run in each]):.1f} %"
                    for label, each in found.items()
                },
            }
            for text in (text.format("...") for text in TEXTS)
        ]
    )


def curves(results):
    """Accuracy on relational questions against updates."""
    return runs.curves(
        results,
        NETWORKS,
        "eval/relational",
        ylabel="accuracy on relational questions",
        xlabel="updates",
        references={"without looking": BLIND["relational"]},
        ylim=(0, 1),
    )


TABLES = {"table": table, "kinds": kinds}
