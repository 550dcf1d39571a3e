"""Why agents with relations stayed at a half on Memory: supervised, which way is right?

Random play in MemoryS7 is cut into sequences, and the network has to tell whether the object like
that in the room is the upper one or the lower, wherever both are in view: first where that in the
room is in view as well, so that there is nothing to remember, and then where it has been seen and
is not. That is what an agent has to know there. Neither what it remembers nor what it sees is of
any use alone, so both have to be found at once.
"""

import dataclasses
import functools

import numpy as np

from benchmarks.report import Report
from benchmarks.reproductions.recall import gather, late_share, learning
from benchmarks.runs import any_of
from rrl_tf.envs import memory_task

SIZE, STEPS = 7, 24
AGENT, MOST = {}, {"readout": "max", "readout_cell": None}
NORMED = {"block": {"num_heads": 2, "key_size": 16, "qkv_norm": "entity"}}
PLACES = {
    "dense layers": None,
    "relations, the agent's cell read": AGENT,
    "relations, the largest of each feature read": MOST,
    "relations with normed queries, keys and values, the agent's cell read": NORMED,
}
"""What makes the vector of a view: an encoder's arguments, or None for dense layers."""
MEMORIES = {"no memory": "none", "LSTM": "lstm-long", "Relational Memory": "relational-memory-long"}
"""In words → preset of `RecurrentQNetwork`."""
QUESTIONS = {
    "all in view": (False, ("no memory",)),
    "the first out of view": (True, ("LSTM", "Relational Memory")),
}
"""Whether the object in the room must be remembered, and by which memories."""


@dataclasses.dataclass(frozen=True)
class Config:
    """How much is played, and how long is learned."""

    questions: any_of(QUESTIONS) = tuple(QUESTIONS)
    places: any_of(PLACES) = tuple(PLACES)
    seeds: tuple[int, ...] = (0, 1, 2)
    sequences: int = 2000
    """To learn from; a fifth as many are asked afterwards."""
    updates: int = 1000
    every: int = 200
    """Updates between two looks."""
    batch_size: int = 16
    learning_rate: float = 1e-3


def main(config):
    """Teaches networks the way, and writes how soon they know it."""
    task, rows, asked_for = memory_task((SIZE,)), [], []
    for question in config.questions:
        remembered, memories = QUESTIONS[question]
        rng, played = np.random.default_rng(0), functools.partial(play, remembered)
        learned = gather(task, config.sequences, played, rng)
        asked = gather(task, config.sequences // 5, played, rng)
        for memory in memories:
            for place in config.places:
                columns = learning(task, variant(memory, place), learned, asked, config)
                row = {"objects": question, "view": place, "memory": memory}
                rows.append({**row, "seeds": len(config.seeds), **columns})
                print(rows[-1], flush=True)
        right = max(late_share(asked, answer) for answer in (0, 1))
        asked_for.append(f"{question}: {int(asked['late'].sum()):,}, {100 * right:.1f} %")
    return Report(
        "Which way is right in Memory, taught",
        rows,
        (
            f"MemoryS{SIZE}. Share of right answers in new sequences; how many are asked for, and "
            f"what who always says the same reaches: {'; '.join(asked_for)}.",
            f"Adam at {config.learning_rate}, batches of {config.batch_size} sequences of {STEPS} "
            "steps; mean and range over the seeds.",
        ),
    )


def variant(memory, place):
    """A preset of `RecurrentQNetwork` and what is otherwise in it."""
    arguments = PLACES[place]
    if arguments is None:
        return f"{MEMORIES[memory]}-dense", {}
    cell = {"readout": "cell", "readout_cell": memory_task((SIZE,)).preparation.agent_cell}
    return MEMORIES[memory], {"encoder_arguments": {**cell, **arguments}}


def play(remembered, env, rng):
    """The first steps of an episode; once it is over, its last one stands and does not count."""
    observation, _ = env.reset(seed=int(rng.integers(2**31)))
    world, start = env.unwrapped, env.get_wrapper_attr("start")
    middle, end = world.height // 2, start.hallway_end + 1
    rows, action, reward, seen, over = [], -1, 0.0, False, False
    for _ in range(STEPS):
        in_view = bool(world.agent_sees(1, middle - 1))
        seen |= in_view
        known = seen and not in_view if remembered else in_view
        asked = known and not over and all(world.agent_sees(end, middle + k) for k in (-2, 2))
        rows.append(
            {
                "observation": observation,
                "previous_action": np.int32(action),
                "previous_reward": np.float32(reward),
                "answer": np.float32(start.shown == start.upper),
                "counted": asked,
                "late": asked,
            }
        )
        if not over:
            action = int(rng.choice(3, p=(0.3, 0.3, 0.4)))
            observation, reward, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
    return rows
