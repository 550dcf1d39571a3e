"""Whether attention explains what an agent does: the cells it attends to most are hidden from it.

    python -m benchmarks reproductions/faithfulness

Asked are, on the greedy way from every start, networks that `reproductions/doorkey` trains and the
trained presets.
"""

import dataclasses
import pathlib

import numpy as np

from benchmarks import runs
from benchmarks.reproductions import doorkey
from benchmarks.runs import spread, summaries
from benchmarks.tables import markdown_table
from rrl_tf.agents import RecurrentDoubleDQN
from rrl_tf.envs import doorkey_task
from rrl_tf.models import RecurrentQNetwork
from rrl_tf.training import evaluate
from rrl_tf.training.faithfulness import LAST, LEAST, MOST, RANDOM, faithfulness
from rrl_tf.training.memory_checks import ZeroedMemory
from rrl_tf.viz import style

RESULTS = pathlib.Path("docs/results/faithfulness")
TRAINED = "fast-graph"
PRESETS = {"doorkey-6x6": 6, "doorkey-8x8": 8}
"""Trained presets, and the side of their grid."""
LABELS = {
    TRAINED: "DoorKey-5x5",
    "doorkey-6x6": "DoorKey-6x6, with a memory",
    "doorkey-8x8": "DoorKey-8x8, with a memory",
}
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)
SHOWN = (1, 2, 4, 8)
"""Of these counts, those in the table."""
RESAMPLES = 2000


@dataclasses.dataclass(frozen=True)
class Config(runs.Config):
    """Which networks."""

    networks: tuple[str, ...] = tuple(LABELS)
    """Any of `LABELS`; a preset is one seed."""
    starts: int = 48
    """At most so many."""
    runs: str = "runs/doorkey"


def main(config):
    """Hides cells from trained agents and writes the table and the figure of the docs."""
    for name in config.networks if config.train else ():
        for seed in config.seeds if name == TRAINED else (0,):
            task, network = trained(config, seed) if name == TRAINED else preset(name)
            file = RESULTS / f"{name}-seed{seed}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            runs.write_json(file, measured(task, network, config.starts))
    runs.publish(RESULTS, TABLES, FIGURES)


def trained(config, seed):
    """Task and network of a run that is trained if it is missing."""
    options = doorkey.OPTIONS[TRAINED]
    run = runs.train(config, "train_doorkey", "fast", seed, *options, name=f"{TRAINED}-seed{seed}")
    _, task, network = doorkey.trained(run)
    return task, network


def preset(name):
    """Task and network of a trained preset."""
    return doorkey_task((PRESETS[name],)), RecurrentQNetwork.from_preset(name)


def measured(task, network, starts):
    """What was lost, by order, start and count, averaged over the states of an episode."""
    episodes = visited(task, network, task.evaluation_resets(at_most=starts))
    ends = np.cumsum([len(each["observation"]) for each in episodes])
    seen = {name: np.concatenate([each[name] for each in episodes]) for name in episodes[0]}
    views = np.asarray(task.preparation(seen.pop("observation")))
    memory = seen.pop("memory", None)
    inputs = views if memory is None else {"observation": views, **seen}
    found = faithfulness(network, inputs, memory, counts=COUNTS)

    def of_starts(values):
        parts = np.split(values, ends[:-1], axis=1)
        return [[round(float(value), 5) for value in part.mean(axis=1)] for part in parts]

    return {
        "counts": COUNTS,
        "states": len(views),
        "candidates": float(found.candidates.mean()),
        "drop": {order: of_starts(values) for order, values in found.drop.items()},
        "kept": {order: of_starts(values) for order, values in found.kept.items()},
    }


def visited(task, network, resets):
    """What is seen, and remembered, on the greedy way from every start: a dict an episode."""
    if isinstance(network, RecurrentQNetwork):
        player = WatchedMemory(RecurrentDoubleDQN(network, task.preparation).greedy_player())
    else:
        player = Watched(lambda seen: np.asarray(network(task.preparation(seen))).argmax(-1))
    episodes = []
    for reset in resets:
        player.seen = []
        evaluate(player, task.make_test_env, [reset])
        names = player.seen[0]
        episodes.append({n: np.concatenate([each[n] for each in player.seen]) for n in names})
    return episodes


class Watched:
    """A policy as it is, and what it was asked."""

    def __init__(self, act):
        self.act = act
        self.seen = []

    def __call__(self, observation):
        """The policy's own answer."""
        self.seen.append({"observation": observation})
        return self.act(observation)


class WatchedMemory(ZeroedMemory):
    """The same of a player that remembers."""

    def __call__(self, observation, recall):
        """The player's own answer."""
        self.seen.append({"observation": observation, **recall})
        return self.player(observation, recall)


def resampled(found, measure, order, rng_seed=0):
    """Means over starts `(RESAMPLES, K)`, and over seeds, had other starts been drawn."""
    rng = np.random.default_rng(rng_seed)  # the same starts for every order
    means = []
    for run in found:
        values = np.array(run[measure][order])  # (starts, K)
        drawn = rng.integers(len(values), size=(RESAMPLES, len(values)))
        means.append(values[drawn].mean(axis=1))
    return np.mean(means, axis=0)


def interval(samples):
    """Ends of the middle 95 %, `(2, K)`."""
    return np.percentile(samples, (2.5, 97.5), axis=0)


def table(results):
    """By how much the greedy action's value falls, and how often it stays, as Markdown."""
    rows = []
    for name, label in LABELS.items():
        found = summaries(results, name)
        for count in SHOWN if found else ():
            k = found[0]["counts"].index(count)
            more = [resampled(found, "drop", order)[:, k] for order in (MOST, RANDOM)]
            low, high = interval(more[0] - more[1])
            row = {"agent": label, "seeds": len(found), "hidden": count}
            for order in (MOST, LAST, RANDOM, LEAST):
                drops = [np.mean(run["drop"][order], axis=0)[k] for run in found]
                row[f"fall of Q: {order}"] = spread(drops, "z.3f")
            row["most less random, 95 %"] = f"{low:.3f} to {high:.3f}"
            for order in (MOST, RANDOM):
                kept = [100 * np.mean(run["kept"][order], axis=0)[k] for run in found]
                row[f"same action: {order}"] = spread(kept, ".0f", " %")
            rows.append(row)
    return markdown_table(rows)


def figure(results):
    """Fall of Q against how many cells are hidden: a panel an agent, bands over starts."""
    found = {label: summaries(results, name) for name, label in LABELS.items()}
    found = {label: seeds for label, seeds in found.items() if seeds}
    if not found:
        return None
    figure, panels = style.row_of_panels(len(found), 0.55, 2.6, gap=0.5)
    for axes, (label, seeds) in zip(panels, found.items()):
        for number, order in enumerate((MOST, RANDOM, LEAST)):
            samples, look = resampled(seeds, "drop", order), {"color": style.colour(number)}
            counts = seeds[0]["counts"]
            mean = np.mean([np.mean(run["drop"][order], axis=0) for run in seeds], axis=0)
            axes.plot(counts, mean, lw=1.8, **look)
            axes.fill_between(counts, *interval(samples), alpha=0.18, linewidth=0, **look)
        style.title(axes, label)
        style.name_axes(axes, "cells hidden", "fall of Q" if axes is panels[0] else "")
    entries = {o: style.line(style.colour(i)) for i, o in enumerate((MOST, RANDOM, LEAST))}
    entries["95 % over starts"] = style.area()
    style.legend(figure, 0.75, 0, entries, len(entries))
    return figure


TABLES = {"table": table}
FIGURES = {"curves": figure}
