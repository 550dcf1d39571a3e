"""DoorKey as tensor operations: many environments in one step, eagerly, in a graph or under XLA.

A DoorKey grid follows from where its wall, its door and its key are, so ten integers are a whole
state, and what the agent sees is arithmetic on them. Every number equals MiniGrid's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gymnasium.spaces import Box, Discrete
from minigrid.core.actions import Actions
from minigrid.core.constants import STATE_TO_IDX
from minigrid.core.world_object import Door, Goal, Key, Wall

from rrl_tf._arguments import positive_int
from rrl_tf._typing import Tensor
from rrl_tf.envs import wrappers
from rrl_tf.envs.doorkey import DoorKeyStart, make_doorkey
from rrl_tf.envs.field_of_view import EMPTY, spread_table
from rrl_tf.envs.minigrid_view import AGENT_CELL, VIEW_SIZE
from rrl_tf.errors import InvalidInput

LARGEST_SIZE = 255
"""`state_key` has eight bits for a coordinate."""

_OPEN, _CLOSED, _LOCKED = (STATE_TO_IDX[name] for name in ("open", "closed", "locked"))
_CARRIED = -1  # what MiniGrid, too, gives a key in the hand for a position


def _packed(codes):
    # The codes of a cell as the bytes of one integer: the observation is that integer, reread.
    return sum(int(code) << 8 * channel for channel, code in enumerate(codes))


_EMPTY, _WALL, _GOAL, _KEY, _DOOR = map(
    _packed,
    (EMPTY, Wall().encode(), Goal().encode(), Key("yellow").encode(), Door("yellow").encode()[:2]),
)
_STATE_BYTE, _DIRECTION_BYTE = 1 << 16, 1 << 24

# Of each cell (x, y) of the view: how far it is to the right of the agent and in front of it.
_X, _Y = (np.arange(VIEW_SIZE, dtype=np.int32).reshape(shape) for shape in ((-1, 1), (1, -1)))
_ASIDE, _AHEAD = _X - AGENT_CELL[0], AGENT_CELL[1] - _Y
_IS_AGENT = (_ASIDE == 0) & (_AHEAD == 0)


class DoorKeyState(NamedTuple):
    """Where everything is in E environments: int32 tensors `(E,)`, or NumPy arrays.

    A `tf.nest` structure, as loop variables, arguments and results of a `tf.function` are.

    Attributes:
        size: side of the grid; environments of one state may differ in it.
        wall: x of the splitting wall.
        door: y of the door in that wall.
        lock: 0 open, 1 closed, 2 locked, as in MiniGrid.
        key_x, key_y: the key's cell, (-1, -1) while it is carried.
        x, y: the agent's cell.
        direction: where the agent looks: 0 right, 1 down, 2 left, 3 up.
        steps: steps taken in this episode.

    Example:
        >>> state = DoorKeyGraph(8).initial_state(64, seed=(0, 0))
        >>> variables = tf.nest.map_structure(tf.Variable, state)
    """

    size: Tensor
    wall: Tensor
    door: Tensor
    lock: Tensor
    key_x: Tensor
    key_y: Tensor
    x: Tensor
    y: Tensor
    direction: Tensor
    steps: Tensor


class DoorKeyGraph:
    """MiniGrid's DoorKey for E environments at once, as pure functions of tensors.

    States go in and come out (`DoorKeyState`), random numbers come from the seed of the call, and
    all shapes are known before anything runs: the methods may be called eagerly, in a
    `tf.function`, in a `tf.while_loop`, and with `jit_compile=True`.

    Args:
        size: side of the grid in cells, 5 to 255.
        observation: `"compass"` or `"view"`, as in `make_doorkey`.
        actions: `"task"`, five of them, or `"all"` seven, as in `make_doorkey`.
        reward: `"env"`, `"success"` or `"book"`, as in `make_doorkey`.
        max_steps: time limit of an episode; `None` is MiniGrid's 10 * size².
        starts: starts to draw new episodes from, uniformly; `None` draws as MiniGrid's generator.
        reset_on_truncation: `False` ignores the time limit: `truncated` is never true.

    Attributes:
        observation_space, action_space: of one environment.
        action_names: one name an action.

    Raises:
        InvalidInput: an unknown name, or a number or start that is not possible.

    Example:
        >>> env = DoorKeyGraph(8)
        >>> state = env.initial_state(num_envs=1024, seed=(0, 0))
        >>> step = tf.function(env.step_and_restart, jit_compile=True)
        >>> state, observation, *_ = step(state, tf.zeros(1024, tf.int32), tf.constant((0, 1)))
        >>> observation.shape, observation.dtype
        (TensorShape([1024, 7, 7, 4]), tf.uint8)
    """

    def __init__(
        self,
        size: int = 5,
        observation: str = "compass",
        actions: str = "task",
        reward: str = "env",
        max_steps: int | None = None,
        starts: Iterable[DoorKeyStart] | None = None,
        reset_on_truncation: bool = True,
    ) -> None:
        self.size = positive_int("size", size)
        if self.size > LARGEST_SIZE:
            raise InvalidInput(f"`size` must be at most {LARGEST_SIZE}; received {size!r}")
        starts = None if starts is None else tuple(starts)
        # It refuses what is not possible, and knows the spaces.
        example = make_doorkey(
            self.size, observation, 1, actions, reward, max_steps=max_steps, starts=starts
        )
        self.observation_space: Box = example.observation_space
        self.action_space: Discrete = example.action_space
        self.action_names: tuple[str, ...] = example.get_wrapper_attr("action_names")
        self.max_steps = max_steps
        self.reset_on_truncation = reset_on_truncation
        self._channels = self.observation_space.shape[-1]
        self._codes = np.array(wrappers.ACTIONS[actions], np.int32)
        self._reward = reward
        self._starts = None if starts is None else _columns(starts)

    def initial_state(self, num_envs: int, seed: Any) -> DoorKeyState:
        """New episodes, drawn as MiniGrid draws them, or from `starts`.

        Args:
            num_envs: E, a Python integer.
            seed: two integers or an integer tensor `(2,)`; the same pair gives the same episodes,
                compiled or not. Say, the run's seed and the number of the call.

        Returns:
            A `DoorKeyState` of E environments.
        """
        num_envs = positive_int("num_envs", num_envs)
        if self._starts is None:
            return _at_start(*_generated(self.size, _bits((5, num_envs), seed)))
        drawn = _below(len(self._starts), _bits((num_envs,), seed))
        return _at_start(*tf.unstack(tf.gather(self._starts, drawn), axis=1))

    def state_of(self, starts: Iterable[DoorKeyStart]) -> DoorKeyState:
        """The state of E episodes that begin at E given starts.

        Raises:
            InvalidInput: there is no start, or one of another size.

        Example:
            >>> DoorKeyGraph(6).state_of(enumerate_starts(6)).x.shape
            TensorShape([816])
        """
        starts = tuple(starts)
        for start in starts:
            if not isinstance(start, DoorKeyStart) or start.size != self.size:
                raise InvalidInput(f"a start must be of size {self.size}; received {start!r}")
        if not starts:
            raise InvalidInput("`starts` needs at least one DoorKeyStart; received none")
        return _at_start(*map(tf.constant, _columns(starts).T))

    def observe(self, state: DoorKeyState) -> Tensor:
        """What the agents see: `(E, 7, 7, 3)` uint8, or `(E, 7, 7, 4)` with a compass."""
        cells = _view(state) + _per_cell(state.direction * _DIRECTION_BYTE)
        return tf.bitcast(cells, tf.uint8)[..., : self._channels]

    def step(
        self, state: DoorKeyState, action: Any
    ) -> tuple[DoorKeyState, Tensor, Tensor, Tensor, Tensor]:
        """One step of every environment, as MiniGrid takes it; no episode begins anew.

        Args:
            state: `DoorKeyState` of E environments.
            action: `(E,)` integers. A number that is no action is refused eagerly; in a graph
                nobody looks.

        Returns:
            `(state, observation, reward, terminated, truncated)`: the next state, its observation
            `(E, 7, 7, C)` uint8, rewards `(E,)` float32, and two bools `(E,)`, both of which are
            true if the goal is reached in the last step. XLA leaves out what is not used.

        Raises:
            InvalidInput: actions that are not E integers, or, eagerly, no actions of the space.
        """
        action = self._checked(action, state)
        state, terminated = _moved(state, tf.gather(tf.constant(self._codes), action))
        limit = 10 * state.size**2 if self.max_steps is None else self.max_steps
        truncated = (state.steps >= limit) & self.reset_on_truncation
        reward = self._rewarded(state.steps, limit, terminated)
        return state, self.observe(state), reward, terminated, truncated

    def step_and_restart(
        self, state: DoorKeyState, action: Any, seed: Any
    ) -> tuple[DoorKeyState, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """One step of every environment; where an episode ends, the next one begins.

        Args:
            state, action: as for `step`.
            seed: as for `initial_state`; another one in every call.

        Returns:
            `(state, observation, reward, terminated, truncated, final_observation)`: as from
            `step`, but state and observation are those to act on next, at most one of `terminated`
            and `truncated` is true, and `final_observation` is what followed the action (equal to
            the observation where the episode goes on).

        Raises:
            InvalidInput: as for `step`.
        """
        state, final_observation, reward, terminated, truncated = self.step(state, action)
        truncated &= ~terminated
        state = choose(terminated | truncated, self.initial_state(reward.shape[0], seed), state)
        return state, self.observe(state), reward, terminated, truncated, final_observation

    def _checked(self, action, state):
        action = tf.convert_to_tensor(action)
        if not action.dtype.is_integer or action.shape != state.x.shape:
            raise InvalidInput(
                f"actions must be integers of shape {tuple(state.x.shape)}; received "
                f"{action.dtype.name} of shape {tuple(action.shape)}"
            )
        if tf.executing_eagerly():
            wrong = [a for a in np.unique(action) if a not in self.action_space]
            if wrong:
                raise InvalidInput(f"an action must be of {self.action_space}; received {wrong[0]}")
        return action

    def _rewarded(self, steps, limit, terminated):
        if self._reward == "success":
            return tf.cast(terminated, tf.float32)
        # MiniGrid reckons with doubles; rounding once, at the end, gives the same float32.
        share = tf.cast(steps, tf.float64) / tf.cast(limit, tf.float64)
        goal = tf.cast(1 - 0.9 * share, tf.float32)
        return tf.where(terminated, goal, -0.01 if self._reward == "book" else 0.0)


def choose(condition: Tensor, new: DoorKeyState, old: DoorKeyState) -> DoorKeyState:
    """The state with the environments of `new` where `condition` `(E,)` is true, else of `old`.

    With it a curriculum mixes sizes: `choose(is_hard, hard.initial_state(...),
    easy.initial_state(...))`; `step` asks each environment's own size.
    """
    return DoorKeyState(*(tf.where(condition, a, b) for a, b in zip(new, old)))


def state_key(state: DoorKeyState) -> Tensor:
    """Numbers `(E,)` int64 that are equal for two states exactly when they have the same future.

    The number of steps taken is left out: an agent without a memory that meets the same number
    twice in an episode walks in a circle until the time is up.
    """
    key = tf.cast(state.size, tf.int64)
    for coordinate in (state.wall, state.door, state.key_x, state.key_y, state.x, state.y):
        key = key * 256 + tf.cast(coordinate + 1, tf.int64)  # -1 is a carried key's
    return key * 12 + tf.cast(state.lock * 4 + state.direction, tf.int64)


def _columns(starts):
    """Starts as int32 `(E, 7)`: size, wall, door, key_x, key_y, x, y, direction."""
    rows = [(s.size, s.wall, s.door, *s.key, *s.agent, s.direction) for s in starts]
    return np.array(rows, np.int32)


def _at_start(size, wall, door, key_x, key_y, x, y, direction):
    zeros = tf.zeros_like(wall)
    size = zeros + size
    return DoorKeyState(size, wall, door, zeros + _LOCKED, key_x, key_y, x, y, direction, zeros)


def _generated(size, bits):
    # DoorKeyEnv._gen_grid, which draws cells again and again until one is free: so any free one is
    # as likely as another, and one draw does.
    for_wall, for_door, for_key, for_agent, for_direction = tf.unstack(bits)
    height = size - 2
    wall = 2 + _below(size - 4, for_wall)
    cells = (wall - 1) * height
    agent = _below(cells, for_agent)
    key = _below(cells - 1, for_key)
    key += tf.cast(key >= agent, tf.int32)  # the agent's cell is taken
    door = 1 + _below(size - 3, for_door)
    corner = (1 + cell for each in (key, agent) for cell in (each // height, each % height))
    return size, wall, door, *corner, _below(4, for_direction)


def _bits(shape, seed):
    # The generator is named: the one that XLA would choose draws other numbers.
    return tf.random.stateless_uniform(shape, seed, None, None, tf.uint32, alg="philox")


def _below(limit, bits):
    # 0 to limit - 1: the whole part of limit * bits / 2³². No number is likelier than another by
    # more than limit / 2³².
    product = tf.cast(bits, tf.uint64) * tf.cast(limit, tf.uint64)
    return tf.cast(tf.bitwise.right_shift(product, tf.constant(32, tf.uint64)), tf.int32)


def _forward(direction):
    # The unit vector of a direction; the one to its right is (-dy, dx).
    axes = ((0, 2), (1, 3))
    return (tf.cast(direction == a, tf.int32) - tf.cast(direction == b, tf.int32) for a, b in axes)


def _moved(state, action):
    # MiniGridEnv.step: the next state, and whether the goal was reached.
    dx, dy = _forward(state.direction)
    x, y = state.x + dx, state.y + dy  # the cell ahead
    wall, door, goal, key = _things(state, x, y)
    carries = state.key_x == _CARRIED
    is_open = state.lock == _OPEN

    forward = (action == Actions.forward) & ~wall & ~key & (~door | is_open)
    pickup = (action == Actions.pickup) & key
    drop = (action == Actions.drop) & carries & ~(wall | door | goal)
    toggle = (action == Actions.toggle) & door & ((state.lock != _LOCKED) | carries)
    turn = tf.cast(action == Actions.right, tf.int32) - tf.cast(action == Actions.left, tf.int32)
    return state._replace(
        lock=tf.where(toggle, tf.where(is_open, _CLOSED, _OPEN), state.lock),
        key_x=tf.where(pickup, _CARRIED, tf.where(drop, x, state.key_x)),
        key_y=tf.where(pickup, _CARRIED, tf.where(drop, y, state.key_y)),
        x=tf.where(forward, x, state.x),
        y=tf.where(forward, y, state.y),
        direction=(state.direction + turn) % 4,
        steps=state.steps + 1,
    ), forward & goal


def _things(state, x, y):
    # Whether wall, door, goal and key are at cells (x, y), which may lie outside of the grid.
    last = state.size - 1
    splits = x == state.wall
    door = splits & (y == state.door)
    wall = (x <= 0) | (y <= 0) | (x >= last) | (y >= last) | (splits & ~door)
    goal = (x == last - 1) & (y == last - 1)
    key = (x == state.key_x) & (y == state.key_y)
    return wall, door, goal, key


def _view(state):
    # Codes of the cells (x, y) of the views, (E, 7, 7) int32, three bytes of each in use.
    every = DoorKeyState(*map(_per_cell, state))
    dx, dy = _forward(every.direction)
    wall, door, goal, key = _things(
        every, every.x + dx * _AHEAD - dy * _ASIDE, every.y + dy * _AHEAD + dx * _ASIDE
    )
    codes = tf.where(wall, _WALL, tf.where(goal, _GOAL, tf.where(key, _KEY, _EMPTY)))
    codes = tf.where(door, _DOOR + every.lock * _STATE_BYTE, codes)
    clear = ~wall & (~door | (every.lock == _OPEN))
    codes = tf.where(_visible(clear), codes, 0)
    # Its own cell shows the agent what it carries.
    return tf.where(_IS_AGENT, tf.where(every.key_x == _CARRIED, _KEY, _EMPTY), codes)


def _visible(clear):
    # The visible cells (E, 7, 7) of views; `clear` are those one can see through. From the agent's
    # row to the farthest, a table tells what of a row is seen, and what of the next that shows.
    table = spread_table().ravel()
    clear = tf.unstack(tf.reduce_sum(tf.where(clear, 1 << _X, 0), axis=1), axis=1)
    rows, seen = [], 1 << AGENT_CELL[0]
    for row in reversed(clear):
        both = tf.gather(table, seen * 2**VIEW_SIZE + row)
        rows.append(both % 2**VIEW_SIZE)
        seen = both // 2**VIEW_SIZE
    rows = tf.stack(rows[::-1], axis=1)[:, None]
    return tf.bitwise.bitwise_and(rows, 1 << _X) > 0


def _per_cell(values):
    # Values of environments, to be set against the cells of their views.
    return values[:, None, None]
