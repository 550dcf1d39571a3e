"""Define Comparison, a MiniGrid world in which the agent compares two distant objects."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, SupportsFloat

import gymnasium
from gymnasium.spaces import Discrete
from minigrid.core.constants import COLOR_NAMES
from minigrid.core.grid import Grid
from minigrid.core.mission import MissionSpace
from minigrid.core.world_object import Ball, Box, Goal, Key

from rrl_tf._arguments import integers_from
from rrl_tf.envs.minigrid_env import StartableEnv, minigrid_task, wrapped
from rrl_tf.envs.minigrid_view import ACTION_NAMES, VIEW_SIZE
from rrl_tf.envs.starts import level_of_starts
from rrl_tf.envs.task import Task
from rrl_tf.errors import InvalidInput

OBJECTS = {
    f"{colour} {name}": functools.partial(kind, colour)
    for colour, (name, kind) in product(COLOR_NAMES, {"key": Key, "ball": Ball, "box": Box}.items())
}
"""All objects that a niche can hold."""

KINDS = ("red key", "red ball", "blue key", "blue ball")
"""The default objects, which differ in both type and colour."""

FIRST_NICHE = 1
FARTHEST_NICHE = FIRST_NICHE + VIEW_SIZE  # too far from the first niche for one view to show both
_BEYOND = 3  # columns from the second niche to the right edge: end of the hallway, fork, outer wall
MINIMUM_SIZE = FIRST_NICHE + 2 + _BEYOND
APART_SIZE = FARTHEST_NICHE + _BEYOND
"""Smallest size at which one view never shows both objects; smaller sizes are easier."""
_HEIGHT = 5
_HALLWAY = _HEIGHT // 2


@dataclass(frozen=True, order=True)
class ComparisonStart:
    """The state at the beginning of a Comparison episode.

    A hallway leads from the left to a fork. Its upper wall has two niches with one object each. The
    first niche is at the beginning of the hallway. The second is seven cells further right or, in
    sizes 6 to 10, at the end of the hallway. A green goal is above the fork and a red goal below
    it. An episode ends at either goal. The green goal is correct if the objects have the same type
    and colour, and the red goal if they differ. The agent starts in the hallway and faces right.

    Args:
        size: width of the grid in cells, outer walls included; at least 6.
        agent: x of the agent, from 1 to size - 3, where the hallway ends.
        first: the object in the first niche, such as `"red key"`.
        second: the object in the second niche.

    Raises:
        InvalidInput: if a value is out of range or an object is unknown.

    Example:
        >>> ComparisonStart(size=11, agent=1, first="red key", second="blue key").is_same
        False
    """

    size: int
    agent: int
    first: str
    second: str

    def __post_init__(self):
        if not (
            _is_size(self.size)
            and self.agent in range(1, self.size - 2)
            and self.first in OBJECTS
            and self.second in OBJECTS
        ):
            raise InvalidInput(
                f"a ComparisonStart must have size >= {MINIMUM_SIZE}, 1 <= agent <= size - 3, "
                f"and two objects of {tuple(OBJECTS)}; received {self!r}"
            )

    @property
    def is_same(self) -> bool:
        """Whether both objects have the same type and colour, so that the green goal is correct."""
        return self.first == self.second

    @property
    def layout(self) -> tuple[int, str, str]:
        """The values that `split_layouts` holds out together: (size, first, second)."""
        return self.size, self.first, self.second


def enumerate_comparison_starts(
    size: int, kinds: Collection[str] = KINDS
) -> tuple[ComparisonStart, ...]:
    """Return the starts of Comparison in a fixed order, with equal pairs repeated.

    K kinds form K pairs of equal objects and K(K - 1) pairs of different ones. For each position of
    the agent, a pair of equal objects occurs K - 1 times and every other pair once. Each goal is
    therefore correct in half of the starts, even for an agent that knows one of the objects.

    Args:
        size: width of the grid in cells, at least 6.
        kinds: names of the objects to compare, two or more of `OBJECTS`.

    Raises:
        InvalidInput: if the size is too small, or `kinds` repeats a name or has an unknown one.

    Example:
        >>> starts = enumerate_comparison_starts(11)
        >>> len(starts), len(set(starts)), sum(start.is_same for start in starts)
        (192, 128, 96)
    """
    if not _is_size(size):
        raise InvalidInput(
            f"`size` must be an integer of at least {MINIMUM_SIZE}; received {size!r}"
        )
    are_known = all(kind in [*OBJECTS] for kind in kinds)  # unlike a dict, accepts unhashable kinds
    if not are_known or not 2 <= len(set(kinds)) == len(kinds):
        raise InvalidInput(
            f"`kinds` must be two or more different names of {tuple(OBJECTS)}; received {kinds!r}"
        )
    return tuple(
        ComparisonStart(size, agent, first, second)
        for agent, first, second in product(range(1, size - 2), kinds, kinds)
        for _ in range(len(kinds) - 1 if first == second else 1)
    )


class Comparison(StartableEnv):
    """A MiniGrid world with the delayed same-different task of psychology.

    The correct goal depends on both objects. From size 11 on, one view never shows both, so the
    agent must remember at least one. From size 14 on, the view from the fork shows neither unless
    the agent turns back, so it must remember both. An agent that starts beyond a niche can turn
    around to see it. The actions are MiniGrid's `left`, `right` and `forward`. The last `info` of
    an episode contains `"success"`.

    Args:
        size: width of the grid in cells, at least 6.
        kinds: names of the objects to compare, two or more of `OBJECTS`.
        max_steps: time limit in steps; `None` is 5 * size², as in MiniGrid's Memory.
        starts: starts from which each reset draws uniformly; their objects need not be in `kinds`.
            `None` uses `enumerate_comparison_starts(size, kinds)`.
        render_mode: `"rgb_array"`, `"human"` or `None`.

    Raises:
        InvalidInput: if a size, kind, limit or start is invalid.

    Example:
        >>> env = Comparison(size=11)
        >>> observation, info = env.reset(options={"start": enumerate_comparison_starts(11)[0]})
        >>> env.start == enumerate_comparison_starts(11)[0]
        True
    """

    action_names = ACTION_NAMES[:3]
    start_type = ComparisonStart

    def __init__(
        self,
        size: int = APART_SIZE,
        kinds: Collection[str] = KINDS,
        max_steps: int | None = None,
        starts: Iterable[ComparisonStart] | None = None,
        render_mode: str | None = None,
    ) -> None:
        all_starts = enumerate_comparison_starts(size, kinds)
        super().__init__(
            all_starts if starts is None else starts,
            5 * size**2 if max_steps is None else max_steps,
            mission_space=MissionSpace(mission_func=self._gen_mission),
            width=size,
            height=_HEIGHT,
            render_mode=render_mode,
        )
        self.action_space = Discrete(len(self.action_names))

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take one of the three actions.

        Raises:
            InvalidInput: if `action` is not an action.
        """
        if not self.action_space.contains(action):
            raise InvalidInput(f"an action must be 0, 1 or 2; received {action!r}")
        return super().step(action)

    def contents(self) -> tuple[Any, ...]:
        """Return the size and the two objects, which determine the grid."""
        return self.start.layout

    def _reward(self):
        """Return MiniGrid's reward at the correct goal, and 0 at the other one."""
        is_green = self.agent_pos[1] < _HALLWAY
        return super()._reward() if is_green == self.start.is_same else 0

    @staticmethod
    def _gen_mission():
        return "go to the green goal if both objects are the same, to the red one if they are not"

    def _gen_grid(self, width, height):
        self.start = self._chosen_start()
        fork = width - 2
        self.grid = Grid(width, height)
        for y in set(range(height)) - {_HALLWAY}:
            self.grid.horz_wall(0, y)
        self.grid.vert_wall(0, 0)
        self.grid.vert_wall(width - 1, 0)
        self.put_obj(OBJECTS[self.start.first](), FIRST_NICHE, _HALLWAY - 1)
        self.put_obj(OBJECTS[self.start.second](), second_niche(width), _HALLWAY - 1)
        self.put_obj(Goal("green"), fork, _HALLWAY - 1)
        self.put_obj(Goal("red"), fork, _HALLWAY + 1)
        self.agent_pos = (self.start.agent, _HALLWAY)
        self.agent_dir = 0
        self.mission = self._gen_mission()


def make_comparison(
    size: int = APART_SIZE,
    kinds: Collection[str] = KINDS,
    frames: int = 1,
    reward: str = "success",
    max_steps: int | None = None,
    starts: Iterable[ComparisonStart] | None = None,
    render_mode: str | None = None,
) -> gymnasium.Env:
    """Return a Comparison environment with its wrappers.

    Observations are MiniGrid's egocentric (7, 7, 4) uint8 image, axes (x, y) and channels
    (object, colour, state, direction of the agent).

    Args:
        size: width of the grid in cells, at least 6.
        kinds: names of the objects to compare, two or more of `OBJECTS`.
        frames: number of observations stacked along the channels, oldest first.
        reward: reward at the correct goal: `"success"`, 1; or `"env"`, 1 - 0.9 * steps / max_steps.
        max_steps: time limit in steps; `None` is 5 * size².
        starts: starts from which each reset draws uniformly; `None` uses
            `enumerate_comparison_starts(size, kinds)`.
        render_mode: `"rgb_array"`, `"human"` or `None`.

    Returns:
        An environment like that of `make_doorkey`, whose option `"start"` of `reset` is a
        `ComparisonStart`.

    Raises:
        InvalidInput: if a name is unknown, or a number is out of range.

    Example:
        >>> env = make_comparison(size=14)
        >>> env.reset(seed=1)[0].shape
        (7, 7, 4)
        >>> env.get_wrapper_attr("action_names")
        ('left', 'right', 'forward')
    """
    return wrapped(Comparison(size, kinds, max_steps, starts, render_mode), frames, reward)


def comparison_task(
    sizes: int | Sequence[int] = (APART_SIZE,),
    *,
    kinds: Collection[str] = KINDS,
    frames: int = 1,
    reward: str = "success",
    max_steps: int | None = None,
) -> Task:
    """Return Comparison as a `Task`, evaluated from every start.

    Half of these starts have equal objects, so a policy that does not know both objects at the fork
    succeeds half of the time.

    Args:
        sizes: widths of the grid, at least 6: one level each, in the order of the curriculum.
        kinds, frames, reward, max_steps: as in `make_comparison`, for all levels.

    Raises:
        InvalidInput: if an argument is invalid.

    Example:
        >>> task = comparison_task((11, 14))
        >>> len(task.evaluation_resets(at_most=1000)), task.action_names
        (264, ('left', 'right', 'forward'))
    """
    sizes = integers_from("sizes", sizes, 1)
    settings: dict[str, Any] = {"frames": frames, "reward": reward, "max_steps": max_steps}
    levels = [
        level_of_starts(
            f"S{size}",
            functools.partial(make_comparison, size, kinds, **settings),
            enumerate_comparison_starts(size, kinds),
        )
        for size in sizes
    ]
    return minigrid_task(f"ComparisonS{sizes[-1]}", levels, coloured=True)


def second_niche(size: int) -> int:
    """Return the x coordinate of the second niche in a grid of this size."""
    return min(FARTHEST_NICHE, size - _BEYOND)


def _is_size(size):
    return isinstance(size, int) and size >= MINIMUM_SIZE
