"""Box-World: keys open boxes with further keys, and one of the boxes holds the gem."""

from __future__ import annotations

import colorsys
import functools
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from rrl_tf._arguments import integers_from, one_of, positive_int, reset_option
from rrl_tf.envs.box_world.levels import (
    COLOUR_BITS,
    COLOURS,
    DISTRACTOR,
    FLOOR,
    GEM,
    KEY,
    LOCK,
    PARTS,
    BoxWorldLevels,
    BoxWorldStart,
)
from rrl_tf.envs.preprocessing import one_hot
from rrl_tf.envs.task import Level, Task
from rrl_tf.errors import InvalidInput

Numbers: TypeAlias = int | tuple[int, ...]
"""A number, or several to draw from."""

ACTION_NAMES = ("up", "down", "left", "right")
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))

AGENT = 4
"""Kind of the agent's cell in observations, after floor, key, lock and gem."""

# Byte of a cell → (kind, colour) in observations: a distractor's lock looks like any lock.
LOOKS = np.stack(np.divmod(np.arange(256), COLOURS + 1), axis=-1).astype(np.uint8)
LOOKS[LOOKS[:, 0] == DISTRACTOR, 0] = LOCK

REWARDS = {LOCK: 1.0, DISTRACTOR: -1.0, GEM: 10.0}

LEVELS = (((1, 2, 3), (0, 1, 2)),)
"""One level: the numbers of boxes that lead to the gem, and of distractors."""

_DRAWN_FIRST = 30
_TILE = 16
_FLOOR, _AGENT, _GEM = (np.full(3, grey, np.uint8) for grey in (204, 72, 255))


class BoxWorld(gymnasium.Env):
    """Zambaldi et al.'s Box-World, with the rules of the authors' code.

    A room contains a loose key, boxes and an agent that moves one cell at a time. Stepping onto a
    key takes it and discards the held one. Stepping onto a lock with a key of its colour opens it
    and uses up the key. A lock closes the cell to its left until it is open. The rewards are 1 for
    a box that leads to the gem, -1 for any other, which ends the episode, and 10 for the gem, which
    also ends it.

    Observations are `(size, size, 2)` uint8, axes (row, column) and channels (kind, colour): kinds
    are 0 floor, 1 key, 2 lock, 3 gem and 4 the agent, whose colour is that of its key; colours are
    1 to `num_colours`, 0 is none. The last `info` of an episode contains `"success"`, whether the
    agent reached the gem.

    Args:
        size, goal_length, num_distractors, **options: the levels, as in `BoxWorldLevels`.
        max_steps: time limit of an episode.
        render_mode: `"rgb_array"` or `None`.

    Attributes:
        levels: the `BoxWorldLevels` from which episodes are drawn.
        start: the `BoxWorldStart` of this episode.

    Raises:
        InvalidInput: if a number is not possible.

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
        *,
        max_steps: int = 120,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        self.levels = BoxWorldLevels(size, goal_length, num_distractors, **options)
        rng = np.random.default_rng(0)
        for _ in range(_DRAWN_FIRST):  # raises if there are hardly any such levels
            self.levels.draw(rng)
        self.max_steps = positive_int("max_steps", max_steps)
        self.render_mode = one_of("render_mode", render_mode, (None, "rgb_array"))
        codes: Any = np.uint8
        high = np.array([AGENT, self.levels.num_colours], codes)
        self.observation_space = Box(0, np.tile(high, (size, size, 1)), dtype=codes)
        self.action_space = Discrete(len(ACTION_NAMES))
        self.start: BoxWorldStart | None = None
        self._is_over = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode, at `options["start"]` if it is given.

        Raises:
            InvalidInput: if there is another option, or a start of another size or with more
                colours; the episode then continues unchanged.
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
        """Move up, down, left or right.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset, or after an episode has terminated;
                a truncated episode can continue.
            InvalidInput: if `action` is not an action.
        """
        if self._is_over:
            when = "after the end of an episode" if self.start else "before the first reset"
            raise gymnasium.error.ResetNeeded(f"Call reset before step; received a step {when}.")
        if not self.action_space.contains(action):
            raise InvalidInput(f"an action must be 0, 1, 2 or 3; received {action!r}")
        reward, terminated = self._move(*MOVES[action])
        self._steps += 1
        truncated = self._steps >= self.max_steps
        self._is_over = terminated  # a caller may ignore the time limit
        info = {"success": terminated and reward > 0} if terminated or truncated else {}
        return self.observe(), reward, terminated, truncated, info

    def _move(self, down, right):
        """Apply the rules of the authors' player, keys, locks and gem: (reward, terminated)."""
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
        """Return a tuple that is equal for two states exactly if they have the same future.

        The step count is not part of it.
        """
        return self._cells.tobytes(), self._agent, self._held

    def render(self) -> np.ndarray | None:
        """Return the room with its walls, `(height, width, 3)` uint8; the held key is top left.

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
        """Return the room without walls as an RGB image, 16 pixels per cell."""
        rows = [
            np.concatenate([self._tile(int(kind), int(colour)) for kind, colour in row], axis=1)
            for row in self.observe()
        ]
        return np.concatenate(rows)

    def _tile(self, kind, colour):
        """Draw a cell: a lock has a keyhole, the agent a square in the colour of its key."""
        # The pale colours of the authors' wheel, brightened.
        rgb = colorsys.hsv_to_rgb((colour - 1) / self.levels.num_colours, 0.62, 0.9)
        paint = np.round(255 * np.array(rgb)).astype(np.uint8)
        tile = np.empty((_TILE, _TILE, 3), np.uint8)
        tile[:] = {FLOOR: _FLOOR, AGENT: _AGENT, GEM: _GEM}.get(kind, paint)
        if kind == LOCK:
            tile[5:8, 6:10] = tile[8:11, 7:9] = _AGENT
        if kind == AGENT and colour:
            tile[5:-5, 5:-5] = paint
        return tile


def box_world_task(
    size: int = 8,
    *,
    levels: Sequence[tuple[Numbers, Numbers]] = LEVELS,
    train_part: str = "train",
    test_part: str = "train",
    test_goal_length: Numbers | None = None,
    max_steps: int = 120,
    pool: int = 20_000,
    **options: Any,
) -> Task:
    """Return Box-World as a `Task`, evaluated on levels that training does not use.

    Args:
        size: side of the room in cells, without its walls.
        levels: the curriculum from first to last, for each level `goal_length` and
            `num_distractors` as in `BoxWorld`.
        train_part: `"train"` excludes `held_out_pairs` from training; `"all"` excludes nothing.
        test_part: the levels of the evaluation: `"train"`, new levels of trained pairs; `"test"`,
            levels that need a held-out pair if they have two boxes or more; or `"all"`.
        test_goal_length: number of boxes in the evaluation, if it differs from training.
        max_steps: time limit of an episode.
        pool: as in `BoxWorldGraph`, for every level.
        **options: other arguments of `BoxWorld` for all levels, such as `distractor_length` and
            `num_colours`.

    Raises:
        InvalidInput: if an argument is not possible.

    Example:
        >>> task = box_world_task(8, levels=((1, 0), ((1, 2), 1)))
        >>> task.preprocessor.shape, task.action_names
        ((8, 8, 26), ('up', 'down', 'left', 'right'))
    """
    positive_int("pool", pool)
    one_of("train_part", train_part, PARTS)
    one_of("test_part", test_part, PARTS)
    if settled := sorted({"goal_length", "num_distractors", "part"} & options.keys()):
        raise InvalidInput(
            "`levels`, `train_part` and `test_part` set goal_length, num_distractors and part; "
            f"received also {', '.join(settled)}"
        )
    if not levels:
        raise InvalidInput(f"`levels` must hold at least one level; received {levels!r}")
    made = []
    for boxes, distractors in levels:
        length = integers_from("goal_length", boxes, 1)
        distractors = integers_from("num_distractors", distractors, 0)
        tested = length
        if test_goal_length is not None:
            tested = integers_from("test_goal_length", test_goal_length, 1)
        # A level that is too short for held-out pairs is evaluated on trained ones.
        part = "train" if test_part == "test" and max(tested) < 2 else test_part
        shared = {**options, "size": size, "max_steps": max_steps, "num_distractors": distractors}
        training = {"goal_length": length, "part": train_part, **shared}
        testing = {"goal_length": tested, "part": part, **shared}
        made.append(
            Level(
                f"{_range(length)} boxes, {_range(distractors)} distractors",
                functools.partial(BoxWorld, **training),
                functools.partial(BoxWorld, **testing),
                make_graph=functools.partial(_make_graph, pool=pool, **training),
                make_test_graph=functools.partial(_make_graph, **testing),
            )
        )
    space: Any = made[0].make_env().observation_space
    return Task(
        name=f"BoxWorld-{size}x{size}",
        levels=tuple(made),
        preprocessor=one_hot(space, unseen_code=FLOOR, agent_code=AGENT),
        action_names=ACTION_NAMES,
        entities=box_world_cells,
        view=lambda env: env.get_wrapper_attr("render_room")(),
    )


def box_world_cells(observation: np.ndarray) -> dict[str, tuple[int, int]]:
    """Return the cells of the agent, the gem, keys and locks.

    Args:
        observation: `(size, size, 2)`.

    Returns:
        Label → cell (row, column): `agent`; `gem`; `key`, a loose key; `open`, a lock that the held
        key opens; `box`, any other lock. Labels are numbered from the second one on.

    Example:
        >>> view = np.zeros((8, 8, 2), "uint8")
        >>> view[2, 5], view[4, 4] = (AGENT, 7), (LOCK, 7)
        >>> box_world_cells(view)
        {'agent': (2, 5), 'open': (4, 4)}
    """
    kinds, colours = observation[..., 0], observation[..., 1]
    held = int(colours[kinds == AGENT].max(initial=0))
    locks = kinds == LOCK
    closed = np.zeros(kinds.shape, bool)
    closed[:, :-1] = locks[:, 1:]
    found = {
        "agent": kinds == AGENT,
        "gem": kinds == GEM,
        "key": (kinds == KEY) & ~closed,
        "open": locks & (colours == held),
        "box": locks & (colours != held),
    }
    return {
        label if number == 1 else f"{label} {number}": (row, column)
        for label, where in found.items()
        for number, (row, column) in enumerate(np.argwhere(where).tolist(), start=1)
    }


def _range(numbers):
    return "-".join(map(str, sorted({min(numbers), max(numbers)})))


def _make_graph(**options):
    from rrl_tf.envs.box_world.graph import BoxWorldGraph  # loads TensorFlow

    return BoxWorldGraph(**options)
