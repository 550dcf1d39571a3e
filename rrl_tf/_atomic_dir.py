"""Folders that become something whole or nothing, whatever kills the process that writes them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

# Nobody names folders of theirs so: whatever is called so and not locked is removed.
_PREFIX = ".rrl_tf-draft-"


@contextlib.contextmanager
def draft_folder(directory: pathlib.Path) -> Iterator[pathlib.Path]:
    """A hidden folder of `directory` to write in, gone in the end unless it was renamed.

    Drafts that killed processes left behind are removed first. A draft is locked as long as its
    process lives, whatever kills it; so those of a living one stay, and where the file system has
    no locks, all do.

    Args:
        directory: where what is written is to be renamed to.
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
        # Until it is locked, another process may take it for an abandoned one.
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(draft, os.O_RDONLY)
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            if draft.exists():
                draft.chmod(0o755)  # mkdtemp's 0700 would hide what it becomes from others
                return draft, lock
            os.close(lock)


def _remove_abandoned(draft: pathlib.Path) -> None:
    try:
        lock = os.open(draft, os.O_RDONLY)
    except OSError:  # gone meanwhile, or another user's
        return
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(draft, ignore_errors=True)
    os.close(lock)
