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
from benchmarks.reproductions.recall import (
    Teaching,
    gather,
    late_share,
    learning,
    random_play,
    room_in_view,
)
from benchmarks.runs import any_of
from rrl_tf.envs import memory_task
from rrl_tf.models.architectures import RELATIONAL_Q_NETWORK

SIZE, STEPS = 7, 24
NORMED = {**RELATIONAL_Q_NETWORK["fast"]["config"]["block"], "qkv_norm": "entity"}
VIEWS = {
    "dense layers": None,
    "relations, the agent's cell read": {"readout": "cell"},
    "relations, the largest of each feature read": {"readout": "max"},
    "relations with normed queries, keys and values, the agent's cell read": {
        "readout": "cell",
        "block": NORMED,
    },
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
class Config(Teaching):
    """How much is taught, what and of which networks."""

    questions: any_of(QUESTIONS) = tuple(QUESTIONS)
    views: any_of(VIEWS) = tuple(VIEWS)
    updates: int = 1000
    every: int = 200


def main(config):
    """Teaches networks the way, and writes how soon they know it."""
    task, rows, asked_for = memory_task((SIZE,)), [], []
    for question in config.questions:
        remembered, memories = QUESTIONS[question]
        rng, played = np.random.default_rng(0), functools.partial(play, remembered)
        learned = gather(task, config.sequences, played, rng)
        asked = gather(task, config.sequences // 5, played, rng)
        for memory in memories:
            for view in config.views:
                columns = learning(task, variant(memory, view), learned, asked, config)
                row = {"objects": question, "view": view, "memory": memory}
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


def variant(memory, view):
    """A preset of `RecurrentQNetwork` and what is otherwise in it."""
    if VIEWS[view] is None:
        return f"{MEMORIES[memory]}-dense", {}
    return MEMORIES[memory], {"encoder_arguments": VIEWS[view]}


def play(remembered, env, rng):
    """The first steps of an episode, and where the way is asked for."""
    rows, seen = [], False
    for over, row in random_play(env, STEPS, rng):
        in_view, start = room_in_view(env), env.get_wrapper_attr("start")
        seen |= in_view
        known = seen and not in_view if remembered else in_view
        asked = known and not over and ends_in_view(env.unwrapped, start.hallway_end + 1)
        is_up = np.float32(start.shown == start.upper)
        rows.append({**row, "answer": is_up, "counted": asked, "late": asked})
    return rows


def ends_in_view(world, column):
    """Whether both objects at the end of the hallway are in view."""
    return all(world.agent_sees(column, world.height // 2 + offset) for offset in (-2, 2))
