"""Trained models as folders: configuration, weights and a model card."""

from __future__ import annotations

import json
import os
import pathlib
import reprlib
import zipfile
from collections.abc import Mapping
from typing import Any

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
# Errors of JSON and Keras for another or a very deep configuration.
_UNREADABLE = (ValueError, TypeError, LookupError, OSError, AttributeError, RecursionError)


def write_preset(
    model: keras.Model,
    folder: str | os.PathLike,
    description: str = "",
    extra_files: Mapping[str, Any] | None = None,
) -> pathlib.Path:
    """Write a built model to a new folder, which appears when it is complete.

    Args:
        model: a model of this package.
        folder: path of a folder that does not exist.
        description: what the model does, in one sentence.
        extra_files: dict of more files, relative path -> text or bytes.

    Returns:
        The folder.

    Raises:
        InvalidInput: if the model is not built, or the folder exists or has a known preset's name.
        OSError: if the disk is full; nothing is left.
    """
    if is_on_hub(folder):
        raise InvalidInput(
            "a preset is written to a local folder, which `hf upload owner/name FOLDER` copies to "
            f"the Hub; received {folder!r}"
        )
    folder = pathlib.Path(folder)
    if not model.built:
        raise InvalidInput(f"a preset needs a built model; received {model.name} without weights")
    if str(folder) in (known := {**getattr(model, "presets", {}), **trained_presets()}):
        raise InvalidInput(
            f"the folder of a preset must not have the name of a known preset, {', '.join(known)}, "
            f"which from_preset would load instead; received {str(folder)!r}"
        )
    if folder.exists():
        raise InvalidInput(f"the folder of a preset must be new; received {str(folder)!r}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with draft_folder(folder.parent) as draft:
        config = keras.saving.serialize_keras_object(model)
        (draft / _CONFIG).write_text(json.dumps(config, indent=2) + "\n")
        _write_weights(model, draft)
        for name, content in (extra_files or {}).items():
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
    """Write the same file as `model.save_weights`, which crashes the process if the disk is full.

    For an archive, Keras makes the weights in memory and Python writes them.
    """
    archive = folder / "model.keras"
    model.save(archive)
    with zipfile.ZipFile(archive) as file:
        file.extract(_WEIGHTS, folder)
    archive.unlink()


def read_preset(name: str | os.PathLike, load_weights: bool = True) -> keras.Model:
    """Return a trained model.

    Args:
        name: name of the preset, as for `preset_folder`.
        load_weights: whether to load the trained weights.

    Raises:
        InvalidInput: as `preset_folder`, or if this version of the package cannot make the model.
    """
    folder = preset_folder(name)
    try:
        model = keras.saving.deserialize_keras_object(json.loads((folder / _CONFIG).read_text()))
        if not isinstance(model, keras.Model):
            raise TypeError(f"{_CONFIG} describes {reprlib.repr(model)}, not a model")
        if load_weights:
            model.load_weights(folder / _WEIGHTS)
    except _UNREADABLE as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        written = read_metadata(folder).get("rrl_tf_version")
        raise InvalidInput(
            f"{str(folder / _CONFIG)!r} was written by rrl_tf {written} and must describe a model "
            f"of rrl_tf {rrl_tf.__version__}, with weights in {_WEIGHTS}; received another "
            f"({first})"
        ) from error
    return model
