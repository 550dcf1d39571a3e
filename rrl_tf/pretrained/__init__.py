"""Find the folders of pretrained models, in the package or on the Hugging Face Hub.

Each pretrained model has a folder with the files of KerasHub, `config.json`, `model.weights.h5`,
`metadata.json` and the model card `README.md`. The folder also has `evaluation.json` (results) and
`policy/` (a SavedModel that takes raw observations). `metadata.json` contains the SHA-256 of every
other file. The functions check them and raise an error for a damaged file.

A pretrained model is identified by its name in the package, by the path of its folder, or by an
address on the Hugging Face Hub, `hf://owner/name` or `hf://owner/name@COMMIT`, which needs
`pip install '.[hub]'`. Only the files that `metadata.json` lists are downloaded, to the cache of
the Hub, and checked. The check detects damage; it does not prove the origin.
`hf upload owner/name presets/mine` uploads a folder that `save_to_preset` wrote.

This package imports no deep-learning framework. `rrl_tf.models` creates models from the folders.
"""

from __future__ import annotations

import functools
import glob
import hashlib
import json
import os
import pathlib
import re
from collections.abc import Iterable
from typing import Any

from rrl_tf._arguments import path_of
from rrl_tf.errors import InvalidInput

FOLDER = pathlib.Path(__file__).parent
"""Folder of the pretrained models in the package."""

METADATA = "metadata.json"
POLICY = "policy"
"""Name of the folder with the versions of the SavedModel."""

_ADDRESS = re.compile(r"hf://([\w.-]+/([\w.-]+))(?:@([\w./-]+))?")


def pretrained_models(class_name: str | None = None) -> dict[str, str]:
    """Return the pretrained models in the package as a dict name -> description.

    Args:
        class_name: class of the models to return. None means all classes.

    Example:

    >>> "doorkey-5x5" in pretrained_models("RelationalQNetwork")
    True
    """
    return {
        name: metadata["description"]
        for name, metadata in _packaged().items()
        if class_name in (None, metadata["class"])
    }


@functools.cache
def _packaged() -> dict[str, dict[str, Any]]:
    """Return the metadata of the pretrained models in the package."""
    folders = sorted(path.parent for path in FOLDER.glob(f"*/{METADATA}"))
    return {folder.name: read_metadata(folder) for folder in folders}


def pretrained_folder(name: str | os.PathLike) -> pathlib.Path:
    """Return the folder of a pretrained model after checking its files.

    Args:
        name: name of a pretrained model in the package, path of its folder, or `hf://owner/name`,
            which is downloaded.

    Raises:
        InvalidInput: if the model does not exist, if a file is damaged, missing or not listed in
            its metadata, or if a subfolder is a link.

    Example:

    >>> pretrained_folder("doorkey-5x5").name
    'doorkey-5x5'
    """
    if is_on_hub(name):
        folder = snapshot(str(name), [METADATA])
        if (folder / METADATA).is_file():
            folder = snapshot(str(name), [METADATA, *read_metadata(folder)["sha256"]])
    elif str(name) in pretrained_models():
        folder = FOLDER / str(name)
    else:
        folder = path_of("preset", name)
    if not (folder / METADATA).is_file():
        known = ", ".join(pretrained_models()) or "none"
        raise InvalidInput(
            f"`preset` must be one of {known}, a folder that save_to_preset wrote, or "
            f"hf://owner/name on the Hugging Face Hub; received {str(name)!r}"
        )
    expected, held = read_metadata(folder)["sha256"], checksums(folder)
    if is_on_hub(name):  # ignore other files in the cache, except additional policy versions
        held = {
            file: digest
            for file, digest in held.items()
            if file in expected or file.startswith(f"{POLICY}/")
        }
    if expected != held:
        wrong = sorted({file for file, _ in expected.items() ^ held.items()})
        raise InvalidInput(
            f"the files of a pretrained model must match {METADATA}; received {str(folder)!r}, "
            f"where these are damaged, missing or not listed: {', '.join(wrong)}"
        )
    return folder


def pretrained_name(name: str | os.PathLike) -> str:
    """Return the last part of a pretrained model's name, path or address.

    Example:

    >>> names = ("doorkey-5x5", "presets/mine", "hf://owner/ours@v1")
    >>> [pretrained_name(name) for name in names]
    ['doorkey-5x5', 'mine', 'ours']
    """
    if is_on_hub(name):
        return _address_parts(str(name))[1]
    return os.path.basename(os.path.abspath(path_of("preset", name)))


def read_metadata(folder: str | os.PathLike) -> dict[str, Any]:
    """Return the contents of a pretrained model's `metadata.json`.

    Raises:
        InvalidInput: if the file is missing or does not have the expected entries.
    """
    file = pathlib.Path(folder) / METADATA
    try:
        metadata = json.loads(file.read_text())
        if not (isinstance(metadata["class"], str) and isinstance(metadata["sha256"], dict)):
            raise TypeError("class must be a string and sha256 a dict")
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise InvalidInput(
            f"{METADATA} of a pretrained model must be a file that save_to_preset wrote; received "
            f"{str(file)!r} ({type(error).__name__}: {error})"
        ) from error
    return metadata


def checksums(folder: pathlib.Path) -> dict[str, str]:
    """Return a dict path -> SHA-256 for the files of a pretrained model except `metadata.json`.

    Hidden files and folders at the top level are ignored, because they belong to Git or a cache.

    Raises:
        InvalidInput: if a subfolder is a link, because its files would not be checked.
    """
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    paths = {name: path for name, path in paths.items() if not name.startswith(".")}
    for name, path in paths.items():
        if path.is_symlink() and path.is_dir():
            raise InvalidInput(
                f"the folders of a pretrained model must not be links; received {str(folder)!r}, "
                f"where {name} is one"
            )
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in paths.items()
        if name != METADATA and path.is_file()
    }


def is_on_hub(name: str | os.PathLike) -> bool:
    """Return whether a name is an address on the Hugging Face Hub.

    Example:

    >>> is_on_hub("hf://owner/name"), is_on_hub("presets/mine")
    (True, False)
    """
    return str(name).startswith("hf://")


def snapshot(address: str, files: Iterable[str]) -> pathlib.Path:
    """Download files of a repository on the Hub and return the folder that contains them.

    Files that do not exist in the repository are left out. Files in the local cache of the Hub are
    not downloaded again and are available without a network.

    Args:
        address: `hf://owner/name`, optionally with `@` and a branch, tag or commit.
        files: paths of the files.

    Raises:
        InvalidInput: for a malformed address, if `huggingface_hub` is not installed, or if the
            repository does not exist or cannot be reached.
    """
    repository, _, revision = _address_parts(address)
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise InvalidInput(
            "a model on the Hugging Face Hub needs huggingface_hub: pip install '.[hub]'; "
            f"received {address!r}"
        ) from error
    patterns = [glob.escape(file) for file in files]
    try:
        folder = snapshot_download(repository, revision=revision, allow_patterns=patterns)
    except Exception as error:  # an error of huggingface_hub or of its HTTP library
        first = (str(error).strip().splitlines() or [""])[0]
        raise InvalidInput(
            "a model on the Hugging Face Hub must exist and be reachable or cached; received "
            f"{address!r} ({type(error).__name__}: {first})"
        ) from error
    return pathlib.Path(folder)


def _address_parts(address: str) -> tuple[str, str, str | None]:
    """Return the repository, its name without the owner, and the revision or None."""
    found = _ADDRESS.fullmatch(address)
    if not found:
        raise InvalidInput(
            "an address on the Hugging Face Hub must be hf://owner/name or "
            f"hf://owner/name@revision; received {address!r}"
        )
    return found[1], found[2], found[3]
