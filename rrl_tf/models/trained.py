"""Models as trained presets: their configuration and weights in a folder, and back."""

from __future__ import annotations

import io
import json
import os
import pathlib
import reprlib
import zipfile
from collections.abc import Mapping
from typing import Any

import h5py
import keras

import rrl_tf
from rrl_tf._atomic_dir import draft_folder
from rrl_tf.errors import InvalidInput
from rrl_tf.presets import (
    METADATA,
    checksums,
    is_on_hub,
    preset_folder,
    read_metadata,
    trained_presets,
)

_CONFIG, _WEIGHTS = "config.json", "model.weights.h5"
# What JSON and Keras raise for a description of something else, or of endless depth.
_UNREADABLE = (ValueError, TypeError, LookupError, OSError, AttributeError, RecursionError)


def write_preset(
    model: keras.Model,
    folder: str | os.PathLike,
    description: str = "",
    beside: Mapping[str, Any] | None = None,
) -> pathlib.Path:
    """Writes a built model as a preset, whole or not at all.

    Args:
        model: a model of this package.
        folder: must not be there yet.
        description: what it is, in one sentence.
        beside: more files, relative path → text or bytes.

    Returns:
        The folder.

    Raises:
        InvalidInput: if the model has no weights, or the folder is there or has a known preset's
            name.
        OSError: if the disk is full; nothing is left.
    """
    if is_on_hub(folder):
        raise InvalidInput(
            "a preset is written to a folder of this machine, which `hf upload owner/name FOLDER` "
            f"puts on the Hub; received {folder!r}"
        )
    folder = pathlib.Path(folder)
    if not model.built:
        raise InvalidInput(f"a preset needs a built model; received {model.name} without weights")
    if str(folder) in (known := {**getattr(model, "presets", {}), **trained_presets()}):
        raise InvalidInput(
            f"the folder of a preset must not be called as a known one, {', '.join(known)}, which "
            f"from_preset would give in its place; received {str(folder)!r}"
        )
    if folder.exists():
        raise InvalidInput(f"the folder of a preset must be new; received {str(folder)!r}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with draft_folder(folder.parent) as draft:
        config = keras.saving.serialize_keras_object(model)
        (draft / _CONFIG).write_text(json.dumps(config, indent=2) + "\n")
        _write_weights(model, draft)
        for name, content in (beside or {}).items():
            file = draft / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
        metadata = {
            "class": type(model).__name__,
            "description": description,
            "parameters": model.count_params(),
            "rrl_tf_version": rrl_tf.__version__,
            "keras_version": keras.__version__,
            "sha256": checksums(draft),
        }
        (draft / METADATA).write_text(json.dumps(metadata, indent=2) + "\n")
        draft.chmod(0o755)
        draft.rename(folder)
    return folder


def _write_weights(model, folder):
    """As `model.save_weights`, whose HDF5 ends the process where the disk is full.

    Keras makes the weights of an archive in memory, and Python writes them.
    """
    archive = folder / "model.keras"
    model.save(archive)
    with zipfile.ZipFile(archive) as file:
        weights = file.read(_WEIGHTS)
    archive.unlink()
    (folder / _WEIGHTS).write_bytes(_compressed(weights))


def _compressed(weights: bytes) -> bytes:
    """The same HDF5 file, a fifth smaller."""
    compressed = io.BytesIO()
    with (
        h5py.File(io.BytesIO(weights)) as file,
        h5py.File(compressed, "w", libver="latest") as smaller,
    ):

        def copy(name, item):
            if isinstance(item, h5py.Dataset):
                # Chunks have a cost of their own, which a bias does not make good for.
                options = {"compression": "gzip", "shuffle": True} if item.size > 256 else {}
                made = smaller.create_dataset(name, data=item[()], **options)
            else:
                made = smaller.require_group(name)
            made.attrs.update(item.attrs)

        copy("/", file)
        file.visititems(copy)
    return compressed.getvalue()


def read_preset(name: str | os.PathLike, load_weights: bool = True) -> keras.Model:
    """The model of a trained preset.

    Args:
        name: of the preset, as `preset_folder` takes it.
        load_weights: whether it gets the trained weights, or new ones.

    Raises:
        InvalidInput: as `preset_folder`, or if this version of the package knows no such model.
    """
    folder = preset_folder(name)
    try:
        model = keras.saving.deserialize_keras_object(json.loads((folder / _CONFIG).read_text()))
        if not isinstance(model, keras.Model):
            raise TypeError(f"{_CONFIG} describes {reprlib.repr(model)}, no model")
        if load_weights:
            model.load_weights(folder / _WEIGHTS)
    except _UNREADABLE as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        written = read_metadata(folder).get("rrl_tf_version")
        raise InvalidInput(
            f"{str(folder / _CONFIG)!r} was written by rrl_tf {written} and must be a model that "
            f"{rrl_tf.__version__} knows, with weights in {_WEIGHTS}; received one it does not "
            f"({first})"
        ) from error
    return model
