"""Attention between the slots of a memory and its input, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axis import XAxis

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_LEFT = 0.95
_TOP = 0.62
_BOTTOM = 0.28
_GAP = 0.1


def memory_attention_figure(
    scores: Any, entities: Sequence[str], steps: Sequence[str], queries: int | None = None
) -> Figure:
    """Draw what the slots of a memory attend to at every step: a column a step, a row a head.

    In a panel, every row of squares is one slot that attends and every column one entity that it
    attends to, the slots and last the input. All panels share one scale.

    Args:
        scores: array `(T, H, N, N)`, one sequence's attention of one block of
            `rrl_tf.layers.RelationalMemory`.
        entities: the names of the N entities, the slots and then the input's rows.
        steps: the names of the T steps.
        queries: how many of the entities to show attending, from the first. `None` is all: in a
            memory of several blocks the input's rows count too, but not in its last.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: if `scores` has another rank, or the numbers of names do not fit it.

    Example:
        >>> scores = np.full((3, 2, 5, 5), 0.2)  # three steps of two heads: four slots, the input
        >>> names = ["1", "2", "3", "4", "in"]
        >>> figure = memory_attention_figure(scores, names, ["a", "b", "c"], queries=4)
    """
    scores = _checked(scores, entities, steps, queries)[:, :, :queries]
    times, heads, rows, columns = scores.shape
    letters = max(map(len, entities))
    left = max(_LEFT, 0.55 + style.LETTER * letters)
    width = (style.FIGURE_WIDTH - left - 0.8 - _GAP * (times - 1)) / times
    height = width * rows / columns
    bottom = _BOTTOM + 0.9 * style.LETTER * letters * (letters > 2)
    figure = style.new_figure(style.FIGURE_WIDTH, _TOP + heads * (height + _GAP) + bottom)
    largest = float(scores.max()) or 1.0  # masked steps are all zero
    for t in range(times):
        for head in range(heads):
            place = left + t * (width + _GAP), _TOP + head * (height + _GAP), width, height
            axes = style.place(figure, *place)
            image = axes.imshow(scores[t, head], style.ATTENTION_MAP, vmin=0, vmax=largest)
            axes.set_aspect("auto")
            style.bare(axes)
            if head == 0:
                style.title(axes, steps[t], style.SMALL_SIZE, loc="center")
            if head == heads - 1:
                _name_ticks(axes.xaxis, entities)
            if t == 0:
                _name_ticks(axes.yaxis, entities[:rows])
                middle = place[1] + height / 2
                style.write(figure, 0.1, middle, f"head {head + 1}", va="center")
    bar = left + times * (width + _GAP), _TOP, heads * (height + _GAP) - _GAP
    style.colour_bar(figure, image, *bar, "attention")
    style.write(figure, left, 0.1, "attention at every step: a row attends to the columns")
    return figure


def _checked(
    scores: Any, entities: Sequence[str], steps: Sequence[str], queries: int | None
) -> np.ndarray:
    """Return the scores as floats of shape `(T, H, N, N)`."""
    # Mixed precision hands over bfloat16, which matplotlib does not draw.
    scores = np.asarray(scores).astype(np.float64)
    if scores.ndim != 4 or 0 in scores.shape or scores.shape[2] != scores.shape[3]:
        raise InvalidInput(f"scores must have shape (T, H, N, N); received shape {scores.shape}")
    for name, names, size in (("steps", steps, 0), ("entities", entities, 3)):
        if len(names) != scores.shape[size]:
            raise InvalidInput(
                f"{name} must be {scores.shape[size]} names for scores of shape {scores.shape}; "
                f"received {names!r}"
            )
    if queries is not None and not 1 <= queries <= scores.shape[2]:
        raise InvalidInput(f"queries must be 1 to {scores.shape[2]}; received {queries!r}")
    return scores


def _name_ticks(axis: Axis, names: Sequence[str]) -> None:
    """Write the names of the entities along one side of a panel."""
    upright = isinstance(axis, XAxis) and max(map(len, names)) > 2
    axis.set_ticks(range(len(names)), names, rotation=90 if upright else 0)
    axis.set_tick_params(
        length=0, labelsize=style.SMALL_SIZE - 1.5, labelcolor=style.MUTED, pad=2.5
    )
