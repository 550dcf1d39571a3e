"""What the scripts ask for that train on any Gymnasium environment."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class GymnasiumConfig:
    """The environment, and what it does not tell of itself."""

    env: str = ""
    """Id of the environment, `Name-v0` or `module:Name-v0`."""
    test_env: str = ""
    """Id of the environment it is evaluated in, if that is another one."""
    success_return: float | None = None
    """The least return of a success, where the environment does not tell; by default the threshold
    it is registered with, and any reward at all in MiniGrid."""
    max_steps: int | None = None
    """Time limit of an episode; by default the environment's own."""
    frames: int = 1
    """Observations stacked."""
    actions: tuple[int, ...] = ()
    """Actions to choose from; by default all."""

    @property
    def env_name(self) -> str:
        """The id as a part of a folder's name."""
        return self.env.rpartition(":")[2].replace("/", "-")
