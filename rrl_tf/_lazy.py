"""Define `lazy_attributes`, which imports a module when one of its names is first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_attributes(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module-level `__getattr__` that imports public names on first access.

    A package that uses it imports quickly. For example, code that reads episodes does not import
    TensorFlow, and code that uses one environment does not import the others. The modules are
    attributes, too.

    Args:
        package: the `__name__` of the package.
        modules: module -> the public names it defines, separated by spaces.

    Example:
        >>> __getattr__ = lazy_attributes("rrl_tf.agents", {"replay": "ReplayBuffer"})
        >>> __getattr__("ReplayBuffer").__name__
        'ReplayBuffer'
    """
    home = {name: module for module, names in modules.items() for name in names.split()}

    def __getattr__(name: str) -> Any:
        if name in home:
            return getattr(importlib.import_module(f"{package}.{home[name]}"), name)
        if name in modules:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return __getattr__
