"""Trained presets: models of this package with their weights, one folder a preset.

The layout is KerasHub's: `config.json`, `model.weights.h5`, `metadata.json`, and a model card
`README.md`; beside them `preprocessor.json`, what an observation is, `evaluation.json`, how well it
plays, and `policy/`, the model as a SavedModel that takes raw observations. `metadata.json` holds
the SHA-256 of every other file, so that a damaged one is named and not loaded.

Nothing here loads a framework: `rrl_tf.models` makes models of these folders.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pathlib
from typing import Any

from rrl_tf.errors import InvalidInput

FOLDER = pathlib.Path(__file__).parent
"""Of the trained presets that are part of the package."""

METADATA = "metadata.json"
POLICY = "policy"
"""Where its SavedModel lies, in a folder of versions."""


def trained_presets(class_name: str | None = None) -> dict[str, str]:
    """The trained presets of the package: name → what it is, in one sentence.

    Args:
        class_name: only those of models of this class.

    Example:

    >>> "doorkey-5x5" in trained_presets("RelationalQNetwork")
    True
    """
    return {
        name: metadata["description"]
        for name, metadata in _packaged().items()
        if class_name in (None, metadata["class"])
    }


@functools.cache
def _packaged() -> dict[str, dict[str, Any]]:
    """What is said of the package's own, read once: every class of models asks."""
    folders = sorted(path.parent for path in FOLDER.glob(f"*/{METADATA}"))
    return {folder.name: read_metadata(folder) for folder in folders}


def preset_folder(name: str | os.PathLike) -> pathlib.Path:
    """The folder of a trained preset, by its name or its path, after all its files are checked.

    Raises:
        InvalidInput: if there is none, or a file is damaged, missing or too many.

    Example:

    >>> preset_folder("doorkey-5x5").name
    'doorkey-5x5'
    """
    named = FOLDER / name
    folder = named if str(name) in trained_presets() else pathlib.Path(name)
    if not (folder / METADATA).is_file():
        known = ", ".join(trained_presets()) or "none"
        raise InvalidInput(
            f"a trained preset is one of {known}, or a folder that save_to_preset wrote; received "
            f"{str(name)!r}"
        )
    expected, held = read_metadata(folder)["sha256"], checksums(folder)
    if expected != held:
        wrong = sorted(
            file for file in expected.keys() | held.keys() if expected.get(file) != held.get(file)
        )
        raise InvalidInput(
            f"the files of a trained preset must be those that were written; received "
            f"{str(folder)!r}, where these are damaged, missing or new: {', '.join(wrong)}"
        )
    return folder


def read_metadata(folder: str | os.PathLike) -> dict[str, Any]:
    """What a preset's `metadata.json` says.

    Raises:
        InvalidInput: if it cannot be read.
    """
    file = pathlib.Path(folder) / METADATA
    try:
        metadata = json.loads(file.read_text())
        if not (isinstance(metadata["class"], str) and isinstance(metadata["sha256"], dict)):
            raise TypeError("class is no name, or sha256 no table")
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InvalidInput(
            f"a preset's {METADATA} must be as save_to_preset writes it; received {str(file)!r} "
            f"({type(error).__name__}: {error})"
        ) from error
    return metadata


def checksums(folder: pathlib.Path) -> dict[str, str]:
    """SHA-256 of every file of a folder but its metadata, by its path."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path != folder / METADATA
    }
