"""Small images with the attention they were paid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style
from rrl_tf.viz.attention import draw_weights

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARGIN, _GAP, _TITLE, _NAMES = 0.2, 0.12, 0.26, 0.35


def digits_figure(
    images: Any,
    titles: Sequence[str],
    maps: Mapping[str, Any] | None = None,
    per_row: int = 5,
) -> Figure:
    """Draw images in rows, each above the maps of what was attended to in it.

    A map is placed where its cells lie in the image, an orange line goes around what is drawn in
    the image, and the cell that was attended to most is darkest.

    Args:
        images: array `(M, height, width)`, values in [0, 1].
        titles: M strings, one above each image.
        maps: dict name → array `(M, rows, columns)`, attention per cell; `None` for none.
        per_row: images beside each other.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: if there is no image, or numbers of images, titles and maps differ.

    Example:
        >>> images, scores = np.zeros((2, 28, 28)), np.full((2, 1, 256, 256), 1 / 256)
        >>> maps = {"round 1": most_attended(scores, (16, 16))}
        >>> figure = digits_figure(images, ["7", "2"], maps)
        >>> len(figure.axes)  # images, and their maps
        4

    Reference: figure 10.17 of Zai and Brown, Deep Reinforcement Learning in Action.
    """
    images = np.asarray(images, np.float64)
    maps = {name: np.asarray(each, np.float64) for name, each in (maps or {}).items()}
    _check(images, titles, maps)
    per_row = min(per_row, len(images))
    panel = (style.FIGURE_WIDTH - 2 * _MARGIN - _NAMES - (per_row - 1) * _GAP) / per_row
    panel = min(panel, 1.5)
    block = _TITLE + (1 + len(maps)) * (panel + _GAP)
    lines = -(-len(images) // per_row)
    width = 2 * _MARGIN + _NAMES + per_row * (panel + _GAP) - _GAP
    figure = style.new_figure(width, lines * block + 2 * _MARGIN - _GAP)
    for i, (image, title) in enumerate(zip(images, titles)):
        left = _MARGIN + _NAMES + (i % per_row) * (panel + _GAP)
        top = _MARGIN + (i // per_row) * block + _TITLE
        axes = style.place(figure, left, top, panel, panel)
        axes.imshow(image, cmap="gray_r", vmin=0, vmax=1)
        style.bare(axes)
        style.title(axes, title, style.SMALL_SIZE)
        for name, each in maps.items():
            top += panel + _GAP
            axes = style.place(figure, left, top, panel, panel)
            _draw_map(axes, image, each[i])
            if i % per_row == 0:
                axes.set_ylabel(name, size=style.SMALL_SIZE, color=style.MUTED, labelpad=4)
    return figure


def most_attended(scores: Any, grid: tuple[int, int]) -> np.ndarray:
    """The largest attention that each entity was paid by any, in any head.

    Args:
        scores: array `(M, H, N, N)`; `scores[m, h, n, s]` is what entity `n` pays to entity `s`,
            and entity `row * columns + column` is the cell (row, column).
        grid: `(rows, columns)` of the entities.

    Returns:
        Array `(M, rows, columns)`.

    Example:

    >>> most_attended(np.eye(4)[None, None], (2, 2))
    array([[[1., 1.],
            [1., 1.]]])
    """
    scores = np.asarray(scores).astype(np.float64)
    rows, columns = grid
    if scores.ndim != 4 or scores.shape[-1] != rows * columns:
        raise InvalidInput(
            f"scores must have shape (M, H, N, {rows * columns}) for a grid of {rows} x {columns}; "
            f"received shape {scores.shape}"
        )
    return scores.max(axis=(1, 2)).reshape(-1, rows, columns)


def _draw_map(axes, image, weights):
    """Draw a map where its cells lie in the image, which convolutions leave in the middle."""
    pixels = image.shape[0]
    pitch = pixels // weights.shape[0]
    draw_weights(axes, weights, weights.max() or 1.0)
    # In units of the map's cells, in which draw_weights draws.
    place = ((np.arange(pixels) - (pixels - 1) / 2) / pitch) + (weights.shape[0] - 1) / 2
    axes.contour(place, place, image, levels=[0.4], colors=style.ACCENT, linewidths=0.7)
    axes.set(xlim=(place[0], place[-1]), ylim=(place[-1], place[0]))


def _check(images, titles, maps):
    if images.ndim != 3 or 0 in images.shape:
        raise InvalidInput(
            f"images must have shape (M, height, width); received shape {images.shape}"
        )
    if len(titles) != len(images):
        raise InvalidInput(f"{len(images)} images need as many titles; received {len(titles)}")
    for name, each in maps.items():
        if each.ndim != 3 or len(each) != len(images):
            raise InvalidInput(
                f"maps[{name!r}] must have shape ({len(images)}, rows, columns); "
                f"received shape {each.shape}"
            )
