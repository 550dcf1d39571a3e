"""Box-World as a task: levels of some boxes and distractors, and pairs of colours kept apart."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, TypeAlias

import gymnasium
import numpy as np

from rrl_tf._arguments import integers_from, one_of, positive_int
from rrl_tf.envs.box_world import ACTION_NAMES, AGENT, BoxWorld, draw_room
from rrl_tf.envs.box_world_levels import FLOOR, GEM, KEY, LOCK, PARTS
from rrl_tf.envs.preprocessing import one_hot
from rrl_tf.envs.task import Level, Task
from rrl_tf.errors import InvalidInput

Numbers: TypeAlias = int | tuple[int, ...]
"""A number, or those that one is drawn from."""

SETTLED = {"goal_length", "num_distractors", "part"}
"""Of `BoxWorld`'s arguments, those that levels and parts of a task say."""

LEVELS = (((1, 2, 3), (0, 1, 2)),)
"""One level: how many boxes lead to the gem, and how many distractors there are."""


def box_world_task(
    size: int = 8,
    *,
    levels: Sequence[tuple[Numbers, Numbers]] = LEVELS,
    train_part: str = "train",
    test_part: str = "train",
    test_goal_length: Numbers | None = None,
    max_steps: int = 120,
    pool: int = 20_000,
    **options: Any,
) -> Task:
    """Box-World as a `Task`, evaluated on levels that training does not meet.

    Args:
        size: side of the room in cells, without its walls.
        levels: the curriculum from first to last, of each level `goal_length` and
            `num_distractors` as in `BoxWorld`.
        train_part: `"train"` keeps `held_out_pairs` out of training; `"all"` keeps nothing out.
        test_part: what is evaluated: `"train"`, new levels of known pairs; `"test"`, levels that
            need a held-out pair, from two boxes up; or `"all"`.
        test_goal_length: how many boxes are evaluated, if it is another number.
        max_steps: time limit of an episode.
        pool: as in `BoxWorldGraph`, of every level.
        **options: others of `BoxWorld`, for all levels, as `distractor_length` and `num_colours`.

    Raises:
        InvalidInput: if an argument is not possible.

    Example:
        >>> task = box_world_task(8, levels=((1, 0), ((1, 2), 1)))
        >>> task.preprocessor.shape, task.action_names
        ((8, 8, 26), ('up', 'down', 'left', 'right'))
    """
    _check_unsettled(options)
    positive_int("pool", pool)
    one_of("train_part", train_part, PARTS)
    one_of("test_part", test_part, PARTS)
    if test_goal_length is not None:
        test_goal_length = integers_from("test_goal_length", test_goal_length, 1)
    options = {**options, "size": size, "max_steps": max_steps}
    tasks = []
    for length, distractors in _numbers_of(levels):
        tested = length if test_goal_length is None else test_goal_length
        training = {"goal_length": length, "part": train_part}
        testing = {"goal_length": tested, "part": _part(test_part, tested)}
        name = f"{_name(length)} boxes, {_name(distractors)} distractors"
        tasks.append(
            _level(name, training, testing, pool, {**options, "num_distractors": distractors})
        )
    space: Any = tasks[0].make_env().observation_space
    return Task(
        name=f"BoxWorld-{size}x{size}",
        levels=tuple(tasks),
        preprocessor=one_hot(space, unseen_code=FLOOR, agent_code=AGENT),
        action_names=ACTION_NAMES,
        entities=box_world_cells,
        view=_room,
    )


def box_world_cells(observation: np.ndarray) -> dict[str, tuple[int, int]]:
    """Finds the agent, the gem, and keys and locks, those that matter now by a name of their own.

    Args:
        observation: `(size, size, 2)`.

    Returns:
        Label → cell (row, column): `agent`; `gem`; `key`, which lies free; `open` for the locks
        that the held key opens; `box` for any other lock; each numbered from the second on.

    Example:
        >>> view = np.zeros((8, 8, 2), "uint8")
        >>> view[2, 5], view[4, 4] = (AGENT, 7), (LOCK, 7)
        >>> box_world_cells(view)
        {'agent': (2, 5), 'open': (4, 4)}
    """
    kinds, colours = observation[..., 0], observation[..., 1]
    held = int(colours[kinds == AGENT].max(initial=0))
    locks = kinds == LOCK
    closed = np.zeros(kinds.shape, bool)
    closed[:, :-1] = locks[:, 1:]
    found = {
        "agent": kinds == AGENT,
        "gem": kinds == GEM,
        "key": (kinds == KEY) & ~closed,
        "open": locks & (colours == held),
        "box": locks & (colours != held),
    }
    return {
        label if number == 1 else f"{label} {number}": (row, column)
        for label, where in found.items()
        for number, (row, column) in enumerate(np.argwhere(where).tolist(), start=1)
    }


def _check_unsettled(options):
    if settled := sorted(SETTLED & options.keys()):
        raise InvalidInput(
            f"`levels`, `train_part` and `test_part` say {', '.join(sorted(SETTLED))}; "
            f"received {', '.join(f'{name}={options[name]!r}' for name in settled)}"
        )


def _numbers_of(levels):
    """Of each level the boxes and the distractors to draw from, as tuples."""
    try:
        pairs = [(length, distractors) for length, distractors in levels]
    except (TypeError, ValueError):  # no sequence, no pairs
        pairs = []
    if not pairs:
        raise InvalidInput(
            "levels needs at least one pair of boxes and distractors, and nothing else; "
            f"received {levels!r}"
        )
    return [
        (integers_from("goal_length", length, 1), integers_from("num_distractors", others, 0))
        for length, others in pairs
    ]


def _level(name, training, testing, pool, options):
    return Level(
        name,
        functools.partial(BoxWorld, **training, **options),
        functools.partial(BoxWorld, **testing, **options),
        make_graph=functools.partial(_make_graph, pool=pool, **training, **options),
        make_test_graph=functools.partial(_make_graph, **testing, **options),
    )


def _part(part, goal_length):
    """The part of a level that is too short for a held-out pair is that of known ones."""
    return "train" if part == "test" and max(goal_length) < 2 else part


def _name(numbers):
    return "-".join(map(str, sorted({min(numbers), max(numbers)})))


def _room(env: gymnasium.Env) -> np.ndarray:
    """The cells alone, without walls."""
    box_world: Any = env.unwrapped
    return draw_room(box_world.observe(), box_world.levels.num_colours)


def _make_graph(**options):
    from rrl_tf.envs.box_world_graph import BoxWorldGraph  # it loads TensorFlow

    return BoxWorldGraph(**options)
