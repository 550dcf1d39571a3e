"""Trains on recorded episodes, lets what was trained play on and learn, and compares both.

python -m benchmarks reproductions/fine_tuning --data minari:FOLDER --presets fast
"""

import dataclasses
import pathlib

from benchmarks import runs
from benchmarks.reproductions import offline
from benchmarks.runs import spread
from benchmarks.tables import markdown_table
from rrl_tf.training.config import require_positive

RESULTS = pathlib.Path("docs/results/fine_tuning")


@dataclasses.dataclass(frozen=True)
class Config(offline.Config):
    """Which runs, and how long they go on."""

    presets: tuple[str, ...] = ("doorkey",)
    """Of `train_scripts.train_decision_transformer`."""
    steps: int = 50_000
    """Of the environment, after the training."""

    def __post_init__(self):
        super().__post_init__()
        require_positive(self, "steps")


def main(config):
    """Trains and fine-tunes what the docs report, and writes its table."""
    wanted = [(d, p, s) for s in config.seeds for d in config.data for p in config.presets]
    runs.train_all(config, train, wanted)
    runs.publish(RESULTS, {"table": table}, {})


def train(config, data, preset, seed):
    """Trains and fine-tunes one agent, and keeps what the table needs."""
    training = offline.training(config, data, preset, seed)
    options = (*config.options(data), f"--fine-tune={config.steps}")
    runs.train(config, "train_decision_transformer", preset, seed, *options)
    run = training.path.with_name(f"{training.path.name}-fine-tuned")
    before = runs.evaluation(training.path)["last"]
    runs.keep(run, RESULTS, preset=preset, data=offline.data_name(data), before=before)


def nearest(targets, asked):
    """The target that is that one: before the return was asked for in three digits."""
    return min(targets, key=lambda target: abs(float(target) - float(asked)))


def table(results):
    """One line for every data set and preset."""
    rows = []
    for (data, preset, _), found in offline.loaded(results).items():
        asked = max(found[0]["before"], key=float)
        before = [run["before"][asked]["return"] for run in found]
        after = [run["last"][nearest(run["last"], asked)]["return"] for run in found]
        gains = [100 * (new / old - 1) for old, new in zip(before, after)]
        best = [run["last"][max(run["last"], key=float)]["return"] for run in found]
        rows.append(
            {
                "data (environment)": f"{data} ({found[0]['environment']})",
                "mean return, best": offline.recorded(found[0]),
                "agent": preset,
                "seeds": len(found),
                "asked for": asked,
                "before": spread(before, ",.4g"),
                "steps": f"{max(run['step'] for run in found):,}",
                "after": spread(after, ",.4g"),
                "gain": spread(gains, ".0f", " %"),
                "after, asked for the best it played": spread(best, ",.4g"),
            }
        )
    return markdown_table(rows)
