"""Train a relational and a convolutional network on Sort-of-CLEVR."""

import numpy as np

from benchmarks.reproduction import (
    Reproduction,
    Training,
    last_step,
    learning_curves,
    percent,
    spread,
)
from rrl_tf.data.sort_of_clevr import TEXTS

TRAININGS = {
    "fast": Training("relational", "train_sort_of_clevr", "fast"),
    "cnn": Training("convolutional", "train_sort_of_clevr", "cnn"),
}
# The most frequent answer to each kind of question: a shape or a half has probability 1/2, and of
# six objects most often three or four have the same shape (that object and 2 or 3 of 5 others).
BLIND = {"non-relational": 0.5, "relational": (0.5 + 0.5 + 10 / 32) / 3}


def table(results):
    """Return the last evaluations, and the accuracy without the picture."""
    rows = []
    for training, found in results.of_each(TRAININGS):
        minutes = [each["cpu_minutes"] for each in found if "cpu_minutes" in each]
        rows.append(
            {
                "network": training.label,
                "parameters": f"{found[0]['parameters']:,}",
                "seeds": len(found),
                "updates": last_step(found),
                "relational questions": percent(found, "test/relational"),
                "non-relational questions": percent(found, "test/non_relational"),
                "CPU minutes": spread(minutes, ".0f") if minutes else None,
            }
        )
    blind = {f"{name} questions": f"{100 * fraction:.1f} %" for name, fraction in BLIND.items()}
    return [*rows, {"network": "*most frequent answer, no picture*", **blind}]


def kinds(results):
    """Return the accuracy by the kind of question, a mean over the seeds."""
    rows = []
    for text in (text.format("...") for text in TEXTS):
        row = {"question": text}
        for name, training in TRAININGS.items():
            accuracies = [each["test/of_kinds"][text] for each in results.of(name)]
            row[training.label] = f"{100 * np.mean(accuracies):.1f} %"
        rows.append(row)
    return rows


REPRODUCTION = Reproduction(
    page="sort_of_clevr",
    trainings=TRAININGS,
    tables={"table": table, "kinds": kinds},
    figures={
        "curves": learning_curves(
            "eval/relational",
            "accuracy on relational questions",
            {name: training.label for name, training in TRAININGS.items()},
            xlabel="updates",
            references={"most frequent answer": BLIND["relational"]},
            ylim=(0, 1),
        )
    },
    curves=("eval/relational",),
    pictures={"fast-seed0": ("attention.png",)},
)
