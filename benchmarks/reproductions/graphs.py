"""Train networks to predict which nodes are connected to a marked node."""

import numpy as np

from benchmarks.reproduction import Reproduction, Training, last_step, percent, spread

TRAININGS = {
    "fast": Training("along the edges", "train_graphs", "fast"),
    "without-edges": Training("between all nodes", "train_graphs", "without-edges"),
}
LARGE = "24 nodes"


def table(results):
    """Return the last evaluations, and the best accuracy without the edges."""
    rows = [
        {
            "attention": training.label,
            "parameters": f"{found[0]['parameters']:,}",
            "seeds": len(found),
            "updates": last_step(found),
            "12 nodes": percent(found, "test/accuracy", ".2f"),
            LARGE: percent(found, "test/larger", ".2f"),
            f"{LARGE}, all nodes correct": percent(found, "test/larger_whole_graphs", ".2f"),
            f"{LARGE}, 12 rounds": percent(found, "test/larger_same_rounds", ".2f"),
            "training minutes": spread([each["training_minutes"] for each in found]),
        }
        for training, found in results.of_each(TRAININGS)
    ]
    floor = f"{100 * results.of('fast')[0]['floor']:.2f} %"
    return [*rows, {"attention": "*best guess without edges*", LARGE: floor}]


def distances(results):
    """Return the accuracy on the larger graphs by the distance from the marked node."""
    rows = []
    for training, found in results.of_each(TRAININGS):
        accuracies = [each["test/larger_of_distance"] for each in found]
        row = {"attention": training.label}
        for distance in sorted(accuracies[0], key=lambda each: -1 if each == "none" else int(each)):
            row["not connected" if distance == "none" else distance] = (
                f"{100 * np.mean([each[distance] for each in accuracies]):.1f} %"
            )
        rows.append(row)
    return rows


REPRODUCTION = Reproduction(
    page="graphs",
    trainings=TRAININGS,
    tables={"table": table, "distances": distances},
    pictures={"fast-seed0": ("attention.png",)},
)
