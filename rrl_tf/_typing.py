"""Names for what the signatures take and give."""

from collections.abc import Callable
from typing import Any, TypeAlias

# Of the backend, symbolic, or a NumPy array; Keras' own stubs know none of them.
Tensor: TypeAlias = Any
# Of sizes, `None` where any will do; whether a size is known is checked as layers are built.
Shape: TypeAlias = tuple[Any, ...]
# A value of Keras, its name, or its configuration.
Initializer: TypeAlias = str | dict[str, Any] | Callable[..., Any]
Activation: TypeAlias = str | Callable[..., Any] | None
