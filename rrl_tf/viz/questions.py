"""Pictures with what a question about them attended to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARGIN, _GAP, _TITLE, _NAMES = 0.2, 0.12, 0.62, 0.35


def questions_figure(
    images: Any, titles: Sequence[str], maps: Mapping[str, Any], stride: float
) -> Figure:
    """Draw pictures beside each other, each above the cells that a question about it attended to.

    The darker a cell, the more attention it was paid; the picture's objects lie over the cells.

    Args:
        images: array `(M, height, width, 3)`, values in [0, 1], on a white ground.
        titles: M strings, one above each picture: the question and the answer.
        maps: dict name → array `(M, rows, columns)`, attention per cell; may be empty.
        stride: pixels from a cell to the next; the grid lies in the middle of the picture.

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
    images = np.asarray(images, np.float64)
    maps = {name: np.asarray(each, np.float64) for name, each in maps.items()}
    _check(images, titles, maps)
    count = len(images)
    panel = (style.FIGURE_WIDTH - 2 * _MARGIN - _NAMES - (count - 1) * _GAP) / count
    panel = min(panel, 1.6)
    width = 2 * _MARGIN + _NAMES + count * (panel + _GAP) - _GAP
    height = 2 * _MARGIN + _TITLE + (1 + len(maps)) * (panel + _GAP) - _GAP
    figure = style.new_figure(width, height)
    for i, (image, title) in enumerate(zip(images, titles)):
        left, top = _MARGIN + _NAMES + i * (panel + _GAP), _MARGIN + _TITLE
        axes = style.place(figure, left, top, panel, panel)
        _draw(axes, image)
        style.title(axes, title, style.SMALL_SIZE)
        for name, each in maps.items():
            top += panel + _GAP
            axes = style.place(figure, left, top, panel, panel)
            _draw(axes, image, each[i], stride)
            if i == 0:
                axes.set_ylabel(name, size=style.SMALL_SIZE, color=style.MUTED, labelpad=4)
    return figure


def _draw(axes, image, weights=None, stride=1.0):
    """A picture, over its map where there is one."""
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
    style.bare(axes)


def _check(images, titles, maps):
    if images.ndim != 4 or images.shape[-1] != 3 or 0 in images.shape:
        raise InvalidInput(
            f"images must have shape (M, height, width, 3); received shape {images.shape}"
        )
    if len(titles) != len(images):
        raise InvalidInput(f"{len(images)} images need as many titles; received {len(titles)}")
    for name, each in maps.items():
        if each.ndim != 3 or len(each) != len(images):
            raise InvalidInput(
                f"maps[{name!r}] must have shape ({len(images)}, rows, columns); "
                f"received shape {each.shape}"
            )
