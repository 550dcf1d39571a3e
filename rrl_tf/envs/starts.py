"""Define levels that are evaluated from all their starts, or from held-out layouts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np

from rrl_tf._arguments import natural, number_from
from rrl_tf.envs.task import Level
from rrl_tf.errors import InvalidInput


def level_of_starts(
    name: str,
    make: Callable[..., Any],
    starts: Sequence[Any],
    held_out_seed: int | None = None,
    make_graph: Callable[..., Any] | None = None,
    trained: Collection[Any] = (),
) -> Level:
    """Return a level that is evaluated from all its starts, or from held-out layouts.

    Args:
        name: name of the level.
        make: `make(starts=None, render_mode=None)` → a new environment; `starts=None` allows any
            start.
        starts: all starts of the level, each with an attribute `layout`.
        held_out_seed: seed that selects a third of the layouts for evaluation only; `None` trains
            on and evaluates all layouts.
        make_graph: `make_graph(starts=None)` → the environment as TensorFlow operations; `None` if
            there is none.
        trained: layouts that are never held out because other levels train on them.
    """
    training = None
    if held_out_seed is not None:
        new = [start for start in starts if start.layout not in trained]
        _, tested = split_layouts(new, seed=held_out_seed)
        held_out = {start.layout for start in tested}
        training, starts = tuple(s for s in starts if s.layout not in held_out), tested
    return Level(
        name,
        functools.partial(make, starts=training),
        make,
        tuple({"options": {"start": start}} for start in starts),
        make_graph and functools.partial(make_graph, starts=training),
        make_graph,
    )


def split_layouts(
    starts: Iterable[Any], held_out: float = 1 / 3, seed: int = 0
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Split starts into training and test starts that share no layout.

    An agent that has trained on one start of a layout knows the layout, so all starts of a layout,
    which differ for example in the agent's position, go into the same part.

    Args:
        starts: starts with an attribute `layout`, such as `DoorKeyStart`s.
        held_out: fraction of the layouts in the test part, from 0 to 1.
        seed: non-negative integer that selects these layouts.

    Returns:
        `(training starts, test starts)`, each in the order of `starts`.

    Raises:
        InvalidInput: if one part would be empty, or a number is out of range.

    Example:
        >>> from rrl_tf.envs import enumerate_starts
        >>> train, test = split_layouts(enumerate_starts(6))
        >>> len({start.layout for start in train}), len({start.layout for start in test})
        (24, 12)
    """
    number_from("held_out", held_out, 0, 1)
    seed = natural("held_out_seed", seed)
    starts = tuple(starts)
    layouts = sorted({start.layout for start in starts})
    num_test = round(held_out * len(layouts))
    if not 0 < num_test < len(layouts):
        raise InvalidInput(
            "`held_out` must leave at least one layout for training and one for testing; received "
            f"{held_out!r} of {len(layouts)} layouts, which gives {len(layouts) - num_test} for "
            f"training and {num_test} for testing"
        )
    chosen = np.random.default_rng(seed).permutation(len(layouts))[:num_test]
    test_layouts = {layouts[i] for i in chosen}
    train = tuple(start for start in starts if start.layout not in test_layouts)
    test = tuple(start for start in starts if start.layout in test_layouts)
    return train, test


def check_held_out_seed(held_out: bool, seed: int) -> None:
    """Raise `InvalidInput` for a `held_out_seed` without `held_out`, where it has no effect."""
    if seed and not held_out:
        raise InvalidInput(f"`held_out_seed` must be 0 without `held_out`; received {seed}")
