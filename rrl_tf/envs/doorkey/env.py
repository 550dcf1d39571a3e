"""MiniGrid DoorKey: its starts, the environment and the task."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from minigrid.core.grid import Grid
from minigrid.core.world_object import Door, Goal, Key
from minigrid.envs import DoorKeyEnv

from rrl_tf._arguments import integer, integers_from, number_from, one_of, positive_int
from rrl_tf.envs import preprocessing
from rrl_tf.envs.minigrid_env import StartableEnv, minigrid_task, wrapped
from rrl_tf.envs.minigrid_view import ACTION_NAMES, AGENT_CELL, TASK_ACTIONS
from rrl_tf.envs.task import Level, Task, check_held_out_seed, level_of_starts
from rrl_tf.errors import InvalidInput

MINIMUM_SIZE = 5  # MiniGrid's generator has no room for a wall, a door and a key in a smaller grid
LARGEST_ENUMERATED = 8
"""Side of the largest grid whose starts are enumerated for evaluation; larger ones use seeds."""

ACTIONS = {"task": TASK_ACTIONS, "all": tuple(range(len(ACTION_NAMES)))}
PREPROCESSORS = ("one_hot", "constant", "frame_maximum")


@dataclass(frozen=True, order=True)
class DoorKeyStart:
    """The state at the beginning of a DoorKey episode.

    A vertical wall with a locked door splits the grid. Key and agent are on its left, the goal is
    in the bottom right corner. Cells are (x, y) with (0, 0) at the top left, as in MiniGrid.

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
        except TypeError:  # not a number, or not a pair
            is_possible = False
        if not is_possible:
            raise InvalidInput(
                f"a DoorKey episode starts with size >= {MINIMUM_SIZE}, 2 <= wall <= size - 3, "
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
        """The part that can be held out: (size, wall, door, key)."""
        return self.size, self.wall, self.door, self.key


def enumerate_starts(size: int) -> tuple[DoorKeyStart, ...]:
    """Return every start that MiniGrid's DoorKey of this size can generate, in a fixed order.

    An evaluation from all starts is exact, whereas random seeds repeat some starts many times.

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

    Without `starts` and reset options, grids, observations and rewards are MiniGrid's for the same
    seed and actions.

    Args:
        size: side of the grid in cells, at least 5.
        max_steps: time limit in steps; `None` is MiniGrid's 10 * size².
        starts: starts from which each reset draws uniformly; `None` uses MiniGrid's generator.
        render_mode: `"rgb_array"`, `"human"` or `None`.

    Raises:
        InvalidInput: if a size, limit or start is not possible.

    Example:
        >>> env = DoorKey(size=5)
        >>> observation, info = env.reset(options={"start": enumerate_starts(5)[0]})
        >>> env.start == enumerate_starts(5)[0]
        True
    """

    start_type = DoorKeyStart

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
        """Return size, door and key, which determine the grid; a carried key is at (-1, -1)."""
        door, key = self._door, self._key
        numbers = (*door.cur_pos, door.is_open, door.is_locked, *key.cur_pos)
        return (self.width, *map(int, numbers))

    def _is_success(self, reward):
        """Return True: only the goal ends an episode, also past the time limit."""
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
        frames: number of observations stacked along the channels, oldest first. A reset repeats
            the first one.
        actions: `"task"`, the five that DoorKey needs (left, right, forward, pickup, toggle); or
            `"all"` seven of MiniGrid.
        reward: `"env"`, 1 - 0.9 * steps / max_steps at the goal; `"success"`, 1 at the goal; or
            `"book"`, as `"env"` with -0.01 for every other step.
        max_steps: time limit in steps; `None` is MiniGrid's 10 * size².
        starts: starts from which each reset draws uniformly; `None` uses MiniGrid's generator.
        render_mode: `"rgb_array"`, `"human"` or `None`.

    Returns:
        An environment whose `reset` accepts `options={"start": DoorKeyStart}`, whose last `info` of
        an episode contains `"success"`, and which has the attributes `action_names`, a tuple, and
        `state_key()`, equal for two states with the same future (`env.get_wrapper_attr`).

    Raises:
        InvalidInput: if a name is unknown, or a number is not possible.

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
    """Return the Gymnasium specification that recorded data sets store to recreate DoorKey.

    Args:
        size: side of the grid in cells, at least 5; the sizes 5, 6, 8 and 16 are registered.

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


def doorkey_task(
    sizes: int | Sequence[int] = (5,),
    *,
    observation: str = "compass",
    frames: int = 1,
    preprocessor: str = "one_hot",
    reward: str = "success",
    max_steps: int | None = None,
    held_out: bool = False,
    held_out_seed: int = 0,
) -> Task:
    """Return MiniGrid's DoorKey as a `Task`, evaluated from every start or from held-out layouts.

    Args:
        sizes: sides of the grid, a curriculum from first to last.
        observation, frames, reward, max_steps: as in `make_doorkey`.
        preprocessor: `"one_hot"`, `"constant"` (codes divided by the largest) or `"frame_maximum"`
            (the book's); see `rrl_tf.envs.preprocessing`.
        held_out: evaluate a third of the last size's layouts and do not train on them.
        held_out_seed: selects the third.

    Raises:
        InvalidInput: if an argument is not possible, or layouts are held out above 8x8, where they
            are not enumerated.

    Example:
        >>> task = doorkey_task((5, 6), held_out=True)
        >>> len(task.evaluation_resets(at_most=1000))
        240
    """
    sizes, frames = integers_from("sizes", sizes, 1), positive_int("frames", frames)
    if held_out and sizes[-1] > LARGEST_ENUMERATED:
        raise InvalidInput(
            f"held_out needs a last size of at most {LARGEST_ENUMERATED}, whose layouts are "
            f"enumerated; received size {sizes[-1]}"
        )
    check_held_out_seed(held_out, held_out_seed)
    one_of("preprocessor", preprocessor, PREPROCESSORS)
    settings: dict[str, Any] = {
        "observation": observation,
        "reward": reward,
        "max_steps": max_steps,
    }
    make = functools.partial(make_doorkey, frames=frames, **settings)
    make_graph = functools.partial(_make_graph, **settings) if frames == 1 else None
    levels = []
    for size in sizes:
        name, make_env = f"{size}x{size}", functools.partial(make, size)
        make_level_graph = make_graph and functools.partial(make_graph, size)
        if size > LARGEST_ENUMERATED:
            graphs = {"make_graph": make_level_graph, "make_test_graph": make_level_graph}
            levels.append(Level(name, make_env, **graphs))
        else:
            seed = held_out_seed if held_out and size == sizes[-1] else None
            starts = enumerate_starts(size)
            levels.append(level_of_starts(name, make_env, starts, seed, make_level_graph))
    space: Any = levels[0].make_env().observation_space
    own = {
        "constant": preprocessing.scaled,
        "frame_maximum": preprocessing.frame_maximum,
    }.get(preprocessor)
    return minigrid_task(
        f"DoorKey-{sizes[-1]}x{sizes[-1]}",
        levels,
        preprocessor=own and own(space, AGENT_CELL),
    )


def _make_graph(*arguments, **settings):
    from rrl_tf.envs.doorkey.graph import DoorKeyGraph  # loads TensorFlow

    return DoorKeyGraph(*arguments, **settings)


def _check_size(size):
    number_from("size", integer("size", size), MINIMUM_SIZE)
