"""Draw maps of attention: in digits, in pictures with questions, and in a memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style
from rrl_tf.viz._checks import shaped
from rrl_tf.viz.attention import draw_weights

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PER_ROW = 5  # maximum number of images in a row


def digits_figure(
    images: Any,
    titles: Sequence[str],
    maps: Mapping[str, Any] | None = None,
) -> Figure:
    """Draw images in rows, and below each image maps of the attention to its cells.

    A map has the same coordinates as its image, and an orange line shows the outline of the digit.
    The cell with the most attention is darkest.

    Args:
        images: array `(M, height, width)`, values in [0, 1].
        titles: M strings, one above each image.
        maps: dict name → array `(M, rows, columns)`, attention to each cell; `None` draws images
            only.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        InvalidInput: if there is no image, or the numbers of images, titles and maps differ.

    Example:
        >>> images, scores = np.zeros((2, 28, 28)), np.full((2, 1, 256, 256), 1 / 256)
        >>> maps = {"round 1": most_attended(scores, (16, 16))}
        >>> figure = digits_figure(images, ["7", "2"], maps)
        >>> len(figure.axes)  # two images and two maps
        4

    Reference: figure 10.17 of Zai and Brown, Deep Reinforcement Learning in Action.
    """
    images = shaped("images", images, "M", "height", "width")

    def draw(axes, image, weights):
        if weights is None:
            axes.imshow(image, cmap="gray_r", vmin=0, vmax=1)
            return
        # The cells cover the middle of the image, because convolutions without padding lose the
        # border. The unit of the axes is one cell.
        draw_weights(axes, weights, weights.max() or 1.0)
        y, x = (
            (np.arange(pixels) - (pixels - 1) / 2) / (pixels // cells) + (cells - 1) / 2
            for pixels, cells in zip(image.shape, weights.shape)
        )
        axes.contour(x, y, image, levels=[0.4], colors=style.ACCENT, linewidths=0.7)
        axes.set(xlim=(x[0], x[-1]), ylim=(y[-1], y[0]))

    return _images_over_maps(
        images,
        titles,
        maps,
        draw,
        "Digits, and below each digit the attention to its cells: the darkest cell receives most. "
        "An orange line shows the outline of the digit.",
    )


def questions_figure(
    images: Any, titles: Sequence[str], maps: Mapping[str, Any], stride: float
) -> Figure:
    """Draw pictures in rows, and below each picture maps of the attention for one question.

    The darker a cell of a map, the more attention it receives. The objects of the picture are drawn
    on top of the cells.

    Args:
        images: array `(M, height, width, 3)` with a white background, values in [0, 1].
        titles: M strings, one above each picture, such as the question and the answer.
        maps: dict name → array `(M, rows, columns)`, attention to each cell; may be empty.
        stride: distance between neighbouring cells in pixels. The grid of cells is in the middle of
            the picture.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        InvalidInput: if there is no picture, or the numbers of pictures, titles and maps differ.

    Example:
        >>> images, maps = np.ones((1, 75, 75, 3)), {"round 1": np.full((1, 5, 5), 0.04)}
        >>> title = "what shape is the red object? circle"
        >>> figure = questions_figure(images, [title], maps, stride=12)
        >>> len(figure.axes)  # the picture and its map
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

    return _images_over_maps(
        images,
        titles,
        maps,
        draw,
        "Pictures with a question and its answer, and below them the attention of the question to "
        "each cell: the darkest cell receives most.",
    )


def _images_over_maps(
    images: np.ndarray,
    titles: Sequence[str],
    maps: Mapping[str, Any] | None,
    draw: Callable[..., None],
    caption: str,
) -> Figure:
    """Draw images with titles in rows, and below each image its maps.

    `draw(axes, image, None)` draws an image, and `draw(axes, image, map)` draws a map.
    """
    count = len(images)
    if len(titles) != count:
        raise InvalidInput(
            f"`titles` must be {count} strings, one per image; received {len(titles)}"
        )
    layers: dict[str, Any] = {"": [None] * count}
    for name, each in (maps or {}).items():
        layers[name] = shaped(f"maps[{name!r}]", each, count, "rows", "columns")
    columns = min(count, _PER_ROW)
    lines = -(-count // columns)
    heading = 0.3 + 0.13 * max(title.count("\n") for title in titles)
    height = lines * (len(layers) * 1.6 + heading) + 0.2
    figure = style.new_figure(1.7 * columns + 0.4, height, caption)
    panels = figure.subplots(lines * len(layers), columns, squeeze=False)
    for axes in panels.flat:
        axes.set_axis_off()
    for i, (image, title) in enumerate(zip(images, titles)):
        line, column = divmod(i, columns)
        rows = panels[line * len(layers) :, column]
        for axes, (name, layer) in zip(rows, layers.items()):
            axes.set_axis_on()
            draw(axes, image, layer[i])
            style.bare(axes)
            if column == 0:
                axes.set_ylabel(name, size=style.SMALL_SIZE, color=style.MUTED)
        style.title(rows[0], title)
    return figure


def most_attended(scores: Any, grid: tuple[int, int]) -> np.ndarray:
    """Return the largest attention that each entity receives from any entity in any head.

    Args:
        scores: array `(M, H, N, N)`; `scores[m, h, n, s]` is the attention of entity `n` to entity
            `s`, and the cell (row, column) is entity `row * columns + column`.
        grid: `(rows, columns)` of the entities.

    Returns:
        Array `(M, rows, columns)`.

    Raises:
        InvalidInput: if `scores` has a wrong shape.

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
    """Draw the attention of a memory's slots, with one panel per step and head.

    Panels of the same step are in one column, panels of the same head in one row. In a panel, each
    row of squares is an attending slot, and each column is an entity that it attends to: first the
    slots, then the input. All panels have the same colour scale.

    Args:
        scores: array `(T, H, N, N)`, attention of one block of `rrl_tf.layers.RelationalMemory` for
            one sequence.
        entities: names of the N entities: the slots, then the rows of the input.
        steps: names of the T steps.
        queries: number of attending entities to show, counted from the first; `None` shows all. In
            a memory of several blocks, the rows of the input also attend, except in the last block.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        InvalidInput: if `scores` has a wrong rank, or the number of names or queries does not fit
            it.

    Example:
        >>> scores = np.full((3, 2, 5, 5), 0.2)  # 3 steps, 2 heads, 4 slots and 1 input row
        >>> names = ["1", "2", "3", "4", "in"]
        >>> figure = memory_attention_figure(scores, names, ["a", "b", "c"], queries=4)
    """
    scores = shaped("scores", scores, "T", "H", "N", "N")
    times, heads, size, _ = scores.shape
    for argument, names, count in (("steps", steps, times), ("entities", entities, size)):
        if len(names) != count:
            raise InvalidInput(
                f"`{argument}` must be {count} names for scores of shape {scores.shape}; "
                f"received {names!r}"
            )
    if queries is not None and not 1 <= queries <= size:
        raise InvalidInput(f"`queries` must be from 1 to {size}; received {queries!r}")
    scores = scores[:, :, :queries]
    rows = scores.shape[2]
    height = 0.9 + heads * (0.15 + 8 / times * rows / size)
    figure = style.new_figure(
        style.FIGURE_WIDTH,
        height,
        "Attention of the memory at every step and in every head: each row of squares attends to "
        "the columns, and the darkest square receives most.",
    )
    figure.suptitle("attention at every step: a row attends to the columns", size=style.LABEL_SIZE)
    panels = figure.subplots(heads, times, squeeze=False, sharex=True, sharey=True)
    largest = float(scores.max()) or 1.0  # the scores are zero if all steps are masked
    ticks = {"length": 0, "labelsize": style.SMALL_SIZE - 1.5, "labelcolor": style.MUTED}
    for (head, t), axes in np.ndenumerate(panels):
        image = axes.imshow(scores[t, head], style.ATTENTION_MAP, vmin=0, vmax=largest)
        axes.set_aspect("auto")
        style.bare(axes)
        axes.set_xticks(range(size), entities, rotation=90 if max(map(len, entities)) > 2 else 0)
        axes.set_yticks(range(rows), entities[:rows])
        axes.tick_params(**ticks)
        if head == 0:
            style.title(axes, steps[t], loc="center")
        if t == 0:
            axes.set_ylabel(f"head {head + 1}", size=style.LABEL_SIZE, color=style.TEXT)
    style.colour_bar(figure, image, panels, "attention")
    return figure
