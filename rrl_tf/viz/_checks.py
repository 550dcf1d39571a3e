"""Check the arrays that figures draw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rrl_tf.errors import InvalidInput


def shaped(name: str, values: Any, *shape: int | str, dtype: Any = np.float64) -> np.ndarray:
    """Return `values` as an array after a check of its shape.

    The default dtype is float64 because matplotlib cannot draw bfloat16.

    Args:
        name: name of the argument, for the error message.
        values: the array.
        *shape: expected sizes. A string stands for any positive size; equal strings stand for equal
            sizes.
        dtype: dtype of the result; `None` keeps the dtype of `values`.

    Raises:
        InvalidInput: if the shape differs.
    """
    array = np.asarray(values)
    sizes: dict[int | str, int] = {size: size for size in shape if isinstance(size, int)}
    fits = array.ndim == len(shape) and 0 not in array.shape
    if not fits or any(sizes.setdefault(a, b) != b for a, b in zip(shape, array.shape)):
        expected = f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"
        raise InvalidInput(f"`{name}` must have shape {expected}; received shape {array.shape}")
    return array if dtype is None else array.astype(dtype)


def checked_images(name: str, images: Any, *leading: str) -> np.ndarray:
    """Return `images` as an array `(*leading, height, width, 3)` after a check of shape and dtype.

    Raises:
        InvalidInput: if the shape differs, or the dtype is not uint8; the message contains `name`.
    """
    images = shaped(name, images, *leading, "height", "width", 3, dtype=None)
    if images.dtype != np.uint8:
        raise InvalidInput(f"`{name}` must be uint8; received dtype {images.dtype}")
    return images


def checked_cells(
    cells: Mapping[str, tuple[int, int]], grid: tuple[int, int]
) -> dict[str, tuple[int, int]]:
    """Return `cells` (label -> `(x, y)`) with integer coordinates.

    Raises:
        InvalidInput: if a cell is outside of the grid.
    """
    for label, (x, y) in cells.items():
        if not (0 <= x < grid[0] and 0 <= y < grid[1]):
            raise InvalidInput(
                f"`cells` must be inside the {grid[0]}x{grid[1]} view; received {label!r} at {x, y}"
            )
    return {str(label): (int(x), int(y)) for label, (x, y) in cells.items()}
