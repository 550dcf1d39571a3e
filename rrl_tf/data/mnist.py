"""Load MNIST from TensorFlow Datasets or the original files, and make batches for `fit`."""

from __future__ import annotations

import gzip
import os
import pathlib
import socket
import urllib.request
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from rrl_tf._optional_packages import optional_package
from rrl_tf.errors import InvalidInput

FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
"""Names of the original files of images and labels, which may also end in `.gz`."""

Preprocess = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""Function of images `(B, 28, 28)` uint8 and a seed `(2,)` that returns a model's input."""


class Split(NamedTuple):
    """Images and labels of a part of the dataset.

    Attributes:
        images: `(M, 28, 28)` uint8.
        labels: `(M,)` int64.
    """

    images: np.ndarray
    labels: np.ndarray


def load_mnist(folder: str | os.PathLike | None = None) -> dict[str, Split]:
    """Load the 60,000 training images and the 10,000 test images.

    The images are sorted by their bytes, because TensorFlow Datasets shuffles them when it builds
    its files. The arrays, and the images that a seed selects, are then the same for both sources.

    Args:
        folder: path of a folder with the four original files, or of a data folder of TensorFlow
            Datasets, which downloads missing data. `None` is `~/tensorflow_datasets`.

    Returns:
        A dict with the keys `"train"` and `"test"`, whose values are a `Split`.

    Raises:
        InvalidInput: if MNIST is not available, or a file is damaged.

    Example:
        >>> splits = load_mnist()  # doctest: +SKIP
        >>> splits["test"].images.shape  # doctest: +SKIP
        (10000, 28, 28)
    """
    if folder is not None and not pathlib.Path(folder).is_dir():
        raise InvalidInput(
            f"`folder` must be an existing folder with MNIST; received {str(folder)!r}. {_WAYS_OUT}"
        )
    if folder is not None and any(_find(folder, name) for pair in FILES.values() for name in pair):
        splits = {split: _read_files(folder, *names) for split, names in FILES.items()}
    else:
        splits = _read_tensorflow_datasets(folder)
    return {name: _sorted(split) for name, split in splits.items()}


_WAYS_OUT = (
    "Either pass a folder with the four original files "
    f"({', '.join(f'{name}.gz' for pair in FILES.values() for name in pair)}). Or run "
    "`python -m tensorflow_datasets.scripts.cli.main build mnist` on a machine with network access "
    "and copy the resulting ~/tensorflow_datasets/mnist to this machine"
)


def _sorted(split: Split) -> Split:
    rows = split.images.reshape(len(split.images), -1)
    order = sorted(range(len(rows)), key=lambda i: rows[i].tobytes())
    return Split(split.images[order], split.labels[order])


def _read_tensorflow_datasets(folder: str | os.PathLike | None) -> dict[str, Split]:
    # Imported here because the import takes seconds and the original files do not need it.
    tfds = optional_package("tensorflow_datasets", "MNIST without its original files")
    tfds.disable_progress_bar()
    try:
        builder = tfds.builder("mnist", data_dir=folder)
        if not builder.is_prepared():
            _look_up_host()
            builder.download_and_prepare()
    except Exception as error:  # a download can raise any error
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
    """Raise an error at once if there is no network; the download would retry for minutes."""
    if not urllib.request.getproxies():
        socket.getaddrinfo("storage.googleapis.com", 443)


def _find(folder: str | os.PathLike, name: str) -> pathlib.Path | None:
    """Return the path of the file with this name, with or without `.gz`, or `None`."""
    paths = (pathlib.Path(folder) / f"{name}{suffix}" for suffix in ("", ".gz"))
    return next((path for path in paths if path.exists()), None)


def _read_files(folder: str | os.PathLike, images_name: str, labels_name: str) -> Split:
    names = images_name, labels_name
    files = {name: file for name in names if (file := _find(folder, name))}
    if missing := [name for name in names if name not in files]:
        raise InvalidInput(
            f"`folder` must contain all four files of MNIST; {str(folder)!r} lacks "
            f"{' and '.join(missing)}, with or without .gz"
        )
    images = _read_idx(files[images_name], dimensions=3)
    labels = _read_idx(files[labels_name], dimensions=1).astype("int64")
    if images.shape != (len(labels), 28, 28) or not 0 <= labels.max(initial=-1) <= 9:
        raise InvalidInput(
            f"{files[images_name]} must hold images of 28 x 28 pixels, and {files[labels_name]} as "
            f"many labels from 0 to 9; received images of shape {images.shape} and labels of shape "
            f"{labels.shape} up to {labels.max(initial=-1)}"
        )
    return Split(images, labels)


def _read_idx(file: pathlib.Path, dimensions: int) -> np.ndarray:
    """Read an IDX file, which consists of a magic number, the size per dimension and the bytes."""
    try:
        content = file.read_bytes()
        if file.suffix == ".gz":
            content = gzip.decompress(content)
        magic, *shape = np.frombuffer(content, ">u4", 1 + dimensions).tolist()
        if magic != 0x800 + dimensions:
            raise ValueError(f"the magic number {magic}")
        return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise InvalidInput(
            f"{file} must be a complete IDX file of unsigned bytes in {dimensions} dimensions; "
            f"received {error}"
        ) from error


def preprocessed(
    split: Split, preprocess: Preprocess, seed: int, batch_size: int = 1000
) -> tuple[np.ndarray, np.ndarray]:
    """Preprocess all images of a split; the result depends only on the seed and the batch size.

    Args:
        split: the images and labels.
        preprocess: function of images `(B, 28, 28)` uint8 and a seed `(2,)` that returns the
            model's input.
        seed: int.
        batch_size: number of images per call of `preprocess`.

    Returns:
        `(inputs (M, 28, 28, 1) float32, labels (M,))`.

    Example:
        >>> inputs, labels = preprocessed(splits["test"], clean, seed=0)  # doctest: +SKIP
    """
    preprocess = tf.function(preprocess, reduce_retracing=True)
    parts = [
        preprocess(
            tf.constant(split.images[first : first + batch_size]), tf.constant([seed, first])
        )
        for first in range(0, len(split.images), batch_size)
    ]
    return np.concatenate([part.numpy() for part in parts]), split.labels


def batches(
    split: Split,
    batch_size: int,
    preprocess: Preprocess,
    seed: int,
    first_step: int = 0,
    replacement: bool = False,
) -> tf.data.Dataset:
    """Return an endless dataset of training batches, each determined by the seed and its step.

    Args:
        split: the images and labels.
        batch_size: number of images B in a batch.
        preprocess: function of images `(B, 28, 28)` uint8 and a seed `(2,)` that returns the
            model's input, such as a `Perturbation`.
        seed: int.
        first_step: number of the first batch; a resumed run passes the steps already taken.
        replacement: whether to draw images with replacement. If `False`, every image occurs once
            per epoch.

    Returns:
        `tf.data.Dataset` of `(inputs (B, 28, 28, 1), labels (B,))`.

    Example:
        >>> data = batches(splits["train"], 300, Perturbation(), seed=0)  # doctest: +SKIP
        >>> model.fit(data, steps_per_epoch=100, epochs=10)  # doctest: +SKIP
    """
    size = len(split.images)
    images, labels = tf.constant(split.images), tf.constant(split.labels)
    base = tf.constant([seed, 0x5EED], tf.int64)

    def batch(step):
        step_seeds = tf.random.split(tf.random.experimental.stateless_fold_in(base, step), 2)
        if replacement:
            index = tf.random.stateless_uniform(
                (batch_size,), step_seeds[0], 0, size, dtype=tf.int64
            )
        else:
            index = _shuffled(step * batch_size + tf.range(batch_size, dtype=tf.int64), size, seed)
        return preprocess(tf.gather(images, index), step_seeds[1]), tf.gather(labels, index)

    steps = tf.data.Dataset.range(first_step, tf.int64.max)
    return steps.map(batch, num_parallel_calls=2).prefetch(4)


def _shuffled(position, size, seed):
    """Return image numbers at positions of an endless sequence of permutations of `size` images."""
    permutation = tf.cast(position // size, tf.int32)
    seed = seed if seed < 2**31 else seed - 2**32  # the int32 with the same bits
    seeds = tf.stack([tf.fill((len(position),), seed), 0 * permutation, permutation], axis=1)
    # `tf.random.experimental.index_shuffle` does not accept one seed per index; the raw op does.
    return tf.raw_ops.RandomIndexShuffle(
        index=position % size, seed=seeds, max_index=tf.cast(size - 1, tf.int64)
    )
