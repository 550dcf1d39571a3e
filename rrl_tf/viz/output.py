"""Figures as arrays and files; every file is written aside and renamed into place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from rrl_tf.viz._checks import checked_images

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_EXACT_COLOURS = 192  # of a GIF's 256


def figure_to_image(figure: Figure) -> np.ndarray:
    """Draw a figure into an array, as TensorBoard's image summaries want it.

    Args:
        figure: a `matplotlib.figure.Figure`.

    Returns:
        uint8 array `(height, width, 3)`, `figure.dpi` dots an inch.

    Example:

    >>> from matplotlib.figure import Figure
    >>> figure_to_image(Figure(figsize=(2, 1), dpi=100)).shape
    (100, 200, 3)
    """
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3]


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure to a file that appears complete or not at all.

    Args:
        figure: a `matplotlib.figure.Figure`.
        path: where to; the suffix chooses the format (`.png`, `.svg`, `.pdf`). Missing folders
            are made.

    Returns:
        The path written, a `pathlib.Path`.

    Example:
        >>> from rrl_tf.viz import learning_curves
        >>> figure = learning_curves({"ours": ([100, 200], [[0.1, 0.6]])}, "success")
        >>> save_figure(figure, "pictures/curve.png")
        PosixPath('pictures/curve.png')
    """
    path = Path(path)
    with _written_aside(path) as aside:
        figure.savefig(aside, format=path.suffix.lstrip(".") or "png", dpi=figure.dpi)
    return path


def save_film(
    images: Any,
    path: str | os.PathLike[str],
    seconds: float = 0.6,
    last_seconds: float = 2.5,
) -> Path:
    """Write pictures as an endless GIF that appears complete or not at all.

    Args:
        images: uint8 array `(T, height, width, 3)`, for instance from `film`.
        path: where to. Missing folders are made.
        seconds: how long each picture stays.
        last_seconds: how long the last one stays.

    Returns:
        The path written, a `pathlib.Path`.

    Raises:
        ValueError: if `images` has another shape or dtype.

    Example:
        >>> import numpy as np
        >>> save_film(np.zeros((3, 64, 64, 3), "uint8"), "pictures/episode.gif")
        PosixPath('pictures/episode.gif')
    """
    images = checked_images("images", images, ndim=4)
    path = Path(path)
    pages = _pages(images)
    # GIF counts hundredths of a second.
    durations = [round(seconds * 100) * 10] * (len(pages) - 1) + [round(last_seconds * 100) * 10]
    with _written_aside(path) as aside:
        pages[0].save(
            aside,
            format="GIF",
            save_all=True,
            append_images=pages[1:],
            duration=durations,
            loop=0,
        )
    return path


def _pages(images: np.ndarray) -> list[Image.Image]:
    """Turn RGB pictures into pages that share one palette, so that no colour flickers."""
    red, green, blue = np.moveaxis(images.astype(np.uint32), -1, 0)
    codes = (red << 16 | green << 8 | blue).ravel()
    codes, places, counts = np.unique(codes, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    colours = np.stack([codes >> 16, codes >> 8 & 255, codes & 255], axis=-1).astype(np.uint8)
    # Flat areas keep their exact colour; the many shades at the edges of letters share the rest.
    exact, rest = order[:_EXACT_COLOURS], order[_EXACT_COLOURS:]
    palette = colours[exact]
    index = np.empty(len(codes), np.uint8)
    index[exact] = np.arange(len(exact))
    if len(rest):
        shades = Image.fromarray(colours[rest][None]).quantize(256 - _EXACT_COLOURS)
        index[rest] = _EXACT_COLOURS + np.asarray(shades)[0]
        palette = np.concatenate([palette, np.reshape(shades.getpalette() or [], (-1, 3))])
    pages = [Image.fromarray(page) for page in index[places].reshape(images.shape[:3])]
    for page in pages:
        page.putpalette(palette.astype(np.uint8).tobytes())
    return pages


@contextmanager
def _written_aside(path: Path) -> Iterator[Path]:
    """Give a temporary sibling to write, then rename it to `path`; on failure remove it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield aside
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
