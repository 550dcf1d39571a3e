"""Train relational and convolutional agents on Box-World."""

import json

from benchmarks.reproduction import (
    Reproduction,
    Training,
    last_step,
    learning_curves,
    percent,
    read_log,
    spread,
)
from rrl_tf.agents.evaluation import NOISE
from train_scripts.train_box_world import KINDS


def variant(label, network, *options, preset="box-world", seeds=(0, 1, 2)):
    """Return the training of a network."""
    options = (f"--network={network}", *options)
    return Training(label, "train_box_world", preset, options, seeds)


TRAININGS = {
    "fast": variant("fast (relational)", "fast"),
    "convolutional": variant("convolutional", "convolutional"),
    "zambaldi": variant("zambaldi (relational)", "zambaldi", "--steps=2000000", seeds=(0,)),
    "paper": variant("12 x 12: fast", "fast", preset="paper", seeds=(0,)),
    "paper-convolutional": variant(
        "12 x 12: convolutional", "convolutional", "--steps=2000000", preset="paper", seeds=(0,)
    ),
}


def measure(run):
    """Return the number of parameters, and the log entries that passed a stage."""
    return {
        "parameters": json.loads((run / "config.json").read_text())["parameters"],
        "passed": [
            {
                name: row[name]
                for name in ("step", "eval/success", "zero_shot/success", "zero_shot/last_success")
            }
            for row in read_log(run)
            if "zero_shot/success" in row
        ],
    }


def table(results):
    """Return the last evaluations, on levels of each kind."""
    rows = []
    for training, found in results.of_each(TRAININGS):
        row = {
            "agent": training.label,
            "parameters": f"{found[0]['parameters']:,}",
            "seeds": len(found),
            "steps": last_step(found),
        }
        kinds = [each["generalization"] for each in found]
        for kind in KINDS:
            row[kind] = percent(kinds, kind)
            row[f"{kind}, ε = {NOISE}"] = percent(kinds, f"{kind}, ε = {NOISE}")
        row["CPU minutes"] = spread([each["cpu_minutes"] for each in found], ".0f")
        rows.append(row)
    return rows


def stages(results):
    """Return one row per stage that seed 0 passed in rooms of 12 x 12."""
    return [
        {
            "stage": i,
            "passed after": f"{row['step']:,.0f} steps",
            "success on the stage": f"{row['eval/success']:.1%}".replace("%", " %"),
            "on the next stage": f"{row['zero_shot/success']:.1%}".replace("%", " %"),
            "on the whole task": f"{row['zero_shot/last_success']:.1%}".replace("%", " %"),
        }
        for i, row in enumerate(results.evaluations["paper-seed0"]["passed"], start=1)
    ]


REPRODUCTION = Reproduction(
    page="box_world",
    trainings=TRAININGS,
    tables={"table": table, "stages": stages},
    figures={
        figure: learning_curves(
            "eval/success",
            ylabel,
            {name: each.label for name, each in TRAININGS.items() if each.preset == preset},
            ylim=(-0.02, 1.02),
        )
        for figure, ylabel, preset in (
            ("curves", "greedy success", "box-world"),
            ("paper", "greedy success on the current stage", "paper"),
        )
    },
    curves=("eval/success",),
    measure=measure,
    pictures={"fast-seed0": ("attention.png", "episode.gif")},
)
