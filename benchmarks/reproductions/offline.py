"""Trains Decision Transformers and what they must beat on recorded data, and writes the table.

    python -m benchmarks reproductions/offline --data minari:A minari:B --presets fast bc bc-10

Rows are named by their data: a return says nothing without them.
"""

import dataclasses
import functools
import json
import pathlib

import numpy as np

from benchmarks import runs
from benchmarks.runs import spread
from benchmarks.tables import markdown_table
from rrl_tf import viz
from rrl_tf.training.config import require_positive
from train_scripts import train_decision_transformer

RESULTS = pathlib.Path("docs/results/decision_transformer")


@dataclasses.dataclass(frozen=True)
class TrainingConfig(runs.Config):
    """How agents are trained and evaluated."""

    targets: tuple[float, ...] = ()
    """Returns to ask for; by default the preset's."""
    updates: int | None = None
    """How long each is trained; by default the preset's. With fewer than these, the same command
    without it goes on where the preset's step size is constant."""
    runs: str = "runs/decision_transformer"

    def __post_init__(self):
        super().__post_init__()
        if self.updates is not None:
            require_positive(self, "updates")

    def options(self, data):
        """Options of `train_scripts.train_decision_transformer`."""
        targets = ("--targets", *map(str, self.targets)) if self.targets else ()
        updates = (f"--steps={self.updates}",) if self.updates else ()
        return f"--data={data}", *targets, *updates


@dataclasses.dataclass(frozen=True)
class Config(TrainingConfig):
    """Which runs, and how many at a time."""

    data: tuple[str, ...] = ("doorkey",)
    """Sources as `train_scripts.train_decision_transformer` takes them."""
    presets: tuple[str, ...] = ("doorkey", "doorkey-bc")
    """Its presets."""


def main(config):
    """Trains what the docs report and writes its tables and figure."""
    wanted = [(d, p, s) for s in config.seeds for d in config.data for p in config.presets]
    runs.train_all(config, train, wanted)
    runs.publish(RESULTS, TABLES, FIGURES)


def train(config, data, preset, seed, results=None):
    """Trains one agent, and keeps what the tables need."""
    runs.train(config, "train_decision_transformer", preset, seed, *config.options(data))
    run = training(config, data, preset, seed).path
    runs.keep(run, results or RESULTS, preset=preset, seed=seed, data=data_name(data))


def training(config, data, preset, seed):
    """The configuration of a run."""
    numbers = train_decision_transformer.PRESETS[preset]
    return dataclasses.replace(numbers, data=data, seed=seed, runs=config.runs)


def data_name(source):
    """The last two parts of a source, and whether it was a folder or file of this machine."""
    kind, _, name = source.rstrip("/").partition(":")
    local = "local " if name and pathlib.Path(name).exists() else ""
    return local + "/".join((name or kind).split("/")[-2:])


def loaded(results):
    """Runs of every data set and preset: dict (data, preset, mean) → list of summaries, sorted.

    Recordings of one name are told apart by the mean of their returns.
    """
    found = {}
    for path in sorted(pathlib.Path(results).glob("*.json")):
        summary = json.loads(path.read_text())
        recording = summary["data_return"]["mean"]
        found.setdefault((summary["data"], summary["preset"], recording), []).append(summary)
    return dict(sorted(found.items()))


def table(results):
    """One line for every data set and preset: the return at the highest target, and at a better."""
    rows = []
    for (data, preset, _), found in loaded(results).items():
        played = [run for run in found if "last" in run]
        asked = common_targets(played)
        highest, better = (asked[-1], best_target(played)) if asked else (None, None)
        errors = [list(run["action_error"].values()) for run in found]
        rows.append(
            {
                "data (environment)": f"{data} ({found[0]['environment']})",
                "mean return, best": recorded(found[0]),
                "agent": preset,
                "updates": f"{found[0]['step']:,}",
                "seeds": len(found),
                "asked for": highest if len(asked) > 1 else None,
                "last weights": over_seeds(played, "last", highest),
                "best weights": over_seeds(played, "best", highest),
                "did best asked for": f"{better}: {over_seeds(played, 'last', better)}"
                if better != highest
                else None,
                "action error": f"{np.mean(errors):.3g}",
            }
        )
    return markdown_table(rows)


def recorded(run):
    """Mean and best return of the data, in words."""
    return "{mean:,.4g}, {max:,.4g}".format(**run["data_return"])


def common_targets(runs):
    """The targets that all were asked for with the last weights, sorted."""
    asked = [set(run["last"]) for run in runs]
    return sorted(set.intersection(*asked), key=float) if asked else []


def best_target(runs):
    """The common target whose return with the last weights is highest, over all seeds."""
    return max(
        common_targets(runs),
        key=lambda target: np.mean([run["last"][target]["return"] for run in runs]),
    )


def over_seeds(found, which, target):
    """Mean and range over seeds of the returns at a target."""
    returns = [run[which][target]["return"] for run in found if which in run]
    return spread(returns, ",.4g") if returns else None


def returns_figure(results, name):
    """Returns reached against those asked for, a panel a data set so called, its noise clipped."""
    panels, references = {}, {}
    for (data, preset, recording), found in loaded(results).items():
        last = [run["last"] for run in found if "last" in run]
        if name not in data or "-tanh-" in data or not last:
            continue
        title = f"{data}\n({found[0]['environment']}, mean {recording:,.4g})"
        lines = references.setdefault(title, {"mean of the data": recording})
        asked = common_targets([run for run in found if "last" in run])
        reached = [[row[target]["return"] for target in asked] for row in last]
        if len(asked) == 1:  # cloned behaviour, whatever is asked for
            lines[preset] = np.mean(reached)
        else:
            panels.setdefault(title, {})[preset] = ([float(target) for target in asked], reached)
    return viz.returns_figure(panels, references) if panels else None


TABLES = {"table": table}
FIGURES = {
    f"{name}-returns": functools.partial(returns_figure, name=name)
    for name in ("doorkey", "walker2d", "hopper", "halfcheetah")
}
