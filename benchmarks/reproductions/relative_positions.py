"""Learned against relative positions on DoorKey: held-out layouts, and grids larger than seen.

    python -m benchmarks reproductions/relative_positions --trained 6x6 --seeds 0

Both networks are trained with the same settings, and those of the larger grids see them first in
the test.
"""

import dataclasses
import pathlib

import tensorflow as tf

from benchmarks import runs
from benchmarks.runs import percent, spread, summaries
from benchmarks.tables import markdown_table
from rrl_tf.agents import evaluate
from rrl_tf.envs import doorkey_task

RESULTS = pathlib.Path("docs/results/relative_positions")
NETWORKS = {"fast": "learned", "fast-relative": "relative"}
TRAININGS = {
    "6x6": (),
    "8x8": ("--sizes", "5", "6", "8", "--steps=150000", "--learning-rate-updates=30000"),
}
"""What is trained on → what is added to the command of `fast-6x6`."""
LARGER = {"6x6": 8, "8x8": 16}
"""What is trained on → side of the grid that is played untrained."""
STARTS = 300


@dataclasses.dataclass(frozen=True)
class Config(runs.Config):
    """Which runs, and how many at a time."""

    trained: runs.any_of(TRAININGS) = tuple(TRAININGS)
    """Grids that are trained on."""
    runs: str = "runs/relative_positions"


def main(config):
    """Trains both networks on every grid and writes the docs' table."""
    wanted = [(t, n, seed) for t in config.trained for seed in config.seeds for n in NETWORKS]
    runs.train_all(config, train, wanted)
    runs.publish(RESULTS, {"table": table}, {})


def train(config, trained, name, seed):
    """Trains one network, plays the larger grid, and keeps what the table needs."""
    run = runs.train(
        config,
        "train_doorkey",
        "fast-6x6",
        seed,
        *TRAININGS[trained],
        f"--network={name}",
        "--no-jit-compile",
        name=f"{trained}-{name}-seed{seed}",
    )
    network = runs.network(run)
    minutes = runs.metrics(run / "metrics.csv")[-1]["time/cpu_minutes"]
    runs.keep(
        run,
        RESULTS,
        parameters=network.count_params(),
        cpu_minutes=minutes,
        larger=success(network, LARGER[trained], 0.0),
        larger_epsilon=success(network, LARGER[trained], 0.05),
    )


def success(network, size, epsilon):
    """Share of the starts of a grid that a network solves."""
    task = doorkey_task((size,))
    values = tf.function(lambda o: network(task.preprocessor(o)), reduce_retracing=True)

    def act(observations):
        return values(tf.constant(observations)).numpy().argmax(axis=-1)

    resets = task.evaluation_resets(at_most=STARTS)
    return float(evaluate(act, task.make_test_env, resets, epsilon).success.mean())


def table(results):
    """One line for each of the trained grids and networks, as Markdown."""
    rows = []
    for trained in TRAININGS:
        for name, label in NETWORKS.items():
            if not (found := summaries(results, f"{trained}-{name}")):
                continue
            rows.append(
                {
                    "trained on": trained,
                    "positions": label,
                    "parameters": f"{found[0]['parameters']:,}",
                    "seeds": len(found),
                    "steps": f"{max(run['step'] for run in found):,}",
                    "layouts held out": percent(found, "eval/success"),
                    "the same, ε = .05": percent(found, "eval/success_epsilon_0.05"),
                    "larger grid": f"{LARGER[trained]}x{LARGER[trained]}",
                    "there": percent(found, "larger"),
                    "there, ε = .05": percent(found, "larger_epsilon"),
                    "CPU minutes": spread([run["cpu_minutes"] for run in found], ".0f"),
                }
            )
    return markdown_table(rows)
