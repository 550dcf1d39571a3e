"""Trains Decision Transformers and what they must beat on recorded data, and writes the table.

    python -m benchmarks.offline                                  # DoorKey, no download
    python -m benchmarks.offline --data minari:A minari:B --presets fast min-dt bc bc-10
    python -m benchmarks.offline --no-train                       # the tables alone

What a run leaves for the tables is copied to `docs/results/decision_transformer`. Rows are named by
their data: a return says nothing without them.
"""

import concurrent.futures
import dataclasses
import json
import pathlib
import shutil

import numpy as np

from benchmarks import tables, training_runs
from rrl_tf import viz
from rrl_tf.training import atomic_file
from train_scripts import command_line, train_decision_transformer

RESULTS = pathlib.Path("docs/results/decision_transformer")


@dataclasses.dataclass(frozen=True)
class Config:
    """Which runs, and how many at a time."""

    data: tuple[str, ...] = ("doorkey",)
    """Sources as `train_scripts.train_decision_transformer` takes them."""
    presets: tuple[str, ...] = ("doorkey", "doorkey-bc")
    """Its presets."""
    seeds: tuple[int, ...] = (0, 1)
    """Seeds of each. The table takes in whatever seeds lie in the results folder."""
    targets: tuple[float, ...] = ()
    """Returns to ask for; by default the preset's."""
    runs: str = "runs/decision_transformer"
    """Where runs are kept; those that are there already are not trained again."""
    threads: int = 1
    """Of each run."""
    jobs: int = 1
    """Runs at a time."""
    train: bool = True
    """Train what is missing, or only draw up the tables again."""


def main(config):
    """Trains what the docs report and writes its tables and figure."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    if config.train:
        runs = [(d, p, s) for s in config.seeds for d in config.data for p in config.presets]
        with concurrent.futures.ThreadPoolExecutor(config.jobs) as pool:
            list(pool.map(lambda run: train(config, *run), runs))
    with atomic_file(RESULTS / "table.md") as draft:
        draft.write_text(table(RESULTS))
    runs = loaded(RESULTS)
    for name in ("doorkey", "walker2d"):
        if figure := returns_figure({k: v for k, v in runs.items() if name in k[0]}):
            viz.save_figure(figure, RESULTS / f"{name}-returns.png")
    tables.main()
    print((RESULTS / "table.md").read_text())


def train(config, data, preset, seed):
    """Trains one agent in a process of its own, and keeps what the tables need."""
    arguments = [f"--preset={preset}", f"--data={data}", f"--seed={seed}", f"--runs={config.runs}"]
    if config.targets:
        arguments += ["--targets", *map(str, config.targets)]
    training_runs.train("train_decision_transformer", *arguments, threads=config.threads)
    training = dataclasses.replace(
        train_decision_transformer.PRESETS[preset], data=data, seed=seed, runs=config.runs
    )
    run = training.path
    summary = json.loads((run / "evaluation.json").read_text())
    summary |= {"preset": preset, "seed": seed, "data": data_name(data)}
    with atomic_file(RESULTS / f"{run.name}.json") as draft:
        draft.write_text(json.dumps(summary, indent=2) + "\n")
    shutil.copy(run / "metrics.csv", RESULTS / f"{run.name}.csv")


def data_name(source):
    """The last two parts of a source, and whether it was a folder or file of this machine."""
    kind, _, name = source.rstrip("/").partition(":")
    local = "local " if name and pathlib.Path(name).exists() else ""
    return local + "/".join((name or kind).split("/")[-2:])


def loaded(results):
    """Runs of every data set and preset: dict (data, preset) → list of summaries, sorted."""
    runs = {}
    for path in sorted(pathlib.Path(results).glob("*.json")):
        summary = json.loads(path.read_text())
        runs.setdefault((summary["data"], summary["preset"]), []).append(summary)
    return dict(sorted(runs.items()))


def table(results):
    """One line for every data set and preset: the return at the target that did best."""
    lines = [
        "| data (environment) | mean return, best | agent | updates | seeds | asked for | "
        "last weights | best weights | action error |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (data, preset), runs in loaded(results).items():
        played = [run for run in runs if "last" in run]
        target = best_target(played) if played else None
        columns = [
            f"{data} ({runs[0]['environment']})",
            "{mean:,.4g}, {max:,.4g}".format(**runs[0]["data_return"]),
            preset,
            f"{runs[0]['step']:,}",
            str(len(runs)),
            target if played and len(played[0]["last"]) > 1 else "",
            over_seeds(played, "last", target),
            over_seeds(played, "best", max(played[0]["last"], key=float)) if played else "",
            f"{np.mean([list(run['action_error'].values()) for run in runs]):.3g}",
        ]
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines) + "\n"


def best_target(runs):
    """The target whose return with the last weights is highest, over all seeds."""
    return max(
        runs[0]["last"], key=lambda target: np.mean([run["last"][target]["return"] for run in runs])
    )


def over_seeds(runs, which, target):
    """Mean and range over seeds of the returns at a target."""
    returns = [run[which][target]["return"] for run in runs if which in run]
    if not returns:
        return ""
    low, high = min(returns), max(returns)
    return f"{np.mean(returns):,.4g}" + (f" ({low:,.4g} to {high:,.4g})" if low < high else "")


def returns_figure(runs):
    """Returns reached against returns asked for, a panel a data set."""
    panels, references = {}, {}
    for (data, preset), found in runs.items():
        last = [run["last"] for run in found if "last" in run]
        if not last:
            continue
        title = f"{data}\n({found[0]['environment']})"
        lines = references.setdefault(title, {"mean of the data": found[0]["data_return"]["mean"]})
        if len(last[0]) == 1:  # cloned behaviour, whatever is asked for
            [target] = last[0]
            lines[preset] = np.mean([row[target]["return"] for row in last])
        else:
            asked = [float(target) for target in last[0]]
            reached = [[row["return"] for row in each.values()] for each in last]
            panels.setdefault(title, {})[preset] = (asked, reached)
    return viz.returns_figure(panels, references) if panels else None


if __name__ == "__main__":
    command_line.run(main, Config)
