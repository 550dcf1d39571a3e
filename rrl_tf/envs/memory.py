"""Define MiniGrid's Memory: its starts, the environment and the task."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import gymnasium
from minigrid.envs import MemoryEnv

from rrl_tf._arguments import integers_from, one_of
from rrl_tf.envs.minigrid_env import StartableEnv, minigrid_task, wrapped
from rrl_tf.envs.minigrid_view import ACTION_NAMES
from rrl_tf.envs.starts import check_held_out_seed, level_of_starts
from rrl_tf.envs.task import Task
from rrl_tf.errors import InvalidInput

MINIMUM_SIZE = 7
SHORTEST_HALLWAY = 4  # x of the last cell of the shortest hallway, next to the start room

# Objects in the order of the random numbers with which MiniGrid selects them.
_OBJECTS = ("key", "ball")
_UPPER_OBJECTS = ("ball", "key")

ACTIONS = {"moves": (0, 1, 2), "all": tuple(range(len(ACTION_NAMES)))}


@dataclass(frozen=True, order=True)
class MemoryStart:
    """The state at the beginning of a Memory episode.

    A room on the left contains an object, and a hallway leads from the room to the right. A key and
    a ball lie above and below the end of the hallway. The episode ends when the agent reaches one
    of these two; it succeeds at the one that equals the object in the room. The agent starts in the
    row of the hallway and faces right.

    Args:
        size: side of the square grid in cells, outer walls included; odd, at least 7.
        hallway_end: x of the hallway's last cell, from 4 to size - 3.
        agent: x of the agent, from 1 to `hallway_end`.
        shown: the object in the room, `"key"` or `"ball"`.
        upper: the object above the end of the hallway; the other one is below.

    Raises:
        InvalidInput: if MiniGrid cannot generate this start.

    Example:
        >>> MemoryStart(size=7, hallway_end=4, agent=1, shown="key", upper="ball").layout
        (7, 4)
    """

    size: int
    hallway_end: int
    agent: int
    shown: str
    upper: str

    def __post_init__(self):
        if not (
            _is_size(self.size)
            and isinstance(self.hallway_end, int)
            and isinstance(self.agent, int)
            and SHORTEST_HALLWAY <= self.hallway_end <= self.size - 3
            and 1 <= self.agent <= self.hallway_end
            and all(each in _OBJECTS for each in (self.shown, self.upper))
        ):
            raise InvalidInput(
                f"a MemoryStart must have an odd size of at least {MINIMUM_SIZE}, "
                f"{SHORTEST_HALLWAY} <= hallway_end <= size - 3, 1 <= agent <= hallway_end, and "
                f"objects of {_OBJECTS}; received {self!r}"
            )

    @property
    def layout(self) -> tuple[int, int]:
        """The values that `split_layouts` holds out together: (size, hallway_end)."""
        return self.size, self.hallway_end


def enumerate_memory_starts(size: int, random_length: bool = False) -> tuple[MemoryStart, ...]:
    """Return every start that MiniGrid's Memory of this size can generate, in a fixed order.

    Args:
        size: side of the grid in cells, odd, at least 7.
        random_length: whether to include hallways of every length, or only the longest.

    Raises:
        InvalidInput: if the size is even or too small.

    Example:
        >>> len(enumerate_memory_starts(7)), len(enumerate_memory_starts(17, random_length=True))
        (16, 396)
    """
    _check_size(size)
    shortest = SHORTEST_HALLWAY if random_length else size - 3
    return tuple(
        MemoryStart(size, hallway_end, agent, shown, upper)
        for hallway_end in range(shortest, size - 2)
        for agent, shown, upper in product(range(1, hallway_end + 1), _OBJECTS, _OBJECTS)
    )


class Memory(StartableEnv, MemoryEnv):
    """MiniGrid's Memory with chosen starts, `info["success"]` and `state_key()`.

    Without `starts` and reset options, the same seed and actions lead to the same grids,
    observations and rewards as in MiniGrid.

    Args:
        size: side of the grid in cells, odd, at least 7.
        random_length: whether the length of the hallway is random.
        max_steps: time limit in steps; `None` is MiniGrid's 5 * size².
        starts: starts from which each reset draws uniformly; `None` uses MiniGrid's generator.
        render_mode: `"rgb_array"`, `"human"` or `None`.

    Raises:
        InvalidInput: if a size, limit or start is invalid.

    Example:
        >>> env = Memory(size=7)
        >>> observation, info = env.reset(options={"start": enumerate_memory_starts(7)[0]})
        >>> env.start == enumerate_memory_starts(7)[0]
        True
    """

    start_type = MemoryStart

    def __init__(
        self,
        size: int = 7,
        random_length: bool = False,
        max_steps: int | None = None,
        starts: Iterable[MemoryStart] | None = None,
        render_mode: str | None = None,
    ) -> None:
        _check_size(size)
        options = {"size": size, "random_length": random_length, "render_mode": render_mode}
        super().__init__(starts, max_steps, **options)

    def contents(self) -> tuple[Any, ...]:
        """Return the layout and the objects, which determine the grid."""
        return (*self.start.layout, self.start.shown, self.start.upper)

    def _gen_grid(self, width, height):
        start = self._chosen_start()
        self._draws: list[int] = []  # results that the next random draws return, the last one first
        self._drawn: list[int] = []  # results of all draws of this grid
        if start is not None:  # `_rand_int` returns these numbers instead of random ones
            objects = (_UPPER_OBJECTS.index(start.upper), _OBJECTS.index(start.shown))
            length = [start.hallway_end] if self.random_length else []
            self._draws = [*objects, start.agent, *length]
        super()._gen_grid(width, height)
        *length, agent, shown, upper = self._drawn
        hallway_end = length[0] if length else width - 3
        self.start = MemoryStart(width, hallway_end, agent, _OBJECTS[shown], _UPPER_OBJECTS[upper])

    def _rand_int(self, low, high):
        self._drawn.append(self._draws.pop() if self._draws else int(super()._rand_int(low, high)))
        return self._drawn[-1]

    def _checked(self, start):
        super()._checked(start)
        longest = self.width - 3
        if start.hallway_end < longest and not self.random_length:
            raise InvalidInput(
                f"`hallway_end` of a start must be {longest} without `random_length`; "
                f"received {start!r}"
            )
        return start


def make_memory(
    size: int = 7,
    random_length: bool = False,
    frames: int = 1,
    actions: str = "moves",
    reward: str = "success",
    max_steps: int | None = None,
    starts: Iterable[MemoryStart] | None = None,
    render_mode: str | None = None,
) -> gymnasium.Env:
    """Return a Memory environment with its wrappers.

    Observations are MiniGrid's egocentric (7, 7, 4) uint8 image, axes (x, y) and channels
    (object, colour, state, direction of the agent).

    Args:
        size: side of the grid in cells, odd, at least 7.
        random_length: whether the length of the hallway is random.
        frames: number of observations stacked along the channels, oldest first.
        actions: `"moves"`, the three that Memory needs (left, right, forward); or `"all"`, the
            seven of MiniGrid.
        reward: reward at the correct object: `"success"`, 1; or `"env"`,
            1 - 0.9 * steps / max_steps.
        max_steps: time limit in steps; `None` is MiniGrid's 5 * size².
        starts: starts from which each reset draws uniformly; `None` uses MiniGrid's generator.
        render_mode: `"rgb_array"`, `"human"` or `None`.

    Returns:
        An environment like that of `make_doorkey`, whose option `"start"` of `reset` is a
        `MemoryStart`.

    Raises:
        InvalidInput: if a name is unknown, or a number is out of range.

    Example:
        >>> env = make_memory(size=17, random_length=True)  # or make("rrl_tf/MemoryS17Random-v0")
        >>> env.reset(seed=1)[0].shape
        (7, 7, 4)
        >>> env.get_wrapper_attr("action_names")
        ('left', 'right', 'forward')
    """
    codes = ACTIONS[one_of("actions", actions, tuple(ACTIONS))]
    env = Memory(size, random_length, max_steps, starts, render_mode)
    return wrapped(env, frames, reward, codes)


def memory_task(
    sizes: int | Sequence[int] = (7,),
    *,
    random_length: bool = False,
    frames: int = 1,
    reward: str = "success",
    max_steps: int | None = None,
    held_out: bool = False,
    held_out_seed: int = 0,
) -> Task:
    """Return MiniGrid's Memory as a `Task`, evaluated from every start or from held-out lengths.

    From size 11 on, a policy without a memory succeeds half of the time. In smaller grids, the
    agent can look back from the end of the hallway and see the object.

    Args:
        sizes: sides of the grid, at least 7: one level each, in the order of the curriculum.
            MiniGrid's sizes are odd. An even size N means a grid of size N + 1 whose hallway is one
            cell shorter than the longest.
        random_length: whether the last level has hallways of every length. The other levels always
            have the longest hallway, which makes memory most necessary.
        frames, reward, max_steps: as in `make_memory`, for all levels.
        held_out: whether to exclude a third of the last level's hallway lengths from training and
            evaluate on these only. Lengths that occur in other levels are never held out.
        held_out_seed: seed that selects the held-out third.

    Raises:
        InvalidInput: if an argument is invalid, or `held_out` is used without `random_length`.

    Example:
        >>> task = memory_task((9, 13, 17), random_length=True)
        >>> len(task.evaluation_resets(at_most=1000)), task.action_names
        (396, ('left', 'right', 'forward'))
    """
    sizes = integers_from("sizes", sizes, 1)
    if held_out and not random_length:
        raise InvalidInput("`held_out` requires `random_length`; received random_length=False")
    check_held_out_seed(held_out, held_out_seed)
    make = functools.partial(make_memory, frames=frames, reward=reward, max_steps=max_steps)
    *easier, last = sizes
    if not random_length:
        levels = [_level(make, size) for size in sizes]
    else:
        starts = enumerate_memory_starts(last, random_length=True)
        seed = held_out_seed if held_out else None
        trained = {(last, size - 3) for size in easier}
        make_last = functools.partial(make, last, True)
        levels = [_level(make, size) for size in easier]
        levels.append(level_of_starts(f"S{last}", make_last, starts, seed, trained=trained))
    return minigrid_task(f"MemoryS{last}{'Random' if random_length else ''}", levels)


def _level(make, size):
    """Return the level of a size; even sizes mean a shorter hallway, as `memory_task` describes."""
    if size % 2 or size < MINIMUM_SIZE:
        make = functools.partial(make, size, False)
        return level_of_starts(f"S{size}", make, enumerate_memory_starts(size))
    hallways = enumerate_memory_starts(size + 1, random_length=True)
    shorter = tuple(start for start in hallways if start.hallway_end == size - 3)
    make = functools.partial(_make_from, make, size + 1, shorter)
    return level_of_starts(f"S{size}", make, shorter)


def _make_from(make, size, all_starts, starts=None, **options):
    """Make an environment with `starts`, by default `all_starts`. A lambda could not be pickled."""
    return make(size, True, starts=starts or all_starts, **options)


def _is_size(size):
    return isinstance(size, int) and size >= MINIMUM_SIZE and size % 2 == 1


def _check_size(size):
    if not _is_size(size):
        raise InvalidInput(f"`size` must be odd and at least {MINIMUM_SIZE}; received {size!r}")
