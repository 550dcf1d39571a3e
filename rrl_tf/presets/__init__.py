"""Trained models with their weights, one folder each, and their loader.

The layout is KerasHub's: `config.json`, `model.weights.h5`, `metadata.json`, and a model card
`README.md`. The folder also has `preprocessor.json` (description of an observation),
`evaluation.json` (results) and `policy/` (a SavedModel that takes raw observations).
`metadata.json` contains the SHA-256 of every other file, and a damaged file is an error.

A trained model has a name in the package, a path, or an address on the Hugging Face Hub,
`hf://owner/name` or, pinned, `hf://owner/name@COMMIT`, which needs `pip install '.[hub]'`. Only the
files in `metadata.json` are downloaded, to the Hub's cache, and checked. The check detects damage;
it does not prove the origin. `hf upload owner/name presets/mine` uploads a folder that
`save_to_preset` wrote.

This package loads no framework: `rrl_tf.models` makes models from these folders.
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
"""Folder of the trained models in the package."""

METADATA = "metadata.json"
POLICY = "policy"
"""Folder of the SavedModel's versions."""


def trained_presets(class_name: str | None = None) -> dict[str, str]:
    """Return the trained models in the package, name -> description in one sentence.

    Args:
        class_name: class of the models; by default all.

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
    """Return the metadata of the trained models in the package."""
    folders = sorted(path.parent for path in FOLDER.glob(f"*/{METADATA}"))
    return {folder.name: read_metadata(folder) for folder in folders}


def preset_folder(name: str | os.PathLike) -> pathlib.Path:
    """Return the folder of a trained model after checking its files.

    Args:
        name: name of a trained model in the package, path of its folder, or `hf://owner/name`,
            which is downloaded.

    Raises:
        InvalidInput: if it does not exist, a file is damaged, missing or new, or a subfolder is a
            link.

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
            f"a trained preset must be one of {known}, a folder that save_to_preset wrote, or "
            f"hf://owner/name on the Hugging Face Hub; received {str(name)!r}"
        )
    expected, held = read_metadata(folder)["sha256"], checksums(folder)
    if is_on_hub(name):  # the cache may contain other files, which must not be new policy versions
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
            f"the files of a trained preset must match {METADATA}; received {str(folder)!r}, where "
            f"these are damaged, missing or new: {', '.join(wrong)}"
        )
    return folder


def _downloaded(address):
    """Return a folder with the files in the metadata of a trained model on the Hub."""
    folder = snapshot(address, [METADATA])
    if not (folder / METADATA).is_file():
        return folder  # not a trained model
    return snapshot(address, [METADATA, *read_metadata(folder)["sha256"]])


def preset_name(name: str | os.PathLike) -> str:
    """Return the last part of a trained model's name, path or address.

    Example:

    >>> preset_name("doorkey-5x5"), preset_name("presets/mine"), preset_name("hf://owner/ours@v1")
    ('doorkey-5x5', 'mine', 'ours')
    """
    if is_on_hub(name):
        return name_on_hub(str(name))
    return os.path.basename(os.path.abspath(path_of("preset", name)))


def read_metadata(folder: str | os.PathLike) -> dict[str, Any]:
    """Return the contents of a trained model's `metadata.json`.

    Raises:
        InvalidInput: if the file is missing or has other contents.
    """
    file = pathlib.Path(folder) / METADATA
    try:
        metadata = json.loads(file.read_text())
        if not (isinstance(metadata["class"], str) and isinstance(metadata["sha256"], dict)):
            raise TypeError("class must be a string and sha256 a dict")
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise InvalidInput(
            f"a preset's {METADATA} must be as save_to_preset writes it; received {str(file)!r} "
            f"({type(error).__name__}: {error})"
        ) from error
    return metadata


def checksums(folder: pathlib.Path) -> dict[str, str]:
    """Return path -> SHA-256 of the files of a trained model, except its metadata.

    Hidden files and folders at the top belong to Git or a cache and are ignored.

    Raises:
        InvalidInput: if a subfolder is a link, whose files would be loaded unchecked.
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
