"""What lies in a model's folder, and which models may be served."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from serving.errors import ServingError, invalid

_log = logging.getLogger("serving")
_LONGEST_NUMBER = 100  # digits


def version_folders(base: Path) -> dict[int, Path]:
    """Returns number -> folder of all versions in a base path; raises OSError."""
    found: dict[int, Path] = {}
    for entry in sorted(base.iterdir()):
        name = entry.name
        numbered = name.isascii() and name.isdigit() and len(name) < _LONGEST_NUMBER
        if numbered and entry.is_dir():
            number = int(name)
            if number in found:
                _log.warning("%s and %s are one version", entry, found[number])
            if number < 1 << 63:
                found[number] = entry
    return found


def wanted_versions(config: Any) -> dict[int, Path] | None:
    """Returns number -> folder of the versions that a model's policy asks for.

    None if its base path cannot be read.
    """
    try:
        found = version_folders(Path(config.base_path))
    except OSError as error:
        _log.warning("model %s: cannot read %s: %s", config.name, config.base_path, error.strerror)
        return None
    policy = config.model_version_policy
    kind = policy.WhichOneof("policy_choice")
    if kind == "all":
        numbers: Collection[int] = found
    elif kind == "specific":
        numbers = set(policy.specific.versions) & set(found)
    else:
        newest_first = sorted(found, reverse=True)
        numbers = newest_first[: policy.latest.num_versions or 1]
    return {number: found[number] for number in numbers}


def check_configs(configs: Sequence[Any], root: str) -> None:
    """Raises ServingError for a list of models that cannot be served."""
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
        if config.model_platform != "tensorflow":
            raise invalid(
                f'model {config.name!r}: model_platform must be "tensorflow"; '
                f"received {config.model_platform!r}"
            )


def check_versions(configs: Sequence[Any]) -> None:
    """Raises NOT_FOUND unless there is a version of each model that its policy asks for."""
    for config in configs:
        if not wanted_versions(config):
            raise ServingError(
                "NOT_FOUND",
                f"model {config.name!r}: no version to serve in {config.base_path!r}",
            )


def check_root(path: Path, root: str) -> None:
    """Raises PERMISSION_DENIED unless a path is in the folder that all models must lie in."""
    if not root:
        return
    try:
        inside = path.resolve().is_relative_to(Path(root).resolve())
    except RuntimeError:  # a link to itself
        inside = False
    if not inside:
        raise ServingError("PERMISSION_DENIED", f"{path} is not in --model_root {root}")
