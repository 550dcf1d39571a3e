"""The playground as files for any web server, with networks that run in the browser.

The page is the one that `serving.server` serves. Its `config.json` names a file of weights for each
model, so that the page computes the network itself.
"""

from __future__ import annotations

import json
import os
import pathlib
import zlib
from collections.abc import Sequence

import numpy as np
from safetensors.numpy import save

from rrl_tf._arguments import path_of
from rrl_tf._atomic_dir import draft_folder
from rrl_tf.errors import InvalidInput
from rrl_tf.pretrained import POLICY, pretrained_folder, pretrained_name
from serving.playground.networks import check_network, network_description

__all__ = ["page_files", "write_page"]

_FOLDER = pathlib.Path(__file__).parent / "static"


def write_page(
    folder: str | os.PathLike[str], presets: Sequence[str | os.PathLike[str]]
) -> pathlib.Path:
    """Write the playground with trained networks, for any web server.

    Args:
        folder: The folder to write, which must not exist.
        presets: Names or folders of trained presets: Q networks of DoorKey without a memory or with
            an LSTM, Decision Transformers of DoorKey, and classifiers of digits. Each of the two
            pages opens with the first preset that it can show.

    Returns:
        The folder.

    Raises:
        InvalidInput: As `page_files`, or if the folder exists; nothing is written.

    Example:

    >>> write_page("page", ["doorkey-5x5"])  # doctest: +SKIP
    PosixPath('page')
    """
    folder = path_of("folder", folder)
    if os.path.lexists(folder):
        raise InvalidInput(f"`folder` must not exist; received {str(folder)!r}.")
    files = page_files(presets)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with draft_folder(folder.parent) as draft:
        for name, content in files.items():
            (draft / name).write_bytes(content)
        return draft.rename(folder)


def page_files(presets: Sequence[str | os.PathLike[str]], about: str = "") -> dict[str, bytes]:
    """Return the files of `write_page` by their names.

    Args:
        presets: As for `write_page`.
        about: Target of a link in the head of the page; "" for no link.

    Raises:
        InvalidInput: If a preset does not exist, two have the same name, weights are not finite, or
            the browser does not compute such a network.

    Example:

    >>> sorted(page_files(["doorkey-5x5"]))[0]
    'classifier.js'
    """
    if isinstance(presets, str) or not isinstance(presets, Sequence) or not presets:
        raise InvalidInput(
            f"`presets` must be a list of at least one preset; received {presets!r}."
        )
    names = [pretrained_name(preset) for preset in presets]
    if len({*names}) < len(names):
        raise InvalidInput(f"`presets` must have different names; received {names}.")
    files = {path.name: path.read_bytes() for path in sorted(_FOLDER.iterdir())}
    models = []
    for name, preset in zip(names, presets):
        weights = f"{name}.safetensors"
        model, files[weights] = _model(name, preset)
        file = {
            "weights": weights,
            "bytes": len(files[weights]),
            "crc32": zlib.crc32(files[weights]),
        }
        models.append({**model, "network": {**file, **model["network"]}})
    files["config.json"] = json.dumps({"models": models}).encode()
    if about:
        link = f'  <a href="{about}">About this page</a>\n    </header>'
        for page in ("index.html", "digits.html"):
            files[page] = files[page].replace(b"</header>", link.encode())
    return files


def _model(name, preset):
    """Return the entry of a preset in `config.json`, and the content of its file of weights."""
    from rrl_tf.export import load_policy, newest_version  # here, because they load TensorFlow
    from rrl_tf.models.base import read_pretrained

    network = read_pretrained(preset)
    check_network(network, name)
    # `relations/block/dense_1/kernel`, with a memory or without
    weights = {
        weight.path.partition("/")[2].removeprefix("encoder/"): weight.numpy()
        for weight in network.weights
    }
    if other := [key for key, array in weights.items() if not np.isfinite(array).all()]:
        raise InvalidInput(f"weights must be finite; received {name!r}, where {other} are not.")
    version = newest_version(pretrained_folder(preset) / POLICY)
    policy = load_policy(version)
    model = {
        "name": name,
        "version": int(version.name),
        "policy": policy.details,
        "network": network_description(network, policy),
    }
    return model, save(weights)
