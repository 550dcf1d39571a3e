"""Options of the scripts that train on any Gymnasium environment."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class GymnasiumConfig:
    """The environment, and properties that it does not report itself."""

    env: str = ""
    """Id of the environment, `Name-v0` or `module:Name-v0`."""
    test_env: str = ""
    """Id of the environment for evaluation, if it is another one."""
    success_return: float | None = None
    """Minimum return of a success, if the environment does not report success; by default its
    registered threshold, and any reward in MiniGrid."""
    max_steps: int | None = None
    """Time limit of an episode; by default the environment's own."""
    frames: int = 1
    """Observations stacked."""
    actions: tuple[int, ...] = ()
    """Actions to choose from; by default all."""

    @property
    def env_name(self) -> str:
        """The id as part of a folder name."""
        return self.env.rpartition(":")[2].replace("/", "-")
