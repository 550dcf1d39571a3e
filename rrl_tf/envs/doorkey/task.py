"""Define DoorKey as a task, with levels, held-out layouts and a choice of preprocessors."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from rrl_tf._arguments import integers_from, one_of, positive_int
from rrl_tf.envs import preprocessing
from rrl_tf.envs.doorkey.env import enumerate_starts, make_doorkey
from rrl_tf.envs.minigrid_env import minigrid_task
from rrl_tf.envs.minigrid_view import AGENT_CELL
from rrl_tf.envs.starts import check_held_out_seed, level_of_starts
from rrl_tf.envs.task import Level, Task
from rrl_tf.errors import InvalidInput

LARGEST_ENUMERATED = 8
"""Largest size that is evaluated from an enumeration of its starts; larger grids use seeds."""

PREPROCESSORS = ("one_hot", "constant", "frame_maximum")


def doorkey_task(
    sizes: int | Sequence[int] = (5,),
    *,
    observation: str = "compass",
    frames: int = 1,
    preprocessor: str = "one_hot",
    reward: str = "success",
    max_steps: int | None = None,
    held_out: bool = False,
    held_out_seed: int = 0,
) -> Task:
    """Return MiniGrid's DoorKey as a `Task`, evaluated from every start or from held-out layouts.

    Args:
        sizes: sides of the grid: one level each, in the order of the curriculum.
        observation, frames, reward, max_steps: as in `make_doorkey`.
        preprocessor: `"one_hot"`; `"constant"`, each channel divided by its largest code; or
            `"frame_maximum"`, each observation divided by its largest value, as in the book. See
            `rrl_tf.envs.preprocessing`.
        held_out: whether to exclude a third of the last level's layouts from training and evaluate
            on these only.
        held_out_seed: seed that selects the held-out third.

    Raises:
        InvalidInput: if an argument is invalid, or `held_out` is used with a last size above 8,
            whose layouts are not enumerated.

    Example:
        >>> task = doorkey_task((5, 6), held_out=True)
        >>> len(task.evaluation_resets(at_most=1000))
        240
    """
    sizes, frames = integers_from("sizes", sizes, 1), positive_int("frames", frames)
    if held_out and sizes[-1] > LARGEST_ENUMERATED:
        raise InvalidInput(
            f"the last of `sizes` must be at most {LARGEST_ENUMERATED} with `held_out`, which "
            f"enumerates all layouts; received {sizes[-1]}"
        )
    check_held_out_seed(held_out, held_out_seed)
    one_of("preprocessor", preprocessor, PREPROCESSORS)
    settings: dict[str, Any] = {
        "observation": observation,
        "reward": reward,
        "max_steps": max_steps,
    }
    make = functools.partial(make_doorkey, frames=frames, **settings)
    make_graph = functools.partial(_make_graph, **settings) if frames == 1 else None
    levels = [
        _level(size, make, make_graph, held_out_seed if held_out and size == sizes[-1] else None)
        for size in sizes
    ]
    space: Any = levels[0].make_env().observation_space
    own = {
        "constant": preprocessing.scaled,
        "frame_maximum": preprocessing.frame_maximum,
    }.get(preprocessor)
    return minigrid_task(
        f"DoorKey-{sizes[-1]}x{sizes[-1]}",
        levels,
        preprocessor=own and own(space, AGENT_CELL),
    )


def _level(size, make, make_graph, held_out_seed):
    """Return the level of a size, evaluated from all starts up to `LARGEST_ENUMERATED`."""
    name, make = f"{size}x{size}", functools.partial(make, size)
    graph = make_graph and functools.partial(make_graph, size)
    if size > LARGEST_ENUMERATED:
        return Level(name, make, make_graph=graph, make_test_graph=graph)
    return level_of_starts(name, make, enumerate_starts(size), held_out_seed, graph)


def _make_graph(*arguments, **settings):
    from rrl_tf.envs.doorkey.graph import DoorKeyGraph  # loads TensorFlow

    return DoorKeyGraph(*arguments, **settings)
