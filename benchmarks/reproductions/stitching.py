"""Whether what is learned from pieces of episodes can do what none of the episodes does.

    python -m benchmarks reproductions/stitching

In the data of the mazes whoever began at A took exit 2 (or, in the fork, 3); exit 1, which pays
best, was taken from B alone, and both ways go through one cell. In DoorKey's data there is either
the first part of an episode, up to the key, or the rest of another. Nobody in the data goes the
whole way; played is the whole way.
"""

import dataclasses
import pathlib

import keras
import numpy as np

from benchmarks import runs
from benchmarks.runs import percent, spread
from benchmarks.tables import markdown_table
from rrl_tf.envs.crossing import MAPS, Crossing
from rrl_tf.envs.minigrid_view import object_cells
from rrl_tf.offline import Episode, OfflineData, RecordedEnv
from rrl_tf.offline.decision_transformer import train_decision_transformer
from rrl_tf.training.config import require_positive
from train_scripts import train_decision_transformer as script

RESULTS = pathlib.Path("docs/results/stitching")

MAZE = {
    "preprocessor": "standardise",
    "sampling": "steps",
    "steps": 1000,
    "targets": (0.2, 1.0),
    "evaluate_every": 0,
}
DENSE = {"model": "behavior_cloning", "context_length": 1, "batch_size": 256}
AGENTS = {
    "bc": ("imitation", DENSE),
    "dense": (
        "dense, told the return",
        {**DENSE, "return_conditioned": True, "condition": "return"},
    ),
    "advantages": (
        "imitation of the steps that brought more than others",
        {**DENSE, "advantage_power": 2.0, "advantage_trace": 0.5, "advantage_rounds": 20},
    ),
    "k1": ("Decision Transformer, K = 1", {"context_length": 1}),
    "k3": ("Decision Transformer, K = 3", {"context_length": 3}),
    "k10": ("Decision Transformer, K = 10", {"context_length": 10}),
}
"""Rows: in the table's words, and what differs from the preset `doorkey` of the script."""


@dataclasses.dataclass(frozen=True)
class Config(runs.Config):
    """Which data, agents and seeds."""

    tasks: runs.any_of((*MAPS, "doorkey")) = (*MAPS, "doorkey")
    """Whose pieces: mazes of `rrl_tf.envs.crossing`, or DoorKey."""
    agents: runs.any_of(AGENTS) = tuple(AGENTS)
    """Who learns from them."""
    episodes: int = 400
    """Recorded in a maze; of DoorKey's 2,000 all are cut that hold the key."""
    runs: str = "runs/stitching"

    def __post_init__(self):
        super().__post_init__()
        require_positive(self, "episodes")


def main(config):
    """Trains agents on pieces of episodes and writes what they make of them."""
    for task in config.tasks:
        data = doorkey_pieces() if task == "doorkey" else maze_pieces(task, config.episodes)
        wanted = [(task, data, agent, seed) for seed in config.seeds for agent in config.agents]
        runs.train_all(config, train, wanted)
    runs.publish(RESULTS, {"table": table}, {})


def train(config, task, data, agent, seed):
    """Trains one agent, and keeps what the table needs."""
    _, differences = AGENTS[agent]
    numbers = {} if task == "doorkey" else MAZE
    training = dataclasses.replace(
        script.DOORKEY,
        name=f"{task}-{agent}-seed{seed}",
        runs=config.runs,
        seed=seed,
        **{"evaluate_every": 0, **numbers, **differences},
    )
    scaling = script.make_scaling(training, data)
    keras.utils.set_random_seed(seed)
    network = script.make_network(training, data, scaling)
    run = train_decision_transformer(data, network, scaling, training)
    runs.keep(run.folder.path, RESULTS, **in_the_data(data))


def in_the_data(data):
    """What whoever began where it is played reached, and what is possible from there."""
    whole = data.from_start
    return {"recorded": {"mean": float(np.mean(whole)), "best": float(np.max(whole))}}


@dataclasses.dataclass(frozen=True)
class Pieces(OfflineData):
    """Episodes, and the returns of those that began where it is played."""

    from_start: tuple[float, ...] = ()


def maze_pieces(layout, episodes):
    """Play in a maze: from A to exit 2 or 3, from B to exit 1."""
    ways = {"A": ("2",) if layout == "crossing" else ("2", "3"), "B": ("1",)}
    played = {start: [] for start in ways}
    for number in range(episodes):
        start = "AB"[number % 2]
        to = ways[start][number // 2 % len(ways[start])]
        played[start].append(play(Crossing(layout, start), to, number))
    assert max(episode.total for episode in played["A"]) < 1.0, "an episode went the whole way"
    env = Crossing(layout)
    return Pieces(
        f"pieces of {layout}",
        tuple(played["A"] + played["B"]),
        env.action_space,
        f"Crossing {layout}",
        lambda: Crossing(layout, "A"),
        env.observation_space,
        from_start=tuple(episode.total for episode in played["A"]),
    )


def play(env, to, seed):
    """An episode that heads for an exit."""
    way, env = env.way(to), RecordedEnv(env)
    observation, _ = env.reset(seed=seed)
    over = False
    while not over:
        place = tuple(observation.astype(int).tolist())
        observation, _, terminated, truncated, _ = env.step(way[place])
        over = terminated or truncated
    return env.episode()


def doorkey_pieces():
    """Of recorded DoorKey episodes every other one up to the key, of the others what follows."""
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
    values = {field.name: getattr(data, field.name) for field in dataclasses.fields(OfflineData)}
    values |= {"name": "pieces of doorkey", "episodes": tuple(firsts + rests)}
    return Pieces(**values, from_start=tuple(episode.total for episode in firsts))


def first_with_key(episode):
    """The first step at which the agent carries the key."""
    for step, view in enumerate(episode.observations):
        cells = object_cells(view, channels=view.shape[-1])
        if cells.get("key") == cells["agent"] and step:
            return step
    return None


def part(episode, begin, end):
    """Steps of an episode; what is cut off in front or behind is not known to have been."""
    is_end = end == len(episode)
    return Episode(
        episode.observations[begin : end + 1],
        episode.actions[begin:end],
        episode.rewards[begin:end],
        episode.terminated and is_end,
        episode.truncated or not is_end,
    )


def table(results):
    """One line for every data set and agent."""
    rows = []
    for task in (*MAPS, "doorkey"):
        for agent, (label, _) in AGENTS.items():
            found = runs.summaries(results, f"{task}-{agent}")
            if not found:
                continue
            target = max(found[0]["last"], key=float)
            last = [run["last"][target] for run in found]
            recorded = "{mean:.2f}, {best:.2f}".format(**found[0]["recorded"])
            row = {
                "pieces of": task,
                "recorded from there, mean, best": recorded,
                "agent": label,
                "seeds": len(found),
                "asked for": target if agent not in ("bc", "advantages") else None,
                "return": spread([each["return"] for each in last], ".2f"),
            }
            if "success" in last[0]:
                row["whole way"] = percent(last, "success", ".0f")
            rows.append(row)
    return markdown_table(rows)
