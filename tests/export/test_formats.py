"""Policies in other formats: the same outputs, complete files, and nothing replaced by mistake."""

import errno
import functools
import importlib.util
import itertools
import os
import pathlib
import shutil
import signal
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from rrl_tf import _atomic
from rrl_tf._atomic import restore_folder
from rrl_tf.errors import InvalidInput
from rrl_tf.export import convert_policy, export_policy, load_policy

# TensorFlow warns that its interpreter moves to LiteRT.
pytestmark = [pytest.mark.tf_only, pytest.mark.filterwarnings("ignore::UserWarning")]

RAW = np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)
needs_onnx = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("tf2onnx", "onnxruntime")),
    reason="needs tf2onnx and onnxruntime",
)


def make_policy(folder, preprocess=lambda raw: raw):
    model = keras.Sequential([keras.layers.Dense(2)])
    return load_policy(export_policy(folder, model, preprocess, (4,), "float32"))


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return make_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def unsupported(tmp_path_factory):
    """A policy with an operation that neither format supports."""
    return make_policy(tmp_path_factory.mktemp("unsupported"), tf.math.bessel_i0e)


def run_tflite(path):
    return tf.lite.Interpreter(str(path)).get_signature_runner()(observation=RAW)


def run_onnx(path):
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"observation": RAW})))


def run_saved_model(path):
    signature = tf.saved_model.load(str(path)).signatures["act"]
    return signature(observation=tf.constant(RAW))


@pytest.mark.parametrize(
    ("format", "run"),
    [
        ("saved_model", run_saved_model),
        ("tflite", run_tflite),
        pytest.param("onnx", run_onnx, marks=needs_onnx),
    ],
)
def test_names_and_outputs_equal_those_of_the_policy(policy, tmp_path, format, run):
    path = tmp_path / "new" / "policy"
    assert convert_policy(policy, path, format) == path
    assert list(path.parent.iterdir()) == [path]
    outputs, expected = run(path), policy.predict({"observation": RAW})
    assert outputs.keys() == expected.keys()
    np.testing.assert_array_equal(outputs["action"], expected["action"])
    np.testing.assert_allclose(outputs["q_values"], expected["q_values"], atol=1e-6)


@pytest.mark.parametrize("format", ["saved_model", "tflite"])
def test_only_overwrite_replaces_a_policy(policy, tmp_path, format):
    path = tmp_path / "policy"
    convert_policy(policy, path, format)
    old = path / "old" if path.is_dir() else path
    old.write_bytes(b"old")
    with pytest.raises(InvalidInput, match="Use `overwrite`"):
        convert_policy(policy, path, format)
    assert old.read_bytes() == b"old"
    convert_policy(policy, path, format, overwrite=True)
    assert not old.exists() or old.read_bytes() != b"old"
    assert list(tmp_path.iterdir()) == [path]


def killed_at(step, convert, exchanges):
    """Call `convert` in a child process; kill it before move or removal number `step`."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    steps = itertools.count()

    def killing(function):
        def call(*args, **kwargs):
            if next(steps) == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)

        return call

    def unsupported(*folders):
        raise OSError

    _atomic._exchange = killing(_atomic._exchange) if exchanges else unsupported
    pathlib.Path.rename, shutil.rmtree = killing(pathlib.Path.rename), killing(shutil.rmtree)
    try:
        convert()
        os._exit(0)
    finally:
        os._exit(1)


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_killed_overwrite_keeps_the_old_or_the_new_policy(policy, tmp_path, exchanges):
    path = tmp_path / "policy"
    convert_policy(policy, path, "saved_model")
    for step in itertools.count():
        (path / "old").touch()
        overwrite = functools.partial(convert_policy, policy, path, "saved_model", overwrite=True)
        code = killed_at(step, overwrite, exchanges)
        assert code in (0, -signal.SIGKILL)
        if not exchanges:
            restore_folder(path)
        assert run_saved_model(path).keys() == policy.predict({"observation": RAW}).keys()
        if code == 0:
            break
    assert step >= 3
    overwrite()
    assert list(tmp_path.iterdir()) == [path] and not (path / "old").exists()


def test_a_full_disk_keeps_the_old_policy(policy, tmp_path, monkeypatch):
    path = tmp_path / "policy"
    convert_policy(policy, path, "saved_model")
    (path / "old").touch()

    def full(source, target, **options):
        pathlib.Path(target).write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", full)
        with pytest.raises(OSError, match="No space left"):
            convert_policy(policy, path, "saved_model", overwrite=True)
    assert list(tmp_path.iterdir()) == [path] and (path / "old").exists()
    assert run_saved_model(path).keys() == policy.predict({"observation": RAW}).keys()


@pytest.mark.parametrize("format", ["saved_model", "tflite"])
def test_other_folders_are_never_replaced(policy, tmp_path, format):
    precious = tmp_path / "runs" / "precious"
    precious.mkdir(parents=True)
    with pytest.raises(InvalidInput, match=f"It is not of the format {format}"):
        convert_policy(policy, tmp_path / "runs", format, overwrite=True)
    assert precious.is_dir()


@pytest.mark.parametrize("format", ["tflite", pytest.param("onnx", marks=needs_onnx)])
def test_an_operation_that_the_format_lacks_leaves_no_file(unsupported, tmp_path, format):
    with pytest.raises(InvalidInput, match=r"cannot be converted to .*BesselI0e"):
        convert_policy(unsupported, tmp_path / "policy", format)
    assert not list(tmp_path.iterdir())


def test_missing_tf2onnx_is_named_with_the_pip_command(policy, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(InvalidInput, match=r"tf2onnx, which is not .*pip install '\.\[onnx\]'"):
        convert_policy(policy, tmp_path / "policy", "onnx")


@pytest.mark.parametrize("wrong", [{"format": "pickle"}, {"signature": "classify"}])
def test_unknown_format_or_signature_raises(policy, tmp_path, wrong):
    with pytest.raises(InvalidInput, match=f"`{next(iter(wrong))}` must be one of"):
        convert_policy(policy, tmp_path / "policy", **{"format": "tflite", **wrong})
