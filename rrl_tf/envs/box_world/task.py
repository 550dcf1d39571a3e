"""Define Box-World as a task, whose evaluation can use held-out pairs of colours."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from rrl_tf._arguments import integers_from, one_of, positive_int
from rrl_tf.envs.box_world.env import ACTION_NAMES, AGENT, BoxWorld
from rrl_tf.envs.box_world.levels import FLOOR, GEM, KEY, LOCK, PARTS
from rrl_tf.envs.preprocessing import one_hot
from rrl_tf.envs.task import Level, Task
from rrl_tf.errors import InvalidInput

Numbers: TypeAlias = int | tuple[int, ...]
"""One number, or several from which each level draws one."""

LEVELS = (((1, 2, 3), (0, 1, 2)),)
"""The default curriculum of one level: (numbers of boxes on the way to the gem, of distractors)."""


def box_world_task(
    size: int = 8,
    *,
    levels: Sequence[tuple[Numbers, Numbers] | tuple[Numbers, Numbers, int | None]] = LEVELS,
    train_part: str = "train",
    test_part: str = "train",
    test_goal_length: Numbers | None = None,
    max_steps: int = 120,
    pool: int = 20_000,
    **options: Any,
) -> Task:
    """Return Box-World as a `Task`, evaluated on levels that training does not use.

    Args:
        size: side of the room in cells, without its walls.
        levels: `(goal_length, num_distractors)` or `(goal_length, num_distractors, area)`, as in
            `BoxWorldLevels`: one for each level of the curriculum, in order.
        train_part: `"train"` excludes levels that need a held-out pair of lock and key colours (see
            `held_out_pairs`); `"test"` trains only on those; `"all"` excludes nothing.
        test_part: levels for evaluation: `"train"`, new levels without held-out pairs; `"test"`,
            levels whose solution needs a held-out pair; or `"all"`. If the solution of a level is
            always a single box, no pair can be held out, and `"test"` means `"train"`.
        test_goal_length: number of boxes on the way to the gem in evaluation; `None` uses the same
            as training.
        max_steps: time limit of an episode in steps.
        pool: as in `BoxWorldGraph`, for every level.
        **options: other arguments of `BoxWorld` for all levels, such as `distractor_length` and
            `num_colours`.

    Raises:
        InvalidInput: if an argument is invalid.

    Example:
        >>> task = box_world_task(8, levels=((1, 0), ((1, 2), 1)))
        >>> task.preprocessor.shape, task.action_names
        ((8, 8, 26), ('up', 'down', 'left', 'right'))
    """
    positive_int("pool", pool)
    one_of("train_part", train_part, PARTS)
    one_of("test_part", test_part, PARTS)
    if settled := sorted({"goal_length", "num_distractors", "area", "part"} & options.keys()):
        raise InvalidInput(
            "`options` must not have goal_length, num_distractors, area or part, which `levels`, "
            f"`train_part` and `test_part` set; received {', '.join(settled)}"
        )
    if not levels or not all(
        isinstance(level, tuple | list) and len(level) in (2, 3) for level in levels
    ):
        raise InvalidInput(
            "`levels` must hold at least one tuple (goal_length, num_distractors) or "
            f"(goal_length, num_distractors, area); received {levels!r}"
        )
    if test_goal_length is not None:
        test_goal_length = integers_from("test_goal_length", test_goal_length, 1)
    options = {**options, "size": size, "max_steps": max_steps}
    made = [
        _level(train_part, test_part, test_goal_length, pool, options, *level) for level in levels
    ]
    space: Any = made[0].make_env().observation_space
    return Task(
        name=f"BoxWorld-{size}x{size}",
        levels=tuple(made),
        preprocessor=one_hot(space, unseen_code=FLOOR, agent_code=AGENT),
        action_names=ACTION_NAMES,
        entities=box_world_cells,
        view=lambda env: env.get_wrapper_attr("render_room")(),
    )


def box_world_cells(observation: np.ndarray) -> dict[str, tuple[int, int]]:
    """Return the cells of the agent, the gem, loose keys and locks, with labels for figures.

    Args:
        observation: `(size, size, 2)`.

    Returns:
        Label → cell (row, column). The labels are `agent`; `gem`; `key`, a loose key; `open`, a
        lock that the held key opens; and `box`, any other lock. The second object with the same
        label is `box 2`, and so on.

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


def _level(train_part, test_part, test_goal_length, pool, options, boxes, distractors, area=None):
    length = integers_from("goal_length", boxes, 1)
    distractors = integers_from("num_distractors", distractors, 0)
    tested = test_goal_length or length
    # A pair to hold out needs two boxes. With one box, the test levels are those of "train".
    test_part = "train" if test_part == "test" and max(tested) < 2 else test_part
    options = {**options, "num_distractors": distractors, "area": area}
    training = {"goal_length": length, "part": train_part, **options}
    testing = {"goal_length": tested, "part": test_part, **options}
    return Level(
        f"{_range(length)} boxes, {_range(distractors)} distractors"
        + (f" in {area}x{area}" if area else ""),
        functools.partial(BoxWorld, **training),
        functools.partial(BoxWorld, **testing),
        make_graph=functools.partial(_make_graph, pool=pool, **training),
        make_test_graph=functools.partial(_make_graph, **testing),
    )


def _range(numbers):
    return "-".join(map(str, sorted({min(numbers), max(numbers)})))


def _make_graph(**options):
    from rrl_tf.envs.box_world.graph import BoxWorldGraph  # loads TensorFlow

    return BoxWorldGraph(**options)
