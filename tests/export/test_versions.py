"""Version folders are whole or not there, whatever kills the export that writes them."""

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

from rrl_tf._atomic_dir import draft_folder
from rrl_tf.errors import InvalidInput
from rrl_tf.export import export_policy, load_policy, newest_version, next_version
from rrl_tf.export.versions import LARGEST_VERSION, move_into_place

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


def test_a_new_export_removes_what_a_killed_one_left_but_nothing_of_a_living_one(tmp_path):
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
    with pytest.raises(InvalidInput, match=r"expected .* exported versions; received '[^']*'$"):
        newest_version(tmp_path)
    model = keras.Sequential([keras.layers.Dense(2)])
    folder = export_policy(tmp_path, model, lambda x: x, (4,), "float32")
    assert list(tmp_path.iterdir()) == [folder] == [newest_version(tmp_path)]


def test_the_folder_around_an_export_is_told_from_it(tmp_path):
    (tmp_path / "export" / "3").mkdir(parents=True)
    (tmp_path / "config.json").touch()
    with pytest.raises(InvalidInput, match=r"whose versions are in '.*export'"):
        newest_version(tmp_path)


def test_a_folder_of_versions_loads_as_its_newest(tmp_path):
    for actions in (2, 3):
        model = keras.Sequential([keras.layers.Dense(actions)])
        export_policy(tmp_path, model, lambda x: x, (4,), "float32")
    raw = {"observation": np.ones((1, 4), "float32")}
    assert load_policy(tmp_path).predict(raw)["q_values"].shape == (1, 3)
    assert load_policy(tmp_path / "1").predict(raw)["q_values"].shape == (1, 2)
    with pytest.raises(InvalidInput, match="expected the folder of an exported policy, or one of"):
        load_policy(tmp_path / "none")


def test_a_stray_file_is_no_version_and_no_new_versions_name(tmp_path):
    model = keras.Sequential([keras.layers.Dense(2)])
    folder = export_policy(tmp_path, model, lambda x: x, (4,), "float32")
    (tmp_path / "7").write_text("notes")
    (tmp_path / str(2**70)).mkdir()
    assert newest_version(tmp_path) == folder
    assert load_policy(tmp_path).act(np.ones(4, "float32")) in (0, 1)
    assert next_version(tmp_path) == 8


def test_none_follows_the_largest_version(tmp_path):
    """One was written that no server reads, and the export after it never ended."""
    (tmp_path / str(LARGEST_VERSION)).mkdir()
    model = keras.Sequential([keras.layers.Dense(2)])
    message = f"must be below {LARGEST_VERSION} .*; received {LARGEST_VERSION}"
    with pytest.raises(InvalidInput, match=message):
        export_policy(tmp_path, model, lambda x: x, (4,), "float32")
    assert [path.name for path in tmp_path.iterdir()] == [str(LARGEST_VERSION)]
    export_policy(tmp_path, model, lambda x: x, (4,), "float32", version=7)
    assert (tmp_path / "7" / "saved_model.pb").exists()


def test_a_stray_folder_in_a_versions_place_is_told(tmp_path):
    (tmp_path / "9").mkdir()
    with pytest.raises(InvalidInput, match=r"expected a policy .*; received '.*/9', whose"):
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


def test_a_folder_that_is_not_there_has_no_version(tmp_path):
    assert next_version(tmp_path / "none") == 1
    with pytest.raises(InvalidInput, match="none"):
        newest_version(tmp_path / "none")


def test_drafts_written_side_by_side_become_versions_one_after_the_other(tmp_path):
    with draft_folder(tmp_path) as first, draft_folder(tmp_path) as second:
        assert oct(os.stat(first).st_mode)[-3:] == "755"
        for draft in (second, first):
            (draft / "model").write_text(draft.name)
            move_into_place(draft, tmp_path, None)
        with pytest.raises(FileExistsError, match="version 2"):
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
