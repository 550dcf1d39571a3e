"""Files of the Hugging Face Hub, `hf://owner/name` or, pinned, `hf://owner/name@revision`."""

from __future__ import annotations

import glob
import os
import pathlib
import re
from collections.abc import Iterable

from rrl_tf.errors import InvalidInput

_ADDRESS = re.compile(r"hf://([\w.-]+/([\w.-]+))(?:@([\w./-]+))?")


def is_on_hub(name: str | os.PathLike) -> bool:
    """Whether a preset's name is an address on the Hub.

    Example:

    >>> is_on_hub("hf://owner/name"), is_on_hub("presets/mine")
    (True, False)
    """
    return str(name).startswith("hf://")


def name_on_hub(address: str) -> str:
    """The last part of an address, without its revision.

    Example:

    >>> name_on_hub("hf://owner/name@v1")
    'name'
    """
    return _parts(address)[1]


def snapshot(address: str, files: Iterable[str]) -> pathlib.Path:
    """A folder with these files of a repository, those of them that it has.

    They come from the Hub's cache on this machine where they are in it; without a network that is
    all there is.

    Args:
        address: `hf://owner/name`, with `@` and a branch, tag or commit perhaps.
        files: their paths.

    Raises:
        InvalidInput: if the address is none, `huggingface_hub` is not installed, or it finds no
            such repository or no way to it.
    """
    repository, _, revision = _parts(address)
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise InvalidInput(
            "a preset of the Hugging Face Hub needs huggingface_hub: pip install '.[hub]'; "
            f"received {address!r}"
        ) from error
    patterns = [glob.escape(file) for file in files]
    try:
        return pathlib.Path(
            snapshot_download(repository, revision=revision, allow_patterns=patterns)
        )
    except Exception as error:  # its own, and whatever the HTTP library of its version raises
        first = (str(error).strip().splitlines() or [""])[0]
        raise InvalidInput(
            "a preset of the Hugging Face Hub must be there and be reached, or be in its cache; "
            f"received {address!r} ({type(error).__name__}: {first})"
        ) from error


def _parts(address):
    """Repository, its name without the owner, and revision or `None`."""
    found = _ADDRESS.fullmatch(address)
    if not found:
        raise InvalidInput(
            "an address on the Hugging Face Hub is hf://owner/name or hf://owner/name@revision; "
            f"received {address!r}"
        )
    return found.groups()
