"""Type aliases of the signatures."""

from collections.abc import Callable
from typing import Any, TypeAlias

# A tensor of the backend, a symbolic tensor or a NumPy array; Keras has no stubs for them.
Tensor: TypeAlias = Any
# Sizes, `None` for any size; building a layer checks that the needed sizes are known.
Shape: TypeAlias = tuple[Any, ...]
# An object of Keras, its name, or its configuration.
Initializer: TypeAlias = str | dict[str, Any] | Callable[..., Any]
Activation: TypeAlias = str | Callable[..., Any] | None
