"""Train on the levels of MemoryS17 up to S11, each time without one part of the training.

S11 is the first level on which no view shows everything that the agent has to know.
"""

import shlex

from benchmarks.reproduction import (
    Reproduction,
    Training,
    first_steps,
    last_step,
    learning_curves,
    percent,
    read_log,
    spread,
)
from rrl_tf.agents.evaluation import NOISE

TASK = shlex.split(
    "--sizes 7 9 11 --steps=200000 --learning-rate-updates=12500 --learning-rate-hold=8000"
)
"""Options of all variants, which replace those of the preset `memory-s17`."""
LAST_LEVEL = 3


def variant(label, *options):
    """Return the training of a variant with further options."""
    return Training(label, "train_recurrent", "memory-s17", (*TASK, *options))


RELATIONAL_MEMORY = "--network=relational-memory-long-dense"
TRAININGS = {
    "whole": variant("no change"),
    "short-gates": variant("LSTM with a forget bias of 1, not chrono", "--network=lstm-dense"),
    "one-epsilon": variant(
        "ε = 0.15 in all environments", "--epsilon-end=0.15", "--epsilon-exponent=0"
    ),
    "no-hold": variant("learning rate decays from the start", "--learning-rate-hold=0"),
    "empty-memory": variant("replayed sequences start with zeros", "--no-stored-state"),
    "no-burn-in": variant("no burn-in", "--burn-in=0"),
    "short-sequences": variant("unroll length 16, not 24", "--unroll-length=16"),
    "discount": variant("discount 0.95, not 0.98", "--discount=0.95"),
    "leaky": variant("leaky ReLU after the memory", "--hidden-activation=leaky_relu"),
    "relational-memory": variant("chrono Relational Memory", RELATIONAL_MEMORY),
    "relational-memory-leaky": variant(
        "chrono Relational Memory, leaky ReLU",
        RELATIONAL_MEMORY,
        "--hidden-activation=leaky_relu",
    ),
    "four-frames": variant("four frames instead of a memory", "--network=none-dense", "--frames=4"),
    "no-memory": variant("no memory", "--network=none-dense"),
}
DRAWN = (
    "whole",
    "short-gates",
    "one-epsilon",
    "empty-memory",
    "short-sequences",
    "relational-memory",
    "no-memory",
)
"""Variants in the figure, which has only as many lines as there are distinct colours."""


def measure(run):
    """Return the step at which a run reached the last level, `None` if it never did."""
    levels = [row for row in read_log(run) if row.get("zero_shot/level") == LAST_LEVEL]
    return {"reached": int(levels[0]["step"]) if levels else None}


def table(results):
    """Return the last evaluations."""
    return [
        {
            "change": training.label,
            "seeds": len(found),
            "steps": last_step(found),
            "first step on S11": first_steps([each["reached"] for each in found]),
            "greedy success on S11": percent(found, "eval/success"),
            f"success, ε = {NOISE}": percent(found, f"eval/success_epsilon_{NOISE}"),
            "CPU minutes": spread([each["cpu_minutes"] for each in found], ".0f"),
        }
        for training, found in results.of_each(TRAININGS)
    ]


REPRODUCTION = Reproduction(
    page="memory_ablations",
    trainings=TRAININGS,
    tables={"table": table},
    figures={
        "curves": learning_curves(
            "eval/success",
            "greedy success",
            {name: TRAININGS[name].label for name in DRAWN},
            ylim=(-0.02, 1.02),
        )
    },
    curves=("eval/success",),
    measure=measure,
)
