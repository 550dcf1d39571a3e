"""Version folders appear only when they are complete, also if the export is killed."""

import os
import signal
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf._atomic import draft_folder
from rrl_tf.errors import InvalidInput
from rrl_tf.export import export_policy, load_policy, newest_version, next_version
from rrl_tf.export.writer import move_into_place

pytestmark = pytest.mark.tf_only

EXPORT_THAT_WAITS = """
    import sys, time
    from rrl_tf._tf_logging import load_tensorflow
    load_tensorflow()
    import keras
    from rrl_tf.export import export_policy, writer

    write_extras = writer._write_extras

    def wait(*arguments):
        write_extras(*arguments)
        print("written, not renamed", flush=True)
        time.sleep(600)

    writer._write_extras = wait
    export_policy(sys.argv[1], keras.Sequential([keras.layers.Dense(2)]), abs, (4,), "float32")
"""


def test_an_export_removes_drafts_of_killed_exports_only(tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(EXPORT_THAT_WAITS), str(tmp_path)]
    exporting = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert "written" in exporting.stdout.readline()
        (draft,) = tmp_path.iterdir()
        assert next_version(tmp_path) == 1
        with draft_folder(tmp_path):
            assert (draft / "saved_model.pb").exists()
    finally:
        exporting.send_signal(signal.SIGKILL)
        exporting.communicate()
    assert list(tmp_path.iterdir()) == [draft]
    with pytest.raises(InvalidInput, match=r"must hold version folders; received '[^']*'.$"):
        newest_version(tmp_path)
    model = keras.Sequential([keras.layers.Dense(2)])
    folder = export_policy(tmp_path, model, lambda x: x, (4,), "float32")
    assert list(tmp_path.iterdir()) == [folder] == [newest_version(tmp_path)]


def test_the_error_for_a_run_folder_names_its_export_folder(tmp_path):
    (tmp_path / "export" / "3").mkdir(parents=True)
    (tmp_path / "config.json").touch()
    with pytest.raises(InvalidInput, match=r"Use '.*export'"):
        newest_version(tmp_path)


def test_a_folder_of_versions_loads_the_newest(tmp_path):
    for actions in (2, 3):
        model = keras.Sequential([keras.layers.Dense(actions)])
        export_policy(tmp_path, model, lambda x: x, (4,), "float32")
    raw = {"observation": np.ones((1, 4), "float32")}
    assert load_policy(tmp_path).predict(raw)["q_values"].shape == (1, 3)
    assert load_policy(tmp_path / "1").predict(raw)["q_values"].shape == (1, 2)
    with pytest.raises(InvalidInput, match="folder of a run or of an exported policy, or one of"):
        load_policy(tmp_path / "none")


def test_a_file_with_a_number_as_its_name_is_skipped(tmp_path):
    model = keras.Sequential([keras.layers.Dense(2)])
    folder = export_policy(tmp_path, model, lambda x: x, (4,), "float32")
    (tmp_path / "7").write_text("notes")
    assert newest_version(tmp_path) == folder
    assert load_policy(tmp_path).act(np.ones(4, "float32")) in (0, 1)
    assert next_version(tmp_path) == 8


def test_an_empty_version_folder_raises(tmp_path):
    (tmp_path / "9").mkdir()
    with pytest.raises(InvalidInput, match=r"received '.*/9', which cannot be loaded"):
        load_policy(tmp_path)


@given(
    numbers=st.sets(st.integers(1, 99), max_size=4),
    others=st.sets(st.sampled_from((".export-x", "notes", "7.tmp", "-3", "٣", "1_0"))),
)
def test_only_numbers_are_versions(tmp_path_factory, numbers, others):
    base = tmp_path_factory.mktemp("versions")
    for name in (*map(str, numbers), *others):
        (base / name).mkdir()
    assert next_version(base) == max(numbers, default=0) + 1
    if numbers:
        assert newest_version(base) == base / str(max(numbers))
    else:
        with pytest.raises(InvalidInput):
            newest_version(base)


def test_a_missing_folder_has_no_version(tmp_path):
    assert next_version(tmp_path / "none") == 1
    with pytest.raises(InvalidInput, match="none"):
        newest_version(tmp_path / "none")


def test_concurrent_drafts_become_consecutive_versions(tmp_path):
    with draft_folder(tmp_path) as first, draft_folder(tmp_path) as second:
        assert oct(os.stat(first).st_mode)[-3:] == "755"
        for draft in (second, first):
            (draft / "model").write_text(draft.name)
            move_into_place(draft, tmp_path, None)
        with pytest.raises(OSError):
            third = tmp_path / ".export-third"
            third.mkdir()
            move_into_place(third, tmp_path, 2)
    assert (tmp_path / "1" / "model").read_text() == second.name
    assert (tmp_path / "2" / "model").read_text() == first.name


def test_a_failed_export_leaves_no_draft(tmp_path):
    with pytest.raises(ZeroDivisionError), draft_folder(tmp_path) as draft:
        (draft / "model").write_text("half")
        1 / 0
    assert not list(tmp_path.iterdir())
