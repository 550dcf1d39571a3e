"""Trains every model of text that the docs report, several seeds each, and writes the tables."""

import dataclasses
import pathlib
import shutil

from benchmarks import runs
from benchmarks.runs import logs, spread, summaries
from benchmarks.tables import markdown_table

RESULTS = pathlib.Path("docs/results/text")
LABELS = {"rmc": "Relational Memory Core", "lstm": "LSTM"}


@dataclasses.dataclass(frozen=True)
class Config(runs.Config):
    """Which runs, and how many at a time."""

    presets: tuple[str, ...] = tuple(LABELS)
    """Presets of `train_scripts.train_text`."""
    runs: str = "runs/text"


def main(config):
    """Trains the models of text that the docs report and writes their table."""
    runs.train_all(config, train, [(p, seed) for seed in config.seeds for p in config.presets])
    runs.publish(RESULTS, TABLES, {})


def train(config, preset, seed):
    """Trains one model, and keeps what the table needs."""
    run = runs.train(config, "train_text", preset, seed)
    runs.keep(run, RESULTS)
    if seed == 0:
        shutil.copy(run / "sample.txt", RESULTS / f"{preset}-sample.txt")


def table(results):
    """The runs' tests as a Markdown table."""
    rows, floor = [], []
    for preset, label in LABELS.items():
        if models := summaries(results, preset):
            last = [log[-1]["train/bits_per_character"] for log in logs(results, preset)]
            bits = {
                part: spread([model[f"{part}/bits_per_character"] for model in models], ".3f")
                for part in ("validation", "test")
            }
            rows.append(
                {
                    "model": label,
                    "parameters": f"{models[0]['parameters']:,}",
                    "seeds": len(models),
                    "epochs": models[0]["epochs"],
                    "bits per character: training, last epoch": spread(last, ".3f"),
                    **bits,
                }
            )
            frequencies = f"{models[0]['test/bits_of_frequencies']:.3f}"
            floor = [{"model": "frequencies of the characters", "test": frequencies}]
    return markdown_table(rows + floor)


TABLES = {"table": table}
