"""Train a relational and a convolutional agent on Alien, as in the benchmark Atari 100k."""

from benchmarks.reproduction import (
    Reproduction,
    Training,
    last_step,
    learning_curves,
    read_config,
    spread,
)
from benchmarks.reproductions import box_world
from rrl_tf.agents import evaluate
from rrl_tf.agents.evaluation import NOISE
from rrl_tf.envs import atari_task
from rrl_tf.export import load_policy
from train_scripts import train_atari

TRAININGS = {
    name: Training(label, "train_atari", "atari-100k", (f"--network={name}",))
    for name, label in (("atari", "relational"), ("convolutional", "convolutional"))
}
EPSILONS = {"0.0": "score, greedy", str(NOISE): f"score, ε = {NOISE}"}
GAMES = 100
PUBLISHED = {"random play, published": 227.8, "CURL": 558.2, "DrQ": 771.2}
"""Scores of other agents; docs/tasks/atari.md cites the sources."""


def measure(run):
    """Return the mean scores of the exported policy in full games, and its number of parameters."""
    config = read_config(run, train_atari.Config)
    task = atari_task(config.env, frames=config.frames)
    act, resets = load_policy(run / "export").act, task.evaluation_resets(-1, GAMES)
    scores = {
        epsilon: float(evaluate(act, task.make_test_env, resets, float(epsilon)).returns.mean())
        for epsilon in EPSILONS
    }
    return box_world.measure(run) | {"scores": scores}


def table(results):
    """Return the scores with the last weights."""
    return [
        {
            "agent": training.label,
            "parameters": f"{found[0]['parameters']:,}",
            "seeds": len(found),
            "steps": last_step(found),
        }
        | {
            title: spread([each["scores"][epsilon] for each in found], ".0f")
            for epsilon, title in EPSILONS.items()
        }
        | {"CPU minutes": spread([each["cpu_minutes"] for each in found], ".0f")}
        for training, found in results.of_each(TRAININGS)
    ]


REPRODUCTION = Reproduction(
    page="atari",
    trainings=TRAININGS,
    tables={"table": table},
    figures={
        "curves": learning_curves(
            "eval/return",
            "score, greedy",
            {name: training.label for name, training in TRAININGS.items()},
            references=PUBLISHED,
        )
    },
    curves=("eval/return",),
    measure=measure,
    pictures={"atari-seed0": ("attention.png", "episode.gif")},
)
