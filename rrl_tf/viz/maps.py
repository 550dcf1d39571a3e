"""Figures of small maps: attention in digits, in pictures and in a memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style
from rrl_tf.viz._checks import checked_maps, shaped
from rrl_tf.viz.attention import draw_weights

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_MARGIN, _GAP, _NAMES = 0.2, 0.12, 0.35  # inches


def digits_figure(
    images: Any,
    titles: Sequence[str],
    maps: Mapping[str, Any] | None = None,
    per_row: int = 5,
) -> Figure:
    """Draw images in rows, each above the maps of the attention in it.

    The cells of a map are at their place in the image, whose outline is orange. The cell with the
    most attention is darkest.

    Args:
        images: array `(M, height, width)`, values in [0, 1].
        titles: M strings, one above each image.
        maps: dict name → array `(M, rows, columns)`, attention per cell; `None` for none.
        per_row: number of images in a row.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        InvalidInput: if there is no image, or numbers of images, titles and maps differ.

    Example:
        >>> images, scores = np.zeros((2, 28, 28)), np.full((2, 1, 256, 256), 1 / 256)
        >>> maps = {"round 1": most_attended(scores, (16, 16))}
        >>> figure = digits_figure(images, ["7", "2"], maps)
        >>> len(figure.axes)  # images, and their maps
        4

    Reference: figure 10.17 of Zai and Brown, Deep Reinforcement Learning in Action.
    """
    images = shaped("images", images, "M", "height", "width")

    def draw(axes, image, weights):
        if weights is None:
            axes.imshow(image, cmap="gray_r", vmin=0, vmax=1)
            return
        # Convolutions leave the map's cells in the middle of the image. The axes' unit is a cell.
        draw_weights(axes, weights, weights.max() or 1.0)
        pixels, cells = len(image), len(weights)
        place = (np.arange(pixels) - (pixels - 1) / 2) / (pixels // cells) + (cells - 1) / 2
        axes.contour(place, place, image, levels=[0.4], colors=style.ACCENT, linewidths=0.7)
        axes.set(xlim=(place[0], place[-1]), ylim=(place[-1], place[0]))

    return _images_over_maps(images, titles, maps, draw, min(per_row, len(images)), 1.5, 0.26)


def questions_figure(
    images: Any, titles: Sequence[str], maps: Mapping[str, Any], stride: float
) -> Figure:
    """Draw pictures in a row, each above maps of the attention for a question about it.

    The darker a cell, the more attention it receives. The picture's objects cover the cells.

    Args:
        images: array `(M, height, width, 3)`, values in [0, 1], on a white background.
        titles: M strings, one above each picture: the question and the answer.
        maps: dict name → array `(M, rows, columns)`, attention per cell; may be empty.
        stride: pixels from a cell to the next; the grid is in the middle of the picture.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        InvalidInput: if there is no picture, or numbers of pictures, titles and maps differ.

    Example:
        >>> images, maps = np.ones((1, 75, 75, 3)), {"round 1": np.full((1, 5, 5), 0.04)}
        >>> title = "what shape is the red object? circle"
        >>> figure = questions_figure(images, [title], maps, stride=12)
        >>> len(figure.axes)  # the picture, and its map
        2
    """
    images = shaped("images", images, "M", "height", "width", 3)

    def draw(axes, image, weights):
        rows, columns, _ = image.shape
        opaque = np.ones((rows, columns, 1))
        if weights is not None:
            middle = np.array([columns, columns, rows, rows]) / 2 - 0.5
            half = np.array([-1, 1, 1, -1]) * stride / 2 * np.repeat(weights.shape[::-1], 2)
            limits = {"vmin": 0, "vmax": weights.max() or 1.0}
            axes.imshow(weights, cmap=style.ATTENTION_MAP, extent=tuple(middle + half), **limits)
            opaque = (image < 1).any(axis=-1, keepdims=True) * 0.7
        axes.imshow(np.concatenate([image, opaque], axis=-1))
        axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))

    return _images_over_maps(images, titles, maps, draw, len(images), 1.6, 0.62)


def _images_over_maps(
    images: np.ndarray,
    titles: Sequence[str],
    maps: Mapping[str, Any] | None,
    draw: Callable[..., None],
    per_row: int,
    largest: float,
    heading: float,
) -> Figure:
    """Place titled images in rows, each above its maps; `draw(axes, image, map or None)`."""
    checked = checked_maps(images, titles, maps)
    panel = (style.FIGURE_WIDTH - 2 * _MARGIN - _NAMES - (per_row - 1) * _GAP) / per_row
    panel = min(panel, largest)
    block = heading + (1 + len(checked)) * (panel + _GAP)
    lines = -(-len(images) // per_row)
    width = 2 * _MARGIN + _NAMES + per_row * (panel + _GAP) - _GAP
    figure = style.new_figure(width, lines * block + 2 * _MARGIN - _GAP)
    for i, (image, title) in enumerate(zip(images, titles)):
        line, column = divmod(i, per_row)
        left, top = _MARGIN + _NAMES + column * (panel + _GAP), _MARGIN + line * block + heading
        for name, weights in [("", None), *((name, each[i]) for name, each in checked.items())]:
            axes = style.place(figure, left, top, panel, panel)
            draw(axes, image, weights)
            style.bare(axes)
            if weights is None:
                style.title(axes, title, style.SMALL_SIZE)
            elif column == 0:
                axes.set_ylabel(name, size=style.SMALL_SIZE, color=style.MUTED, labelpad=4)
            top += panel + _GAP
    return figure


def most_attended(scores: Any, grid: tuple[int, int]) -> np.ndarray:
    """Return the largest attention that each entity receives from any entity in any head.

    Args:
        scores: array `(M, H, N, N)`; `scores[m, h, n, s]` is the attention of entity `n` to entity
            `s`, and entity `row * columns + column` is the cell (row, column).
        grid: `(rows, columns)` of the entities.

    Returns:
        Array `(M, rows, columns)`.

    Raises:
        InvalidInput: if `scores` has another shape.

    Example:

    >>> most_attended(np.eye(4)[None, None], (2, 2))
    array([[[1., 1.],
            [1., 1.]]])
    """
    scores = shaped("scores", scores, "M", "H", "N", grid[0] * grid[1])
    return scores.max(axis=(1, 2)).reshape(-1, *grid)


def memory_attention_figure(
    scores: Any, entities: Sequence[str], steps: Sequence[str], queries: int | None = None
) -> Figure:
    """Draw the attention of a memory's slots at every step: a column per step, a row per head.

    In a panel, each row of squares is one slot that attends, and each column one entity that it
    attends to: the slots, then the input. All panels share one scale.

    Args:
        scores: array `(T, H, N, N)`, one sequence's attention of one block of
            `rrl_tf.layers.RelationalMemory`.
        entities: names of the N entities, the slots and then the input's rows.
        steps: names of the T steps.
        queries: number of attending entities to show, from the first; `None` shows all. In a memory
            of several blocks the input's rows attend as well, except in the last block.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        InvalidInput: if `scores` has another rank, or the numbers of names do not fit it.

    Example:
        >>> scores = np.full((3, 2, 5, 5), 0.2)  # three steps of two heads: four slots, the input
        >>> names = ["1", "2", "3", "4", "in"]
        >>> figure = memory_attention_figure(scores, names, ["a", "b", "c"], queries=4)
    """
    scores = _checked_attention(scores, entities, steps, queries)[:, :, :queries]
    times, heads, rows, columns = scores.shape
    gap, top, letters = 0.1, 0.62, max(map(len, entities))
    left = max(0.95, 0.55 + style.LETTER * letters)
    width = (style.FIGURE_WIDTH - left - 0.8 - gap * (times - 1)) / times
    height = width * rows / columns
    upright = letters > 2  # long names are written upright
    bottom = 0.28 + 0.9 * style.LETTER * letters * upright
    figure = style.new_figure(style.FIGURE_WIDTH, top + heads * (height + gap) + bottom)
    largest = float(scores.max()) or 1.0  # masked steps are all zero
    for t in range(times):
        for head in range(heads):
            above = top + head * (height + gap)
            axes = style.place(figure, left + t * (width + gap), above, width, height)
            image = axes.imshow(scores[t, head], style.ATTENTION_MAP, vmin=0, vmax=largest)
            axes.set_aspect("auto")
            style.bare(axes)
            if head == 0:
                style.title(axes, steps[t], style.SMALL_SIZE, loc="center")
            if head == heads - 1:
                _name_ticks(axes.xaxis, entities, 90 if upright else 0)
            if t == 0:
                _name_ticks(axes.yaxis, entities[:rows])
                style.write(figure, 0.1, above + height / 2, f"head {head + 1}", va="center")
    bar = left + times * (width + gap), top, heads * (height + gap) - gap
    style.colour_bar(figure, image, *bar, "attention")
    style.write(figure, left, 0.1, "attention at every step: a row attends to the columns")
    return figure


def _checked_attention(scores, entities, steps, queries):
    scores = shaped("scores", scores, "T", "H", "N", "N")
    for argument, names, size in (("steps", steps, 0), ("entities", entities, 3)):
        if len(names) != scores.shape[size]:
            raise InvalidInput(
                f"{argument} must be {scores.shape[size]} names for scores of shape "
                f"{scores.shape}; received {names!r}"
            )
    if queries is not None and not 1 <= queries <= scores.shape[2]:
        raise InvalidInput(f"queries must be 1 to {scores.shape[2]}; received {queries!r}")
    return scores


def _name_ticks(axis: Axis, names: Sequence[str], rotation: int = 0) -> None:
    """Write the names of the entities along one side of a panel."""
    axis.set_ticks(range(len(names)), names, rotation=rotation)
    axis.set_tick_params(
        length=0, labelsize=style.SMALL_SIZE - 1.5, labelcolor=style.MUTED, pad=2.5
    )
