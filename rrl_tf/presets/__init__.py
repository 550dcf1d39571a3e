"""Trained presets: models of this package with their weights, one folder a preset.

The layout is KerasHub's: `config.json`, `model.weights.h5`, `metadata.json`, and a model card
`README.md`; beside them `preprocessor.json`, what an observation is, `evaluation.json`, how well it
plays, and `policy/`, the model as a SavedModel that takes raw observations. `metadata.json` holds
the SHA-256 of every other file, so that a damaged one is named and not loaded.

A preset is named by its folder, too, or is on the Hugging Face Hub: `hf://owner/name`, which
`pip install '.[hub]'` makes understood. Of such a repository only the preset's files are
downloaded, to the Hub's own cache, and they are checked as any; what a download of the whole
repository has put beside them does not count. The check says that they are whole
and not whose they are; `hf://owner/name@COMMIT` is the same files for ever. `hf upload owner/name
presets/mine` puts there what `save_to_preset` wrote.

Nothing here loads a framework: `rrl_tf.models` makes models of these folders.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pathlib
from typing import Any

from rrl_tf._arguments import path_of
from rrl_tf.errors import InvalidInput
from rrl_tf.presets._hub import is_on_hub, name_on_hub, snapshot

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
    """The folder of a trained preset, after all its files are checked.

    Args:
        name: of one of the package, its folder, or `hf://owner/name`, which is downloaded.

    Raises:
        InvalidInput: if there is none, a file is damaged, missing or too many, or a folder in it
            is a link.

    Example:

    >>> preset_folder("doorkey-5x5").name
    'doorkey-5x5'
    """
    folder = FOLDER / str(name) if str(name) in trained_presets() else path_of("preset", name)
    if is_on_hub(name):
        folder = _downloaded(str(name))
    if not (folder / METADATA).is_file():
        known = ", ".join(trained_presets()) or "none"
        raise InvalidInput(
            f"a trained preset is one of {known}, or a folder that save_to_preset wrote, on the "
            f"Hugging Face Hub as hf://owner/name; received {str(name)!r}"
        )
    expected, held = read_metadata(folder)["sha256"], checksums(folder)
    if is_on_hub(name):  # its cache holds whatever was downloaded; a policy's versions are loaded
        held = {
            file: digest
            for file, digest in held.items()
            if file in expected or file.startswith(f"{POLICY}/")
        }
    if expected != held:
        wrong = sorted(
            file for file in expected.keys() | held.keys() if expected.get(file) != held.get(file)
        )
        raise InvalidInput(
            f"the files of a trained preset must be those that were written; received "
            f"{str(folder)!r}, where these are damaged, missing or new: {', '.join(wrong)}"
        )
    return folder


def _downloaded(address):
    """The folder of a preset on the Hub: the files that its metadata name, and no others."""
    folder = snapshot(address, [METADATA])
    if not (folder / METADATA).is_file():
        return folder  # whatever is there, it is no preset
    return snapshot(address, [METADATA, *read_metadata(folder)["sha256"]])


def preset_name(name: str | os.PathLike) -> str:
    """What a trained preset is called without its place: the last part of its name.

    Example:

    >>> preset_name("doorkey-5x5"), preset_name("presets/mine"), preset_name("hf://owner/ours@v1")
    ('doorkey-5x5', 'mine', 'ours')
    """
    if is_on_hub(name):
        return name_on_hub(str(name))
    return os.path.basename(os.path.abspath(path_of("preset", name)))


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
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise InvalidInput(
            f"a preset's {METADATA} must be as save_to_preset writes it; received {str(file)!r} "
            f"({type(error).__name__}: {error})"
        ) from error
    return metadata


def checksums(folder: pathlib.Path) -> dict[str, str]:
    """SHA-256 of every file of a folder but its metadata, by its path.

    What is hidden at its top is of Git or of a cache, and not of the preset.

    Raises:
        InvalidInput: if a folder in it is a link, whose files would be loaded unchecked.
    """
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    paths = {name: path for name, path in paths.items() if not name.startswith(".")}
    for name, path in paths.items():
        if path.is_symlink() and path.is_dir():
            raise InvalidInput(
                f"the folders of a preset must not be links; received {str(folder)!r}, where "
                f"{name} is one"
            )
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in paths.items()
        if name != METADATA and path.is_file()
    }
