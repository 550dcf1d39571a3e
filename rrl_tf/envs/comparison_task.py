"""Comparison as a task: two objects seen one after the other decide where to go in the end."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from typing import Any

from rrl_tf._arguments import integers_from
from rrl_tf.envs import minigrid_view
from rrl_tf.envs.comparison import APART_SIZE, KINDS, enumerate_comparison_starts, make_comparison
from rrl_tf.envs.doorkey_task import level_of_starts
from rrl_tf.envs.preprocessing import one_hot
from rrl_tf.envs.task import Task


def comparison_task(
    sizes: int | Sequence[int] = (APART_SIZE,),
    *,
    kinds: Collection[str] = KINDS,
    frames: int = 1,
    reward: str = "success",
    max_steps: int | None = None,
) -> Task:
    """Comparison as a `Task`, evaluated from every start, equals as often as others.

    Whoever does not know both objects in the end succeeds half of the time.

    Args:
        sizes: widths of the grid, from 6 up, a curriculum from first to last.
        kinds, frames, reward, max_steps: as in `make_comparison`, for all levels.

    Raises:
        InvalidInput: if an argument is not possible.

    Example:
        >>> task = comparison_task((11, 14))
        >>> len(task.evaluation_resets(at_most=1000)), task.action_names
        (264, ('left', 'right', 'forward'))
    """
    sizes = integers_from("sizes", sizes, 1)
    make = functools.partial(
        make_comparison, kinds=kinds, frames=frames, reward=reward, max_steps=max_steps
    )
    space: Any = make(sizes[0]).observation_space
    channels = space.shape[-1] // frames
    return Task(
        name=f"ComparisonS{sizes[-1]}",
        levels=tuple(
            level_of_starts(
                f"S{size}",
                functools.partial(make, size),
                enumerate_comparison_starts(size, kinds),
                held_out_seed=None,
            )
            for size in sizes
        ),
        preprocessor=one_hot(space, frames, minigrid_view.UNSEEN, minigrid_view.AGENT_CELL),
        **minigrid_view.of_task(channels, coloured=True),
    )
