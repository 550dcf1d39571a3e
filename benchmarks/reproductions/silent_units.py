"""What kept agents on KeyCorridor's second level: how many units after the memory are on?

Where no unit of a layer of ReLUs is on, the values are those of its bias, whatever is in view, and
no gradient comes back. Each agent is trained up to S3R2, with ReLUs or with units that leak, and
then asked by where key and ball lie. What is finished is not trained again, and what was stopped
goes on.
"""

import dataclasses
import json
import pathlib

import numpy as np

from benchmarks import runs
from benchmarks.tables import markdown_table
from rrl_tf.agents import evaluate
from rrl_tf.agents.loops import make_recurrent_agent
from train_scripts import train_recurrent

RESULTS = pathlib.Path("docs/results/silent_units")
TASK = ("--sizes", "1", "2", "--steps=200000")
"""In the place of the preset's numbers, whose step size is held for longer."""
VARIANTS = {"relu": "ReLU", "leaky_relu": "leaky ReLU"}
"""Activations after the memory, in the table's words."""
STARTS, EPSILON = 120, 0.6  # as the preset's boldest environment plays
ASKED_FROM = 5000  # seeds of the starts; evaluations play those from 0 on


@dataclasses.dataclass(frozen=True)
class Config(runs.Config):
    """Which runs, and how many at a time."""

    seeds: tuple[int, ...] = (102, 103, 104)
    variants: runs.any_of(VARIANTS) = tuple(VARIANTS)
    runs: str = "runs/silent_units"


def main(config):
    """Trains with each activation, listens to the units, and writes the table of the docs."""
    wanted = [(variant, seed) for seed in config.seeds for variant in config.variants]
    runs.train_all(config, train, wanted)
    runs.publish(RESULTS, {"table": table}, {})


def train(config, variant, seed):
    """Trains one agent, and keeps what the table needs."""
    arguments = (*TASK, f"--hidden-activation={variant}")
    name = f"{variant}-seed{seed}"
    run = runs.train(config, "train_recurrent", "key-corridor-s3r3", seed, *arguments, name=name)
    settings = runs.configuration(run, train_recurrent.Config)
    task = train_recurrent.make_task(settings)
    agent = make_recurrent_agent(task, runs.network(run), settings)
    runs.keep(run, RESULTS, **asked(agent, task))


def asked(agent, task, starts=STARTS):
    """How much is solved by where key and ball lie, and how many units are on in the views."""
    resets = [{"seed": ASKED_FROM + i} for i in range(starts)]
    same = np.array([in_one_row(task.make_test_env(), reset) for reset in resets])
    found = {}
    for name, epsilon in (("greedy", 0.0), ("noisy", EPSILON)):
        player = Listener(agent)
        solved = evaluate(player, task.make_test_env, resets, epsilon).success
        on = np.concatenate(player.on)
        found[name] = {
            "same_row": float(solved[same].mean()),
            "other_row": float(solved[~same].mean()),
            "silent": float((on == 0).mean()),
            "on": float(on.mean()),
        }
    return found


def in_one_row(env, reset):
    """Whether the key lies in the row of rooms of the ball."""
    env.reset(**reset)
    world = env.unwrapped
    grid, height = world.grid, world.room_size - 1  # rooms share a wall
    rows = {
        getattr(grid.get(x, y), "type", ""): y // height
        for x in range(grid.width)
        for y in range(grid.height)
    }
    return rows["key"] == rows["ball"]


class Listener:
    """An agent's greedy player that counts the units that are on in the layer after the memory.

    Args:
        agent: of a network with one such layer.

    Attributes:
        on: list of `(B,)` int arrays, units that are on in each view, one array a step.
    """

    def __init__(self, agent):
        self.agent, self.on = agent, []
        self._player = agent.greedy_player()
        self.initial_recall = self._player.initial_recall
        self.next_recall = self._player.next_recall
        (self._layer,) = agent.policy.hidden

    def __call__(self, observation, recall):
        """Actions `(B,)` and the memory `(B, M)`, as of the greedy player."""
        activation, before = self._layer.activation, []

        def heard(x):
            before.append(np.asarray(x))
            return activation(x)

        self._layer.activation = heard
        try:
            values, memory = self.agent.policy_values(observation, recall)
        finally:
            self._layer.activation = activation
        self.on.append((np.concatenate(before).reshape(len(observation), -1) > 0).sum(axis=-1))
        return np.argmax(values, axis=-1).astype(np.int32), np.asarray(memory)


def table(results):
    """What each run knows at its end as a Markdown table: which seeds stay behind, and why."""
    rows = []
    for variant, label in VARIANTS.items():
        for path in runs.files(results, variant, "json"):
            run = json.loads(path.read_text())
            row = {"units after the memory": label, "seed": runs.seed_of(path)}
            for play, found in (("greedy", run["greedy"]), (f"ε = {EPSILON}", run["noisy"])):
                row[f"{play}, key in the locked room's row"] = share(found["same_row"])
                row[f"{play}, key in another row"] = share(found["other_row"])
                row[f"{play}, views with no unit on"] = share(found["silent"])
            rows.append(row)
    return markdown_table(rows)


def share(number):
    """A share in percent."""
    return f"{100 * number:.1f} %"
