"""Downloads from the Hugging Face Hub, `hf://owner/name` or `hf://owner/name@revision`."""

from __future__ import annotations

import glob
import os
import pathlib
import re
from collections.abc import Iterable

from rrl_tf.errors import InvalidInput

_ADDRESS = re.compile(r"hf://([\w.-]+/([\w.-]+))(?:@([\w./-]+))?")


def is_on_hub(name: str | os.PathLike) -> bool:
    """Return whether a name is an address on the Hub.

    Example:

    >>> is_on_hub("hf://owner/name"), is_on_hub("presets/mine")
    (True, False)
    """
    return str(name).startswith("hf://")


def name_on_hub(address: str) -> str:
    """Return the last part of an address, without its revision.

    Example:

    >>> name_on_hub("hf://owner/name@v1")
    'name'
    """
    return _parts(address)[1]


def snapshot(address: str, files: Iterable[str]) -> pathlib.Path:
    """Return a folder with some files of a repository, as far as they exist.

    Files in the Hub's local cache are not downloaded, so these are available without a network.

    Args:
        address: `hf://owner/name`, optionally with `@` and a branch, tag or commit.
        files: paths of the files.

    Raises:
        InvalidInput: for a malformed address, if `huggingface_hub` is not installed, or if the
            repository does not exist or cannot be reached.
    """
    repository, _, revision = _parts(address)
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise InvalidInput(
            "a preset on the Hugging Face Hub needs huggingface_hub: pip install '.[hub]'; "
            f"received {address!r}"
        ) from error
    patterns = [glob.escape(file) for file in files]
    try:
        return pathlib.Path(
            snapshot_download(repository, revision=revision, allow_patterns=patterns)
        )
    except Exception as error:  # of huggingface_hub or of its HTTP library
        first = (str(error).strip().splitlines() or [""])[0]
        raise InvalidInput(
            "a preset on the Hugging Face Hub must exist and be reachable or cached; received "
            f"{address!r} ({type(error).__name__}: {first})"
        ) from error


def _parts(address):
    """Return the repository, its name without the owner, and the revision or `None`."""
    found = _ADDRESS.fullmatch(address)
    if not found:
        raise InvalidInput(
            "an address on the Hugging Face Hub must be hf://owner/name or "
            "hf://owner/name@revision; "
            f"received {address!r}"
        )
    return found.groups()
