import gc
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from rrl_tf.errors import InvalidInput
from rrl_tf.training.run_folder import RunFolder, atomic_file, checksum

CONFIG = {"seed": 1, "steps": 100, "sizes": (5, 6)}
STATE = {"agent": {"weights": np.arange(6.0).reshape(2, 3), "updates": 7}, "loop": {"step": 50}}


def assert_same_state(left, right):
    assert left.keys() == right.keys()
    for part in left:
        assert left[part].keys() == right[part].keys()
        for name in left[part]:
            np.testing.assert_array_equal(left[part][name], right[part][name])


def test_a_checkpoint_comes_back_as_it_was(tmp_path):
    folder = RunFolder(tmp_path / "run", CONFIG)
    assert folder.load_checkpoint() is None
    folder.save_checkpoint(50, STATE)
    assert_same_state(RunFolder(tmp_path / "run", CONFIG).load_checkpoint(), STATE)


TRAINING = """
import sys
from rrl_tf.training.run_folder import RunFolder

folder = RunFolder(sys.argv[1], {"seed": 1})
print("begun", flush=True)
sys.stdin.read()
"""

LOCKING = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"


def test_a_folder_in_which_another_process_trains_is_refused_until_that_is_gone(tmp_path):
    """Each once took the other's draft of a checkpoint for one that a kill had left."""
    command = [sys.executable, "-c", TRAINING, str(tmp_path / "run")]
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipe) as process:
        assert process.stdout.readline() == "begun\n"
        with pytest.raises(InvalidInput, match="run is being trained by another process"):
            RunFolder(tmp_path / "run", {"seed": 1})
        process.kill()
    RunFolder(tmp_path / "run", {"seed": 1}).save_checkpoint(50, STATE)
    # This process may, as often as it likes, and the last one that is left keeps others out.
    first, second = (RunFolder(tmp_path / "run", {"seed": 1}) for _ in range(2))
    del first
    gc.collect()
    locking = [sys.executable, "-c", LOCKING, tmp_path / "run" / ".lock"]
    assert "BlockingIOError" in subprocess.run(locking, capture_output=True, text=True).stderr
    del second
    gc.collect()
    subprocess.run(locking, check=True)


def test_only_the_newest_checkpoint_is_kept(tmp_path):
    folder = RunFolder(tmp_path, CONFIG)
    for step in (1, 2, 10, 10):
        folder.save_checkpoint(step, {"loop": {"step": step}})
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["0000000010"]
    assert folder.load_checkpoint() == {"loop": {"step": 10}}


def test_another_configuration_is_refused_with_every_difference(tmp_path):
    RunFolder(tmp_path, CONFIG, may_change=("steps",))
    RunFolder(tmp_path, {**CONFIG, "steps": 999}, may_change=("steps",))
    with pytest.raises(ValueError, match=r"seed is 1 there and 2 here; sizes is \[5, 6\] there"):
        RunFolder(tmp_path, {"seed": 2, "steps": 5, "sizes": (5,)}, may_change=("steps",))
    assert json.loads((tmp_path / "config.json").read_text())["seed"] == 1


def test_a_folder_that_cannot_be_made_is_an_os_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="file"):
        RunFolder(tmp_path / "file" / "run", CONFIG)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", r"config\.json is not JSON"),
        (b"\xff\x00", r"config\.json is not JSON"),
        (b"[1]", r"config\.json must hold a JSON object; .*received \[1\]"),
    ],
)
def test_a_broken_configuration_is_one_clear_error(tmp_path, content, message):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(InvalidInput, match=message):
        RunFolder(tmp_path, CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]  # nothing was added


@pytest.mark.parametrize("content", [b"{", b"\xff", b"3", b'"step"'])
def test_a_broken_evaluation_is_one_clear_error(tmp_path, content):
    folder = RunFolder(tmp_path, CONFIG)
    (tmp_path / "evaluation.json").write_bytes(content)
    with pytest.raises(InvalidInput, match=r"evaluation\.json .*; remove it to finish"):
        folder.is_finished(100)


def test_the_step_is_that_of_the_newest_checkpoint(tmp_path):
    folder = RunFolder(tmp_path, CONFIG)
    assert folder.step == 0
    for step in (9, 10):
        folder.save_checkpoint(step, STATE)
        assert RunFolder(tmp_path, CONFIG).step == step


def test_a_checksum_tells_contents_apart():
    array = np.arange(6)
    parts = ["to be", "to be ", array, array[::2], array.astype("int32"), array.reshape(2, 3)]
    assert len({checksum(part) for part in parts}) == len(parts)
    assert checksum(array[::2]) == checksum(array[::2].copy())
    assert checksum("a", array) == checksum("a", array) != checksum(array, "a")


@pytest.mark.parametrize("file", ["arrays.npz", "state.json"])
def test_an_unreadable_checkpoint_is_named(tmp_path, file):
    folder = RunFolder(tmp_path, CONFIG)
    folder.save_checkpoint(3, STATE)
    (tmp_path / "checkpoints" / "0000000003" / file).write_bytes(b"PK\x03\x04 half a file")
    with pytest.raises(ValueError, match=r"0000000003 cannot be read"):
        folder.load_checkpoint()


@pytest.mark.parametrize(
    "content",
    ["[]", "[" * 100_000, "3", "null", '{"agent": 3}', '{"agent": ["weights"]}', '"agent"'],
)
def test_a_checkpoint_of_other_types_is_named(tmp_path, content):
    folder = RunFolder(tmp_path, CONFIG)
    folder.save_checkpoint(3, STATE)
    (tmp_path / "checkpoints" / "0000000003" / "state.json").write_text(content)
    with pytest.raises(InvalidInput, match=r"0000000003 cannot be read"):
        folder.load_checkpoint()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            InvalidInput("weights are of another shape"),
            "does not fit this run: weights are of another",
        ),
        (KeyError("weights"), r"0000000003 cannot be read \(KeyError: 'weights'\); remove that"),
        (TypeError("no number"), r"0000000003 cannot be read \(TypeError: no number\)"),
    ],
)
def test_what_cannot_take_up_a_checkpoint_names_it(tmp_path, error, message):
    folder = RunFolder(tmp_path, CONFIG)
    folder.save_checkpoint(3, STATE)
    with pytest.raises(InvalidInput, match=message), folder.restoring():
        raise error
    with pytest.raises(RuntimeError, match="a bug"), folder.restoring():
        raise RuntimeError("a bug")


def test_checkpoints_without_their_configuration_are_not_taken_up(tmp_path):
    """Once, any other configuration was written in its place."""
    RunFolder(tmp_path, CONFIG).save_checkpoint(3, STATE)
    (tmp_path / "config.json").unlink()
    with pytest.raises(InvalidInput, match=r"holds checkpoints and no config\.json"):
        RunFolder(tmp_path, {**CONFIG, "seed": 2})
    assert not (tmp_path / "config.json").exists()


# Every call that changes the disk during a save, so that the process can die before each of them.
STEPS_OF_A_SAVE = [(np, "savez"), (os, "fsync"), (os, "rename"), (shutil, "rmtree")]


@pytest.mark.parametrize(("module", "name"), STEPS_OF_A_SAVE)
@pytest.mark.parametrize("step", [50, 60])
def test_a_kill_at_any_call_loses_nothing(tmp_path, monkeypatch, module, name, step):
    folder = RunFolder(tmp_path, CONFIG)
    folder.save_checkpoint(50, STATE)
    newer = {"agent": {"weights": np.ones(3), "updates": 8}, "loop": {"step": step}}

    class Killed(BaseException):
        pass

    def killed(*args, **kwargs):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module, name, killed)
        if name == "rename":
            patch.setattr("pathlib.os.rename", killed)
        with pytest.raises(Killed):
            folder.save_checkpoint(step, newer)
    found = RunFolder(tmp_path, CONFIG).load_checkpoint()
    # The old state or, once it is in place, the new one; never anything between.
    expected = newer if found["agent"]["updates"] == 8 else STATE
    assert_same_state(found, expected)
    folder.save_checkpoint(70, newer)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["0000000070"]


@pytest.mark.parametrize("calls", [1, 2])
def test_a_kill_between_the_renames_of_the_same_step_loses_nothing(tmp_path, monkeypatch, calls):
    """Once, the checkpoint that was to be replaced was taken for a draft, and removed."""
    RunFolder(tmp_path, CONFIG).save_checkpoint(50, STATE)
    left, rename = iter(range(calls)), os.rename

    class Killed(BaseException):
        pass

    def killed(*paths):
        rename(*paths)
        if next(left) == calls - 1:
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(os, "rename", killed)
        RunFolder(tmp_path, CONFIG).save_checkpoint(50, {"agent": {"updates": 8}})
    folder = RunFolder(tmp_path, CONFIG)
    found = folder.load_checkpoint()
    assert folder.step == 50 and found["agent"]["updates"] == (7 if calls == 1 else 8)
    folder.save_checkpoint(50, STATE)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["0000000050"]
    assert_same_state(folder.load_checkpoint(), STATE)


def test_atomic_file_leaves_the_old_one_when_writing_fails(tmp_path):
    target = tmp_path / "file.txt"
    target.write_text("old")
    with pytest.raises(RuntimeError), atomic_file(target) as draft:
        draft.write_text("half of the new")
        raise RuntimeError
    assert target.read_text() == "old"
    with atomic_file(target) as draft:
        draft.write_text("new")
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == ["file.txt"]


def test_a_run_is_finished_at_the_step_of_its_evaluation(tmp_path):
    folder = RunFolder(tmp_path, CONFIG)
    assert not folder.is_finished(100)
    folder.finish({"step": 100, "accuracy": 0.5})
    assert folder.is_finished(100) and not folder.is_finished(200)
    assert json.loads((tmp_path / "evaluation.json").read_text())["accuracy"] == 0.5
