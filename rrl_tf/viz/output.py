"""Convert figures to arrays, and write figures and animations to files.

A file appears under its name only when it is complete.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from rrl_tf._atomic import atomic_file
from rrl_tf.viz._checks import checked_images

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure_to_image(figure: Figure) -> np.ndarray:
    """Render a figure to an array, for example for TensorBoard's image summaries.

    Args:
        figure: a `matplotlib.figure.Figure`.

    Returns:
        uint8 array `(height, width, 3)` with `figure.dpi` dots per inch.

    Example:

    >>> from matplotlib.figure import Figure
    >>> figure_to_image(Figure(figsize=(2, 1), dpi=100)).shape
    (100, 200, 3)
    """
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3]


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure to a file, which appears only when it is complete.

    Args:
        figure: a `matplotlib.figure.Figure`.
        path: path of the file. Its suffix selects the format, such as `.png`, `.svg` or `.pdf`;
            without a suffix, it is PNG. Missing folders are created. A PNG file contains the
            figure's label as its description.

    Returns:
        The path written, a `pathlib.Path`.

    Example:
        >>> from rrl_tf.viz import learning_curves
        >>> figure = learning_curves({"ours": ([100, 200], [[0.1, 0.6]])}, "success")
        >>> save_figure(figure, "pictures/curve.png")
        PosixPath('pictures/curve.png')
    """
    path = Path(path)
    form = path.suffix.lstrip(".") or "png"
    metadata = {"Description": str(figure.get_label())} if form == "png" else None
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as draft:
        figure.savefig(draft, format=form, dpi=figure.dpi, metadata=metadata)
    return path


def save_film(
    images: Any,
    path: str | os.PathLike[str],
    seconds: float = 0.6,
    last_seconds: float = 2.5,
    caption: str = "",
) -> Path:
    """Write images to a looping GIF file, which appears only when it is complete.

    Args:
        images: uint8 array `(T, height, width, 3)`, for example from `film`.
        path: path of the file. Missing folders are created.
        seconds: duration of each image except the last, in seconds.
        last_seconds: duration of the last image, in seconds.
        caption: description of the animation, written into the file as a comment.

    Returns:
        The path written, a `pathlib.Path`.

    Raises:
        InvalidInput: if `images` has a wrong shape or dtype.

    Example:
        >>> import numpy as np
        >>> save_film(np.zeros((3, 64, 64, 3), "uint8"), "pictures/episode.gif")
        PosixPath('pictures/episode.gif')
    """
    images = checked_images("images", images, "T")
    path = Path(path)
    pages = _pages(images)
    # Pillow expects milliseconds; GIF stores hundredths of a second.
    durations = [round(seconds * 100) * 10] * (len(pages) - 1) + [round(last_seconds * 100) * 10]
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as draft:
        pages[0].save(
            draft,
            format="GIF",
            save_all=True,
            append_images=pages[1:],
            duration=durations,
            loop=0,
            comment=caption.encode(),
        )
    return path


def _pages(images: np.ndarray) -> list[Image.Image]:
    """Return the images with one common palette, so that colours do not flicker."""
    strip = Image.fromarray(images.reshape(-1, *images.shape[2:]))
    palette = strip.quantize(256, method=Image.Quantize.FASTOCTREE)
    return [
        Image.fromarray(image).quantize(palette=palette, dither=Image.Dither.NONE)
        for image in images
    ]
