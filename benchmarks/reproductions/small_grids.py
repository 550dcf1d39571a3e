"""Six small grids, trained with the default settings of `train_dqn`."""

from benchmarks import grids
from benchmarks.reproduction import Reproduction, Training, percent, spread

NETWORKS = {"grid": "relational (default)", "dense": "dense"}
TASKS = {
    # grid: task, view, whether the observation contains the agent
    "key": ("take the key, then go to the goal", "full", "yes"),
    "coins": ("collect three coins", "full", "yes, declared"),
    "rooms": ("go to the goal through four rooms", "full", "yes"),
    "match": ("bring the key to the box of its colour", "full", "yes"),
    "search": ("find the goal in a room of 8 x 8", "partial", "no, at the centre"),
    "chase": ("catch a moving prey between pits", "full", "yes"),
}


def _training(task, network):
    options = (f"--env=benchmarks.grids:{task.title()}-v0", f"--network={network}")
    return Training(
        f"{task}, {network}",
        "train_dqn",
        "",
        (*options, "--steps=40000", "--evaluate-every=10000"),
    )


TRAININGS = {
    f"{task}-{network}": _training(task, network) for task in TASKS for network in NETWORKS
}


def table(results):
    """Return the greedy success with the last weights on each grid."""
    rows = []
    for task, (description, view, agent) in TASKS.items():
        shape = getattr(grids, task.title()).observation_space.shape
        row = {
            "grid": f"`{task.title()}`: {description}",
            "observation": " x ".join(map(str, shape)),
            "view": view,
            "code for the agent": agent,
        }
        for network, label in NETWORKS.items():
            found = results.of(f"{task}-{network}")
            row[label] = percent(found, "eval/success") if found else "not measured"
            row[f"{network}: seeds, CPU minutes"] = (
                f"{len(found)}, {spread([each['cpu_minutes'] for each in found])}" if found else ""
            )
        rows.append(row)
    return rows


REPRODUCTION = Reproduction(
    page="small_grids", trainings=TRAININGS, tables={"table": table}, runs="runs/small_grids"
)
