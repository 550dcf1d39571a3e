"""The published comparison on D4RL's Walker2d data, as far as the data can be had.

    python -m benchmarks reproductions/d4rl

Data that are not on this machine are downloaded through TensorFlow Datasets. What cannot be had is
said, and the rest is done.
"""

import dataclasses
import pathlib

from benchmarks import runs
from benchmarks.reproductions import offline
from benchmarks.runs import spread
from benchmarks.tables import markdown_table
from rrl_tf.errors import InvalidInput
from rrl_tf.offline import load_episodes

RESULTS = pathlib.Path("docs/results/d4rl")
SETS = ("medium", "medium-replay", "medium-expert")
PUBLISHED = {
    "Decision Transformer, CORL": (67.6, 59.9, 107.1),
    "imitation of the best tenth, CORL": (67.3, 54.4, 108.7),
    "IQL, CORL": (80.9, 82.2, 111.7),
    "Trajectory Transformer": (79.0, 82.6, 101.9),
}
"""D4RL scores after the last update on `SETS` of Walker2d: CORL's table (Tarasov et al., 2023,
arXiv 2210.07105), and Janner et al., 2021 (arXiv 2106.02039)."""


@dataclasses.dataclass(frozen=True)
class Config(offline.TrainingConfig):
    """Which runs, and how many at a time."""

    presets: tuple[str, ...] = ("dense", "fast", "bc", "bc-10")
    """Of `train_scripts.train_decision_transformer`."""
    source: str = "tfds:d4rl_mujoco_walker2d/v2-{}"
    """Where the data are; `{}` stands for a name of `SETS`."""

    def __post_init__(self):
        super().__post_init__()
        if "{}" not in self.source:
            raise InvalidInput(f"source must hold {{}}; received {self.source!r}")


def main(config):
    """Trains on the data that can be had, and writes the scores beside published ones."""
    sources = [config.source.replace("{}", name) for name in SETS]
    there = [source for source in sources if config.train and can_be_had(source)]
    wanted = [(d, p, s) for s in config.seeds for d in there for p in config.presets]
    runs.train_all(config, train, wanted)
    runs.publish(RESULTS, {"table": table}, {})


def can_be_had(source):
    """Whether the data are here or could be downloaded; says so where they are not."""
    try:
        load_episodes(source)
    except InvalidInput as error:
        print(f"missing: {error}")
        return False
    return True


def train(config, data, preset, seed):
    """Trains one agent, and keeps what the table needs."""
    offline.train(config, data, preset, seed, RESULTS)


def table(results):
    """Scores of D4RL: ours, asked for what did best, and published ones."""
    scores = {}
    for (data, preset, _), found in offline.loaded(results).items():
        target = offline.best_target(found)
        values = [run["last"][target]["d4rl_score"] for run in found]
        row = scores.setdefault(f"ours, {preset}, {len(found)} seeds", {})
        row[data.rpartition("v2-")[2]] = spread(values)
    rows = [{"agent": label, **row} for label, row in scores.items()]
    rows += [
        {"agent": label, **{name: f"{value:.1f}" for name, value in zip(SETS, values)}}
        for label, values in PUBLISHED.items()
    ]
    return markdown_table(rows)
