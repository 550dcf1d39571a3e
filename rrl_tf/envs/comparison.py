"""Comparison: two objects are seen apart, and whether they are alike is asked later."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any, SupportsFloat

import gymnasium
from gymnasium.spaces import Discrete
from minigrid.core.constants import COLOR_NAMES
from minigrid.core.grid import Grid
from minigrid.core.mission import MissionSpace
from minigrid.core.world_object import Ball, Box, Goal, Key, Wall

from rrl_tf._arguments import one_of, optional_positive_int, positive_int
from rrl_tf.envs import wrappers
from rrl_tf.envs.chosen_starts import ChosenStarts
from rrl_tf.envs.field_of_view import FieldOfView
from rrl_tf.envs.memory import REWARDS
from rrl_tf.envs.minigrid_view import ACTION_NAMES, VIEW_SIZE
from rrl_tf.errors import InvalidInput

OBJECTS = {
    f"{colour} {name}": functools.partial(kind, colour)
    for colour, (name, kind) in product(COLOR_NAMES, {"key": Key, "ball": Ball, "box": Box}.items())
}
"""Whatever can lie in a niche."""

KINDS = ("red key", "red ball", "blue key", "blue ball")
"""What does, if nothing else is asked for: to compare them takes both type and colour."""

FIRST_NICHE = 1
FARTHEST_NICHE = FIRST_NICHE + VIEW_SIZE  # no view, whichever way it is turned, reaches both
_BEYOND = 3  # the hallway reaches the second niche; the fork and a wall follow
MINIMUM_SIZE = FIRST_NICHE + 2 + _BEYOND
APART_SIZE = FARTHEST_NICHE + _BEYOND
"""From this size on two objects are never in view together; smaller ones are to learn on."""
_HEIGHT = 5
_HALLWAY = _HEIGHT // 2


@dataclass(frozen=True, order=True)
class ComparisonStart:
    """Where everything stands at the beginning of a Comparison episode.

    A hallway leads from the left to a fork. Two niches in its upper wall hold an object each, the
    first where the hallway begins and the second seven cells further, or in hallways shorter than
    that, sizes 6 to 10, where they end. Above the fork lies a green
    goal and below it a red one: the episode ends at either, and is a success at the green one if
    the objects are the same in type and colour, at the red one if they are not. The agent starts
    in the hallway and looks to the right.

    Args:
        size: Width of the grid in cells, outer walls included; at least 6.
        agent: x of the agent, from 1 to size - 3, where the hallway ends.
        first: The object in the first niche, such as `"red key"`.
        second: The object in the second niche.

    Raises:
        InvalidInput: No episode starts like this.

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
                f"a Comparison episode starts with a size of at least {MINIMUM_SIZE}, "
                f"1 <= agent <= size - 3, and two objects of {tuple(OBJECTS)}; received {self!r}"
            )

    @property
    def is_same(self) -> bool:
        """Whether the objects are alike, so that the upper goal is the right one."""
        return self.first == self.second

    @property
    def layout(self) -> tuple[int, str, str]:
        """What the agent cannot choose: (size, first, second)."""
        return self.size, self.first, self.second


def enumerate_comparison_starts(
    size: int, kinds: Collection[str] = KINDS
) -> tuple[ComparisonStart, ...]:
    """Returns the starts of Comparison, each as often as it is to occur, in a fixed order.

    Of K kinds there are K pairs of objects that are the same and K(K - 1) that are not. So that
    either answer is right half of the time, whatever is known of one object alone, the first ones
    occur K - 1 times, for each place of the agent.

    Args:
        size: Width of the grid in cells, at least 6.
        kinds: The objects there are to compare, two or more of `OBJECTS`.

    Raises:
        InvalidInput: The size is too small, or the kinds are not such objects.

    Example:
        >>> starts = enumerate_comparison_starts(11)
        >>> len(starts), len(set(starts)), sum(start.is_same for start in starts)
        (192, 128, 96)
    """
    _check_size(size)
    _check_kinds(kinds)
    return tuple(
        ComparisonStart(size, agent, first, second)
        for agent, first, second in product(range(1, size - 2), kinds, kinds)
        for _ in range(len(kinds) - 1 if first == second else 1)
    )


class Comparison(ChosenStarts):
    """The delayed same-different task of psychology, in MiniGrid.

    To answer takes both objects, which from size 11 on are never in view together: one of them at
    least must be remembered, and from size 14 on both, as neither is in view from the fork unless
    the agent turns back. An agent that starts past a niche can turn round as well. There are three
    actions, MiniGrid's `left`, `right` and `forward`. At the end of an episode `info["success"]`
    tells whether the right goal was reached.

    Args:
        size: Width of the grid in cells, at least 6.
        kinds: The objects there are to compare, two or more of `OBJECTS`.
        max_steps: Time limit in steps; `None` is 5 * size², as in MiniGrid's Memory.
        starts: Starts to draw from at each reset, uniformly, with whatever objects; `None` is
            `enumerate_comparison_starts(size, kinds)`.
        render_mode: `"rgb_array"`, `"human"` or `None`.

    Raises:
        InvalidInput: A size, kind, limit or start that is not possible.

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
            MissionSpace(mission_func=self._gen_mission),
            width=size,
            height=_HEIGHT,
            max_steps=optional_positive_int("max_steps", max_steps) or 5 * size**2,
            render_mode=render_mode,
        )
        self.action_space = Discrete(len(self.action_names))
        self.draw_from(all_starts if starts is None else starts)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Takes one of the three actions.

        Raises:
            InvalidInput: There is no such action.
        """
        if not self.action_space.contains(action):
            raise InvalidInput(f"an action must be 0, 1 or 2; received {action!r}")
        observation, reward, terminated, truncated, info = super().step(action)
        says_same = bool(self.agent_pos[1] < _HALLWAY)
        success = terminated and says_same == self.start.is_same
        if terminated or truncated:
            info["success"] = success
        return observation, reward if success else 0, terminated, truncated, info

    def gen_obs(self) -> dict[str, Any]:
        """Returns what the agent sees: MiniGrid's observation, sooner."""
        image = self._field_of_view.look(tuple(self.agent_pos), self.agent_dir)
        return {"image": image, "direction": self.agent_dir, "mission": self.mission}

    def state_key(self) -> tuple[Any, ...]:
        """Returns a tuple that is equal for two states exactly when they have the same future.

        Nothing but the agent moves here. The number of steps taken is left out, and so is what an
        agent remembers: one with a memory may come back to a state and not go round in a circle.
        """
        return (*self.start.layout, *map(int, self.agent_pos), int(self.agent_dir))

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
        self._field_of_view = FieldOfView(self.grid.encode(), wall=Wall().encode())


def make_comparison(
    size: int = APART_SIZE,
    kinds: Collection[str] = KINDS,
    frames: int = 1,
    reward: str = "success",
    max_steps: int | None = None,
    starts: Iterable[ComparisonStart] | None = None,
    render_mode: str | None = None,
) -> gymnasium.Env:
    """Builds a Comparison environment, wrapped in the order the lines below have.

    Observations are the egocentric (7, 7, 4) uint8 image of MiniGrid, axes (x, y) and channels
    (object, colour, state, direction of the agent).

    Args:
        size: Width of the grid in cells, at least 6.
        kinds: The objects there are to compare, two or more of `OBJECTS`.
        frames: Number of the last observations stacked along the channels, oldest first.
        reward: `"success"`, 1 at the right goal; or `"env"`, 1 - 0.9 * steps / max_steps there.
        max_steps: Time limit in steps; `None` is 5 * size².
        starts: Starts to draw from at each reset, uniformly; `None` is
            `enumerate_comparison_starts(size, kinds)`.
        render_mode: `"rgb_array"`, `"human"` or `None`.

    Returns:
        An environment like `make_memory`'s, with `ComparisonStart`s.

    Raises:
        InvalidInput: An unknown name, or a number that is not possible.

    Example:
        >>> env = make_comparison(size=14)
        >>> env.reset(seed=1)[0].shape
        (7, 7, 4)
        >>> env.get_wrapper_attr("action_names")
        ('left', 'right', 'forward')
    """
    one_of("reward", reward, tuple(REWARDS))
    positive_int("frames", frames)
    env: gymnasium.Env = Comparison(size, kinds, max_steps, starts, render_mode)
    env = wrappers.ViewWithCompass(env)
    env = wrappers.StackFrames(env, frames)
    env = wrappers.ReplaceReward(env, REWARDS[reward])
    return env


def second_niche(size: int) -> int:
    """x of the second niche in a grid of this size."""
    return min(FARTHEST_NICHE, size - _BEYOND)


def _is_size(size):
    return isinstance(size, int) and size >= MINIMUM_SIZE


def _check_size(size):
    if not _is_size(size):
        raise InvalidInput(f"size must be an integer of at least {MINIMUM_SIZE}; received {size!r}")


def _check_kinds(kinds):
    are_known = all(kind in [*OBJECTS] for kind in kinds)  # a list is in no set
    if not are_known or not 2 <= len(set(kinds)) == len(kinds):
        raise InvalidInput(
            f"kinds must be two or more different ones of {tuple(OBJECTS)}; received {kinds!r}"
        )
