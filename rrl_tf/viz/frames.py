"""Attention drawn over the frame of a game."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style
from rrl_tf.viz.checks import checked_images, checked_scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARGIN, _GAP, _TITLE = 0.2, 0.15, 0.26  # inches
_TALLEST = 2.6
_DIMMED, _GLOW = 0.4, 0.45
_COLOUR = (255, 176, 0)


def attention_paid(scores: Any, grid: tuple[int, int]) -> np.ndarray:
    """The attention that each entity is paid, as a mean over all that look: it sums to one.

    Args:
        scores: array `(H, N, N)`; `scores[h, n, s]` is what entity `n` pays to entity `s`, and
            entity `row * columns + column` is the cell (row, column).
        grid: `(rows, columns)` of the entities.

    Returns:
        Array `(H, rows, columns)`.

    Raises:
        InvalidInput: if `scores` has another shape.

    Example:

    >>> attention_paid(np.eye(4)[None], (2, 2))
    array([[[0.25, 0.25],
            [0.25, 0.25]]])
    """
    scores = checked_scores("scores", scores, grid, "H")
    return scores.mean(axis=1).reshape(-1, *grid)


def overlay(frame: Any, weights: Any) -> np.ndarray:
    """Lays attention over a frame: it is dim, and bright and orange where it is attended to.

    Args:
        frame: uint8 RGB `(height, width, 3)`.
        weights: array `(rows, columns)` ≥ 0, of patches that cover the frame evenly; the largest
            glows most, and between their centres the glow is interpolated.

    Returns:
        uint8 array `(height, width, 3)`.

    Raises:
        InvalidInput: if `frame` is no such picture, or `weights` have not two axes.

    Example:

    >>> overlay(np.zeros((210, 160, 3), "uint8"), np.eye(8)).shape
    (210, 160, 3)
    """
    frame = checked_images("frame", frame, 3)
    weights = np.asarray(weights, np.float64)
    if weights.ndim != 2 or 0 in weights.shape:
        raise InvalidInput(f"weights must be (rows, columns); received shape {weights.shape}")
    height, width, _ = frame.shape
    scaled = Image.fromarray((weights / (weights.max() or 1.0)).astype(np.float32))
    glow = np.asarray(scaled.resize((width, height), Image.Resampling.BILINEAR))[..., None]
    lit = frame * (_DIMMED + (1 - _DIMMED) * glow)
    return (lit + _GLOW * glow * (np.array(_COLOUR) - lit)).astype(np.uint8)


def frame_attention_figure(frame: Any, scores: Mapping[str, Any], grid: tuple[int, int]) -> Figure:
    """Draw a frame and, round by round and head by head, the attention that is paid to its parts.

    Each panel has a scale of its own, as its title says: from nothing to the largest share that a
    patch is paid, in percent.

    Args:
        frame: uint8 RGB `(height, width, 3)`, the game as rendered.
        scores: dict name → array `(H, N, N)`, as `attention_paid` takes it, of each round.
        grid: `(rows, columns)` of the entities; they cover the frame evenly.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        InvalidInput: if an array has a wrong shape or dtype, or there is no round.

    Example:
        >>> frame = np.zeros((210, 160, 3), "uint8")
        >>> rounds = {"round 1": np.full((2, 81, 81), 1 / 81)}  # of two heads
        >>> figure = frame_attention_figure(frame, rounds, grid=(9, 9))
        >>> len(figure.axes)  # the frame, and a panel a head
        3

    Reference: figure 10.25 of Zai and Brown, Deep Reinforcement Learning in Action.
    """
    frame = checked_images("frame", frame, 3)
    if not scores:
        raise InvalidInput(f"scores must hold at least one round; received {scores!r}")
    paid = {name: attention_paid(each, grid) for name, each in scores.items()}
    columns = 1 + max(len(heads) for heads in paid.values())
    width = (style.FIGURE_WIDTH - 2 * _MARGIN - (columns - 1) * _GAP) / columns
    aspect = frame.shape[0] / frame.shape[1]
    width = min(width, _TALLEST / aspect)
    step = _TITLE + width * aspect + _GAP
    figure = style.new_figure(
        2 * _MARGIN + columns * (width + _GAP) - _GAP, 2 * _MARGIN + len(paid) * step - _GAP
    )
    _show(figure, frame, "environment", (0, 0), width, aspect)
    for row, (name, heads) in enumerate(paid.items()):
        for column, weights in enumerate(heads, start=1):
            title = f"{name.replace('_', ' ')}, head {column}: 0 to {weights.max():.1%}"
            _show(figure, overlay(frame, weights), title, (row, column), width, aspect)
    return figure


def _show(figure, image, title, cell, width, aspect):
    row, column = cell
    left = _MARGIN + column * (width + _GAP)
    top = _MARGIN + row * (_TITLE + width * aspect + _GAP) + _TITLE
    axes = style.place(figure, left, top, width, width * aspect)
    axes.imshow(image, interpolation="antialiased")
    style.bare(axes)
    style.title(axes, title, style.SMALL_SIZE)
