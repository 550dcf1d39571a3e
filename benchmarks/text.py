"""Trains every model of text that the docs report, several seeds each, and writes their table.

    python -m benchmarks.text             # trains what is missing (ten minutes on one core)
    python -m benchmarks.text --no-train  # the table from docs/results/text alone

What a run leaves for the table is copied to `docs/results/text`.
"""

import csv
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np

from benchmarks import tables
from rrl_tf.training import atomic_file
from train_scripts import command_line

RESULTS = pathlib.Path("docs/results/text")
LABELS = {"rmc": "Relational Memory Core", "lstm": "LSTM"}
ONE_THREAD = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}


@dataclasses.dataclass(frozen=True)
class Config:
    """Which runs."""

    presets: tuple[str, ...] = tuple(LABELS)
    """Presets of `train_scripts.train_text`."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of each. The table takes in whatever seeds lie in the results folder."""
    runs: str = "runs/text"
    """Where runs are kept; those that are there already are not trained again."""
    train: bool = True
    """Train what is missing, or only draw up the table again."""


def main(config):
    """Trains the models of text that the docs report and writes their table."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    if config.train:
        for seed in config.seeds:
            for preset in config.presets:
                train(config.runs, preset, seed)
    with atomic_file(RESULTS / "table.md") as draft:
        draft.write_text(table(RESULTS))
    tables.main()
    print((RESULTS / "table.md").read_text())


def train(runs, preset, seed):
    """Trains one model in a process of its own, and keeps what the table needs."""
    command = [sys.executable, "-m", "train_scripts.train_text", f"--preset={preset}"]
    subprocess.run(
        [*command, f"--seed={seed}", f"--runs={runs}"],
        env={**os.environ, **ONE_THREAD},
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    run = pathlib.Path(runs) / f"{preset}-seed{seed}"
    shutil.copy(run / "metrics.csv", RESULTS / f"{run.name}.csv")
    shutil.copy(run / "evaluation.json", RESULTS / f"{run.name}.json")
    if seed == 0:
        shutil.copy(run / "sample.txt", RESULTS / f"{preset}-sample.txt")


def table(results):
    """The runs' tests as a Markdown table."""
    lines = [
        "| model | parameters | seeds | epochs | bits per character: training, last epoch | "
        "validation | test |",
        "|---|---|---|---|---|---|---|",
    ]
    for preset, label in LABELS.items():
        files = sorted(results.glob(f"{preset}-seed*.json"))
        runs = [json.loads(file.read_text()) for file in files]
        if not runs:
            continue
        trained = [last_row(file.with_suffix(".csv"))["train/bits_per_character"] for file in files]
        cells = [
            label,
            f"{runs[0]['parameters']:,}",
            str(len(runs)),
            str(runs[0]["epochs"]),
            spread([float(value) for value in trained]),
            spread([run["validation/bits_per_character"] for run in runs]),
            spread([run["test/bits_per_character"] for run in runs]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
        floor = runs[0]["test/bits_of_frequencies"]
    if len(lines) > 2:
        lines.append(f"| frequencies of the characters | | | | | | {floor:.3f} |")
    return "\n".join(lines) + "\n"


def spread(values):
    """Mean and range over the seeds."""
    low, high = min(values), max(values)
    return f"{np.mean(values):.3f}" + (f" ({low:.3f} to {high:.3f})" if low < high else "")


def last_row(file):
    """The last row of a run's metrics."""
    with file.open(newline="") as handle:
        return list(csv.DictReader(handle))[-1]


if __name__ == "__main__":
    command_line.run_plain(main, Config)
