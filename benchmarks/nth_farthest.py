"""Trains every Nth farthest memory that the docs report, several seeds each, and writes the tables.

    python -m benchmarks.nth_farthest             # trains what is missing (two hours on one core)
    python -m benchmarks.nth_farthest --no-train  # tables, figure from docs/results/nth_farthest

What a run leaves for the tables (its metrics and its last evaluation) is copied to
`docs/results/nth_farthest`; the tables and the figure beside them are made from those copies.
"""

import concurrent.futures
import dataclasses
import pathlib
import shutil

import numpy as np

from benchmarks import tables, training_runs
from rrl_tf import viz
from rrl_tf.training import atomic_file
from train_scripts import command_line, train_nth_farthest

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
class Config:
    """Which runs, and how many at a time."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of each. The tables take in whatever seeds lie in the results folder."""
    runs: str = "runs/nth_farthest"
    """Where runs are kept; those that are there already are not trained again."""
    jobs: int = 1
    """Runs at a time, one thread each."""
    train: bool = True
    """Train what is missing, or only draw up the tables again."""


def main(config):
    """Trains the memories that the docs report and writes their tables and figure."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    if config.train:
        final = [(f"{preset}-seed{s}", preset, s, ()) for s in config.seeds for preset in PRESETS]
        study = [
            (f"study-{variant}-seed{s}", "fast", s, (*STUDY_TASK, *arguments))
            for s in config.seeds
            for variant, (_, arguments) in STUDY.items()
        ]
        with concurrent.futures.ThreadPoolExecutor(config.jobs) as pool:
            list(pool.map(lambda run: train(config.runs, *run), [*final, *study]))
    for name, make in (("table", table), ("ranks", ranks), ("plateau", plateau)):
        with atomic_file(RESULTS / f"{name}.md") as draft:
            draft.write_text(make())
        print(make())
    for task in TASKS:
        viz.save_figure(curves(task), RESULTS / f"{task}.png")
    tables.main()


def train(folder, name, preset, seed, arguments):
    """Trains one memory in a process of its own, and keeps what the tables need."""
    names = [f"--preset={preset}", f"--seed={seed}", f"--runs={folder}", f"--name={name}"]
    training_runs.train("train_nth_farthest", *names, *arguments)
    run = pathlib.Path(folder) / name
    training_runs.keep(run, RESULTS)
    if (seed, preset) == (0, "fast") and not arguments:
        shutil.copy(run / "figures" / "attention.png", RESULTS / "attention.png")


def table():
    """The runs' last evaluations, and the floors, as a Markdown table."""
    lines = [
        "| task | model | parameters | seeds | updates | accuracy on 20,000 new questions "
        "| minutes of training |",
        "|---|---|---|---|---|---|---|",
    ]
    for task, task_label in TASKS.items():
        for core, label in CORES.items():
            runs = summaries(f"{task}{core}")
            cells = [
                task_label,
                label,
                f"{runs[0]['parameters']:,}",
                str(len(runs)),
                f"{max(run['step'] for run in runs):,}",
                training_runs.spread([100 * run["eval/accuracy"] for run in runs], unit=" %"),
                training_runs.spread([run["training_minutes"] for run in runs], digits=0),
            ]
            lines.append(f"| {' | '.join(cells)} |")
        floors = summaries(task)[0]["floors"]
        lines += [
            f"| {task_label} | *{name}* (simulated) | | | | {100 * floor:.1f} % | |"
            for name, floor in floors.items()
        ]
    return "\n".join(lines) + "\n"


def ranks():
    """Accuracy by the rank that is asked for, a mean over the seeds, as a Markdown table."""
    most = max(train_nth_farthest.PRESETS[task].num_vectors for task in TASKS)
    names = [f"n = {n}" for n in range(most)]
    lines = [f"| task | model | {' | '.join(names)} |", f"|{'---|' * (most + 2)}"]
    for task, task_label in TASKS.items():
        for core, label in CORES.items():
            runs = [run["eval/accuracy_of_n"] for run in summaries(f"{task}{core}")]
            cells = [f"{100 * share:.1f} %" for share in np.mean(runs, axis=0)]
            cells += [""] * (most - len(cells))
            lines.append(f"| {task_label} | {label} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def plateau():
    """What ends the plateau, on four vectors of four numbers, as a Markdown table."""
    floors = summaries("study-adam")[0]["floors"]
    lines = [
        "| training | seeds | accuracy | first evaluation above *norms only*, updates "
        "| minutes of training |",
        "|---|---|---|---|---|",
    ]
    for variant, (label, _) in STUDY.items():
        runs = summaries(f"study-{variant}")
        first = [first_above(rows, floors["norms only"]) for rows in metrics(f"study-{variant}")]
        cells = [
            label,
            str(len(runs)),
            training_runs.spread([100 * run["eval/accuracy"] for run in runs], unit=" %"),
            ", ".join("never" if step is None else f"{step:,}" for step in first),
            training_runs.spread([run["training_minutes"] for run in runs], digits=0),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [f"| *{name}* | | {100 * floor:.1f} % | | |" for name, floor in floors.items()]
    return "\n".join(lines) + "\n"


def first_above(rows, accuracy):
    """Updates before the first evaluation of the whole task above that accuracy, or `None`."""
    return next((int(step) for step, value in evaluated(rows) if value > accuracy), None)


def curves(task):
    """Accuracy on a whole task against updates, with the floors."""
    lines = {}
    for core, label in CORES.items():
        runs = [evaluated(rows) for rows in metrics(f"{task}{core}")]
        lines[label] = ([s for s, _ in runs[0]], [[value for _, value in run] for run in runs])
    return viz.learning_curves(
        lines,
        ylabel=f"accuracy, {TASKS[task]}",
        xlabel="updates",
        references=summaries(task)[0]["floors"],
        ylim=(0, 1),
    )


def evaluated(rows):
    """Pairs of updates and accuracy on the whole task."""
    return [(row["step"], row["eval/accuracy"]) for row in rows if "eval/accuracy" in row]


def summaries(name):
    """Last evaluations of all seeds of a run.

    Raises:
        ValueError: if there is none.
    """
    found = training_runs.summaries(RESULTS, name)
    if not found:
        raise ValueError(f"no results of {name} in {RESULTS}; run without --no-train")
    return found


def metrics(name):
    """Logs of all seeds of a run."""
    return [training_runs.metrics(path) for path in training_runs.files(RESULTS, name, "csv")]


if __name__ == "__main__":
    command_line.run(main, Config)
