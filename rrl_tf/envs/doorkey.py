"""MiniGrid DoorKey: every start it can have, and the environment an agent is trained in."""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from minigrid.core.grid import Grid
from minigrid.core.world_object import Door, Goal, Key, Wall
from minigrid.envs import DoorKeyEnv

from rrl_tf._arguments import integer, natural, number_from, optional_positive_int
from rrl_tf.envs import wrappers
from rrl_tf.envs.chosen_starts import ChosenStarts
from rrl_tf.envs.field_of_view import FieldOfView
from rrl_tf.envs.minigrid_view import ACTION_NAMES
from rrl_tf.errors import InvalidInput

MINIMUM_SIZE = 5  # MiniGrid's generator has no room for a wall, a door and a key in a smaller grid


@dataclass(frozen=True, order=True)
class DoorKeyStart:
    """Where everything stands at the beginning of a DoorKey episode.

    A vertical wall with a locked door splits the grid; key and agent are on its left, the goal is
    in the corner at the bottom right. Cells are (x, y) with (0, 0) at the top left, as in MiniGrid.

    Args:
        size: Side of the square grid in cells, outer walls included; at least 5.
        wall: x of the splitting wall.
        door: y of the door in that wall.
        key: (x, y) of the key.
        agent: (x, y) of the agent.
        direction: Where the agent looks: 0 right, 1 down, 2 left, 3 up.

    Raises:
        ValueError: MiniGrid cannot generate this start.

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
        except TypeError:  # no number, no pair
            is_possible = False
        if not is_possible:
            raise InvalidInput(
                f"No DoorKey episode starts at {self}: expected size >= {MINIMUM_SIZE}, "
                "2 <= wall <= size - 3, 1 <= door <= size - 3, key and agent in different cells "
                "(x, y) with 1 <= x < wall and 1 <= y <= size - 2, and a direction of 0, 1, 2 or 3."
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
        """What the agent cannot choose: (size, wall, door, key)."""
        return self.size, self.wall, self.door, self.key


def enumerate_starts(size: int) -> tuple[DoorKeyStart, ...]:
    """Returns every start that MiniGrid's DoorKey of this size can generate, in a fixed order.

    Random seeds repeat a few starts many times over; a list of all of them makes an evaluation
    exact.

    Args:
        size: Side of the grid in cells, at least 5.

    Raises:
        ValueError: The size is too small.

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


def split_layouts(
    starts: Iterable[DoorKeyStart], held_out: float = 1 / 3, seed: int = 0
) -> tuple[tuple[DoorKeyStart, ...], tuple[DoorKeyStart, ...]]:
    """Splits starts into training and test starts that share no layout.

    A start whose layout was trained on from another corner is not new to the agent, so whole
    layouts (walls, door and key) are held out.

    Args:
        starts: The starts to split; the answer keeps their order.
        held_out: Share of the layouts in the test part, between 0 and 1.
        seed: Which layouts these are, 0 or more.

    Returns:
        (training starts, test starts).

    Raises:
        ValueError: One part would be empty, or a number is out of range.

    Example:
        >>> train, test = split_layouts(enumerate_starts(6))
        >>> len({start.layout for start in train}), len({start.layout for start in test})
        (24, 12)
    """
    number_from("held_out", held_out, 0, 1)
    seed = natural("held_out_seed", seed)
    starts = tuple(starts)
    layouts = sorted({start.layout for start in starts})
    num_test = round(held_out * len(layouts))
    if not 0 < num_test < len(layouts):
        raise InvalidInput(
            f"held_out={held_out!r} of {len(layouts)} layouts leaves {num_test} to test on and "
            f"{len(layouts) - num_test} to train on: expected at least one of each."
        )
    chosen = np.random.default_rng(seed).permutation(len(layouts))[:num_test]
    test_layouts = {layouts[i] for i in chosen}
    train = tuple(start for start in starts if start.layout not in test_layouts)
    test = tuple(start for start in starts if start.layout in test_layouts)
    return train, test


class DoorKey(ChosenStarts, DoorKeyEnv):
    """MiniGrid's DoorKey, that can also begin where one wants and tell its state.

    Without `starts` and `options` it is MiniGrid's own: the same seed gives the same grid, and the
    same actions the same observations and rewards. In addition `info["success"]` tells at the end
    of an episode whether the goal was reached.

    Args:
        size: Side of the grid in cells, at least 5.
        max_steps: Time limit in steps; `None` is MiniGrid's 10 * size².
        starts: Starts to draw from at each reset, uniformly; `None` is MiniGrid's generator.
        render_mode: `"rgb_array"`, `"human"` or `None`.

    Raises:
        ValueError: A size, limit or start that is not possible.

    Example:
        >>> env = DoorKey(size=5)
        >>> observation, info = env.reset(options={"start": enumerate_starts(5)[0]})
        >>> env.start == enumerate_starts(5)[0]
        True
    """

    action_names = ACTION_NAMES
    start_type = DoorKeyStart

    def __init__(
        self,
        size: int = 5,
        max_steps: int | None = None,
        starts: Iterable[DoorKeyStart] | None = None,
        render_mode: str | None = None,
    ) -> None:
        _check_size(size)
        max_steps = optional_positive_int("max_steps", max_steps)
        super().__init__(size=size, max_steps=max_steps, render_mode=render_mode)
        self._contents: tuple[Any, ...] | None = None
        self.draw_from(starts)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Takes one of the seven actions of MiniGrid."""
        observation, reward, terminated, truncated, info = super().step(action)
        if terminated or truncated:
            info["success"] = terminated  # only the goal ends an episode here
        return observation, reward, terminated, truncated, info

    def gen_obs(self) -> dict[str, Any]:
        """Returns what the agent sees: MiniGrid's observation, sooner."""
        contents = (self._door.is_open, self._door.is_locked, *self.grid.grid)
        if contents != self._contents:  # few steps change the grid
            self._contents = contents
            self._field_of_view = FieldOfView(self.grid.encode(), wall=Wall().encode())
        carrying = self.carrying.encode() if self.carrying else None
        image = self._field_of_view.look(tuple(self.agent_pos), self.agent_dir, carrying)
        return {"image": image, "direction": self.agent_dir, "mission": self.mission}

    def state_key(self) -> tuple[int, ...]:
        """Returns a tuple that is equal for two states exactly when they have the same future.

        The number of steps taken is left out: a deterministic agent that meets the same key twice
        in an episode walks in a circle until the time is up.
        """
        door, key = self._door, self._key
        numbers = (*door.cur_pos, door.is_open, door.is_locked, *key.cur_pos, *self.agent_pos)
        return (self.width, *map(int, numbers), int(self.agent_dir))

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
        # What DoorKeyEnv._gen_grid does, without drawing anything.
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
    """Builds a DoorKey environment, wrapped in the order the lines below have.

    Args:
        size: Side of the grid in cells, at least 5.
        observation: `"view"`, the egocentric (7, 7, 3) uint8 image of MiniGrid, axes (x, y) and
            channels (object, colour, state); or `"compass"`, (7, 7, 4), with the agent's direction
            0..3 as a constant fourth plane.
        frames: Number of the last observations stacked along the channels, oldest first. A reset
            repeats the first one.
        actions: `"task"`, the five that DoorKey needs (left, right, forward, pickup, toggle); or
            `"all"` seven of MiniGrid.
        reward: `"env"`, 1 - 0.9 * steps / max_steps at the goal; `"success"`, 1 at the goal; or
            `"book"`, the environment's with -0.01 for every other step.
        max_steps: Time limit in steps; `None` is MiniGrid's 10 * size².
        starts: Starts to draw from at each reset, uniformly; `None` is MiniGrid's generator.
        render_mode: `"rgb_array"`, `"human"` or `None`.

    Returns:
        An environment whose `reset` takes `options={"start": DoorKeyStart}`, whose `info` has
        `"success"` at the end of an episode, and which offers
        `env.get_wrapper_attr("action_names")`, a tuple of the action names, and
        `env.get_wrapper_attr("state_key")()`, equal for two states with the same future.

    Raises:
        ValueError: An unknown name, or a number that is not possible.

    Example:
        >>> env = make_doorkey(size=6, observation="compass", frames=4)
        >>> env.reset(seed=1)[0].shape
        (7, 7, 16)
        >>> env.get_wrapper_attr("action_names")
        ('left', 'right', 'forward', 'pickup', 'toggle')
    """
    _check_choice("observation", observation, wrappers.OBSERVATIONS)
    _check_choice("actions", actions, wrappers.ACTIONS)
    _check_choice("reward", reward, wrappers.REWARDS)
    env: gymnasium.Env = DoorKey(size, max_steps, starts, render_mode)
    env = wrappers.OBSERVATIONS[observation](env)
    env = wrappers.StackFrames(env, frames)
    env = wrappers.SelectActions(env, wrappers.ACTIONS[actions])
    env = wrappers.ReplaceReward(env, wrappers.REWARDS[reward])
    return env


def doorkey_spec(size: int) -> EnvSpec:
    """What Gymnasium has to know of DoorKey as data sets of it are recorded, to make it again.

    Args:
        size: Side of the grid in cells, at least 5; of 5, 6, 8 and 16 it is registered.

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
    if integer("size", size) < MINIMUM_SIZE:
        raise InvalidInput(f"size must be at least {MINIMUM_SIZE}, received {size!r}.")


def _check_choice(argument, value, choices):
    if value not in choices:
        raise InvalidInput(f"Unknown {argument} {value!r}: expected one of {', '.join(choices)}.")


for _size in (5, 6, 8, 16):
    _spec = doorkey_spec(_size)
    gymnasium.register(_spec.id, _spec.entry_point, kwargs=_spec.kwargs, disable_env_checker=True)
