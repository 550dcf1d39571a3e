"""Write the playground as static files for any web server; the browser computes the networks.

The page is the same as that of `serving.server`. The difference is in `config.json`, which names a
file of weights for each model, so that the page needs no server to compute the network.
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
from rrl_tf._atomic import draft_folder
from rrl_tf.errors import InvalidInput
from rrl_tf.pretrained import POLICY, pretrained_folder, pretrained_name
from serving.playground.networks import check_network, network_description

__all__ = ["page_files", "write_page"]

_FOLDER = pathlib.Path(__file__).parent / "static"


def write_page(
    folder: str | os.PathLike[str], presets: Sequence[str | os.PathLike[str]]
) -> pathlib.Path:
    """Write the playground with pretrained models into a folder, for any web server.

    Args:
        folder: The folder to write, which must not exist.
        presets: Names or folders of pretrained models: Q networks for DoorKey without a memory or
            with an LSTM, Decision Transformers for DoorKey, and classifiers of digits. Each of the
            two pages (DoorKey and digits) opens with the first model that it can show.

    Returns:
        The path of the folder.

    Raises:
        InvalidInput: If the folder exists, or for the reasons that `page_files` lists. In these
            cases nothing is written.

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
    """Return file name -> content of the files that `write_page` writes.

    Args:
        presets: Names or folders of pretrained models, as for `write_page`.
        about: URL of an "About this page" link in the header; "" for no link.

    Raises:
        InvalidInput: If a model does not exist, if two models have the same name, if weights are
            not finite, or if the browser cannot compute a network.

    Example:

    >>> sorted(page_files(["doorkey-5x5"]))[0]
    'changes.js'
    """
    if isinstance(presets, str) or not isinstance(presets, Sequence) or not presets:
        raise InvalidInput(
            f"`presets` must be a list of at least one pretrained model; received {presets!r}."
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
    """Return (entry in `config.json`, content of the weights file) of a pretrained model."""
    # Imported here, because these modules load TensorFlow.
    from rrl_tf.export import load_policy, newest_version
    from rrl_tf.models.base import read_pretrained

    network = read_pretrained(preset)
    check_network(network, name)
    # Names such as `relations/block/dense_1/kernel` are the same with a memory and without.
    weights = {
        weight.path.partition("/")[2].removeprefix("encoder/"): weight.numpy()
        for weight in network.weights
    }
    if other := [key for key, array in weights.items() if not np.isfinite(array).all()]:
        raise InvalidInput(
            f"weights must be finite; received {name!r}, in which {other} are not finite."
        )
    version = newest_version(pretrained_folder(preset) / POLICY)
    policy = load_policy(version)
    model = {
        "name": name,
        "version": int(version.name),
        "policy": policy.details,
        "network": network_description(network, policy),
    }
    return model, save(weights)
