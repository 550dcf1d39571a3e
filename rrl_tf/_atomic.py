"""Write files and folders that appear only when they are complete, even after a kill."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

# Folders with this prefix are removed unless they are locked.
_PREFIX = ".rrl_tf-draft-"


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Yield a temporary path that replaces `path` if the block ends without an error.

    The temporary path has the same suffix as `path`.

    Example:
        >>> with atomic_file("numbers.csv") as draft:
        ...     _ = draft.write_text("step,loss")
        >>> pathlib.Path("numbers.csv").read_text()
        'step,loss'
    """
    path = pathlib.Path(path)
    draft = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@contextlib.contextmanager
def draft_folder(directory: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a new hidden folder in `directory`, the draft, for the caller to fill and rename.

    If the caller has not renamed the draft, it is removed when the `with` block ends. Drafts that
    killed processes left behind are removed first. A process locks its draft as long as it runs, so
    the drafts of running processes remain. On a file system without locks, all drafts remain.

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


def replace_folder(new: pathlib.Path, old: pathlib.Path) -> None:
    """Move the folder `new` to the name of the folder `old`, and remove `old`.

    Linux exchanges the names of two folders in one step. Some systems and file systems do not
    support this. If the process is killed there between two steps, the folder is missing until
    `restore_folder` restores it.
    """
    backup = new
    try:
        _exchange(new, old)
    except (AttributeError, OSError):
        backup = _backup_of(old)
        _remove(backup)
        old.rename(backup)
        new.rename(old)
    _remove(backup)


def restore_folder(path: pathlib.Path) -> None:
    """Restore the folder `path` if a process was killed while it replaced it."""
    if not path.exists() and _backup_of(path).exists():
        _backup_of(path).rename(path)


def _remove(path):
    """Remove a folder, or a link to one."""
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def _backup_of(path):
    return path.with_name(f".{path.name}.replaced")


def _exchange(first, second):
    """Exchange the names of two folders; raise OSError or AttributeError if it is impossible."""
    libc, at_cwd, exchange = ctypes.CDLL(None, use_errno=True), -100, 2
    if libc.renameat2(at_cwd, os.fsencode(first), at_cwd, os.fsencode(second), exchange):
        raise OSError(ctypes.get_errno(), "the folders cannot be exchanged")


def _make_draft(directory: pathlib.Path) -> tuple[pathlib.Path, int]:
    while True:
        draft = pathlib.Path(tempfile.mkdtemp(prefix=_PREFIX, dir=directory))
        # Before the draft is locked, another process may remove it. Then make another one.
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
    except OSError:  # another process has removed it, or it belongs to another user
        return
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(draft, ignore_errors=True)
    os.close(lock)
