"""Train Decision Transformers and simpler agents on recorded data.

    python -m benchmarks reproductions/offline --data minari:A minari:B --variants dense bc-10

Each row names its data, because a return has no meaning without them.
"""

import dataclasses
import functools
import json
import pathlib

import numpy as np

from benchmarks import runner
from benchmarks.reproduction import Reproduction, Training, spread
from rrl_tf import viz
from rrl_tf.training.config import require_positive

SCRIPT = "train_decision_transformer"


@dataclasses.dataclass(frozen=True)
class Config(runner.Config):
    """Select the data, the presets and the runs."""

    data: tuple[str, ...] = ("doorkey",)
    """Sources, as `train_scripts.train_decision_transformer` accepts them."""
    presets: tuple[str, ...] = ("doorkey", "doorkey-bc")
    """Presets of the script."""
    targets: tuple[float, ...] = ()
    """Target returns; by default those of the preset."""
    updates: int | None = None
    """Number of updates; by default that of the preset."""

    def __post_init__(self):
        super().__post_init__()
        require_positive(self, "updates")

    def options(self, data):
        """Return the options of the training script."""
        targets = ("--targets", *map(str, self.targets)) if self.targets else ()
        updates = (f"--steps={self.updates}",) if self.updates else ()
        return f"--data={data}", *targets, *updates


def trainings(config):
    """Return a `Training` for every dataset and preset."""
    return {
        run_name(preset, data): Training(preset, SCRIPT, preset, config.options(data))
        for data in config.data
        for preset in config.presets
    }


def run_name(variant, data):
    """Return the name of a run without its seed, such as `bc-walker2d-medium-v0`."""
    parts = data.rstrip("/").replace(":", "/").split("/")[-2:]
    return variant if variant.startswith(data) else "-".join((variant, *parts))


def measure(run):
    """Return the preset and the name of the data of a run."""
    config = json.loads((run / "config.json").read_text())
    return {"preset": config["preset"], "data": data_name(config["data"])}


def data_name(source):
    """Return the last two parts of a source, preceded by "local" for a local file or folder."""
    kind, _, name = source.rstrip("/").partition(":")
    local = "local " if name and pathlib.Path(name).exists() else ""
    return local + "/".join((name or kind).split("/")[-2:])


def grouped(results):
    """Return dict (data, preset, mean return of the data) → evaluations, sorted.

    The mean return distinguishes recordings that have the same name.
    """
    found = {}
    for each in results.evaluations.values():
        recording = each["data_return"]["mean"]
        found.setdefault((each["data"], each["preset"], recording), []).append(each)
    return dict(sorted(found.items()))


def group_of(data):
    """Return the group of tables that shows a dataset, such as `walker2d` or `tanh`."""
    return "tanh" if "-tanh-" in data else data.removeprefix("local ").partition("/")[0]


def table(results, *groups):
    """Return the returns for the highest and for the best target of every dataset and preset.

    Args:
        results: `Results`.
        groups: groups of datasets, see `group_of`.
    """
    rows = []
    for (data, preset, _), found in grouped(results).items():
        if group_of(data) not in groups:
            continue
        played = [each for each in found if "last" in each]
        targets = common_targets(played)
        highest, best = (targets[-1], best_target(played)) if targets else (None, None)
        errors = [list(each["action_error"].values()) for each in found]
        rows.append(
            {
                "data (environment)": f"{data} ({found[0]['environment']})",
                "recorded return: mean, best": recorded(found[0]),
                "preset": preset,
                "updates": f"{found[0]['step']:,}",
                "seeds": len(found),
                "target return": highest if len(targets) > 1 else None,
                "return, last weights": returns(played, "last", highest),
                "return, best weights": returns(played, "best", highest),
                "best target: return": f"{best}: {returns(played, 'last', best)}"
                if best != highest
                else None,
                "held-out action error": f"{np.mean(errors):.3g}",
            }
        )
    return rows


def walker2d_summary(results):
    """Return one row per preset: the return at the highest target on each Walker2d dataset."""
    references = {"mean": {"preset": "*mean of the data*"}, "max": {"preset": "*best episode*"}}
    rows = {}
    for (data, preset, _), found in grouped(results).items():
        if group_of(data) != "walker2d":
            continue
        column = data.rpartition("/")[-1].removesuffix("-v0")
        row = rows.setdefault(preset, {"preset": preset, "seeds": len(found)})
        row[column] = returns(found, "last", common_targets(found)[-1])
        for name, reference in references.items():
            reference[column] = f"{found[0]['data_return'][name]:,.0f}"
    return [*rows.values(), *references.values()]


def recorded(evaluation):
    """Format the mean and the best return of the data."""
    return "{mean:,.4g}, {max:,.4g}".format(**evaluation["data_return"])


def common_targets(evaluations):
    """Return the target returns that all runs were evaluated with, sorted."""
    targets = [set(each["last"]) for each in evaluations]
    return sorted(set.intersection(*targets), key=float) if targets else []


def best_target(evaluations):
    """Return the common target with the highest mean return over the seeds."""
    return max(
        common_targets(evaluations),
        key=lambda target: np.mean([each["last"][target]["return"] for each in evaluations]),
    )


def returns(evaluations, weights, target):
    """Format mean and range over seeds of the returns at a target."""
    found = [each[weights][target]["return"] for each in evaluations if weights in each]
    return spread(found, ",.4g") if found else None


def returns_figure(results, name):
    """Draw the returns against the targets, one panel per dataset with that name."""
    panels, references = {}, {}
    for (data, preset, recording), found in grouped(results).items():
        last = [each["last"] for each in found if "last" in each]
        if name not in data or "-tanh-" in data or not last:
            continue
        title = f"{data}\n({found[0]['environment']}, mean {recording:,.4g})"
        lines = references.setdefault(title, {"mean of the data": recording})
        targets = common_targets([each for each in found if "last" in each])
        reached = [[each[target]["return"] for target in targets] for each in last]
        if len(targets) == 1:  # behaviour cloning does not use the target
            lines[preset] = np.mean(reached)
        else:
            panels.setdefault(title, {})[preset] = ([float(target) for target in targets], reached)
    return viz.returns_figure(panels, references)


REPRODUCTION = Reproduction(
    page="decision_transformer",
    trainings=trainings,
    tables={
        "walker2d_summary": walker2d_summary,
        "doorkey": lambda results: table(results, "doorkey"),
        "walker2d": lambda results: table(results, "walker2d"),
        "walker2d_tanh": lambda results: table(results, "tanh"),
        "hopper_halfcheetah": lambda results: table(results, "hopper", "halfcheetah"),
    },
    figures={
        f"{name}-returns": functools.partial(returns_figure, name=name)
        for name in ("doorkey", "walker2d", "hopper", "halfcheetah")
    },
    measure=measure,
    config_class=Config,
)
