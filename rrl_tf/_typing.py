"""Names for what the signatures take and give."""

from collections.abc import Callable
from typing import Any, TypeAlias

# Of the backend, symbolic, or a NumPy array; Keras' own stubs know none of them.
Tensor: TypeAlias = Any
# Integers, and `None` where any size will do.
Shape: TypeAlias = tuple[Any, ...]
# A value of Keras, its name, or its configuration.
Initializer: TypeAlias = str | dict[str, Any] | Callable[..., Any]
Activation: TypeAlias = str | Callable[..., Any] | None
