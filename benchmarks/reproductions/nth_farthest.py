"""Train memories on the task Nth farthest, and measure what ends their plateau."""

import json

import numpy as np

from benchmarks.reproduction import (
    Reproduction,
    Training,
    first_steps,
    last_step,
    learning_curves,
    percent,
    read_config,
    read_log,
    spread,
)
from train_scripts import train_nth_farthest

SCRIPT = "train_nth_farthest"
TASKS = {
    "fast": "4 vectors of 4 numbers",
    "five": "5 vectors of 4 numbers",
    "paper": "8 vectors of 16 numbers",
}
CORES = {"": "Relational Memory Core", "-lstm": "LSTM", "-transformer": "causal transformer"}
RATE = "--learning-rate=4e-3"
# Four vectors of four components: the farthest one, then one of the two farthest
FARTHEST = ("--stages", *"44104420", "--stage-passed=0.5", "--stage-rows=1000")
STUDY = {
    name: Training(label, SCRIPT, "fast", ("--batch-size=128", "--steps=6000", *options))
    for name, label, options in (
        # `--stages` without a value means the whole task from the start
        ("study-adam", "Adam", ("--optimizer=adam", "--stages")),
        ("study-muon", "Muon", ("--stages",)),
        ("study-adam-stages", "Adam, curriculum", ("--optimizer=adam",)),
        ("study-muon-stages", "Muon, curriculum", ()),
        ("study-rate", "Muon, learning rate 0.004", ("--stages", RATE)),
        ("study-farthest", "Muon, learning rate 0.004, the farthest first", (*FARTHEST, RATE)),
    )
}
TRAININGS = {
    **{
        f"{task}{core}": Training(CORES[core], SCRIPT, f"{task}{core}")
        for task in TASKS
        for core in CORES
    },
    **STUDY,
}


LATER = (20_000, 40_000, 60_000)
"""Updates at which the accuracy of the long runs is shown."""


def models(task):
    """Return dict variant → label of the models of a task."""
    return {f"{task}{core}": label for core, label in CORES.items()}


def measure(run):
    """Return when a run left the plateau and began the whole task, its curve and its CPU time."""
    config = read_config(run, train_nth_farthest.Config)
    questions = train_nth_farthest.training_questions(config)
    norms = json.loads((run / "evaluation.json").read_text())["floors"]["norms only"]
    log = read_log(run)
    accuracy = {int(row["step"]): row["eval/accuracy"] for row in log if "eval/accuracy" in row}
    whole_task = (
        int(row["step"])
        for i, row in enumerate(log)
        if train_nth_farthest.current_stage(log[: i + 1], questions, config) == len(config.stages)
    )
    return {
        "first_above_norms": next((step for step in accuracy if accuracy[step] > norms), None),
        "whole_task_from": next(whole_task, None),
        "accuracy_after": {step: accuracy[step] for step in LATER if step in accuracy},
        "cpu_minutes": sum(row["time/epoch_cpu"] for row in log) / 60,
    }


def table(results):
    """Return the last evaluations, and the simulated floors."""
    rows, accuracy = [], "accuracy on 20,000 new questions"
    for task, task_label in TASKS.items():
        for label, found in results.of_each(models(task)):
            rows.append(
                {
                    "task": task_label,
                    "model": label,
                    "parameters": f"{found[0]['parameters']:,}",
                    "seeds": len(found),
                    "updates": last_step(found),
                    accuracy: percent(found, "eval/accuracy"),
                    "training minutes": minutes(found),
                }
            )
        rows += [
            {"task": task_label, "model": f"*{name}* (simulated)", accuracy: f"{100 * value:.1f} %"}
            for name, value in floors(results, task).items()
        ]
    return rows


def seeds(results):
    """Return every run on eight vectors of 16 numbers, with points of its curve."""
    return [
        {
            "model": label,
            "seed": each["seed"],
            "whole task from update": first_steps([each["whole_task_from"]]),
            **{
                f"accuracy after {step:,}": f"{100 * each['accuracy_after'][str(step)]:.1f} %"
                for step in LATER
            },
            f"after {each['step']:,}": f"{100 * each['eval/accuracy']:.1f} %",
            "CPU minutes": f"{each['cpu_minutes']:.0f}",
        }
        for label, found in results.of_each(models("paper"))
        for each in found
    ]


def ranks(results):
    """Return the accuracy by the requested rank, a mean over the seeds."""
    rows = []
    for task, task_label in TASKS.items():
        for label, found in results.of_each(models(task)):
            means = np.mean([each["eval/accuracy_of_n"] for each in found], axis=0)
            by_rank = {f"n = {n}": f"{100 * value:.1f} %" for n, value in enumerate(means)}
            rows.append({"task": task_label, "model": label, **by_rank})
    return rows


def plateau(results):
    """Return when each run of `STUDY` leaves the plateau, for 4 vectors of 4 numbers."""
    rows = [
        {
            "training": training.label,
            "seeds": len(found),
            "accuracy": percent(found, "eval/accuracy"),
            "first update above *norms only*": first_steps(
                [each["first_above_norms"] for each in found]
            ),
            "training minutes": minutes(found),
        }
        for training, found in results.of_each(STUDY)
    ]
    return rows + [
        {"training": f"*{name}*", "accuracy": f"{100 * value:.1f} %"}
        for name, value in floors(results, "study-adam").items()
    ]


def minutes(found):
    """Format the duration of training runs."""
    return spread([each["training_minutes"] for each in found], ".0f")


def floors(results, variant):
    """Return dict name → accuracy of simple strategies; none if the variant was not trained."""
    return next((each["floors"] for each in results.of(variant)), {})


def curves(task):
    """Return the figure function of a task: accuracy against updates, with the floors."""

    def figure(results):
        return learning_curves(
            "eval/accuracy",
            f"accuracy, {TASKS[task]}",
            models(task),
            xlabel="updates",
            references=floors(results, task),
            ylim=(0, 1),
        )(results)

    return figure


REPRODUCTION = Reproduction(
    page="nth_farthest",
    trainings=TRAININGS,
    tables={"table": table, "ranks": ranks, "plateau": plateau, "seeds": seeds},
    figures={task: curves(task) for task in TASKS},
    curves=("eval/accuracy",),
    measure=measure,
    pictures={"fast-seed0": ("attention.png",), "paper-seed1": ("attention.png",)},
)
