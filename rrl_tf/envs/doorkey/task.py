"""DoorKey as a task: its levels, held-out layouts and preprocessors."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from rrl_tf._arguments import integers_from, one_of, positive_int
from rrl_tf.envs import preprocessing
from rrl_tf.envs.doorkey.env import enumerate_starts, make_doorkey
from rrl_tf.envs.minigrid_env import minigrid_task
from rrl_tf.envs.minigrid_view import AGENT_CELL
from rrl_tf.envs.task import Level, Task, check_held_out_seed, level_of_starts
from rrl_tf.errors import InvalidInput

LARGEST_ENUMERATED = 8
"""Side of the largest grid whose starts are enumerated for evaluation; larger ones use seeds."""

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
        sizes: sides of the grid, a curriculum from first to last.
        observation, frames, reward, max_steps: as in `make_doorkey`.
        preprocessor: `"one_hot"`, `"constant"` (codes divided by the largest) or `"frame_maximum"`
            (the book's); see `rrl_tf.envs.preprocessing`.
        held_out: evaluate a third of the last size's layouts and do not train on them.
        held_out_seed: selects the third.

    Raises:
        InvalidInput: if an argument is not possible, or layouts are held out above 8x8, where they
            are not enumerated.

    Example:
        >>> task = doorkey_task((5, 6), held_out=True)
        >>> len(task.evaluation_resets(at_most=1000))
        240
    """
    sizes, frames = integers_from("sizes", sizes, 1), positive_int("frames", frames)
    if held_out and sizes[-1] > LARGEST_ENUMERATED:
        raise InvalidInput(
            f"held_out needs a last size of at most {LARGEST_ENUMERATED}, whose layouts are "
            f"enumerated; received size {sizes[-1]}"
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
    """Return the level of a size, evaluated from all its starts if they are enumerated."""
    name, make = f"{size}x{size}", functools.partial(make, size)
    graph = make_graph and functools.partial(make_graph, size)
    if size > LARGEST_ENUMERATED:
        return Level(name, make, make_graph=graph, make_test_graph=graph)
    return level_of_starts(name, make, enumerate_starts(size), held_out_seed, graph)


def _make_graph(*arguments, **settings):
    from rrl_tf.envs.doorkey.graph import DoorKeyGraph  # loads TensorFlow

    return DoorKeyGraph(*arguments, **settings)
