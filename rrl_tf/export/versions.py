"""The version folders of a model, named by their numbers."""

from __future__ import annotations

import os
from pathlib import Path

from rrl_tf.errors import InvalidInput


def next_version(directory: str | os.PathLike) -> int:
    """Return one more than the highest version in `directory`, or 1 if there is none.

    Example:

    >>> Path("runs/mine/export/7").mkdir(parents=True)
    >>> next_version("runs/mine/export")
    8
    """
    return max(_versions(directory), default=0) + 1


def newest_version(directory: str | os.PathLike) -> Path:
    """Return the version folder of `directory` with the highest number.

    Raises:
        InvalidInput: If there is none.

    Example:

    >>> for version in ("9", "10"):
    ...     Path("runs/newest/export", version).mkdir(parents=True)
    >>> newest_version("runs/newest/export")
    PosixPath('runs/newest/export/10')
    """
    folders = {number: path for number, path in _versions(directory).items() if path.is_dir()}
    if not folders:
        export = Path(directory) / "export"
        hint = f" Use {str(export)!r}." if _versions(export) else ""
        raise InvalidInput(
            f"`directory` must hold version folders; received {str(directory)!r}.{hint}"
        )
    return folders[max(folders)]


def _versions(directory):
    """Return number -> path of folders and files: a file also occupies the name of a version."""
    paths = Path(directory).iterdir() if Path(directory).is_dir() else ()
    return {int(p.name): p for p in paths if p.name.isascii() and p.name.isdigit()}


def move_into_place(draft: Path, directory: Path, version: int | None) -> Path:
    """Rename a finished draft to its version, by default to the next free number."""
    while True:
        target = directory / str(version or next_version(directory))
        try:
            return draft.rename(target)
        except OSError:
            if version is not None or not target.exists():
                raise
