"""Train the presets of `train_doorkey` on MiniGrid's 5x5 and 6x6 grids."""

import keras

from benchmarks.reproduction import (
    Reproduction,
    Training,
    first_steps,
    last_step,
    learning_curves,
    load_network,
    percent,
    read_config,
    read_log,
)
from rrl_tf.agents import evaluate
from train_scripts import train_doorkey

SCRIPT = "train_doorkey"
TRAININGS = {
    "fast": Training("fast, 5x5", SCRIPT, "fast", seeds=(0, 1, 2, 3, 4, 5)),
    "fast-graph": Training("fast with --loop graph, 5x5", SCRIPT, "fast", ("--loop=graph",)),
    "quick": Training("quick, 5x5", SCRIPT, "quick"),
    "few-steps": Training("few-steps, 5x5", SCRIPT, "few-steps", seeds=(0, 1, 2, 3, 4, 5)),
    "fast-6x6": Training("fast-6x6, held-out layouts", SCRIPT, "fast-6x6"),
    # The book's agent has up to 50,000 training steps there; a CPU makes about 40 steps per second.
    "book": Training("book, 5x5", SCRIPT, "book", ("--steps=30000",)),
    "book-published": Training("book-published, 5x5", SCRIPT, "book-published", ("--steps=20000",)),
}
FIRST, UNIFORM = "first step with 100 % success", "uniform_attention"


def measure(run):
    """Return further results of a run for the tables."""
    solved = [row for row in read_log(run) if row.get("eval/success") == 1.0]
    found = {"cpu_minutes_first_perfect": solved[0].get("time/cpu_minutes") if solved else None}
    if run.name.startswith("fast"):
        found[UNIFORM] = success_with_uniform_attention(run)
    return found


def success_with_uniform_attention(run):
    """Return the greedy success of a trained network whose visible cells get equal attention."""
    config = read_config(run, train_doorkey.Config)
    task, network = train_doorkey.make_task(config), load_network(run)
    for block in network.relations.rounds:
        silence_queries(block.attention)
    return evaluate(
        lambda o: keras.ops.convert_to_numpy(network(task.preprocessor(o))).argmax(-1),
        task.make_test_env,
        task.evaluation_resets(),
    ).summary()["success"]


def silence_queries(attention):
    """Set the queries of a self-attention layer to zero, which makes all its scores equal."""
    for variable in attention.query_key_value.variables:  # columns are [head][q | k | v]
        columns = variable.numpy().reshape(*variable.shape[:-1], attention.num_heads, -1)
        columns[..., : attention.key_size] = 0
        variable.assign(columns.reshape(variable.shape))


def table(results):
    """Return the last evaluations of all agents."""
    return [
        {
            "agent": training.label,
            "seeds": len(found),
            "steps": last_step(found),
            "greedy success": percent(found, "eval/success"),
            "loops": percent(found, "eval/loops"),
            "success, ε = 0.05": percent(found, "eval/success_epsilon_0.05"),
            FIRST: first_steps([each["first_perfect"] for each in found]),
            "greedy success, uniform attention": percent(found, UNIFORM)
            if UNIFORM in found[0]
            else "not measured",
        }
        for training, found in results.of_each(TRAININGS)
    ]


def seeds(results):
    """Return every run of `fast`."""
    return [
        {
            "seed of `fast`": each["seed"],
            "greedy success": f"{100 * each['eval/success']:.1f} %",
            FIRST: first_steps([each["first_perfect"]]),
        }
        for each in results.of("fast")
    ]


def quick(results):
    """Return the CPU time until `quick` solves every start; empty for a seed that never does."""
    rows = []
    for each in results.of("quick"):
        minutes = each["cpu_minutes_first_perfect"]
        rows.append(
            {
                "seed of `quick`": each["seed"],
                FIRST: first_steps([each["first_perfect"]]),
                "CPU seconds until then": minutes and f"{60 * minutes:.1f}",
            }
        )
    return rows


REPRODUCTION = Reproduction(
    page="doorkey",
    trainings=TRAININGS,
    tables={"table": table, "seeds": seeds, "quick": quick},
    figures={
        "curves": learning_curves(
            "eval/success",
            "greedy success on the 48 starts",
            {
                name: training.label.removesuffix(", 5x5")
                for name, training in TRAININGS.items()
                # The others stop as soon as they solve every start.
                if training.label.endswith("5x5") and name not in ("quick", "few-steps")
            },
            ylim=(-0.02, 1.02),
        )
    },
    curves=("eval/success",),
    measure=measure,
    pictures={"fast-seed0": ("attention.png", "episode.gif")},
)
