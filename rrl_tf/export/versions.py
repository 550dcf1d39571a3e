"""The version folders of a model, and the drafts that become one whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rrl_tf.errors import InvalidInput

_DRAFT = ".export-"


def next_version(directory: str | os.PathLike) -> int:
    """Returns one more than the highest version folder of `directory`, 1 where there is none."""
    return max(_versions(directory), default=0) + 1


def newest_version(directory: str | os.PathLike) -> Path:
    """Returns the version folder of `directory` with the highest number.

    Raises:
        InvalidInput: If there is none.

    Example:

    >>> newest_version("runs/doorkey/fast-seed0/export")  # doctest: +SKIP
    PosixPath('runs/doorkey/fast-seed0/export/1')
    """
    versions = _versions(directory)
    if not versions:
        raise InvalidInput(f"expected a folder of exported versions; received {str(directory)!r}")
    return versions[max(versions)]


def _versions(directory):
    entries = Path(directory).iterdir() if Path(directory).is_dir() else ()
    return {int(e.name): e for e in entries if e.name.isascii() and e.name.isdigit()}


@contextlib.contextmanager
def draft_folder(directory: Path) -> Iterator[Path]:
    """A hidden folder of `directory` to write a version in, gone in the end unless it was renamed.

    Drafts that killed processes left behind are removed first. A draft is locked as long as its
    process lives, whatever kills it; so those of a living one stay, and where the file system has
    no locks, all do.
    """
    for path in directory.glob(f"{_DRAFT}*"):
        _remove_abandoned(path)
    draft, lock = _make_draft(directory)
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        os.close(lock)


def _make_draft(directory):
    while True:
        draft = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=directory))
        # Until it is locked, another export may take it for an abandoned one.
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(draft, os.O_RDONLY)
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            if draft.exists():
                draft.chmod(0o755)  # mkdtemp's 0700 would hide the version from a server's user
                return draft, lock
            os.close(lock)


def _remove_abandoned(draft):
    try:
        lock = os.open(draft, os.O_RDONLY)
    except OSError:  # gone meanwhile, or another user's
        return
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(draft, ignore_errors=True)
    os.close(lock)


def move_into_place(draft: Path, directory: Path, version: int | None) -> Path:
    """Renames a finished draft; without a fixed version, past any that appeared meanwhile."""
    while True:
        target = directory / str(version or next_version(directory))
        try:
            return draft.rename(target)
        except OSError as error:
            if not target.exists():
                raise
            if version is not None:
                raise FileExistsError(f"version {version} is already in {directory}") from error
