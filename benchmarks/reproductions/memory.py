"""Train recurrent agents on MiniGrid's Memory, DoorKey and KeyCorridor, and on Comparison.

    python -m benchmarks reproductions/memory --variants "memory-s7-*"

A variant is a task and an agent, such as `memory-s7-lstm-dense`.
"""

import numpy as np

from benchmarks.reproduction import (
    Reproduction,
    Training,
    last_step,
    learning_curves,
    load_network,
    percent,
    read_config,
    read_log,
    spread,
)
from rrl_tf.agents import make_agent
from rrl_tf.agents.evaluation import NOISE, evaluate
from rrl_tf.envs import memory_task
from rrl_tf.interpret import play_ablated, swap_memories
from train_scripts import train_recurrent

TASKS = {
    # preset of the script: label, agents, seeds
    "memory-s7": ("MemoryS7", "lstm-dense rmc-dense none-dense four-frames-dense", range(3)),
    "memory-s17": (
        "MemoryS17",
        "lstm-long lstm-long-dense rmc-long-dense none-dense four-frames-dense",
        range(3),
    ),
    "memory-s17-random": (
        "MemoryS17Random",
        "lstm-long-dense rmc-long-dense window-dense none-dense four-frames-dense",
        range(3),
    ),
    "doorkey-6x6": (
        "DoorKey-6x6, held-out layouts",
        "lstm lstm-dense none none-dense four-frames",
        range(3),
    ),
    "doorkey-8x8": (
        "DoorKey-8x8, held-out layouts",
        "lstm lstm-long rmc-entities rmc none four-frames no-floor",
        range(3),
    ),
    "doorkey-16x16": ("DoorKey-16x16", "lstm lstm-long none four-frames", range(3)),
    "key-corridor-s3r3": ("KeyCorridorS3R3", "lstm-long none four-frames", range(3, 6)),
    "comparison": (
        "ComparisonS14",
        "lstm-long-dense rmc-long-dense none-dense four-frames-dense",
        range(3),
    ),
}
DENSE = ("--batch-size=16",)  # dense layers make an update cheap
FOUR_FRAMES = ("--frames=4", "--loop=python")  # environments in the graph do not stack frames
AGENTS = {
    # label, architecture of `RecurrentQNetwork`, further options. "chrono" names gates that are
    # initialised to remember for up to 40 steps.
    "lstm": ("LSTM, relational encoder", "lstm", ()),
    "lstm-dense": ("LSTM, dense encoder", "lstm-dense", DENSE),
    "lstm-long": ("chrono LSTM, relational encoder", "lstm-long", ()),
    "lstm-long-dense": ("chrono LSTM, dense encoder", "lstm-long-dense", DENSE),
    "rmc-entities": ("Relational Memory over cells", "relational-memory-entities", ()),
    "rmc": ("Relational Memory, relational encoder", "relational-memory", ()),
    "rmc-dense": (
        "Relational Memory, dense encoder",
        "relational-memory-dense",
        DENSE,
    ),
    "rmc-long-dense": (
        "chrono Relational Memory, dense encoder",
        "relational-memory-long-dense",
        ("--batch-size=64",),  # with 16 it solved half of S11 after 190,000 steps
    ),
    "window-dense": ("window of 16 steps, dense encoder", "window-dense", DENSE),
    "none": ("no memory, relational encoder", "none", ()),
    "none-dense": ("no memory, dense encoder", "none-dense", DENSE),
    "four-frames": ("four frames, relational encoder", "none", FOUR_FRAMES),
    "four-frames-dense": (
        "four frames, dense encoder",
        "none-dense",
        (*DENSE, *FOUR_FRAMES),
    ),
    "no-floor": (
        "LSTM, relational encoder, no return lower bound",
        "lstm",
        ("--no-use-return-lower-bound",),
    ),
}
SUMMARY = {
    "memory-s7": "lstm-dense",
    "memory-s17": "lstm-long-dense",
    "memory-s17-random": "lstm-long-dense",
    "doorkey-6x6": "lstm",
    "doorkey-8x8": "lstm-long",
    "doorkey-16x16": "lstm",
    "key-corridor-s3r3": "lstm-long",
    "comparison": "lstm-long-dense",
}
"""Dict from a task to the agent that the summary compares with agents without a memory."""
ZERO_SHOT = ("zero_shot/level", "zero_shot/success", "zero_shot/last_success")
"""Columns of the log: the curriculum's next and last level before they are trained on."""

LENGTHS = (17, 33, 65, 129)
"""Sides of Memory's grid on which agents of MemoryS17Random play without further training."""
STARTS = 60
STEPS_PER_CELL = 20
"""Time limit per cell of the side; the shortest solution from any start needs fewer than three."""

CHANGED_MEMORY = {
    "unchanged": ("trained", "nothing"),
    "zeros": ("zeroed", "memory"),
    "another episode's": ("shuffled", "exchanged"),
    "uniform attention": ("uniform attention", "block_1, uniform"),
}
"""Dict from the title of a column to the names in the results and in `play_ablated`."""


def training(task, agent, seeds):
    """Return the training of an agent on a task."""
    label, network, options = AGENTS[agent]
    options = (f"--network={network}", *options)
    return Training(label, "train_recurrent", task, options, tuple(seeds))


TRAININGS = {
    f"{task}-{agent}": training(task, agent, seeds)
    for task, (_, agents, seeds) in TASKS.items()
    for agent in agents.split()
}


def measure(run):
    """Return the zero-shot success of a run, and its success with changed memories."""
    log = read_log(run)
    found = {"zero_shot": [[row[name] for name in ZERO_SHOT] for row in log if ZERO_SHOT[0] in row]}
    config, network = read_config(run, train_recurrent.Config), load_network(run)
    if not network.memory_size:
        return found
    task = train_recurrent.make_task(config)
    agent = make_agent(task, network, config)
    resets = task.evaluation_resets(at_most=config.evaluation_episodes)
    kinds = ["memory", "exchanged"] + ["uniform"] * (network.core == "relational_memory")
    played = play_ablated(network, task, resets, kinds)
    found["without"] = {
        name: played[change].summary()["success"]
        for name, change in CHANGED_MEMORY.values()
        if change in played
    }
    if config.environment == "memory":
        swap = swap_memories(agent.greedy_policy(), task)
        if swap.decided.any():
            found["swapped"] = swap.summary()
    if config.random_length:
        found["lengths"] = play_lengths(agent.greedy_policy())
    return found


def play_lengths(policy, lengths=LENGTHS, starts=STARTS):
    """Return how a policy of MemoryS17Random plays longer hallways.

    It plays size 17 as in training, with hallways of every length, and of each larger size the
    longest hallway.

    Args:
        policy: recurrent policy of `evaluate`.
        lengths: sides of the grid.
        starts: number of starts of each size, a fixed random subset.

    Returns:
        One dict per size and probability `epsilon` of a random action, with the fractions of
        episodes that succeed (`success`) and that reach the time limit (`unfinished`). All other
        episodes end at the wrong object.
    """
    rows = []
    for size in lengths:
        limit = STEPS_PER_CELL * size
        task = memory_task((size,), random_length=size == LENGTHS[0], max_steps=limit)
        resets = task.evaluation_resets(at_most=starts)
        for epsilon in (0.0, NOISE):
            played = evaluate(policy, task.make_test_env, resets, epsilon)
            late = float(np.mean((played.length == limit) & ~played.success))
            success = float(played.success.mean())
            rows.append({"size": size, "epsilon": epsilon, "success": success, "unfinished": late})
    return rows


def found(results):
    """Yield the cells that name a variant, and its evaluations, of all variants with results."""
    for training, evaluations in results.of_each(TRAININGS):
        yield {"task": TASKS[training.preset][0], "agent": training.label}, evaluations


def table(results):
    """Return the last evaluations."""
    return [
        {
            **names,
            "seeds": len(agents),
            "steps": last_step(agents),
            "greedy success": percent(agents, "eval/success"),
            f"success, ε = {NOISE}": percent(agents, f"eval/success_epsilon_{NOISE}"),
            "CPU minutes": spread([agent["cpu_minutes"] for agent in agents], ".0f"),
        }
        for names, agents in found(results)
    ]


def summary(results):
    """Return one agent per task, and the success of the same encoder without a memory."""
    rows = []
    for task, agent in SUMMARY.items():
        agents = results.of(f"{task}-{agent}")
        encoder = "-dense" if agent.endswith("-dense") else ""
        row = {
            "task": TASKS[task][0],
            "agent": AGENTS[agent][0],
            "seeds": len(agents),
            "steps": last_step(agents),
            "greedy success": percent(agents, "eval/success"),
            f"success, ε = {NOISE}": percent(agents, f"eval/success_epsilon_{NOISE}"),
        }
        for title, name in (("no memory", "none"), ("four frames", "four-frames")):
            compared = results.of(f"{task}-{name}{encoder}")
            row[title] = percent(compared, "eval/success") if compared else ""
        rows.append(row | {"CPU minutes": spread([a["cpu_minutes"] for a in agents], ".0f")})
    return rows


def zero_shot(results):
    """Return the success on the next and the last level before they are trained on."""
    rows = []
    for names, agents in found(results):
        for levels in zip(*(agent["zero_shot"] for agent in agents)):
            row = {**names, "last trained level": int(levels[0][0]) - 1}
            for title, place in (
                ("success on the next level", 1),
                ("success on the last level", 2),
            ):
                # Earlier runs did not log the last level.
                row[title] = optional([each[place] for each in levels if len(each) > place])
            rows.append(row)
    return rows


def without_memory(results):
    """Return the success of agents whose memory is removed or changed."""
    rows = []
    for names, agents in found(results):
        if changed := [agent["without"] for agent in agents if "without" in agent]:
            row = {**names, "seeds": len(changed)}
            for title, (name, _) in CHANGED_MEMORY.items():
                row[title] = optional([each[name] for each in changed if name in each])
            swapped = [agent["swapped"]["outcome"] for agent in agents if "swapped" in agent]
            rows.append(row | {"follows the swapped memory": optional(swapped, ".0f")})
    return rows


def length_table(results):
    """Return the success of agents of MemoryS17Random on hallways longer than those of training."""
    rows = []
    for names, agents in found(results):
        played = [agent["lengths"] for agent in agents if "lengths" in agent]
        for size in LENGTHS if played else ():
            of_size = [[each for each in own if each["size"] == size] for own in played]
            row = {"agent": names["agent"], "size": size, "seeds": len(of_size)}
            for place, title in enumerate(("greedy", f"ε = {NOISE}")):
                row[f"success, {title}"] = percent([each[place] for each in of_size], "success")
            row["time limit, greedy"] = percent([each[0] for each in of_size], "unfinished")
            rows.append(row | {"guess": "50 %"})
    return rows


def optional(fractions, form=".1f"):
    """Format fractions as a percentage, an empty list as an empty cell."""
    return spread([100 * each for each in fractions], form, " %") if fractions else ""


def curves(task):
    """Return the figure function of a task: greedy success against steps."""
    labels = {name: each.label for name, each in TRAININGS.items() if each.preset == task}
    return learning_curves("eval/success", "greedy success", labels, ylim=(-0.02, 1.02))


REPRODUCTION = Reproduction(
    page="memory",
    trainings=TRAININGS,
    tables={
        "table": table,
        "summary": summary,
        "zero_shot": zero_shot,
        "without_memory": without_memory,
        "lengths": length_table,
    },
    figures={
        task: curves(task) for task in TASKS if task not in ("memory-s7", "memory-s17-random")
    },
    curves=("eval/success",),
    measure=measure,
    pictures={
        "doorkey-8x8-lstm-seed0": ("attention.png", "episode.gif"),
        "memory-s17-lstm-long-seed0": ("episode.gif", "memory.png"),
        "key-corridor-s3r3-lstm-long-seed3": ("episode.gif", "memory.png"),
    },
    runs="runs/recurrent",
)
