"""A run folder is complete after a kill at any moment, and resumes only the same run."""

import gc
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from rrl_tf.errors import InvalidInput
from rrl_tf.training.run_folder import RunFolder, checksum

CONFIG = {"seed": 1, "steps": 100, "sizes": (5, 6)}
STATE = {"agent": {"weights": np.arange(6.0).reshape(2, 3), "updates": 7}, "loop": {"step": 50}}


def assert_same_state(left, right):
    assert left.keys() == right.keys()
    for part in left:
        assert left[part].keys() == right[part].keys()
        for name in left[part]:
            np.testing.assert_array_equal(left[part][name], right[part][name])


def test_checkpoint_round_trip_is_exact(tmp_path):
    folder = RunFolder(tmp_path / "run", CONFIG)
    assert folder.load_checkpoint() is None and folder.step == 0
    folder.save_checkpoint(50, STATE)
    again = RunFolder(tmp_path / "run", CONFIG)
    assert again.step == 50
    assert_same_state(again.load_checkpoint(), STATE)


def test_only_the_newest_checkpoint_is_kept(tmp_path):
    folder = RunFolder(tmp_path, CONFIG)
    for step in (1, 2, 10):
        folder.save_checkpoint(step, {"loop": {"step": step}})
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["0000000010"]
    assert folder.load_checkpoint() == {"loop": {"step": 10}}
    with pytest.raises(InvalidInput, match="`step` must be greater than 10; received 10"):
        folder.save_checkpoint(10, {})


TRAINING = """
import sys
from rrl_tf.training.run_folder import RunFolder

folder = RunFolder(sys.argv[1], {"seed": 1})
print("started", flush=True)
sys.stdin.read()
"""

LOCKING = "import fcntl, sys; fcntl.flock(open(sys.argv[1], 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"


def test_folder_of_another_training_process_is_rejected(tmp_path):
    command = [sys.executable, "-c", TRAINING, str(tmp_path / "run")]
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipe) as process:
        assert process.stdout.readline() == "started\n"
        with pytest.raises(InvalidInput, match=r"another process is training in .*run"):
            RunFolder(tmp_path / "run", {"seed": 1})
        process.kill()
    RunFolder(tmp_path / "run", {"seed": 1}).save_checkpoint(50, STATE)


def test_folders_of_one_process_share_a_lock_until_the_last_one_is_deleted(tmp_path):
    first, second = (RunFolder(tmp_path / "run", {"seed": 1}) for _ in range(2))
    del first
    gc.collect()
    locking = [sys.executable, "-c", LOCKING, tmp_path / "run" / ".lock"]
    assert "BlockingIOError" in subprocess.run(locking, capture_output=True, text=True).stderr
    del second
    gc.collect()
    subprocess.run(locking, check=True)


def test_other_configuration_is_rejected_with_every_difference(tmp_path):
    RunFolder(tmp_path, CONFIG, mutable=("steps",))
    RunFolder(tmp_path, {**CONFIG, "steps": 999}, mutable=("steps",))
    with pytest.raises(ValueError, match=r"seed was 1 and is now 2; sizes was \[5, 6\]"):
        RunFolder(tmp_path, {"seed": 2, "steps": 5, "sizes": (5,)}, mutable=("steps",))
    assert json.loads((tmp_path / "config.json").read_text())["seed"] == 1


def test_folder_that_cannot_be_created_is_an_os_error(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OSError, match="file"):
        RunFolder(tmp_path / "file" / "run", CONFIG)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", r"config\.json is not JSON"),
        (b"\xff\x00", r"config\.json is not JSON"),
        (b"[1]", r"config\.json must contain a JSON object; received \[1\]"),
    ],
)
def test_damaged_config_is_rejected_and_adds_no_file(tmp_path, content, message):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(InvalidInput, match=message):
        RunFolder(tmp_path, CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_damaged_evaluation_is_rejected(tmp_path):
    folder = RunFolder(tmp_path, CONFIG)
    (tmp_path / "evaluation.json").write_bytes(b"{")
    with pytest.raises(InvalidInput, match=r"evaluation\.json .*; remove it to finish"):
        folder.is_finished(100)


def test_checkpoints_without_config_are_rejected(tmp_path):
    RunFolder(tmp_path, CONFIG).save_checkpoint(3, STATE)
    (tmp_path / "config.json").unlink()
    with pytest.raises(InvalidInput, match=r"has checkpoints but no config\.json"):
        RunFolder(tmp_path, {**CONFIG, "seed": 2})
    assert not (tmp_path / "config.json").exists()


def test_checksum_depends_on_values_type_and_shape():
    array = np.arange(6)
    parts = ["to be", "to be ", array, array[::2], array.astype("int32"), array.reshape(2, 3)]
    assert len({checksum(part) for part in parts}) == len(parts)
    assert checksum(array[::2]) == checksum(array[::2].copy())
    assert checksum("a", array) == checksum("a", array) != checksum(array, "a")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("arrays.npz", b"PK\x03\x04 half a file"),
        *(("state.json", c) for c in (b"[", b"[" * 100_000, b"3", b"null", b'{"agent": 3}')),
    ],
)
def test_damaged_checkpoint_is_named(tmp_path, file, content):
    folder = RunFolder(tmp_path, CONFIG)
    folder.save_checkpoint(3, STATE)
    (tmp_path / "checkpoints" / "0000000003" / file).write_bytes(content)
    with pytest.raises(InvalidInput, match=r"0000000003 cannot be read"):
        folder.load_checkpoint()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (InvalidInput("other shape"), "does not fit this run: other shape"),
        (KeyError("weights"), r"0000000003 cannot be read \(KeyError: 'weights'\); remove that"),
        (TypeError("no number"), r"0000000003 cannot be read \(TypeError: no number\)"),
    ],
)
def test_errors_while_restoring_name_the_checkpoint(tmp_path, error, message):
    folder = RunFolder(tmp_path, CONFIG)
    folder.save_checkpoint(3, STATE)
    with pytest.raises(InvalidInput, match=message), folder.restoring():
        raise error
    with pytest.raises(RuntimeError, match="a bug"), folder.restoring():
        raise RuntimeError("a bug")


# All calls that change the disk during a save.
CALLS = [(np, "savez"), (os, "fsync"), (os, "rename"), (shutil, "rmtree")]


@pytest.mark.parametrize(("module", "name"), CALLS)
def test_kill_at_any_call_leaves_a_complete_checkpoint(tmp_path, monkeypatch, module, name):
    folder = RunFolder(tmp_path, CONFIG)
    folder.save_checkpoint(50, STATE)
    newer = {"agent": {"weights": np.ones(3), "updates": 8}, "loop": {"step": 60}}

    class Killed(BaseException):
        pass

    def killed(*args, **kwargs):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module, name, killed)
        with pytest.raises(Killed):
            folder.save_checkpoint(60, newer)
    found = RunFolder(tmp_path, CONFIG).load_checkpoint()
    assert_same_state(found, newer if found["agent"]["updates"] == 8 else STATE)
    folder.save_checkpoint(70, newer)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["0000000070"]
