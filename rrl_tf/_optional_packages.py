"""Packages that only some data need."""

from __future__ import annotations

import importlib
from types import ModuleType

from rrl_tf.errors import InvalidInput

INSTALL = "pip install '.[data]'"


def optional_package(name: str, what: str) -> ModuleType:
    """Imports a package, or raises `InvalidInput` that says `what` needs it and how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InvalidInput(
            f"{what} needs {error.name or name}: {INSTALL}; received a Python without it"
        ) from error
