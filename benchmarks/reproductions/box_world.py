"""Train relational and convolutional agents on Box-World."""

import json

from benchmarks.reproduction import (
    Reproduction,
    Training,
    last_step,
    learning_curves,
    percent,
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
    """Return the number of parameters of a run's network."""
    return {"parameters": json.loads((run / "config.json").read_text())["parameters"]}


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


REPRODUCTION = Reproduction(
    page="box_world",
    trainings=TRAININGS,
    tables={"table": table},
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
