"""Trains every model of text that the docs report, several seeds each, and writes their table.

    python -m benchmarks.text             # trains what is missing (ten minutes on one core)
    python -m benchmarks.text --no-train  # the table from docs/results/text alone

What a run leaves for the table is copied to `docs/results/text`.
"""

import dataclasses
import pathlib
import shutil

from benchmarks import tables, training_runs
from rrl_tf.training import atomic_file
from train_scripts import command_line

RESULTS = pathlib.Path("docs/results/text")
LABELS = {"rmc": "Relational Memory Core", "lstm": "LSTM"}


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


def train(folder, preset, seed):
    """Trains one model in a process of its own, and keeps what the table needs."""
    arguments = [f"--preset={preset}", f"--seed={seed}", f"--runs={folder}"]
    training_runs.train("train_text", *arguments)
    run = pathlib.Path(folder) / f"{preset}-seed{seed}"
    training_runs.keep(run, RESULTS)
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
        models = training_runs.summaries(results, preset)
        if not models:
            continue
        logs = [training_runs.metrics(path) for path in training_runs.files(results, preset, "csv")]
        cells = [
            label,
            f"{models[0]['parameters']:,}",
            str(len(models)),
            str(models[0]["epochs"]),
            training_runs.spread([log[-1]["train/bits_per_character"] for log in logs], 3),
            training_runs.spread([model["validation/bits_per_character"] for model in models], 3),
            training_runs.spread([model["test/bits_per_character"] for model in models], 3),
        ]
        lines.append(f"| {' | '.join(cells)} |")
        floor = models[0]["test/bits_of_frequencies"]
    if len(lines) > 2:
        lines.append(f"| frequencies of the characters | | | | | | {floor:.3f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command_line.run(main, Config)
