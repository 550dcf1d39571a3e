"""MiniGrid Memory: every start it can have, and the environment an agent is trained in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any, SupportsFloat

import gymnasium
from minigrid.core.world_object import Wall
from minigrid.envs import MemoryEnv

from rrl_tf._arguments import one_of, optional_positive_int, positive_int
from rrl_tf.envs import wrappers
from rrl_tf.envs.chosen_starts import ChosenStarts
from rrl_tf.envs.field_of_view import FieldOfView
from rrl_tf.envs.minigrid_view import ACTION_NAMES
from rrl_tf.errors import InvalidInput

MINIMUM_SIZE = 7
SHORTEST_HALLWAY = 4  # x of the start room's door, where the hallway can end at once

# In MiniGrid's order, by which it draws.
_OBJECTS = ("key", "ball")
_UPPER_OBJECTS = ("ball", "key")

ACTIONS = {"moves": (0, 1, 2), "all": tuple(range(len(ACTION_NAMES)))}
REWARDS = {
    "env": lambda reward, terminated: float(reward),
    # The wrong object ends an episode too.
    "success": lambda reward, terminated: float(reward > 0),
}


@dataclass(frozen=True, order=True)
class MemoryStart:
    """Where everything stands at the beginning of a Memory episode.

    A room on the left shows an object, a hallway leads to the right, and above and below its end
    lie a key and a ball: the episode ends at one of them, and is a success where it is the same as
    the one in the room. The agent starts in the row of the hallway and looks to the right.

    Args:
        size: Side of the square grid in cells, outer walls included; odd, at least 7.
        hallway_end: x of the hallway's last cell, from 4 to size - 3.
        agent: x of the agent, from 1 to `hallway_end`.
        shown: The object in the room, `"key"` or `"ball"`.
        upper: The object above the end of the hallway; the other one is below.

    Raises:
        InvalidInput: MiniGrid cannot generate this start.

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
                f"a Memory episode starts with an odd size from {MINIMUM_SIZE} up, "
                f"{SHORTEST_HALLWAY} <= hallway_end <= size - 3, 1 <= agent <= hallway_end, and "
                f"objects of {_OBJECTS}; received {self!r}"
            )

    @property
    def layout(self) -> tuple[int, int]:
        """What can be held out: (size, hallway_end), how long there is to remember."""
        return self.size, self.hallway_end


def enumerate_memory_starts(size: int, random_length: bool = False) -> tuple[MemoryStart, ...]:
    """Returns every start that MiniGrid's Memory of this size can generate, in a fixed order.

    Args:
        size: Side of the grid in cells, odd, at least 7.
        random_length: Whether the hallway has any length that fits, or the longest.

    Raises:
        InvalidInput: The size is even or too small.

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


class Memory(ChosenStarts, MemoryEnv):
    """MiniGrid's Memory, that can also begin where one wants and tell its state.

    Without `starts` and `options` it is MiniGrid's own: the same seed gives the same grid, and the
    same actions the same observations and rewards. In addition `info["success"]` tells at the end
    of an episode whether the right object was reached.

    Args:
        size: Side of the grid in cells, odd, at least 7.
        random_length: Whether the length of the hallway is drawn.
        max_steps: Time limit in steps; `None` is MiniGrid's 5 * size².
        starts: Starts to draw from at each reset, uniformly; `None` is MiniGrid's generator.
        render_mode: `"rgb_array"`, `"human"` or `None`.

    Raises:
        InvalidInput: A size, limit or start that is not possible.

    Example:
        >>> env = Memory(size=7)
        >>> observation, info = env.reset(options={"start": enumerate_memory_starts(7)[0]})
        >>> env.start == enumerate_memory_starts(7)[0]
        True
    """

    action_names = ACTION_NAMES
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
        max_steps = optional_positive_int("max_steps", max_steps)
        super().__init__(size, random_length, max_steps, render_mode=render_mode)
        self._draws: list[int] = []  # what the generator draws next, last first
        self._drawn: list[int] = []
        self.draw_from(starts)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Takes one of the seven actions of MiniGrid."""
        observation, reward, terminated, truncated, info = super().step(action)
        if terminated or truncated:
            info["success"] = bool(reward > 0)
        return observation, reward, terminated, truncated, info

    def gen_obs(self) -> dict[str, Any]:
        """Returns what the agent sees: MiniGrid's observation, sooner."""
        image = self._field_of_view.look(tuple(self.agent_pos), self.agent_dir)
        return {"image": image, "direction": self.agent_dir, "mission": self.mission}

    def state_key(self) -> tuple[Any, ...]:
        """Returns a tuple that is equal for two states exactly when they have the same future.

        Nothing but the agent moves here. The number of steps taken is left out, and so is what an
        agent remembers: one with a memory may come back to a state and not go round in a circle.
        """
        start, position = self.start, tuple(map(int, self.agent_pos))
        return (*start.layout, start.shown, start.upper, *position, int(self.agent_dir))

    def _gen_grid(self, width, height):
        start = self._chosen_start()
        if start is not None:  # MiniGrid builds it, as if it had drawn these numbers
            objects = (_UPPER_OBJECTS.index(start.upper), _OBJECTS.index(start.shown))
            length = [start.hallway_end] if self.random_length else []
            self._draws = [*objects, start.agent, *length]
        self._drawn = []
        super()._gen_grid(width, height)
        *length, agent, shown, upper = self._drawn
        hallway_end = length[0] if length else width - 3
        self.start = MemoryStart(width, hallway_end, agent, _OBJECTS[shown], _UPPER_OBJECTS[upper])
        self._field_of_view = FieldOfView(self.grid.encode(), wall=Wall().encode())

    def _rand_int(self, low, high):
        self._drawn.append(self._draws.pop() if self._draws else int(super()._rand_int(low, high)))
        return self._drawn[-1]

    def _check_start(self, start):
        super()._check_start(start)
        longest = self.width - 3
        if start.hallway_end < longest and not self.random_length:
            raise InvalidInput(
                f"without random_length, hallways end at x = {longest}; received {start!r}"
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
    """Builds a Memory environment, wrapped in the order the lines below have.

    Observations are the egocentric (7, 7, 4) uint8 image of MiniGrid, axes (x, y) and channels
    (object, colour, state, direction of the agent).

    Args:
        size: Side of the grid in cells, odd, at least 7.
        random_length: Whether the length of the hallway is drawn.
        frames: Number of the last observations stacked along the channels, oldest first.
        actions: `"moves"`, the three that Memory needs (left, right, forward), or `"all"` seven of
            MiniGrid.
        reward: `"success"`, 1 at the right object; or `"env"`, 1 - 0.9 * steps / max_steps there.
        max_steps: Time limit in steps; `None` is MiniGrid's 5 * size².
        starts: Starts to draw from at each reset, uniformly; `None` is MiniGrid's generator.
        render_mode: `"rgb_array"`, `"human"` or `None`.

    Returns:
        An environment like `make_doorkey`'s, with `MemoryStart`s.

    Raises:
        InvalidInput: An unknown name, or a number that is not possible.

    Example:
        >>> env = make_memory(size=17, random_length=True)  # or make("rrl_tf/MemoryS17Random-v0")
        >>> env.reset(seed=1)[0].shape
        (7, 7, 4)
        >>> env.get_wrapper_attr("action_names")
        ('left', 'right', 'forward')
    """
    one_of("actions", actions, tuple(ACTIONS))
    one_of("reward", reward, tuple(REWARDS))
    positive_int("frames", frames)
    env: gymnasium.Env = Memory(size, random_length, max_steps, starts, render_mode)
    env = wrappers.ViewWithCompass(env)
    env = wrappers.StackFrames(env, frames)
    env = wrappers.SelectActions(env, ACTIONS[actions])
    env = wrappers.ReplaceReward(env, REWARDS[reward])
    return env


def _is_size(size):
    return isinstance(size, int) and size >= MINIMUM_SIZE and size % 2 == 1


def _check_size(size):
    if not _is_size(size):
        raise InvalidInput(f"size must be odd and at least {MINIMUM_SIZE}; received {size!r}")


for _size in (7, 9, 11, 13, 15, 17):
    for _random_length, _name in ((False, ""), (True, "Random")):
        gymnasium.register(
            f"rrl_tf/MemoryS{_size}{_name}-v0",
            "rrl_tf.envs.memory:make_memory",
            kwargs={"size": _size, "random_length": _random_length},
            disable_env_checker=True,
        )
