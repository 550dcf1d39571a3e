"""Beginning an episode where one wants: what the environments with listed starts share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minigrid.minigrid_env import MiniGridEnv

from rrl_tf._arguments import reset_option
from rrl_tf.errors import InvalidInput


class ChosenStarts(MiniGridEnv):
    """Keeps what start was asked for, before MiniGrid's own class in the order of bases.

    The class that inherits it names the type of its starts as `start_type`, generates the grid of
    `_chosen_start()`, and keeps in `start` what came of it.
    """

    start_type: type
    start: Any = None
    _requested: Any = None
    _starts: tuple[Any, ...] | None = None

    def draw_from(self, starts: Iterable[Any] | None) -> None:
        """Draws from these starts at each reset, uniformly; `None` is MiniGrid's generator.

        Raises:
            InvalidInput: there is none, or one that is not possible here.
        """
        if starts is None:
            return
        self._starts = tuple(self._check_start(start) for start in starts)
        if not self._starts:
            raise InvalidInput(
                f"starts must be at least one {self.start_type.__name__} or None; received none"
            )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode, at `options["start"]` if there is one.

        Raises:
            InvalidInput: another option, or a start that is not possible here.
        """
        start = reset_option("start", options)
        self._requested = None if start is None else self._check_start(start)
        return super().reset(seed=seed)

    def _chosen_start(self):
        """The start of this episode, or `None` where MiniGrid is to draw one."""
        if self._requested is None and self._starts is not None:
            return self._starts[self.np_random.integers(len(self._starts))]
        return self._requested

    def _check_start(self, start):
        if not isinstance(start, self.start_type) or start.size != self.width:
            raise InvalidInput(
                f"expected a {self.start_type.__name__} of size {self.width}; received {start!r}"
            )
        return start
