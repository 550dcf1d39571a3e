"""Trains every agent with a memory that the docs report, several seeds each, and draws the tables.

    python -m benchmarks reproductions/memory --tasks memory-s7 --variants lstm-dense none-dense

What is finished is not trained again, and what was stopped goes on, so the runs may be spread over
as many sittings as they need.
"""

import dataclasses
import pathlib

from benchmarks import runs
from benchmarks.runs import percent, spread, summaries
from benchmarks.tables import markdown_table
from rrl_tf.agents.agent_evaluation import NOISE
from rrl_tf.agents.loops import make_recurrent_agent
from rrl_tf.interpret.memory_checks import memory_ablations, swap_memories
from train_scripts import train_recurrent

RESULTS = pathlib.Path("docs/results/memory")
TASKS = {
    "memory-s7": "MemoryS7",
    "memory-s17": "MemoryS17",
    "memory-s17-random": "MemoryS17Random",
    "doorkey-6x6": "DoorKey-6x6, new layouts",
    "doorkey-8x8": "DoorKey-8x8, new layouts",
    "doorkey-16x16": "DoorKey-16x16",
    "key-corridor-s3r3": "KeyCorridorS3R3",
    "comparison": "ComparisonS14",
}
"""Presets of `train_scripts.train_recurrent`, in the words of the tables."""
DENSE = ("--batch-size=16",)
"""Behind dense layers an update costs so little that it may draw more sequences."""
FOUR_FRAMES = ("--frames=4", "--loop=python")
"""No environment inside the graph stacks them."""
VARIANTS = {
    "lstm": ("LSTM, relations", "lstm", ()),
    "lstm-dense": ("LSTM, dense layers", "lstm-dense", DENSE),
    "lstm-long": ("LSTM for long spans, relations", "lstm-long", ()),
    "lstm-long-dense": ("LSTM for long spans, dense layers", "lstm-long-dense", DENSE),
    "rmc-entities": ("Relational Memory of the cells in view", "relational-memory-entities", ()),
    "rmc": ("Relational Memory of one vector, relations", "relational-memory", ()),
    "rmc-long": ("Relational Memory for long spans, relations", "relational-memory-long", ()),
    "rmc-dense": (
        "Relational Memory of one vector, dense layers",
        "relational-memory-dense",
        DENSE,
    ),
    "rmc-long-dense": (
        "Relational Memory for long spans, dense layers",
        "relational-memory-long-dense",
        ("--batch-size=64",),  # with 16 it was still at a half on S11 after 190,000 steps
    ),
    "window": ("the last 16 steps, relations", "window", ()),
    "none": ("no memory, relations", "none", ()),
    "none-dense": ("no memory, dense layers", "none-dense", DENSE),
    "four-frames": ("no memory, relations, four frames", "none", FOUR_FRAMES),
    "four-frames-dense": (
        "no memory, dense layers, four frames",
        "none-dense",
        (*DENSE, *FOUR_FRAMES),
    ),
    "zero-memory": ("LSTM, relations; memory not stored", "lstm", ("--no-stored-memory",)),
    "no-burn-in": ("LSTM, relations; no burn-in", "lstm", ("--burn-in=0",)),
    "no-floor": ("LSTM, relations; no floor", "lstm", ("--no-observe-returns",)),
}
"""Agents: in the tables' words, preset of `RecurrentQNetwork`, more options of the script."""


ZERO_SHOT = ("zero_shot/level", "zero_shot/success", "zero_shot/last_success")
"""Of a curriculum's next level and of its last one, before they are trained on."""
SHOWN = (
    ("doorkey-8x8", "lstm", 0),
    ("memory-s17", "lstm-long", 0),
    ("key-corridor-s3r3", "lstm-long", 3),
)
"""Whose pictures are in the docs."""


@dataclasses.dataclass(frozen=True)
class Config(runs.Config):
    """Which runs, and how many at a time."""

    tasks: runs.any_of(TASKS) = ("memory-s7", "doorkey-6x6")
    """Presets of `train_scripts.train_recurrent`."""
    variants: runs.any_of(VARIANTS) = ("lstm-dense", "none-dense")
    """Agents."""
    runs: str = "runs/recurrent"


def main(config):
    """Trains agents with a memory and writes the tables and figures of the docs."""
    wanted = [
        (task, variant, seed)
        for seed in config.seeds
        for task in config.tasks
        for variant in config.variants
    ]
    runs.train_all(config, train, wanted)
    runs.publish(RESULTS, TABLES, FIGURES)


def train(config, task, variant, seed):
    """Trains one agent, and keeps what the tables need."""
    _, network, options = VARIANTS[variant]
    name = f"{task}-{variant}-seed{seed}"
    run = runs.train(
        config, "train_recurrent", task, seed, f"--network={network}", *options, name=name
    )
    rows = runs.metrics(run / "metrics.csv")
    zero_shot = [
        [row[name] for name in ZERO_SHOT if name in row] for row in rows if ZERO_SHOT[0] in row
    ]
    minutes = rows[-1]["time/cpu_minutes"]
    runs.keep(run, RESULTS, cpu_minutes=minutes, zero_shot=zero_shot, **checks(run))
    if (task, variant, seed) in SHOWN:
        runs.keep_pictures(run, RESULTS, f"{task}-{variant}", "memory.png")


def checks(run):
    """What a finished run's memory decides: success without it, and what follows when swapped."""
    config = runs.configuration(run, train_recurrent.Config)
    task = train_recurrent.make_task(config)
    network = runs.network(run)
    if not network.memory_size:
        return {}
    agent = make_recurrent_agent(task, network, config)
    resets = task.evaluation_resets(at_most=config.evaluation_episodes)
    found = memory_ablations(agent, task, resets)
    more = {"without": {name: each.summary()["success"] for name, each in found.items()}}
    if config.environment == "memory":
        swap = swap_memories(agent.greedy_player(), task)
        if swap.decided.any():
            more["swapped"] = swap.summary()
    return more


def found(results):
    """Task and agent in words, and the summaries of its seeds, of all that was trained."""
    for task, task_label in TASKS.items():
        for variant, (label, *_) in VARIANTS.items():
            if agents := summaries(results, f"{task}-{variant}"):
                yield {"task": task_label, "agent": label}, agents


def table(results):
    """The runs' last evaluations as a Markdown table."""
    return markdown_table(
        [
            {
                **names,
                "seeds": len(agents),
                "steps": f"{max(agent['step'] for agent in agents):,}",
                "greedy success": percent(agents, "eval/success"),
                f"success, ε = {NOISE}": percent(agents, f"eval/success_epsilon_{NOISE}"),
                "CPU minutes": spread([agent["cpu_minutes"] for agent in agents], ".0f"),
            }
            for names, agents in found(results)
        ]
    )


def zero_shot(results):
    """How levels go before they are trained on, the next and the last, as a Markdown table."""
    rows = []
    for names, agents in found(results):
        for levels in zip(*(agent["zero_shot"] for agent in agents)):
            number, *_ = levels[0]
            row = {**names, "trained up to level": int(number) - 1}
            # Runs of before did not tell of the last level.
            for title, place in (("the next, untrained", 1), ("the last, untrained", 2)):
                shares = [100 * each[place] for each in levels if len(each) > place]
                row[title] = spread(shares, ".1f", " %") if shares else ""
            rows.append(row)
    return markdown_table(rows)


def without_memory(results):
    """What an agent is worth when its memory is taken away or changed, as a Markdown table."""
    rows = []
    for names, agents in found(results):
        changed = [agent["without"] for agent in agents if "without" in agent]
        if not changed:
            continue
        row = {**names, "seeds": len(changed)}
        for name in ("trained", "zeroed", "shuffled", "uniform attention"):
            shares = [100 * each[name] for each in changed if name in each]
            row[f"greedy, {name}"] = spread(shares, ".1f", " %") if shares else ""
        swapped = [100 * agent["swapped"]["outcome"] for agent in agents if "swapped" in agent]
        row["follows a swapped memory"] = spread(swapped, ".0f", " %") if swapped else ""
        rows.append(row)
    return markdown_table(rows)


def curves(task):
    """A function of the results: greedy success on a task against steps, a line an agent."""

    def figure(results):
        labels = {f"{task}-{variant}": label for variant, (label, *_) in VARIANTS.items()}
        return runs.curves(results, labels, "eval/success", "greedy success", ylim=(-0.02, 1.02))

    return figure


TABLES = {"table": table, "zero_shot": zero_shot, "without_memory": without_memory}
FIGURES = {task: curves(task) for task in TASKS}
