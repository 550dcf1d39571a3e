"""Define type aliases for signatures."""

from collections.abc import Callable
from typing import Any, TypeAlias

# A tensor of the backend, a symbolic tensor or a NumPy array. Keras has no type for them.
Tensor: TypeAlias = Any
# A tuple of sizes, where `None` means any size. `build` checks that the sizes it needs are known.
Shape: TypeAlias = tuple[Any, ...]
# A Keras object, its name, or its configuration.
Initializer: TypeAlias = str | dict[str, Any] | Callable[..., Any]
Activation: TypeAlias = str | Callable[..., Any] | None
