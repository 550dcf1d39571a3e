"""Define Box-World, in which an agent opens boxes with keys until it finds the gem."""

from __future__ import annotations

import colorsys
from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from rrl_tf._arguments import one_of, positive_int, reset_option
from rrl_tf.envs.box_world.levels import (
    COLOUR_BITS,
    COLOURS,
    DISTRACTOR,
    FLOOR,
    GEM,
    KEY,
    LOCK,
    BoxWorldLevels,
    BoxWorldStart,
)
from rrl_tf.errors import InvalidInput

ACTION_NAMES = ("up", "down", "left", "right")
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))

AGENT = 4
"""Kind of the agent's cell in observations; kinds 0 to 3 are floor, key, lock and gem."""

# Byte of a cell → (kind, colour) in observations. Locks of distractors look like other locks.
LOOKS = np.stack(np.divmod(np.arange(256), COLOURS + 1), axis=-1).astype(np.uint8)
LOOKS[LOOKS[:, 0] == DISTRACTOR, 0] = LOCK

REWARDS = {LOCK: 1.0, DISTRACTOR: -1.0, GEM: 10.0}

_DRAWN_FIRST = 30
_TILE = 16
_FLOOR, _AGENT, _GEM = (np.full(3, grey, np.uint8) for grey in (204, 72, 255))


class BoxWorld(gymnasium.Env):
    """Zambaldi et al.'s Box-World, with the rules of the authors' code.

    A room contains a loose key, boxes and an agent that moves one cell at a time. A box is a lock
    with its content, a key or the gem, in the cell to the left.

    - An agent that moves onto a key takes it and discards the key that it holds.
    - An agent that holds a key of the lock's colour can move onto the lock. This opens the box and
      uses up the key.
    - The content of a box cannot be taken until the box is open.
    - The reward is 1 for opening a box on the way to the gem and 10 for taking the gem, which ends
      the episode. The reward for opening any other box (a distractor) is -1, and the episode ends.

    Observations are `(size, size, 2)` uint8 with axes (row, column) and channels (kind, colour).
    Kinds are 0 floor, 1 key, 2 lock, 3 gem and 4 agent. Colours are 1 to `num_colours`, or 0 for
    none; the agent's colour is that of the key that it holds. The last `info` of an episode
    contains `"success"`, which is true if the agent took the gem.

    Args:
        size, goal_length, num_distractors, **options: arguments of `BoxWorldLevels`.
        max_steps: time limit of an episode in steps.
        render_mode: `"rgb_array"` or `None`.

    Attributes:
        agent_code, unseen_code: kinds of the agent and of the floor, for `gymnasium_task`; networks
            then mask floor cells in attention.
        levels: the `BoxWorldLevels` from which episodes are drawn.
        start: the `BoxWorldStart` of this episode.

    Raises:
        InvalidInput: if a number is out of range.

    Example:
        >>> env = gymnasium.make("rrl_tf/BoxWorld-v0", size=8, goal_length=2, num_distractors=1)
        >>> env.reset(seed=0)[0].shape
        (8, 8, 2)

    Source: Zambaldi et al., "Relational Deep Reinforcement Learning" (2018), arXiv 1806.01830;
    github.com/google-deepmind/pycolab, `examples/research/box_world`.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}
    action_names = ACTION_NAMES
    agent_code, unseen_code = AGENT, FLOOR

    def __init__(
        self,
        size: int = 12,
        goal_length: int | Iterable[int] = (1, 2, 3, 4),
        num_distractors: int | Iterable[int] = (0, 1, 2, 3, 4),
        *,
        max_steps: int = 120,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        self.levels = BoxWorldLevels(size, goal_length, num_distractors, **options)
        rng = np.random.default_rng(0)
        for _ in range(_DRAWN_FIRST):  # raises an error if levels do not fit or are rarely found
            self.levels.draw(rng)
        self.max_steps = positive_int("max_steps", max_steps)
        self.render_mode = one_of("render_mode", render_mode, (None, "rgb_array"))
        codes: Any = np.uint8
        high = np.array([AGENT, self.levels.num_colours], codes)
        self.observation_space = Box(0, np.tile(high, (size, size, 1)), dtype=codes)
        self.action_space = Discrete(len(ACTION_NAMES))
        self.start: BoxWorldStart | None = None
        self._needs_reset = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode, at `options["start"]` if it is given.

        Raises:
            InvalidInput: if `options` has an unknown key, or the start has a wrong size or too many
                colours. The current episode then continues.
        """
        start = reset_option("start", options)
        requested = None if start is None else self.levels.checked(start)
        super().reset(seed=seed)
        self.start = requested or self.levels.draw(self.np_random)
        self._cells = np.frombuffer(self.start.cells, np.uint8).reshape(2 * [self.start.size])
        self._cells = self._cells.copy()
        self._agent, self._held, self._steps = self.start.agent, 0, 0
        self._needs_reset = False
        return self.observe(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Move up, down, left or right.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset, or after an episode has terminated.
                A truncated episode can continue.
            InvalidInput: if `action` is not an action.
        """
        if self._needs_reset:
            when = "after the end of an episode" if self.start else "before the first reset"
            raise gymnasium.error.ResetNeeded(f"Call reset before step; received a step {when}.")
        if not self.action_space.contains(action):
            raise InvalidInput(f"an action must be 0, 1, 2 or 3; received {action!r}")
        reward, terminated = self._move(*MOVES[action])
        self._steps += 1
        truncated = self._steps >= self.max_steps
        self._needs_reset = terminated  # a caller may ignore the time limit
        info = {"success": terminated and reward > 0} if terminated or truncated else {}
        return self.observe(), reward, terminated, truncated, info

    def _move(self, down, right):
        """Apply the rules of the authors' code and return (reward, terminated)."""
        row, column = self._agent[0] + down, self._agent[1] + right
        size = self.start.size
        if not (0 <= row < size and 0 <= column < size):
            return 0.0, False
        kind, colour = divmod(int(self._cells[row, column]), COLOURS + 1)
        is_lock = kind in (LOCK, DISTRACTOR)
        right_kind = self._cells[row, column + 1] >> COLOUR_BITS if column + 1 < size else FLOOR
        is_closed = kind in (KEY, GEM) and right_kind in (LOCK, DISTRACTOR)
        if is_closed or (is_lock and colour != self._held):
            return 0.0, False
        self._agent = (row, column)
        self._cells[row, column] = FLOOR
        if kind == KEY:
            self._held = colour
        if is_lock:
            self._held = 0
        return REWARDS.get(kind, 0.0), kind in (DISTRACTOR, GEM)

    def observe(self) -> np.ndarray:
        """Return the current observation, `(size, size, 2)` uint8."""
        seen = LOOKS[self._cells]
        seen[self._agent] = (AGENT, self._held)
        return seen

    def state_key(self) -> tuple[Any, ...]:
        """Return a key; two states have equal keys if and only if they have the same future.

        The key does not include the step count.
        """
        return self._cells.tobytes(), self._agent, self._held

    def render(self) -> np.ndarray | None:
        """Return an RGB image of the room and its walls; the held key is in the top left corner.

        The shape is `(height, width, 3)`, uint8. Without a `render_mode`, the result is `None`.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
        """
        if self.render_mode is None:
            return None
        if self.start is None:
            raise gymnasium.error.ResetNeeded("Call reset before render.")
        picture = np.pad(self.render_room(), ((_TILE, _TILE), (_TILE, _TILE), (0, 0)))
        if self._held:
            picture[:_TILE, :_TILE] = self._tile(KEY, self._held)
        return picture

    def render_room(self) -> np.ndarray:
        """Return an RGB image of the room without walls, with 16 x 16 pixels per cell."""
        rows = [
            np.concatenate([self._tile(int(kind), int(colour)) for kind, colour in row], axis=1)
            for row in self.observe()
        ]
        return np.concatenate(rows)

    def _tile(self, kind, colour):
        """Draw a cell: a lock has a keyhole, the agent a square in the colour of its key."""
        # The hues are those of the authors' code, in brighter shades.
        rgb = colorsys.hsv_to_rgb((colour - 1) / self.levels.num_colours, 0.62, 0.9)
        paint = np.round(255 * np.array(rgb)).astype(np.uint8)
        tile = np.empty((_TILE, _TILE, 3), np.uint8)
        tile[:] = {FLOOR: _FLOOR, AGENT: _AGENT, GEM: _GEM}.get(kind, paint)
        if kind == LOCK:
            tile[5:8, 6:10] = tile[8:11, 7:9] = _AGENT
        if kind == AGENT and colour:
            tile[5:-5, 5:-5] = paint
        return tile
