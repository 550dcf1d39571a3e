"""Box-World: keys open boxes with keys in them, and one of the boxes holds the gem."""

from __future__ import annotations

import colorsys
from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from rrl_tf._arguments import one_of, positive_int, reset_option
from rrl_tf.envs.box_world_levels import (
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
"""Kind of the agent's cell in observations, after floor, key, lock and gem."""

# Byte of a cell → (kind, colour) as seen: a distractor's lock looks as any lock.
LOOKS = np.stack(np.divmod(np.arange(256), COLOURS + 1), axis=-1).astype(np.uint8)
LOOKS[LOOKS[:, 0] == DISTRACTOR, 0] = LOCK

REWARD_BOX, REWARD_DISTRACTOR, REWARD_GEM = 1.0, -1.0, 10.0

_TILE = 16
_WALL, _FLOOR, _AGENT, _GEM = (np.full(3, grey, np.uint8) for grey in (0, 204, 72, 255))


class BoxWorld(gymnasium.Env):
    """Zambaldi et al.'s Box-World, with the rules of the authors' own code.

    A room holds a loose key, boxes and an agent, which moves a cell at a time. Stepping onto a key
    takes it, in exchange for the one held; stepping onto a lock opens it, if the key held has its
    colour, and the key is used up. A lock closes the cell to its left until it is opened. The
    rewards are 1 for a box that leads on to the gem, -1 for any other, which ends the episode, and
    10 for the gem, which ends it as well.

    Observations are `(size, size, 2)` uint8, axes (row, column) and channels (kind, colour): kinds
    are 0 floor, 1 key, 2 lock, 3 gem and 4 the agent, whose colour is that of the key it holds;
    colours are 1 to `num_colours`, 0 is none. At the end of an episode `info["success"]` tells
    whether the gem was reached.

    Args:
        size, goal_length, num_distractors, distractor_length, num_backward, num_colours, part,
            held_out_share, held_out_seed: which levels there are, as in `BoxWorldLevels`.
        max_steps: time limit of an episode.
        render_mode: `"rgb_array"` or `None`.

    Attributes:
        levels: the `BoxWorldLevels` that are drawn from.
        start: the `BoxWorldStart` of this episode.

    Raises:
        InvalidInput: a number that is not possible.

    Example:
        >>> env = gymnasium.make("rrl_tf/BoxWorld-v0", size=8, goal_length=2, num_distractors=1)
        >>> env.reset(seed=0)[0].shape
        (8, 8, 2)

    Source: Zambaldi et al., "Relational Deep Reinforcement Learning" (2018), arXiv 1806.01830;
    github.com/google-deepmind/pycolab, `examples/research/box_world`.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}
    action_names = ACTION_NAMES

    def __init__(
        self,
        size: int = 12,
        goal_length: int | Iterable[int] = (1, 2, 3, 4),
        num_distractors: int | Iterable[int] = (0, 1, 2, 3, 4),
        distractor_length: int = 1,
        num_backward: int | Iterable[int] = 0,
        num_colours: int = 20,
        part: str = "all",
        held_out_share: float = 0.2,
        held_out_seed: int = 0,
        max_steps: int = 120,
        render_mode: str | None = None,
    ) -> None:
        self.levels = BoxWorldLevels(
            size,
            goal_length,
            num_distractors,
            distractor_length,
            num_backward,
            num_colours,
            part,
            held_out_share,
            held_out_seed,
        )
        self.levels.check()
        self.max_steps = positive_int("max_steps", max_steps)
        self.render_mode = one_of("render_mode", render_mode, (None, "rgb_array"))
        self.observation_space = observation_space(size, num_colours)
        self.action_space = Discrete(len(ACTION_NAMES))
        self.start: BoxWorldStart | None = None
        self._is_over = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins an episode, at `options["start"]` if there is one.

        Raises:
            InvalidInput: another option, or a start that is not of this size and these colours;
                the episode goes on as if `reset` had not been called.
        """
        start = reset_option("start", options)
        requested = None if start is None else self.levels.checked(start)
        super().reset(seed=seed)
        self.start = requested or self.levels.draw(self.np_random)
        self._cells = np.frombuffer(self.start.cells, np.uint8).reshape(2 * [self.start.size])
        self._cells = self._cells.copy()
        self._agent, self._held, self._steps = self.start.agent, 0, 0
        self._is_over = False
        return self.observe(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Moves up, down, left or right.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset, or after an episode has terminated;
                one that is truncated may be played on.
            InvalidInput: there is no such action.
        """
        if self._is_over:
            when = "after the end of an episode" if self.start else "before the first reset"
            raise gymnasium.error.ResetNeeded(f"Call reset before step; received a step {when}.")
        if not self.action_space.contains(action):
            raise InvalidInput(f"an action must be 0, 1, 2 or 3; received {action!r}")
        reward, terminated = self._move(*MOVES[action])
        self._steps += 1
        truncated = self._steps >= self.max_steps
        self._is_over = terminated  # a time limit may be ignored
        info = {"success": terminated and reward > 0} if terminated or truncated else {}
        return self.observe(), reward, terminated, truncated, info

    def _move(self, down, right):
        """What the authors' player, keys, locks and gem do in a step: (reward, whether it ends)."""
        row, column = self._agent[0] + down, self._agent[1] + right
        size = self.start.size
        if not (0 <= row < size and 0 <= column < size):
            return 0.0, False
        kind, colour = divmod(int(self._cells[row, column]), COLOURS + 1)
        is_lock = kind in (LOCK, DISTRACTOR)
        if is_lock and colour != self._held:
            return 0.0, False
        if kind in (KEY, GEM) and self._is_locked(row, column):
            return 0.0, False
        self._agent = (row, column)
        self._cells[row, column] = FLOOR
        if kind == KEY:
            self._held = colour
        if is_lock:
            self._held = 0
        reward = {LOCK: REWARD_BOX, DISTRACTOR: REWARD_DISTRACTOR, GEM: REWARD_GEM}.get(kind, 0.0)
        return reward, kind in (DISTRACTOR, GEM)

    def _is_locked(self, row, column):
        beside = column + 1
        return beside < self.start.size and self._cells[row, beside] >> COLOUR_BITS in (
            LOCK,
            DISTRACTOR,
        )

    def observe(self) -> np.ndarray:
        """What is seen now, `(size, size, 2)` uint8."""
        seen = LOOKS[self._cells]
        seen[self._agent] = (AGENT, self._held)
        return seen

    def state_key(self) -> tuple[Any, ...]:
        """Returns a tuple that is equal for two states exactly when they have the same future.

        The number of steps taken is left out.
        """
        return self._cells.tobytes(), self._agent, self._held

    def render(self) -> np.ndarray | None:
        """The room with its walls, `(height, width, 3)` uint8; top left the key that is held.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
        """
        if self.render_mode is None:
            return None
        if self.start is None:
            raise gymnasium.error.ResetNeeded("Call reset before render.")
        room = draw_room(self.observe(), self.levels.num_colours)
        picture = np.pad(room, ((_TILE, _TILE), (_TILE, _TILE), (0, 0)))
        if self._held:
            picture[:_TILE, :_TILE] = _tile(KEY, self._held, self.levels.num_colours)
        return picture


def observation_space(size: int, num_colours: int) -> Box:
    """The space of observations: of every cell its kind and its colour.

    Example:
        >>> observation_space(8, 20).shape
        (8, 8, 2)
    """
    codes: Any = np.uint8
    return Box(0, np.tile(np.array([AGENT, num_colours], codes), (size, size, 1)), dtype=codes)


def draw_room(observation: np.ndarray, num_colours: int) -> np.ndarray:
    """The cells of an observation as an RGB picture, 16 pixels a cell.

    Args:
        observation: `(size, size, 2)`.
        num_colours: C, which the wheel of colours is divided into.

    Example:
        >>> draw_room(np.zeros((8, 8, 2), "uint8"), 20).shape
        (128, 128, 3)
    """
    rows = [
        np.concatenate([_tile(int(kind), int(colour), num_colours) for kind, colour in row], axis=1)
        for row in observation
    ]
    return np.concatenate(rows)


def _tile(kind, colour, num_colours):
    """One cell: keys and boxes fill it, a lock has a keyhole, an agent the colour that it holds."""
    tile = np.empty((_TILE, _TILE, 3), np.uint8)
    tile[:] = {FLOOR: _FLOOR, AGENT: _AGENT, GEM: _GEM}.get(kind, rgb(colour, num_colours))
    if kind == LOCK:
        tile[5:8, 6:10] = tile[8:11, 7:9] = _AGENT
    if kind == AGENT and colour:
        tile[5:-5, 5:-5] = rgb(colour, num_colours)
    return tile


def rgb(colour: int, num_colours: int) -> np.ndarray:
    """One of the pale colours of the authors' wheel, brightened, `(3,)` uint8."""
    hue = (colour - 1) / num_colours
    return np.round(255 * np.array(colorsys.hsv_to_rgb(hue, 0.62, 0.9))).astype(np.uint8)


gymnasium.register("rrl_tf/BoxWorld-v0", "rrl_tf.envs.box_world:BoxWorld")
# The levels that the preset is trained on, and those of the paper.
for _size, _boxes, _distractors in ((8, 3, 2), (12, 4, 4)):
    gymnasium.register(
        f"rrl_tf/BoxWorld-{_size}x{_size}-v0",
        "rrl_tf.envs.box_world:BoxWorld",
        kwargs={
            "size": _size,
            "goal_length": tuple(range(1, _boxes + 1)),
            "num_distractors": tuple(range(_distractors + 1)),
        },
    )
