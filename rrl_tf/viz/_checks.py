"""Checks of the arrays that figures draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rrl_tf.errors import InvalidInput


def as_floats(values: Any) -> np.ndarray:
    """Return an array of float64; matplotlib does not draw the bfloat16 of mixed precision."""
    return np.asarray(values).astype(np.float64)


def checked_images(name: str, images: Any, ndim: int) -> np.ndarray:
    """Return uint8 RGB images, `(height, width, 3)` if `ndim` is 3, or `(T, height, width, 3)`.

    Raises:
        InvalidInput: if the shape or dtype differs; the message contains `name`.
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
        name: name of the argument, for the message.
        scores: the array.
        grid: `(width, height)` of the view that the N entities form.
        leading: letters of the leading dimensions, `"H"` or `"TH"`.

    Raises:
        InvalidInput: if the shape differs.
    """
    scores = as_floats(scores)
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
    """Return `cells` (label -> `(x, y)`) with integer coordinates.

    Raises:
        InvalidInput: if there is no cell, or one outside of the grid.
    """
    if not cells:
        raise InvalidInput(f"cells must name at least one cell; received {cells!r}")
    for label, (x, y) in cells.items():
        if not (0 <= x < grid[0] and 0 <= y < grid[1]):
            raise InvalidInput(
                f"cells must lie inside the {grid[0]}x{grid[1]} view; received {label!r} at {x, y}"
            )
    return {str(label): (int(x), int(y)) for label, (x, y) in cells.items()}


def checked_curve(name: str, parts: str, places: Any, values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return a curve's places `(P,)` and its values `(seeds, P)` as floats.

    Args:
        name: name of the curve, for the message.
        parts: names of its two parts, for the message.
        places, values: the curve.

    Raises:
        InvalidInput: if the shapes differ or do not match.
    """
    places, values = np.asarray(places, np.float64), np.asarray(values, np.float64)
    if places.ndim != 1 or values.ndim != 2 or values.shape[1:] != places.shape or not values.size:
        raise InvalidInput(
            f"{name} must be {parts} of the shapes (P,) and (seeds, P); received shapes "
            f"{places.shape} and {values.shape}"
        )
    return places, values


def checked_maps(
    images: np.ndarray, titles: Sequence[str], maps: Mapping[str, Any] | None
) -> dict[str, np.ndarray]:
    """Return maps as float arrays `(M, rows, columns)` for M images with M titles.

    Raises:
        InvalidInput: if the numbers of images, titles and maps differ.
    """
    if len(titles) != len(images):
        raise InvalidInput(f"{len(images)} images need as many titles; received {len(titles)}")
    checked = {name: np.asarray(each, np.float64) for name, each in (maps or {}).items()}
    for name, each in checked.items():
        if each.ndim != 3 or len(each) != len(images):
            raise InvalidInput(
                f"maps[{name!r}] must have shape ({len(images)}, rows, columns); "
                f"received shape {each.shape}"
            )
    return checked
