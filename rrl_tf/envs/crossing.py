"""Crossing: a maze whose good way no single recorded episode has gone."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from rrl_tf._arguments import number_from, one_of, positive_int
from rrl_tf.errors import InvalidInput

MAPS = {
    "crossing": """
        ############
        ###AAA#...1#
        #####.#.####
        #####...####
        #####.#.####
        ###BBB#...2#
        ############
    """,
    "fork": """
        ############
        #3.AAA#...1#
        #####.#.####
        #####...####
        #####.#.####
        ###BBB#...2#
        ############
    """,
}
"""`A` and `B` are where episodes begin, the digits exits, `#` walls."""

PAYS = {"1": 1.0, "2": 0.2, "3": 0.4}
"""What an exit pays; it ends the episode."""

ACTION_NAMES = ("left", "right", "up", "down")
_MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])


class Crossing(gymnasium.Env):
    """A maze of two ways that cross: who begins at A has to go on like those who began at B.

    All ways from A and B to the exits 1 and 2 go through one cell. What pays best is exit 1. Data
    in which episodes from A only ever took exit 2 hold all pieces of the way from A to 1, and no
    episode that goes it.

    Observations are the place `(x, y)`, float32; actions left, right, up, down. Walls stop a move.

    Args:
        layout: a name of `MAPS`; `"fork"` has an exit beside A that pays more than 2.
        starts: the letters of the places where episodes begin, all equally often.
        slip: share of the steps in which any of the four moves is made in place of the one chosen.
        max_steps: time limit.

    Raises:
        InvalidInput: for an argument out of its range.

    Example:

    >>> env = Crossing(starts="A", slip=0.0)
    >>> observation, _ = env.reset(seed=0)
    >>> observation.tolist() in [[3.0, 1.0], [4.0, 1.0], [5.0, 1.0]]
    True
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(
        self,
        layout: str = "crossing",
        starts: str = "AB",
        slip: float = 0.1,
        max_steps: int = 60,
    ) -> None:
        rows = MAPS[one_of("layout", layout, tuple(MAPS))].split()
        self.cells = {(x, y): cell for y, row in enumerate(rows) for x, cell in enumerate(row)}
        self.slip = number_from("slip", slip, 0, 1)
        self.max_steps = positive_int("max_steps", max_steps)
        if not starts or set(starts) - set("AB"):
            raise InvalidInput(f"starts must be letters of 'AB'; received {starts!r}")
        self._starts = [place for place, cell in self.cells.items() if cell in starts]
        high = np.array([len(rows[0]) - 1, len(rows) - 1], "float32")
        self.observation_space = Box(np.zeros(2, "float32"), high)
        self.action_space = Discrete(len(ACTION_NAMES))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._place = self._starts[self.np_random.integers(len(self._starts))]
        self._steps = 0
        return self._observation(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Moves left, right, up or down, or where it slips to.

        Raises:
            InvalidInput: there is no such action.
        """
        if not self.action_space.contains(action):
            raise InvalidInput(f"an action must be 0, 1, 2 or 3; received {action!r}")
        slips = self.np_random.random() < self.slip
        move = _MOVES[self.np_random.integers(4) if slips else int(action)]
        x, y = np.add(self._place, move).tolist()
        if self.cells[x, y] != "#":
            self._place = (x, y)
        self._steps += 1
        exit_ = self.cells[self._place]
        terminated = exit_ in PAYS
        truncated = not terminated and self._steps >= self.max_steps
        info = {"success": float(exit_ == "1")} if terminated or truncated else {}
        return self._observation(), PAYS.get(exit_, 0.0), terminated, truncated, info

    def _observation(self):
        return np.array(self._place, "float32")

    def way(self, to: str) -> dict[tuple[int, int], int]:
        """The first action of a shortest way to an exit, for every place from which there is one.

        Args:
            to: the exit's digit.

        Raises:
            InvalidInput: if the layout has no such exit.
        """
        exits = [place for place, cell in self.cells.items() if cell == to]
        if to not in PAYS or not exits:
            raise InvalidInput(f"the layout must have the exit; received {to!r}")
        actions, border = {}, exits
        while border:
            place = border.pop(0)
            for action, move in enumerate(_MOVES):
                before = tuple(np.subtract(place, move).tolist())
                if self.cells[before] in "#123" or before in actions:
                    continue
                actions[before] = action
                border.append(before)
        return actions
