"""The playground as files for any web server: networks run in the page itself.

Its page is the one that a server answers. Which of the two it asks, `config.json` tells: here it
names a file of weights beside every model.
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
from rrl_tf.presets import POLICY, preset_folder, preset_name
from serving.playground.networks import check_computed, described

__all__ = ["page_files", "write_page"]

_FOLDER = pathlib.Path(__file__).parent / "static"


def write_page(
    folder: str | os.PathLike[str], presets: Sequence[str | os.PathLike[str]]
) -> pathlib.Path:
    """Writes the playground with trained networks, to be put on any web server.

    Args:
        folder: Must not be there yet.
        presets: Names or folders of trained presets: of DoorKey, Q networks without a memory or
            with an LSTM and Decision Transformers; and classifiers of digits. Each page begins with
            the first that it shows.

    Returns:
        The folder.

    Raises:
        InvalidInput: As `page_files`, or if the folder is there or cannot be; nothing is written.

    Example:

    >>> write_page("page", ["doorkey-5x5"])  # doctest: +SKIP
    PosixPath('page')
    """
    folder = path_of("folder", folder)
    if os.path.lexists(folder):
        raise InvalidInput(f"the folder of a page must be new; received {str(folder)!r}")
    files = page_files(presets)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with draft_folder(folder.parent) as draft:
        for name, content in files.items():
            (draft / name).write_bytes(content)
        return draft.rename(folder)


def page_files(presets: Sequence[str | os.PathLike[str]], about: str = "") -> dict[str, bytes]:
    """The files of `write_page` by their names.

    Args:
        presets: As of `write_page`.
        about: Where a link in the page's head leads; "" is no link.

    Raises:
        InvalidInput: If there is no preset or no such one, two have one name, weights are not
            finite, or the page does not compute networks like theirs.

    Example:

    >>> sorted(page_files(["doorkey-5x5"]))[0]
    'classifier.js'
    """
    if isinstance(presets, str) or not isinstance(presets, Sequence) or not presets:
        raise InvalidInput(f"a page needs a list of at least one preset; received {presets!r}")
    names = [preset_name(preset) for preset in presets]
    if len({*names}) < len(names):
        raise InvalidInput(f"names of a page's presets must differ; received {names}")
    files = {path.name: path.read_bytes() for path in sorted(_FOLDER.iterdir())}
    models = []
    for preset in presets:
        model, weights = _model(preset)
        models.append(model)
        files[model["network"]["weights"]] = weights
    files["config.json"] = json.dumps({"models": models}).encode()
    if about:
        link = f'  <a href="{about}">What is this?</a>\n    </header>'
        for page in ("index.html", "digits.html"):
            files[page] = files[page].replace(b"</header>", link.encode())
    return files


def _model(preset):
    """What `config.json` says of a preset, and the file of its weights."""
    from rrl_tf.export import load_policy, newest_version  # TensorFlow is loaded by who needs it
    from rrl_tf.models.trained import read_preset

    network, folder, name = read_preset(preset), preset_folder(preset), preset_name(preset)
    check_computed(network, name)
    weights = _weights(network, name)
    version = newest_version(folder / POLICY)
    known = described(network, load_policy(version), name)
    model = {
        "name": name,
        "version": int(version.name),
        "policy": json.loads((version / "assets.extra" / "policy.json").read_text("utf-8")),
        "network": {"weights": f"{name}.safetensors", **_told(weights), **known},
    }
    return model, weights


def _told(file):
    """By what the page knows a file to be whole."""
    return {"bytes": len(file), "crc32": zlib.crc32(file)}


def _weights(network, name):
    """The file of a network's weights, which must be numbers."""
    arrays = {_name(weight): weight.numpy() for weight in network.weights}
    if other := [each for each, array in arrays.items() if not np.isfinite(array).all()]:
        raise InvalidInput(f"weights must be finite; received {name!r}, where {other} are not")
    return save(arrays)


def _name(weight):
    """`relations/block/dense_1/kernel`, with a memory or without."""
    return weight.path.partition("/")[2].removeprefix("encoder/")
