"""Define the options that change the sizes of a relational network."""

from __future__ import annotations

import dataclasses
from typing import Any

from rrl_tf.errors import InvalidInput
from rrl_tf.training.config import require_positive


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """Sizes of a relational network; `None` keeps the size of the architecture.

    Example:
        >>> NetworkConfig(num_heads=4, hidden_units=(128,)).network_sizes()
        {'hidden_units': (128,), 'block': {'num_heads': 4}}
    """

    num_heads: int | None = None
    """Attention heads of a round; by default those of the architecture."""
    key_size: int | None = None
    """Size of a head's queries and keys; by default that of the architecture."""
    num_rounds: int | None = None
    """Rounds of attention; by default those of the architecture."""
    hidden_units: tuple[int, ...] | None = None
    """Sizes of the dense layers before the Q values; by default those of the architecture."""

    def network_sizes(self, relational: bool = True) -> dict[str, Any]:
        """Return the sizes that are set, as arguments of a relational network.

        Args:
            relational: whether the network is relational.

        Raises:
            InvalidInput: if a size is not positive, or is set for another network.
        """
        require_positive(self, "num_heads", "key_size", "num_rounds")
        names = [each.name for each in dataclasses.fields(NetworkConfig)]
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if given and not relational:
            raise InvalidInput(f"{', '.join(given)} must be None without a relational network")
        block = {name: given.pop(name) for name in ("num_heads", "key_size") if name in given}
        return {**given, "block": block} if block else given
