"""MNIST's files: contents, and errors that name the file."""

import gzip
import socket
import struct
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rrl_tf.data.mnist import FILES, load_mnist
from rrl_tf.errors import InvalidInput

pytestmark = pytest.mark.tf_only


def digits(count, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, 28, 28), np.uint8), rng.integers(0, 10, count, np.uint8)


def idx(array):
    """Return an array in MNIST's IDX format: two zeros, dtype code, rank, shape, bytes."""
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return header + array.tobytes()


def write(folder, train=20, test=7, pack=True):
    arrays = {}
    for split, count in (("train", train), ("test", test)):
        arrays[split] = digits(count, seed=count)
        for name, array in zip(FILES[split], arrays[split]):
            content = idx(array)
            path = folder / (f"{name}.gz" if pack else name)
            path.write_bytes(gzip.compress(content) if pack else content)
    return arrays


def as_set(images, labels):
    return sorted((image.tobytes(), int(label)) for image, label in zip(images, labels))


@pytest.mark.parametrize("pack", [True, False])
def test_every_image_keeps_its_label(tmp_path, pack):
    arrays = write(tmp_path, pack=pack)
    for split, loaded in load_mnist(tmp_path).items():
        assert as_set(*loaded) == as_set(*arrays[split])
        assert loaded.images.dtype == np.uint8
        assert loaded.labels.dtype == np.int64


@given(order=st.permutations(range(6)))
@settings(max_examples=5)
def test_the_order_in_the_files_does_not_matter(tmp_path, order):
    images, labels = digits(6)
    write(tmp_path)
    for shuffled in (list(range(6)), list(order)):
        for name, array in zip(FILES["test"], (images[shuffled], labels[shuffled])):
            (tmp_path / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
        loaded = load_mnist(tmp_path)["test"]
        if shuffled == list(range(6)):
            first = loaded
    np.testing.assert_array_equal(loaded.images, first.images)
    np.testing.assert_array_equal(loaded.labels, first.labels)


def spoil(content, how):
    plain = gzip.decompress(content)
    return {
        "cut": content[: len(content) // 2],
        "no gzip": b"not found, said the server",
        "empty": gzip.compress(b""),
        "few bytes": gzip.compress(plain[:-5]),
        "more bytes": gzip.compress(plain + b"12"),
        "wrong kind": gzip.compress(b"\x00\x00\x0d" + plain[3:]),
    }[how]


@pytest.mark.parametrize("name", [*FILES["train"], *FILES["test"]])
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("cut", "ended before"),
        ("no gzip", "[Nn]ot a gzipped file"),
        ("empty", "received buffer"),
        ("few bytes", "cannot reshape"),
        ("more bytes", "cannot reshape"),
        ("wrong kind", "received the magic number"),
    ],
)
def test_a_damaged_file_raises(tmp_path, name, how, message):
    write(tmp_path)
    file = tmp_path / f"{name}.gz"
    file.write_bytes(spoil(file.read_bytes(), how))
    with pytest.raises(ValueError, match=message) as error:
        load_mnist(tmp_path)
    assert str(file) in str(error.value)


def test_mismatched_files_raise(tmp_path):
    write(tmp_path)
    images, labels = (tmp_path / f"{name}.gz" for name in FILES["test"])
    kept = labels.read_bytes()
    labels.write_bytes((tmp_path / f"{FILES['train'][1]}.gz").read_bytes())
    with pytest.raises(
        ValueError,
        match=r"received images of shape \(7, 28, 28\) and labels of shape \(20,\)",
    ):
        load_mnist(tmp_path)
    labels.write_bytes(gzip.compress(idx(np.full(7, 10, np.uint8))))
    with pytest.raises(ValueError, match=r"labels from 0 to 9; received .* up to 10"):
        load_mnist(tmp_path)
    labels.write_bytes(kept)
    images.write_bytes(gzip.compress(idx(np.zeros((7, 32, 32), np.uint8))))
    with pytest.raises(ValueError, match=r"t10k-images.* must hold images of 28 x 28"):
        load_mnist(tmp_path)
    images.unlink()
    with pytest.raises(ValueError, match="lacks t10k-images-idx3-ubyte"):
        load_mnist(tmp_path)


def test_a_missing_folder_raises(tmp_path):
    with pytest.raises(
        ValueError, match=r"must be an existing folder .*nowhere.*train-images-idx3-ubyte.gz"
    ):
        load_mnist(tmp_path / "nowhere")


def test_error_without_a_network_names_both_alternatives(tmp_path, monkeypatch):
    def unknown(*arguments, **options):
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setattr("urllib.request.getproxies", dict)
    pytest.importorskip("tensorflow_datasets")
    with pytest.raises(ValueError) as error:
        load_mnist(tmp_path)
    for words in ("gaierror", "a folder with the four original files", "tensorflow_datasets"):
        assert words in str(error.value)


def test_missing_tensorflow_datasets_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(
        InvalidInput, match=r"needs the package tensorflow_datasets, .*pip install '\.\[data\]'"
    ):
        load_mnist(tmp_path)


def test_tensorflow_datasets_gives_the_same_arrays_as_the_files(tmp_path, monkeypatch):
    """The builder of TensorFlow Datasets reads local files instead of a download."""
    tfds = pytest.importorskip("tensorflow_datasets")
    files, prepared = tmp_path / "files", tmp_path / "prepared"
    files.mkdir(), prepared.mkdir()
    write(files, pack=False)
    module = sys.modules[type(tfds.builder("mnist", data_dir=prepared)).__module__]
    monkeypatch.setattr(module, "_TRAIN_EXAMPLES", 20, raising=False)
    monkeypatch.setattr(module, "_TEST_EXAMPLES", 7, raising=False)
    names = {f"{name}.gz": str(files / name) for pair in FILES.values() for name in pair}

    def fetch(self, urls):
        return {key: names[url.rpartition("/")[2]] for key, url in urls.items()}

    monkeypatch.setattr(tfds.download.DownloadManager, "download_and_extract", fetch)
    monkeypatch.setattr("rrl_tf.data.mnist._look_up_host", lambda: None)
    for source in (prepared, prepared):  # the second call reads the prepared data set
        for split, loaded in load_mnist(source).items():
            expected = load_mnist(files)[split]
            np.testing.assert_array_equal(loaded.images, expected.images)
            np.testing.assert_array_equal(loaded.labels, expected.labels)
            assert loaded.labels.dtype == expected.labels.dtype
        monkeypatch.setattr(tfds.download.DownloadManager, "download_and_extract", None)
