"""MiniGrid's Memory as a task: an object seen at the beginning decides where to go in the end."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from rrl_tf._arguments import integers_from
from rrl_tf.envs import minigrid_view
from rrl_tf.envs.doorkey_task import check_held_out_seed, level_of_starts
from rrl_tf.envs.memory import MINIMUM_SIZE, enumerate_memory_starts, make_memory
from rrl_tf.envs.preprocessing import one_hot
from rrl_tf.envs.task import Task
from rrl_tf.errors import InvalidInput


def memory_task(
    sizes: int | Sequence[int] = (7,),
    *,
    random_length: bool = False,
    frames: int = 1,
    reward: str = "success",
    max_steps: int | None = None,
    held_out: bool = False,
    held_out_seed: int = 0,
) -> Task:
    """MiniGrid's Memory as a `Task`, evaluated from every start or from lengths held out.

    Whoever does not remember the object in the room succeeds half of the time, from S11 on; in
    smaller rooms a look back from the end of the hallway shows it.

    Args:
        sizes: sides of the grid from 7 up, a curriculum from first to last. MiniGrid's are odd; an
            even one is the next with a hallway one cell shorter, to learn on.
        random_length: whether hallways of the last size have any length that fits; in the sizes
            before they have the longest, as only there does it take a memory to go on.
        frames, reward, max_steps: as in `make_memory`, for all levels.
        held_out: keep a third of the lengths a hallway of the last size can have for evaluation,
            of those that no size before has.
        held_out_seed: which third.

    Raises:
        InvalidInput: if an argument is not possible; lengths are held out where they are random.

    Example:
        >>> task = memory_task((9, 13, 17), random_length=True)
        >>> len(task.evaluation_resets(at_most=1000)), task.action_names
        (396, ('left', 'right', 'forward'))
    """
    sizes = integers_from("sizes", sizes, 1)
    if held_out and not random_length:
        raise InvalidInput("held_out keeps lengths apart; received random_length=False, one length")
    check_held_out_seed(held_out, held_out_seed)
    make = functools.partial(make_memory, frames=frames, reward=reward, max_steps=max_steps)
    *easier, last = sizes
    levels = [_level(make, size) for size in easier]
    if random_length:
        starts = enumerate_memory_starts(last, random_length=True)
        kept = held_out_seed if held_out else None
        make_last = functools.partial(make, last, True)
        trained = {(last, size - 3) for size in easier}
        levels.append(level_of_starts(f"S{last}", make_last, starts, kept, trained=trained))
    else:
        levels.append(_level(make, last))
    space: Any = levels[0].make_env().observation_space
    channels = space.shape[-1] // frames
    return Task(
        name=f"MemoryS{last}{'Random' if random_length else ''}",
        levels=tuple(levels),
        preprocessor=one_hot(space, frames, minigrid_view.UNSEEN, minigrid_view.AGENT_CELL),
        **minigrid_view.of_task(channels),
    )


def _level(make, size):
    """MiniGrid's Memory of a size, or the next one's with a hallway one cell shorter."""
    if isinstance(size, int) and size % 2 == 0 and size > MINIMUM_SIZE:
        grid = size + 1
        hallways = enumerate_memory_starts(grid, random_length=True)
        starts = tuple(start for start in hallways if start.hallway_end == size - 3)
        make = functools.partial(_make_from, make, grid, starts)
    else:
        starts = enumerate_memory_starts(size)
        make = functools.partial(make, size, False)
    return level_of_starts(f"S{size}", make, starts, None)


def _make_from(make, size, all_starts, starts=None, **options):
    """An environment that begins from some of the starts of hallways of any length."""
    return make(size, True, starts=all_starts if starts is None else starts, **options)
