"""DoorKey as a task: its levels, held-out layouts and preprocessors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

from rrl_tf._arguments import integers_from, positive_int
from rrl_tf.envs import minigrid_view, preprocessing
from rrl_tf.envs.doorkey import enumerate_starts, make_doorkey, split_layouts
from rrl_tf.envs.task import Level, Task
from rrl_tf.errors import InvalidInput

LARGEST_ENUMERATED = 8
"""Side of the largest grid whose starts are listed one by one; beyond it, seeds are fresh."""

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
    """MiniGrid's DoorKey as a `Task`, evaluated from every start or from held-out layouts.

    Args:
        sizes: sides of the grid, a curriculum from first to last.
        observation, frames, reward, max_steps: as in `make_doorkey`.
        preprocessor: `"one_hot"`, `"constant"` (codes divided by the largest) or `"frame_maximum"`
            (the book's); see `rrl_tf.envs.preprocessing`.
        held_out: keep a third of the last size's layouts for evaluation.
        held_out_seed: which third.

    Raises:
        InvalidInput: if an argument is not possible; layouts are held out up to 8x8, where they
            can be listed.

    Example:
        >>> task = doorkey_task((5, 6), held_out=True)
        >>> len(task.evaluation_resets(at_most=1000))
        240
    """
    sizes, frames = integers_from("sizes", sizes, 1), positive_int("frames", frames)
    if held_out and sizes[-1] > LARGEST_ENUMERATED:
        raise InvalidInput(
            f"layouts can be held out up to size {LARGEST_ENUMERATED}, where they are listed; "
            f"received size {sizes[-1]}, which is evaluated on seeds that training does not meet"
        )
    check_held_out_seed(held_out, held_out_seed)
    settings: dict[str, Any] = {
        "observation": observation,
        "reward": reward,
        "max_steps": max_steps,
    }
    make: Any = functools.partial(make_doorkey, frames=frames, **settings)
    in_graph: Any = functools.partial(_make_graph, **settings) if frames == 1 else None
    space: Any = make(sizes[0]).observation_space
    channels = space.shape[-1] // frames
    return Task(
        name=f"DoorKey-{sizes[-1]}x{sizes[-1]}",
        levels=tuple(
            _level(make, in_graph, size, held_out and size == sizes[-1], held_out_seed)
            for size in sizes
        ),
        preprocessor=_prepared(preprocessor, space, frames),
        **minigrid_view.of_task(channels),
    )


def _level(make, in_graph, size, held_out, held_out_seed):
    name, make = f"{size}x{size}", functools.partial(make, size)
    in_graph = in_graph and functools.partial(in_graph, size)
    if size > LARGEST_ENUMERATED:
        return Level(name, make, make_graph=in_graph, make_test_graph=in_graph)
    seed = held_out_seed if held_out else None
    return level_of_starts(name, make, enumerate_starts(size), seed, in_graph)


def check_held_out_seed(held_out: bool, seed: int) -> None:
    """Raises `InvalidInput` if a third is named and nothing is held out."""
    if seed and not held_out:
        raise InvalidInput(f"held_out_seed needs held_out; received {seed} and False")


def level_of_starts(
    name: str,
    make: Callable[..., Any],
    starts: Sequence[Any],
    held_out_seed: int | None,
    make_graph: Callable[..., Any] | None = None,
    trained: Collection[Any] = (),
) -> Level:
    """A level that is evaluated from all its starts, or from layouts that it does not train on.

    Args:
        name: of the level.
        make: `make(starts=None, render_mode=None)` → a new environment; from any start if `None`.
        starts: all starts, each with a `layout`.
        held_out_seed: which third of the layouts to keep for evaluation; `None` keeps none.
        make_graph: `make_graph(starts=None)` → the environment as operations of TensorFlow.
        trained: layouts that are not kept for evaluation, as easier levels have them.
    """
    training = None
    if held_out_seed is not None:
        new = [start for start in starts if start.layout not in trained]
        _, tested = split_layouts(new, seed=held_out_seed)
        kept = {start.layout for start in tested}
        training, starts = tuple(s for s in starts if s.layout not in kept), tested
    return Level(
        name,
        functools.partial(make, starts=training),
        make,
        tuple({"options": {"start": start}} for start in starts),
        make_graph and functools.partial(make_graph, starts=training),
        make_graph,
    )


def _make_graph(*arguments, **settings):
    from rrl_tf.envs.doorkey_graph import DoorKeyGraph  # it loads TensorFlow

    return DoorKeyGraph(*arguments, **settings)


def _prepared(name, space, frames):
    cell = minigrid_view.AGENT_CELL
    if name == "one_hot":
        return preprocessing.one_hot(space, frames, minigrid_view.UNSEEN, cell)
    if name == "constant":
        return preprocessing.scaled(space, cell)
    if name == "frame_maximum":
        return preprocessing.frame_maximum(space, cell)
    raise InvalidInput(f"preprocessor must be one of {PREPROCESSORS}; received {name!r}")
