"""Stitching: agents that must combine pieces of recorded episodes.

In the data of the mazes, an episode that starts at A takes exit 2 (or, in the fork, 3). Exit 1,
which pays best, is only taken from B; both ways share one cell. The data of DoorKey hold either
the first part of an episode, up to the key, or the rest of another one. Agents play the whole way.
"""

import dataclasses
import functools

import keras
import numpy as np

from benchmarks.reproduction import Reproduction, percent, spread
from rrl_tf.envs.crossing import MAPS, Crossing
from rrl_tf.envs.minigrid_view import object_cells
from rrl_tf.offline import Episode, OfflineData, RecordedEnv
from rrl_tf.offline.decision_transformer import train_decision_transformer
from train_scripts import train_decision_transformer as script

EPISODES = 400
"""Episodes recorded in a maze."""
MAZE = {"preprocessor": "standardise", "sampling": "steps", "steps": 1000, "targets": (0.2, 1.0)}
DENSE = {"model": "behavior_cloning", "context_length": 1, "batch_size": 256}
AGENTS = {
    # label, changes of the preset `doorkey`
    "bc": ("behavior cloning", DENSE),
    "dense": (
        "return-conditioned dense network",
        {**DENSE, "return_conditioned": True, "condition": "return"},
    ),
    "advantages": (
        "advantage-weighted behavior cloning",
        {**DENSE, "advantage_power": 2.0, "advantage_trace": 0.5, "advantage_rounds": 20},
    ),
    "k1": ("Decision Transformer, K = 1", {"context_length": 1}),
    "k3": ("Decision Transformer, K = 3", {"context_length": 3}),
    "k10": ("Decision Transformer, K = 10", {"context_length": 10}),
}


@dataclasses.dataclass(frozen=True)
class PiecesTraining:
    """A training on pieces of episodes, in this process.

    Attributes:
        label: name of the row.
        task: name of a maze, or `doorkey`.
        changes: changes of the preset `doorkey` of the script.
        seeds: seeds that the tables show.
    """

    label: str
    task: str
    changes: dict
    seeds: tuple[int, ...] = (0, 1, 2)

    def run(self, runs, name, seed, threads=1):
        """Train in the run folder `runs/name`, or resume it."""
        data, _ = pieces(self.task)
        maze = {} if self.task == "doorkey" else MAZE
        changes = {"evaluate_every": 0, **maze, **self.changes}
        config = dataclasses.replace(
            script.DOORKEY, name=name, runs=str(runs), seed=seed, **changes
        )
        scaling = script.make_scaling(config, data)
        keras.utils.set_random_seed(seed)
        network = script.make_network(config, data, scaling)
        train_decision_transformer(data, network, scaling, config)


@functools.cache
def pieces(task):
    """Return the data of a task, and the returns of the episodes that start where agents play."""
    return doorkey_pieces() if task == "doorkey" else maze_pieces(task, EPISODES)


def maze_pieces(layout, episodes):
    """Record a maze: from A to exit 2 or 3, from B to exit 1."""
    ways = {"A": ("2",) if layout == "crossing" else ("2", "3"), "B": ("1",)}
    played = {start: [] for start in ways}
    for number in range(episodes):
        start = "AB"[number % 2]
        exit_ = ways[start][number // 2 % len(ways[start])]
        played[start].append(play(Crossing(layout, start), exit_, number))
    env = Crossing(layout)
    data = OfflineData(
        f"pieces of {layout}",
        tuple(played["A"] + played["B"]),
        env.action_space,
        f"Crossing {layout}",
        lambda: Crossing(layout, "A"),
        env.observation_space,
    )
    return data, [episode.total for episode in played["A"]]


def play(env, exit_, seed):
    """Record an episode that goes to an exit."""
    way, env = env.shortest_path(exit_), RecordedEnv(env)
    observation, _ = env.reset(seed=seed)
    over = False
    while not over:
        action = way[tuple(observation.astype(int).tolist())]
        observation, _, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
    return env.episode()


def doorkey_pieces():
    """Cut recorded DoorKey episodes at the key, and keep the first part or the rest in turns."""
    data = script.load(script.DOORKEY)
    firsts, rests = [], []
    for number, episode in enumerate(data.episodes):
        picked_up = first_with_key(episode)
        if picked_up is None:
            continue
        if number % 2:
            firsts.append(part(episode, 0, picked_up))
        elif picked_up < len(episode):
            rests.append(part(episode, picked_up, len(episode)))
    data = dataclasses.replace(data, name="pieces of doorkey", episodes=tuple(firsts + rests))
    return data, [episode.total for episode in firsts]


def first_with_key(episode):
    """Return the first step at which the agent carries the key, or `None`."""
    for step, view in enumerate(episode.observations):
        cells = object_cells(view, channels=view.shape[-1])
        if cells.get("key") == cells["agent"] and step:
            return step
    return None


def part(episode, begin, end):
    """Return steps of an episode; a cut at the end is a truncation."""
    is_end = end == len(episode)
    return Episode(
        episode.observations[begin : end + 1],
        episode.actions[begin:end],
        episode.rewards[begin:end],
        episode.terminated and is_end,
        episode.truncated or not is_end,
    )


def measure(run):
    """Return the mean and the best recorded return from the start where agents play."""
    _, returns = pieces(run.name.partition("-")[0])
    return {"recorded": {"mean": float(np.mean(returns)), "best": float(np.max(returns))}}


TRAININGS = {
    f"{task}-{agent}": PiecesTraining(label, task, changes)
    for task in (*MAPS, "doorkey")
    for agent, (label, changes) in AGENTS.items()
}


def table(results):
    """Return the return at the highest target, and the success rate of the whole path."""
    rows = []
    for variant, training in TRAININGS.items():
        found = results.of(variant)
        target = max(found[0]["last"], key=float)
        last = [each["last"][target] for each in found]
        row = {
            "data": training.task,
            "recorded from the start: mean, best": "{mean:.2f}, {best:.2f}".format(
                **found[0]["recorded"]
            ),
            "agent": training.label,
            "seeds": len(found),
            "target return": None if variant.endswith(("bc", "advantages")) else target,
            "return": spread([each["return"] for each in last], ".2f"),
        }
        if "success" in last[0]:
            row["success"] = percent(last, "success", ".0f")
        rows.append(row)
    return rows


REPRODUCTION = Reproduction(
    page="stitching", trainings=TRAININGS, tables={"table": table}, measure=measure
)
