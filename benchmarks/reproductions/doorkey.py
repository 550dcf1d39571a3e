"""Trains every DoorKey agent that the docs report, several seeds each, and writes the tables."""

import dataclasses
import pathlib

import keras
import numpy as np

from benchmarks import runs
from benchmarks.runs import files, in_words, logs, percent, seed_of, summaries
from benchmarks.tables import markdown_table
from rrl_tf.agents import evaluate
from rrl_tf.envs import enumerate_starts, split_layouts
from train_scripts import train_doorkey

RESULTS = pathlib.Path("docs/results/doorkey")
LABELS = {
    "fast": "ours, 5x5",
    "fast-graph": "ours, in the graph, 5x5",
    "quick": "ours, `quick`, 5x5",
    "fast-6x6": "ours, 6x6, new layouts",
    "book": "book, as meant, 5x5",
    "book-published": "book, as published, 5x5",
}
FIRST = "first step without a failure"
PARTS = {
    "environment": "environment",
    "act": "acting",
    "replay": "replay: storing and sampling",
    "update": "update",
}
OPTIONS = {
    "fast-graph": ("--loop=graph",),
    # Fewer than the chapter's 50,000: at some 40 steps a second that is what a CPU affords.
    "book": ("--steps=30000",),
    "book-published": ("--steps=20000",),
}
"""What is added to the command of an agent."""
SHOWN = ("fast", "fast-6x6")
"""Whose pictures are in the docs."""
PRESET_OF = {"fast-graph": "fast"}
"""Presets of those that are not called by theirs."""


@dataclasses.dataclass(frozen=True)
class Config(runs.Config):
    """Which runs, and how many at a time."""

    presets: tuple[str, ...] = tuple(LABELS)
    """Presets of `train_scripts.train_doorkey`, and what is made of them."""
    runs: str = "runs/doorkey"


def main(config):
    """Trains the DoorKey agents that the docs report and writes their tables and figure."""
    runs.train_all(config, train, [(p, seed) for seed in config.seeds for p in config.presets])
    runs.publish(RESULTS, TABLES, FIGURES)


def train(config, preset, seed):
    """Trains one agent, and keeps what the tables need."""
    run = runs.train(
        config,
        "train_doorkey",
        PRESET_OF.get(preset, preset),
        seed,
        *OPTIONS.get(preset, ()),
        name=f"{preset}-seed{seed}",
    )
    more = {}
    if preset.startswith("fast"):
        more["uniform_attention"] = success_with_uniform_attention(run)
    if preset == "fast-6x6":
        more["solved_of_layouts"] = solved_of_layouts(run)
    runs.keep(run, RESULTS, **more)
    if seed == 0 and preset in SHOWN:
        runs.keep_pictures(run, RESULTS, preset)


def trained(run):
    """Configuration, task and network of a finished run."""
    config = runs.configuration(run, train_doorkey.Config)
    return config, train_doorkey.make_task(config), runs.network(run)


def play(task, network, resets):
    """The `Evaluation` of greedy play."""
    return evaluate(
        lambda o: keras.ops.convert_to_numpy(network(task.preprocessor(o))).argmax(-1),
        task.make_test_env,
        resets,
    )


def success_with_uniform_attention(run):
    """Greedy success when every cell attends to all cells in sight alike: what attention is worth.

    With queries of zero all scores are equal, whatever the keys are.
    """
    _, task, network = trained(run)
    for block in network.relations.rounds:
        silence_queries(block.attention)
    return play(task, network, task.evaluation_resets()).summary()["success"]


def solved_of_layouts(run):
    """By part, trained on or held out: [wall, door, key, solved starts, starts] of each layout."""
    config, task, network = trained(run)
    parts = split_layouts(enumerate_starts(config.sizes[-1]), seed=config.held_out_seed)
    answer = {}
    for part, starts in zip(("trained on", "held out"), parts):
        result = play(task, network, [{"options": {"start": start}} for start in starts])
        layouts = {start.layout: [0, 0] for start in starts}
        for start, success in zip(starts, result.success):
            layouts[start.layout][0] += int(success)
            layouts[start.layout][1] += 1
        answer[part] = [[*layout[1:], *counts] for layout, counts in layouts.items()]
    return answer


def silence_queries(attention):
    """Sets the queries of a self-attention layer to zero; its columns are `[head][q | k | v]`."""
    for variable in attention.query_key_value.variables:
        columns = variable.numpy().reshape(*variable.shape[:-1], attention.num_heads, -1)
        columns[..., : attention.key_size] = 0
        variable.assign(columns.reshape(variable.shape))


def table(results):
    """The runs' last evaluations as a Markdown table."""
    rows = []
    for preset, label in LABELS.items():
        agents = summaries(results, preset)
        if not agents:
            continue
        uniform = "uniform_attention"
        rows.append(
            {
                "agent": label,
                "seeds": len(agents),
                "steps": f"{max(agent['step'] for agent in agents):,}",
                "greedy success": percent(agents, "eval/success"),
                "ended in a loop": percent(agents, "eval/loops"),
                "success, ε = .05": percent(agents, "eval/success_epsilon_0.05"),
                FIRST: in_words([agent["first_perfect"] for agent in agents]),
                "greedy, attention made uniform": percent(agents, uniform)
                if uniform in agents[0]
                else "not measured",
            }
        )
    return markdown_table(rows)


def layouts(results):
    """How the 6x6 runs do on both parts of the layouts, as a Markdown table."""
    failing = "held-out layouts with failures: wall x, door y, key (x, y): solved of starts"
    rows = []
    for seed, run in enumerate(summaries(results, "fast-6x6")):
        shares = {}
        for part, counts in run["solved_of_layouts"].items():
            solved, starts = (sum(row[i] for row in counts) for i in (3, 4))
            shares[f"layouts {part}"] = f"{100 * solved / starts:.1f} %"
        failures = "; ".join(
            f"{wall}, {door}, ({key[0]}, {key[1]}): {solved} of {starts}"
            for wall, door, key, solved, starts in run["solved_of_layouts"]["held out"]
            if solved < starts
        )
        rows.append({"seed": seed, **shares, failing: failures or "none"})
    return markdown_table(rows)


def seeds_of_fast(results):
    """Every run of `fast` by itself, as a Markdown table."""
    return markdown_table(
        [
            {
                "`fast`, seed": seed_of(path),
                "greedy success at the last evaluation": f"{100 * run['eval/success']:.1f} %",
                FIRST: in_words([run["first_perfect"]]),
            }
            for path, run in zip(files(results, "fast", "json"), summaries(results, "fast"))
        ]
    )


def seconds_of_quick(results):
    """What `quick` costs until every start is solved, seed by seed, as a Markdown table."""
    names = [seed_of(path) for path in files(results, "quick", "json")]
    rows = []
    for seed, run, log in zip(names, summaries(results, "quick"), logs(results, "quick")):
        minutes = [r["time/cpu_minutes"] for r in log if r["step"] == run["first_perfect"]]
        rows.append(
            {
                "`quick`, seed": seed,
                FIRST: in_words([run["first_perfect"]]),
                "CPU seconds of the process until then": "".join(f"{60 * m:.1f}" for m in minutes),
            }
        )
    return markdown_table(rows)


def shares(results):
    """Where the training loop's time went, as a Markdown table: medians over rows and seeds."""
    rows = []
    for preset, label in LABELS.items():
        learning = [row for log in logs(results, preset) for row in log if "train/loss" in row]
        if not learning or "time/update_share" not in learning[0]:  # in the graph nobody looks
            continue
        medians = {
            name: f"{100 * np.median([row[f'time/{part}_share'] for row in learning]):.1f} %"
            for part, name in PARTS.items()
        }
        rows.append({"agent": label, **medians})
    return markdown_table(rows)


def curves(results):
    """Greedy success against environment steps: a line an agent on 5x5, a band over its seeds."""
    labels = {
        preset: label.removesuffix(", 5x5")
        for preset, label in LABELS.items()
        if label.endswith("5x5") and preset != "quick"  # whose runs end when they have learned
    }
    ylabel = "share of the 48 starts solved greedily"
    return runs.curves(results, labels, "eval/success", ylabel, ylim=(-0.02, 1.02))


TABLES = {
    "table": table,
    "shares": shares,
    "layouts": layouts,
    "seeds": seeds_of_fast,
    "quick": seconds_of_quick,
}
FIGURES = {"curves": curves}
