"""Import packages that only some datasets and formats need."""

from __future__ import annotations

import importlib
from types import ModuleType

from rrl_tf.errors import InvalidInput

INSTALL = "pip install '.[data]'"


def optional_package(name: str, what: str, install: str = INSTALL) -> ModuleType:
    """Import a package that `what` needs, or raise an `InvalidInput` with the install command."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InvalidInput(
            f"{what} needs the package {error.name or name}, which is not installed. "
            f"Run `{install}`."
        ) from error
