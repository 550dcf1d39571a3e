"""MNIST from TensorFlow Datasets or from the original files; nothing else takes its place."""

from __future__ import annotations

import gzip
import os
import pathlib
import socket
import urllib.request
import zlib
from typing import NamedTuple

import numpy as np

from rrl_tf._optional_packages import optional_package
from rrl_tf.errors import InvalidInput

FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
"""Original names of images and labels, with or without `.gz`."""

_IMAGES, _LABELS = 2051, 2049  # the format's magic numbers: unsigned bytes in 3 dimensions, in 1


class Split(NamedTuple):
    """Images and labels, one of each an example.

    Attributes:
        images: `(M, 28, 28)` uint8.
        labels: `(M,)` int64.
    """

    images: np.ndarray
    labels: np.ndarray


def load_mnist(folder: str | os.PathLike | None = None) -> dict[str, Split]:
    """Loads the 60,000 images to train on and the 10,000 to test on.

    Either source gives the same arrays in the same order, sorted by the images' bytes: TensorFlow
    Datasets shuffles them once when it prepares them, and a seed should mean the same images
    wherever they come from.

    Args:
        folder: path of a folder with the four original files, or of one where TensorFlow Datasets
            keeps what it has prepared. `None` is `~/tensorflow_datasets`. What is not prepared is
            downloaded.

    Returns:
        Dict `"train"`, `"test"` → `Split`.

    Raises:
        ValueError: if the data cannot be had, or a file is not what it should be.

    Example:
        >>> splits = load_mnist()  # doctest: +SKIP
        >>> splits["test"].images.shape  # doctest: +SKIP
        (10000, 28, 28)
    """
    if folder is not None and not pathlib.Path(folder).is_dir():
        raise InvalidInput(f"MNIST's folder must be there; received {str(folder)!r}. {_WAYS_OUT}")
    if folder is not None and any(_find(folder, name) for pair in FILES.values() for name in pair):
        splits = {split: _read_files(folder, *names) for split, names in FILES.items()}
    else:
        splits = _read_tensorflow_datasets(folder)
    return {name: _sorted(split) for name, split in splits.items()}


_WAYS_OUT = (
    "Either put the four original files into one folder and name it "
    f"({', '.join(f'{name}.gz' for pair in FILES.values() for name in pair)}), or run "
    "`python -m tensorflow_datasets.scripts.cli.main build mnist` where there is a network, and "
    "copy its ~/tensorflow_datasets/mnist"
)


def _sorted(split: Split) -> Split:
    rows = split.images.reshape(len(split.images), -1)
    order = sorted(range(len(rows)), key=lambda i: rows[i].tobytes())
    return Split(split.images[order], split.labels[order])


def _read_tensorflow_datasets(folder: str | os.PathLike | None) -> dict[str, Split]:
    # Imported here: the original files need none of it, and it takes seconds.
    tfds = optional_package("tensorflow_datasets", "MNIST where its original files are not")
    tfds.disable_progress_bar()
    try:
        builder = tfds.builder("mnist", data_dir=folder)
        if not builder.is_prepared():
            _look_up_host()
            builder.download_and_prepare()
    except Exception as error:  # whatever a download can die of
        reason = str(error).strip().splitlines()[0] if str(error).strip() else ""
        raise InvalidInput(
            f"TensorFlow Datasets cannot provide MNIST ({type(error).__name__}: {reason}). "
            f"{_WAYS_OUT}"
        ) from error
    whole = {name: tfds.as_numpy(builder.as_dataset(split=name, batch_size=-1)) for name in FILES}
    return {
        name: Split(arrays["image"][..., 0], arrays["label"].astype("int64"))
        for name, arrays in whole.items()
    }


def _look_up_host() -> None:
    """Fails at once where there is no network; the download would try for minutes."""
    if not urllib.request.getproxies():
        socket.getaddrinfo("storage.googleapis.com", 443)


def _find(folder: str | os.PathLike, name: str) -> pathlib.Path | None:
    """The file of that name, packed or not, or `None`."""
    paths = (pathlib.Path(folder) / f"{name}{suffix}" for suffix in ("", ".gz"))
    return next((path for path in paths if path.exists()), None)


def _read_files(folder: str | os.PathLike, images_name: str, labels_name: str) -> Split:
    names = images_name, labels_name
    files = {name: file for name in names if (file := _find(folder, name))}
    if missing := [name for name in names if name not in files]:
        raise InvalidInput(f"{folder} lacks {' and '.join(missing)} (or the same with .gz)")
    images = _read_idx(files[images_name], _IMAGES)
    labels = _read_idx(files[labels_name], _LABELS).astype("int64")
    if images.shape[1:] != (28, 28):
        raise InvalidInput(
            f"{files[images_name]}: expected images of 28 x 28; received {images.shape}"
        )
    if len(images) != len(labels):
        raise InvalidInput(
            f"{files[images_name]} and {files[labels_name]} must hold as many images as labels; "
            f"received {len(images)} and {len(labels)}"
        )
    if len(labels) == 0 or labels.max() > 9:
        raise InvalidInput(
            f"{files[labels_name]}: expected labels from 0 to 9; received "
            f"{labels.max() if len(labels) else 'none'}"
        )
    return Split(images, labels)


def _read_idx(file: pathlib.Path, magic: int) -> np.ndarray:
    """An array of unsigned bytes: magic number, one size a dimension, then the bytes."""
    try:
        content = file.read_bytes()
        if file.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInput(f"{file}: expected a whole gzip file; received {error}") from error
    dimensions = magic % 256
    header = np.frombuffer(content[: 4 + 4 * dimensions], ">u4")
    if len(header) < 1 + dimensions or header[0] != magic:
        found = int(header[0]) if len(header) else "an empty file"
        raise InvalidInput(f"{file}: expected the magic number {magic} and sizes; received {found}")
    shape = tuple(int(size) for size in header[1:])
    bytes_expected, bytes_found = int(np.prod(shape)), len(content) - 4 - 4 * dimensions
    if bytes_found != bytes_expected:
        raise InvalidInput(
            f"{file}: expected {bytes_expected:,} bytes for the shape {shape}; received "
            f"{bytes_found:,}"
        )
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
