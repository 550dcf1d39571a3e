"""Find the models and versions to serve, from the flags and from the directories on disk."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from tensorflow_serving.config import model_server_config_pb2

from rrl_tf.errors import InvalidInput
from rrl_tf.pretrained import POLICY, pretrained_folder, pretrained_name
from serving.errors import ServingError, invalid
from serving.server import config_files
from serving.server.config_files import StartError
from serving.server.flags import Flags

_log = logging.getLogger("serving")
_MAX_DIGITS = 100


def read_models(flags: Flags) -> list[Any]:
    """Return the ModelConfig messages of --model_config_file, or of the one model of other flags.

    Raises:
        StartError: If the file or the model's directory cannot be read, or if the directory
            contains no version and --file_system_poll_wait_seconds is 0.
    """
    if flags.model_config_file:
        return config_files.read_model_list(flags.model_config_file)
    base, name = _base_and_name(flags)
    try:
        found = version_directories(base)
    except OSError as error:
        raise StartError(f"cannot read --model_base_path {base}: {error.strerror}") from error
    if not found:
        problem = f"{base} contains no version directories"
        for directory in (base / "export", base.parent):
            if directory.is_dir() and version_directories(directory):
                problem += f"; did you mean {directory}?"
                break
        if not flags.file_system_poll_wait_seconds:
            raise StartError(problem)
        _log.warning("%s; waiting for the first version", problem)
    config = model_server_config_pb2.ModelConfig(name=name, model_platform="tensorflow")
    config.base_path = str(base)
    return [config]


def _base_and_name(flags):
    """Return (base path, name) of the model that --model_base_path or --preset names."""
    if not flags.preset:
        return Path(flags.model_base_path).absolute(), flags.model_name
    try:
        directory = pretrained_folder(flags.preset).absolute()
    except InvalidInput as error:
        raise StartError(str(error)) from error
    is_named = flags.model_name != type(flags).model_name
    return directory / POLICY, flags.model_name if is_named else pretrained_name(flags.preset)


def version_directories(base: Path) -> dict[int, Path]:
    """Return version number -> directory for a base path; raise OSError if it cannot be read."""
    found: dict[int, Path] = {}
    for entry in sorted(base.iterdir()):
        name = entry.name
        is_number = name.isascii() and name.isdigit() and len(name) < _MAX_DIGITS
        if is_number and entry.is_dir() and int(name) < 1 << 63:
            if int(name) in found:
                _log.warning("%s and %s have the same version number", entry, found[int(name)])
            found[int(name)] = entry
    return found


def wanted_versions(config: Any) -> dict[int, Path] | None:
    """Return version number -> directory of the versions to serve, as the version policy demands.

    Args:
        config: The ModelConfig, which contains the base path and the version policy.

    Returns:
        The versions, or None if the base path cannot be read.
    """
    try:
        found = version_directories(Path(config.base_path))
    except OSError as error:
        _log.warning("model %s: cannot read %s: %s", config.name, config.base_path, error.strerror)
        return None
    policy = config.model_version_policy
    kind = policy.WhichOneof("policy_choice")
    numbers: Collection[int] = found
    if kind == "specific":
        numbers = set(policy.specific.versions) & set(found)
    elif kind != "all":
        numbers = sorted(found, reverse=True)[: policy.latest.num_versions or 1]
    return {number: found[number] for number in numbers}


def check_models(configs: Sequence[Any], root: str) -> None:
    """Raise ServingError if a list of models is invalid.

    Args:
        configs: The ModelConfig messages.
        root: The value of --model_root.
    """
    names: set[str] = set()
    for config in configs:
        if not config.name:
            raise invalid("a model in the configuration has no name")
        if config.name in names:
            raise invalid(f"the configuration names model {config.name!r} twice")
        names.add(config.name)
        if not Path(config.base_path).is_absolute() or "\0" in config.base_path:
            raise invalid(
                f"model {config.name!r}: base_path must be absolute; received {config.base_path!r}"
            )
        check_root(Path(config.base_path), root)
        if config.model_type:
            raise invalid(
                f"model {config.name!r}: model_type is not supported; "
                'use model_platform: "tensorflow"'
            )
        if config.model_platform != "tensorflow":
            raise invalid(
                f'model {config.name!r}: model_platform must be "tensorflow"; '
                f"received {config.model_platform!r}"
            )


def check_root(path: Path, root: str) -> None:
    """Raise PERMISSION_DENIED if a path, with symbolic links resolved, is outside --model_root."""
    if not root:
        return
    try:
        is_inside = path.resolve().is_relative_to(Path(root).resolve())
    except RuntimeError:  # a link to itself
        is_inside = False
    if not is_inside:
        raise ServingError("PERMISSION_DENIED", f"{path} is not in --model_root {root}")
