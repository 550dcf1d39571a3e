"""How many levels of Box-World random play solves, and how many distractors find room in them."""

import collections
import dataclasses

import numpy as np
import tensorflow as tf

from benchmarks.report import Report
from rrl_tf.envs import BoxWorldGraph, BoxWorldLevels
from rrl_tf.training.config import require_positive

ROWS = (
    # size, boxes that lead to the gem, distractors
    (6, (1,), (0,)),
    (8, (1,), (0,)),
    (8, (1, 2), (0, 1)),
    (8, (1, 2, 3), (0, 1, 2)),
    (8, (4,), (0, 1, 2)),
    (12, (1,), (0,)),
    (12, (1, 2, 3, 4), (0, 1, 2, 3, 4)),
)


@dataclasses.dataclass(frozen=True)
class Config:
    """How much is played."""

    episodes: int = 20_000
    """Of random play, of every kind of level."""
    levels: int = 500
    """Drawn to count their distractors."""

    def __post_init__(self):
        require_positive(self, "episodes", "levels")


def main(config):
    """Plays Box-World at random."""
    rows = [
        {
            "size": f"{size} x {size}",
            "boxes": in_words(boxes),
            "distractors": in_words(distractors),
            "solved": f"{100 * solved(config, size, boxes, distractors):.1f} %",
            "levels with 0, 1, 2, ... distractors": counted(config, size, boxes, distractors),
        }
        for size, boxes, distractors in ROWS
    ]
    notes = (
        f"{config.episodes:,} episodes of random actions, at most 120 steps each; "
        f"{config.levels} levels are counted.",
        "Boxes and distractors are asked for alike; a problem that has no room is drawn anew.",
    )
    return Report("Random play in Box-World", rows, notes)


def in_words(numbers):
    """The first and the last of several numbers, or the only one."""
    return "-".join(map(str, sorted({numbers[0], numbers[-1]})))


def solved(config, size, boxes, distractors):
    """The share of episodes that end with the gem."""
    env = BoxWorldGraph(size=size, goal_length=boxes, num_distractors=distractors)
    state = env.initial_state(config.episodes, seed=(0, 0))
    over = success = tf.zeros(config.episodes, tf.bool)
    step = tf.function(env.step, jit_compile=True)
    for t in range(env.time_limit):
        actions = tf.random.stateless_uniform((config.episodes,), (1, t), 0, 4, tf.int32)
        state, _, reward, terminated, _ = step(state, actions)
        success |= env.succeeded(reward, terminated) & ~over
        over |= terminated
    return np.mean(success)


def counted(config, size, boxes, distractors):
    """How many levels have no distractor, one, two, ..."""
    levels, rng = BoxWorldLevels(size, boxes, distractors), np.random.default_rng(0)
    wrong = [
        sum(box[2] for box in levels.draw(rng).boxes)  # whether it is a distractor
        for _ in range(config.levels)
    ]
    found = collections.Counter(wrong)
    return ", ".join(str(found[count]) for count in range(max(distractors) + 1))
