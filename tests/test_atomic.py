"""Files and folders that appear only when they are complete; see also tests/export."""

import os

import pytest

from rrl_tf._atomic import atomic_file


def test_atomic_file_keeps_the_old_file_after_an_error(tmp_path):
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
