"""Define MiniGrid's DoorKey: its starts and the environment."""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from minigrid.core.grid import Grid
from minigrid.core.world_object import Door, Goal, Key
from minigrid.envs import DoorKeyEnv

from rrl_tf._arguments import integer, number_from, one_of
from rrl_tf.envs.minigrid_env import StartableEnv, wrapped
from rrl_tf.envs.minigrid_view import ACTION_NAMES, TASK_ACTIONS
from rrl_tf.errors import InvalidInput

MINIMUM_SIZE = 5  # a smaller grid has no room for MiniGrid's wall, door and key

ACTIONS = {"task": TASK_ACTIONS, "all": tuple(range(len(ACTION_NAMES)))}


@dataclass(frozen=True, order=True)
class DoorKeyStart:
    """The state at the beginning of a DoorKey episode.

    A vertical wall with a locked door splits the grid. The key and the agent are to the left of the
    wall; the goal is in the bottom right corner. Cells are (x, y) with (0, 0) at the top left, as
    in MiniGrid.

    Args:
        size: side of the square grid in cells, outer walls included; at least 5.
        wall: x of the splitting wall.
        door: y of the door in that wall.
        key: (x, y) of the key.
        agent: (x, y) of the agent.
        direction: direction of the agent: 0 right, 1 down, 2 left, 3 up.

    Raises:
        InvalidInput: if MiniGrid cannot generate this start.

    Example:
        >>> DoorKeyStart(size=5, wall=2, door=1, key=(1, 2), agent=(1, 1), direction=0).layout
        (5, 2, 1, (1, 2))
    """

    size: int
    wall: int
    door: int
    key: tuple[int, int]
    agent: tuple[int, int]
    direction: int

    def __post_init__(self):
        try:
            is_possible = self._is_possible()
        except TypeError:  # a cell is not a pair, or has a coordinate that is not a number
            is_possible = False
        if not is_possible:
            raise InvalidInput(
                f"a DoorKeyStart must have size >= {MINIMUM_SIZE}, 2 <= wall <= size - 3, "
                "1 <= door <= size - 3, key and agent in different cells (x, y) with "
                "1 <= x < wall and 1 <= y <= size - 2, and a direction of 0, 1, 2 or 3; "
                f"received {self}"
            )

    def _is_possible(self):
        whole = (self.size, self.wall, self.door, *self.key, *self.agent, self.direction)
        if not all(isinstance(number, numbers.Integral) for number in whole):
            return False
        left = {*product(range(1, self.wall), range(1, self.size - 1))}
        return (
            self.size >= MINIMUM_SIZE
            and 2 <= self.wall < self.size - 2
            and 1 <= self.door < self.size - 2
            and self.key in left
            and self.agent in left - {self.key}
            and self.direction in range(4)
        )

    @property
    def layout(self) -> tuple[int, int, int, tuple[int, int]]:
        """The values that `split_layouts` holds out together: (size, wall, door, key)."""
        return self.size, self.wall, self.door, self.key


def enumerate_starts(size: int) -> tuple[DoorKeyStart, ...]:
    """Return every start that MiniGrid's DoorKey of this size can generate, in a fixed order.

    An evaluation from all starts covers each start once, whereas random seeds repeat some starts.

    Args:
        size: side of the grid in cells, at least 5.

    Raises:
        InvalidInput: if the size is too small.

    Example:
        >>> len(enumerate_starts(5)), len(enumerate_starts(6))
        (48, 816)
    """
    _check_size(size)
    starts = []
    for wall, door in product(range(2, size - 2), range(1, size - 2)):
        left = list(product(range(1, wall), range(1, size - 1)))
        for key, agent, direction in product(left, left, range(4)):
            if key != agent:
                starts.append(DoorKeyStart(size, wall, door, key, agent, direction))
    return tuple(starts)


class DoorKey(StartableEnv, DoorKeyEnv):
    """MiniGrid's DoorKey with chosen starts, `info["success"]` and `state_key()`.

    Without `starts` and reset options, the same seed and actions lead to the same grids,
    observations and rewards as in MiniGrid.

    Args:
        size: side of the grid in cells, at least 5.
        max_steps: time limit in steps; `None` is MiniGrid's 10 * size².
        starts: starts from which each reset draws uniformly; `None` uses MiniGrid's generator.
        render_mode: `"rgb_array"`, `"human"` or `None`.

    Raises:
        InvalidInput: if a size, limit or start is invalid.

    Example:
        >>> env = DoorKey(size=5)
        >>> observation, info = env.reset(options={"start": enumerate_starts(5)[0]})
        >>> env.start == enumerate_starts(5)[0]
        True
    """

    start_type = DoorKeyStart
    _grid_contents: tuple[Any, ...] = ()

    def __init__(
        self,
        size: int = 5,
        max_steps: int | None = None,
        starts: Iterable[DoorKeyStart] | None = None,
        render_mode: str | None = None,
    ) -> None:
        _check_size(size)
        super().__init__(starts, max_steps, size=size, render_mode=render_mode)

    def contents(self) -> tuple[Any, ...]:
        """Return size, door and key, which determine the grid; (-1, -1) means a carried key."""
        door, key = self._door, self._key
        numbers = (*door.cur_pos, door.is_open, door.is_locked, *key.cur_pos)
        return (self.width, *map(int, numbers))

    def _grid_has_changed(self):
        last, door = self._grid_contents, self._door
        self._grid_contents = (door.is_open, door.is_locked, *self.grid.grid)
        return self._grid_contents != last

    def _is_success(self, reward):
        """Return True: only the goal terminates an episode, even if its reward is not positive."""
        return True

    def _gen_grid(self, width, height):
        start = self._chosen_start()
        if start is None:
            super()._gen_grid(width, height)
        else:
            self._build(start)
        self._door = next(cell for cell in self.grid.grid if isinstance(cell, Door))
        self._key = next(cell for cell in self.grid.grid if isinstance(cell, Key))
        if start is None:
            wall, door = map(int, self._door.cur_pos)
            key, agent = (tuple(map(int, p)) for p in (self._key.cur_pos, self.agent_pos))
            start = DoorKeyStart(width, wall, door, key, agent, int(self.agent_dir))
        self.start = start

    def _build(self, start):
        """Build the grid as `DoorKeyEnv._gen_grid` does, without random numbers."""
        self.grid = Grid(start.size, start.size)
        self.grid.wall_rect(0, 0, start.size, start.size)
        self.put_obj(Goal(), start.size - 2, start.size - 2)
        self.grid.vert_wall(start.wall, 0)
        self.put_obj(Door("yellow", is_locked=True), start.wall, start.door)
        self.put_obj(Key("yellow"), *start.key)
        self.agent_pos = start.agent
        self.agent_dir = start.direction
        self.mission = self._gen_mission()


def make_doorkey(
    size: int = 5,
    observation: str = "view",
    frames: int = 1,
    actions: str = "task",
    reward: str = "env",
    max_steps: int | None = None,
    starts: Iterable[DoorKeyStart] | None = None,
    render_mode: str | None = None,
) -> gymnasium.Env:
    """Return a DoorKey environment with its wrappers.

    Args:
        size: side of the grid in cells, at least 5.
        observation: `"view"`, MiniGrid's egocentric (7, 7, 3) uint8 image with axes (x, y) and
            channels (object, colour, state); or `"compass"`, (7, 7, 4), with the agent's direction
            0..3 as a constant fourth plane.
        frames: number of observations stacked along the channels, oldest first. After a reset, the
            stack contains the first observation `frames` times.
        actions: `"task"`, the five that DoorKey needs (left, right, forward, pickup, toggle); or
            `"all"`, the seven of MiniGrid.
        reward: `"env"`, 1 - 0.9 * steps / max_steps at the goal; `"success"`, 1 at the goal; or
            `"book"`, the same as `"env"` at the goal and -0.01 in every other step.
        max_steps: time limit in steps; `None` is MiniGrid's 10 * size².
        starts: starts from which each reset draws uniformly; `None` uses MiniGrid's generator.
        render_mode: `"rgb_array"`, `"human"` or `None`.

    Returns:
        The environment. Its `reset` accepts `options={"start": DoorKeyStart}`, and the last `info`
        of an episode contains `"success"`. `env.get_wrapper_attr` gives access to `action_names`, a
        tuple, and to `state_key()`, which returns equal keys for states with the same future.

    Raises:
        InvalidInput: if a name is unknown, or a number is out of range.

    Example:
        >>> env = make_doorkey(size=6, observation="compass", frames=4)
        >>> env.reset(seed=1)[0].shape
        (7, 7, 16)
        >>> env.get_wrapper_attr("action_names")
        ('left', 'right', 'forward', 'pickup', 'toggle')
    """
    codes = ACTIONS[one_of("actions", actions, tuple(ACTIONS))]
    return wrapped(
        DoorKey(size, max_steps, starts, render_mode), frames, reward, codes, observation
    )


def doorkey_spec(size: int) -> EnvSpec:
    """Return a Gymnasium `EnvSpec` of DoorKey, which recorded datasets store to recreate it.

    Args:
        size: side of the grid in cells, at least 5. The sizes 5, 6, 8 and 16 are also registered.

    Example:
        >>> env = gymnasium.make(doorkey_spec(5))  # or gymnasium.make("rrl_tf/DoorKey-5x5-v0")
        >>> env.observation_space.shape
        (7, 7, 4)
    """
    return EnvSpec(
        id=f"rrl_tf/DoorKey-{size}x{size}-v0",
        entry_point="rrl_tf.envs.doorkey:make_doorkey",
        kwargs={"size": size, "observation": "compass"},
        disable_env_checker=True,
    )


def _check_size(size):
    number_from("size", integer("size", size), MINIMUM_SIZE)
