"""What every picture asks of its arrays, said once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rrl_tf.errors import InvalidInput


def checked_images(name: str, images: Any, ndim: int) -> np.ndarray:
    """Return `images` as uint8 RGB.

    Args:
        name: what the caller calls it, for the message.
        images: array of shape `(height, width, 3)` (`ndim` 3) or `(T, height, width, 3)` (4).
        ndim: number of dimensions expected.

    Raises:
        ValueError: if the shape is another, or if the values aren't uint8.
    """
    images = np.asarray(images)
    if images.ndim != ndim or images.shape[-1] != 3 or 0 in images.shape:
        expected = "(height, width, 3)" if ndim == 3 else "(T, height, width, 3)"
        raise InvalidInput(f"{name} must have shape {expected}; received shape {images.shape}")
    if images.dtype != np.uint8:
        raise InvalidInput(f"{name} must be uint8; received dtype {images.dtype}")
    return images


def checked_scores(name: str, scores: Any, grid: tuple[int, int], leading: str) -> np.ndarray:
    """Return attention scores as floats of shape `(*leading, N, N)`, `N = width * height`.

    Args:
        name: what the caller calls them, for the message.
        scores: array; a letter in `leading` stands for one dimension.
        grid: `(width, height)` of the view that the `N` entities lie on.
        leading: `"H"` or `"TH"`.

    Raises:
        ValueError: if the shape is another.
    """
    # Mixed precision hands over bfloat16, which matplotlib does not draw.
    scores = np.asarray(scores).astype(np.float64)
    nodes = grid[0] * grid[1]
    wrong = scores.ndim != len(leading) + 2 or 0 in scores.shape
    if wrong or scores.shape[-2:] != (nodes, nodes):
        expected = ", ".join((*leading, str(nodes), str(nodes)))
        raise InvalidInput(
            f"{name} must have shape ({expected}) for a {grid[0]}x{grid[1]} view; "
            f"received shape {scores.shape}"
        )
    return scores


def checked_cells(
    cells: Mapping[str, tuple[int, int]], grid: tuple[int, int]
) -> dict[str, tuple[int, int]]:
    """Return `cells` (label -> `(x, y)`) with integer places.

    Raises:
        ValueError: if there is none, or if one lies outside the grid.
    """
    if not cells:
        raise InvalidInput(f"cells must name at least one cell; received {cells!r}")
    checked = {}
    for label, (x, y) in cells.items():
        if not (0 <= x < grid[0] and 0 <= y < grid[1]):
            raise InvalidInput(
                f"cells must lie inside the {grid[0]}x{grid[1]} view; received {label!r} at {x, y}"
            )
        checked[str(label)] = (int(x), int(y))
    return checked


def checked_curve(name: str, parts: str, places: Any, values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return a curve's places `(P,)` and its values `(seeds, P)` as floats.

    Args:
        name: what the caller calls the curve, for the message.
        parts: what the caller calls its two parts.
        places, values: the curve.

    Raises:
        ValueError: if the shapes are others, or do not match.
    """
    places, values = np.asarray(places, np.float64), np.asarray(values, np.float64)
    if places.ndim != 1 or values.ndim != 2 or values.shape[1:] != places.shape or not values.size:
        raise InvalidInput(
            f"{name} must be {parts} of the shapes (P,) and (seeds, P); received shapes "
            f"{places.shape} and {values.shape}"
        )
    return places, values
