"""Folders that appear only when they are complete, even if the writing process is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

# Folders with this prefix are removed unless they are locked.
_PREFIX = ".rrl_tf-draft-"


@contextlib.contextmanager
def draft_folder(directory: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a hidden folder in `directory`, and remove it at the end unless it was renamed.

    Drafts of killed processes are removed first. A draft is locked as long as its process lives, so
    the drafts of running processes remain; on a file system without locks, all drafts remain.

    Args:
        directory: parent of the final folder.
    """
    for path in directory.glob(f"{_PREFIX}*"):
        _remove_abandoned(path)
    draft, lock = _make_draft(directory)
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        os.close(lock)


def _make_draft(directory: pathlib.Path) -> tuple[pathlib.Path, int]:
    while True:
        draft = pathlib.Path(tempfile.mkdtemp(prefix=_PREFIX, dir=directory))
        # Another process may remove the draft until it is locked.
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(draft, os.O_RDONLY)
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            if draft.exists():
                draft.chmod(0o755)  # mkdtemp's 0700 would hide the final folder from other users
                return draft, lock
            os.close(lock)


def _remove_abandoned(draft: pathlib.Path) -> None:
    try:
        lock = os.open(draft, os.O_RDONLY)
    except OSError:  # removed meanwhile, or another user's
        return
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(draft, ignore_errors=True)
    os.close(lock)
