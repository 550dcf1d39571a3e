"""Train agents that must combine pieces of recorded episodes (stitching).

In the mazes, recorded episodes that start at A end at exit 2 or, in the maze `fork`, at exit 2 or
3. Only episodes from B end at exit 1, which has the highest reward. The paths cross in one cell. In
DoorKey, a recorded episode is either the first part of a whole episode, until the agent has the
key, or the rest of one. The trained agents must go all the way: from A to exit 1, or from the start
to the goal.
"""

import dataclasses
import functools

import numpy as np

from benchmarks.reproduction import Reproduction, percent, spread
from rrl_tf.envs.crossing import MAPS, Crossing
from rrl_tf.envs.minigrid_view import object_cells
from rrl_tf.offline import Episode, OfflineData, RecordedEnv
from rrl_tf.offline.decision_transformer import train_decision_transformer
from rrl_tf.offline.networks import make_agent_parts
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
    """A training run on pieces of episodes, in this process.

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
        """Train in the folder `runs/name`, or resume the run in it."""
        data, _ = pieces(self.task)
        maze = {} if self.task == "doorkey" else MAZE
        changes = {"evaluate_every": 0, **maze, **self.changes}
        config = dataclasses.replace(
            script.DOORKEY, name=name, runs=str(runs), seed=seed, **changes
        )
        config, scaling, network = make_agent_parts(config, data, script.DOORKEY)
        train_decision_transformer(data, network, scaling, config)


@functools.cache
def pieces(task):
    """Return the data of a task, and the returns of the episodes that begin where agents start."""
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
    done = False
    while not done:
        action = way[tuple(observation.astype(int).tolist())]
        observation, _, terminated, truncated, _ = env.step(action)
        done = terminated or truncated
    return env.episode()


def doorkey_pieces():
    """Cut each DoorKey episode where the agent takes the key; keep one of the parts in turns."""
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
    """Return the steps from `begin` to `end` as an episode, truncated if it is cut."""
    is_end = end == len(episode)
    return Episode(
        episode.observations[begin : end + 1],
        episode.actions[begin:end],
        episode.rewards[begin:end],
        episode.terminated and is_end,
        episode.truncated or not is_end,
    )


def measure(run):
    """Return the mean and the best return of recorded episodes from the agents' start."""
    _, returns = pieces(run.name.partition("-")[0])
    return {"recorded": {"mean": float(np.mean(returns)), "best": float(np.max(returns))}}


TRAININGS = {
    f"{task}-{agent}": PiecesTraining(label, task, changes)
    for task in (*MAPS, "doorkey")
    for agent, (label, changes) in AGENTS.items()
}


def table(results):
    """Return the return for the highest target, and the success rate on the whole path."""
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
