"""The version folders of a model, by their numbers."""

from __future__ import annotations

import os
from pathlib import Path

from rrl_tf.errors import InvalidInput

#: The largest number that TensorFlow Serving can read.
LARGEST_VERSION = 2**63 - 1


def next_version(directory: str | os.PathLike) -> int:
    """Returns one more than the highest version folder of `directory`, 1 where there is none.

    Raises:
        InvalidInput: If that would be more than a server can read.

    Example:

    >>> Path("runs/mine/export/7").mkdir(parents=True)
    >>> next_version("runs/mine/export")
    8
    """
    highest = max(_versions(directory), default=0)
    if highest == LARGEST_VERSION:
        raise InvalidInput(
            f"the versions in {str(directory)!r} must be below {LARGEST_VERSION} for another to "
            f"follow; received {highest}"
        )
    return highest + 1


def newest_version(directory: str | os.PathLike) -> Path:
    """Returns the version folder of `directory` with the highest number.

    Raises:
        InvalidInput: If there is none.

    Example:

    >>> for version in ("9", "10"):
    ...     Path("runs/newest/export", version).mkdir(parents=True)
    >>> newest_version("runs/newest/export")
    PosixPath('runs/newest/export/10')
    """
    versions = _version_folders(directory)
    if not versions:
        export = Path(directory) / "export"
        hint = f", whose versions are in {str(export)!r}" if _version_folders(export) else ""
        raise InvalidInput(
            f"expected a folder of exported versions; received {str(directory)!r}{hint}"
        )
    return versions[max(versions)]


def _version_folders(directory):
    return {number: entry for number, entry in _versions(directory).items() if entry.is_dir()}


def _versions(directory):
    """Number → what has it for a name; a file of such a name is in a new version's way, too."""
    entries = Path(directory).iterdir() if Path(directory).is_dir() else ()
    numbered = {int(e.name): e for e in entries if e.name.isascii() and e.name.isdigit()}
    return {number: entry for number, entry in numbered.items() if number <= LARGEST_VERSION}


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
