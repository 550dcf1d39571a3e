"""Define Crossing, a maze that tests whether an agent can join parts of recorded episodes."""

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
"""Maps by name. Episodes begin at `A` or `B`; digits are exits, `#` are walls, `.` are free."""

EXIT_REWARDS = {"1": 1.0, "2": 0.2, "3": 0.4}
"""Reward of each exit; reaching an exit ends the episode."""

ACTION_NAMES = ("left", "right", "up", "down")
_MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])


class Crossing(gymnasium.Env):
    """A maze with two crossing paths, whose best path joins the first half of one to the other.

    All paths from A and B to exits 1 and 2 pass through one shared cell, and exit 1 has the highest
    reward. Suppose that in a dataset the episodes from A leave by exit 2 and those from B by exit
    1. The dataset then contains every part of the path from A to exit 1, but no single episode
    follows the whole path.

    Observations are the position `(x, y)`, float32. Actions are left, right, up and down. A move
    into a wall has no effect.

    Args:
        layout: a name of `MAPS`; `"fork"` adds exit 3, near A, with a higher reward than exit 2.
        starts: letters, `"A"`, `"B"` or `"AB"`, of the cells from which a reset draws uniformly.
        slip: probability that a step moves in a random direction instead of the chosen one.
        max_steps: time limit in steps.

    Raises:
        InvalidInput: if an argument is out of range.

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
            raise InvalidInput(f"`starts` must be 'A', 'B' or 'AB'; received {starts!r}")
        self._starts = [place for place, cell in self.cells.items() if cell in starts]
        high = np.array([len(rows[0]) - 1, len(rows) - 1], "float32")
        self.observation_space = Box(np.zeros(2, "float32"), high)
        self.action_space = Discrete(len(ACTION_NAMES))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode at one of the cells of `starts`, drawn at random."""
        super().reset(seed=seed)
        self._place = self._starts[self.np_random.integers(len(self._starts))]
        self._steps = 0
        return np.array(self._place, "float32"), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Move left, right, up or down or, with probability `slip`, in a random direction.

        Raises:
            InvalidInput: if `action` is not an action.
        """
        if not self.action_space.contains(action):
            raise InvalidInput(f"an action must be 0, 1, 2 or 3; received {action!r}")
        slips = self.np_random.random() < self.slip
        move = _MOVES[self.np_random.integers(4) if slips else int(action)]
        x, y = np.add(self._place, move).tolist()
        if self.cells[x, y] != "#":
            self._place = (x, y)
        self._steps += 1
        cell = self.cells[self._place]
        terminated = cell in EXIT_REWARDS
        truncated = not terminated and self._steps >= self.max_steps
        info = {"success": float(cell == "1")} if terminated or truncated else {}
        reward = EXIT_REWARDS.get(cell, 0.0)
        return np.array(self._place, "float32"), reward, terminated, truncated, info

    def shortest_path(self, to: str) -> dict[tuple[int, int], int]:
        """Return, for every cell from which the exit can be reached, the first action towards it.

        Args:
            to: the exit's digit, such as `"1"`.

        Returns:
            A dict `(x, y)` → action that begins a shortest path.

        Raises:
            InvalidInput: if the layout has no such exit.
        """
        border = [place for place, cell in self.cells.items() if cell == to]
        if to not in EXIT_REWARDS or not border:
            raise InvalidInput(f"`to` must be an exit of the layout; received {to!r}")
        actions: dict[tuple[int, int], int] = {}
        while border:
            place = border.pop(0)
            for action, move in enumerate(_MOVES):
                before = tuple(np.subtract(place, move).tolist())
                if self.cells[before] not in "#123" and before not in actions:
                    actions[before] = action
                    border.append(before)
        return actions
