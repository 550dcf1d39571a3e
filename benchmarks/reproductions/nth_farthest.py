"""Trains every Nth farthest memory that the docs report, several seeds each, and their tables."""

import dataclasses
import functools
import pathlib
import shutil

import numpy as np

from benchmarks import runs
from benchmarks.runs import in_words, logs, percent, spread
from benchmarks.tables import markdown_table

RESULTS = pathlib.Path("docs/results/nth_farthest")
TASKS = {"fast": "4 vectors of 4 numbers", "five": "5 vectors of 4 numbers"}
CORES = {
    "": "Relational Memory Core",
    "-lstm": "LSTM",
    "-transformer": "causal transformer",
}
PRESETS = [f"{task}{core}" for task in TASKS for core in CORES]
NO_STAGES = ("--stages",)  # followed by nothing: the whole task from the start
STUDY = {
    "adam": ("Adam", ("--optimizer=adam", *NO_STAGES)),
    "muon": ("Muon", NO_STAGES),
    "adam-stages": ("Adam, stages", ("--optimizer=adam",)),
    "muon-stages": ("Muon, stages", ()),
}
"""Variant → its name in the table, and what is asked of the training script."""
STUDY_TASK = ("--batch-size=128", "--epochs=30")


@dataclasses.dataclass(frozen=True)
class Config(runs.Config):
    """Which runs, and how many at a time."""

    runs: str = "runs/nth_farthest"


def main(config):
    """Trains the memories that the docs report and writes their tables and figures."""
    final = [(f"{preset}-seed{s}", preset, s, ()) for s in config.seeds for preset in PRESETS]
    study = [
        (f"study-{variant}-seed{s}", "fast", s, (*STUDY_TASK, *arguments))
        for s in config.seeds
        for variant, (_, arguments) in STUDY.items()
    ]
    runs.train_all(config, train, [*final, *study])
    runs.publish(RESULTS, TABLES, FIGURES)


def train(config, name, preset, seed, arguments):
    """Trains one memory, and keeps what the tables need."""
    run = runs.train(config, "train_nth_farthest", preset, seed, *arguments, name=name)
    runs.keep(run, RESULTS)
    if name == "fast-seed0":
        shutil.copy(run / "figures" / "attention.png", RESULTS / "attention.png")


def table(results):
    """The runs' last evaluations, and the floors, as a Markdown table."""
    rows, accuracy = [], "accuracy on 20,000 new questions"
    for task, task_label in TASKS.items():
        for core, label in CORES.items():
            found = summaries(results, f"{task}{core}")
            rows.append(
                {
                    "task": task_label,
                    "model": label,
                    "parameters": f"{found[0]['parameters']:,}",
                    "seeds": len(found),
                    "updates": f"{max(run['step'] for run in found):,}",
                    accuracy: percent(found, "eval/accuracy"),
                    "minutes of training": minutes(found),
                }
            )
        rows += [
            {"task": task_label, "model": f"*{name}* (simulated)", accuracy: f"{100 * v:.1f} %"}
            for name, v in summaries(results, task)[0]["floors"].items()
        ]
    return markdown_table(rows)


def ranks(results):
    """Accuracy by the rank that is asked for, a mean over the seeds, as a Markdown table."""
    rows = []
    for task, task_label in TASKS.items():
        for core, label in CORES.items():
            found = [run["eval/accuracy_of_n"] for run in summaries(results, f"{task}{core}")]
            shares = {f"n = {n}": f"{100 * v:.1f} %" for n, v in enumerate(np.mean(found, axis=0))}
            rows.append({"task": task_label, "model": label, **shares})
    return markdown_table(rows)


def plateau(results):
    """What ends the plateau, on four vectors of four numbers, as a Markdown table."""
    floors = summaries(results, "study-adam")[0]["floors"]
    rows = []
    for variant, (label, _) in STUDY.items():
        found, kept = summaries(results, f"study-{variant}"), logs(results, f"study-{variant}")
        first = [first_above(log, floors["norms only"]) for log in kept]
        rows.append(
            {
                "training": label,
                "seeds": len(found),
                "accuracy": percent(found, "eval/accuracy"),
                "first evaluation above *norms only*, updates": in_words(first),
                "minutes of training": minutes(found),
            }
        )
    rows += [{"training": f"*{n}*", "accuracy": f"{100 * v:.1f} %"} for n, v in floors.items()]
    return markdown_table(rows)


def minutes(found):
    """How long runs trained."""
    return spread([run["training_minutes"] for run in found], ".0f")


def first_above(log, accuracy):
    """Updates before the first evaluation of the whole task above that accuracy, or `None`."""
    return next((int(row["step"]) for row in log if row.get("eval/accuracy", 0) > accuracy), None)


def curves(results, task):
    """Accuracy on a whole task against updates, with the floors."""
    return runs.curves(
        results,
        {f"{task}{core}": label for core, label in CORES.items()},
        "eval/accuracy",
        ylabel=f"accuracy, {TASKS[task]}",
        xlabel="updates",
        references=summaries(results, task)[0]["floors"],
        ylim=(0, 1),
    )


def summaries(results, name):
    """Last evaluations of all seeds of a run.

    Raises:
        ValueError: if there is none.
    """
    found = runs.summaries(results, name)
    if not found:
        raise ValueError(f"no results of {name} in {results}; run without --no-train")
    return found


TABLES = {"table": table, "ranks": ranks, "plateau": plateau}
FIGURES = {task: functools.partial(curves, task=task) for task in TASKS}
