"""What each part of the recipe for MemoryS17 is worth, on the way to S11, several seeds each.

    python -m benchmarks reproductions/memory_ablations --variants whole short-gates

S11 is the first level on which no view shows all that has to be known, and the one that takes
longest. What is finished is not trained again, and what was stopped goes on.
"""

import dataclasses
import pathlib
import shlex

from benchmarks import runs
from benchmarks.runs import percent, spread, summaries
from benchmarks.tables import markdown_table
from rrl_tf import viz
from rrl_tf.agents.agent_evaluation import NOISE

RESULTS = pathlib.Path("docs/results/memory_ablations")
TASK = shlex.split(
    "--sizes 7 9 11 --steps=200000 --learning-rate-updates=12500 --learning-rate-hold=8000"
)
"""What is asked of all, in the place of the numbers of the preset `memory-s17`."""
VARIANTS = {
    "whole": ("all of it", ()),
    "short-gates": ("an LSTM whose forget bias begins at 1", ("--network=lstm-dense",)),
    "one-epsilon": (
        "the same ε, 0.15, in all environments",
        ("--epsilon-end=0.15", "--epsilon-exponent=0"),
    ),
    "no-hold": ("a step size that falls from the start", ("--learning-rate-hold=0",)),
    "empty-memory": ("sequences that begin with an empty memory", ("--no-stored-memory",)),
    "no-burn-in": ("no burn-in", ("--burn-in=0",)),
    "short-sequences": ("16 learned steps, not 24", ("--learned-steps=16",)),
    "discount": ("a discount of 0.95, not 0.98", ("--discount=0.95",)),
    "leaky": ("units after the memory that leak", ("--hidden-activation=leaky_relu",)),
    "relational-memory": (
        "a Relational Memory for long spans",
        ("--network=relational-memory-long-dense",),
    ),
    "relational-memory-leaky": (
        "a Relational Memory for long spans, and units after it that leak",
        ("--network=relational-memory-long-dense", "--hidden-activation=leaky_relu"),
    ),
    "four-frames": ("no memory, but four frames", ("--network=none-dense", "--frames=4")),
    "no-memory": ("no memory", ("--network=none-dense",)),
}
"""What is otherwise: in the table's words, and as options of the script."""
LAST_LEVEL = 3


@dataclasses.dataclass(frozen=True)
class Config(runs.Config):
    """Which runs, and how many at a time."""

    variants: runs.any_of(VARIANTS) = tuple(VARIANTS)
    """What is otherwise in a run."""
    runs: str = "runs/memory_ablations"


def main(config):
    """Trains with one part less at a time and writes the table and the figure of the docs."""
    wanted = [(variant, seed) for seed in config.seeds for variant in config.variants]
    runs.train_all(config, train, wanted)
    runs.publish(RESULTS, {"table": table}, {"curves": curves})


def train(config, variant, seed):
    """Trains one agent, and keeps what the table needs."""
    _, options = VARIANTS[variant]
    name = f"{variant}-seed{seed}"
    run = runs.train(config, "train_recurrent", "memory-s17", seed, *TASK, *options, name=name)
    rows = runs.metrics(run / "metrics.csv")
    runs.keep(run, RESULTS, cpu_minutes=rows[-1]["time/cpu_minutes"], reached=reached(rows))


def reached(rows):
    """Steps of the log at which the last level was come to; None if it never was."""
    return next(
        (int(row["step"]) for row in rows if row.get("zero_shot/level") == LAST_LEVEL), None
    )


def table(results):
    """The runs' last evaluations as a Markdown table."""
    rows = []
    for variant, (label, _) in VARIANTS.items():
        if not (found := summaries(results, variant)):
            continue
        came = [run["reached"] for run in found]
        row = {"trained with": label, "seeds": len(found)}
        row["steps"] = f"{max(run['step'] for run in found):,}"
        row["came to S11 after"] = ", ".join("never" if at is None else f"{at:,}" for at in came)
        row["greedy success there"] = percent(found, "eval/success")
        row[f"ε = {NOISE}"] = percent(found, f"eval/success_epsilon_{NOISE}")
        row["CPU minutes"] = spread([run["cpu_minutes"] for run in found], ".0f")
        rows.append(row)
    return markdown_table(rows)


def curves(results):
    """Greedy success on the level that is trained against steps, a panel a variant."""
    labels = {variant: label for variant, (label, _) in VARIANTS.items()}
    return runs.curves(
        results,
        labels,
        "eval/success",
        "greedy success",
        draw=viz.learning_curve_panels,
        ylim=(-0.02, 1.02),
    )
