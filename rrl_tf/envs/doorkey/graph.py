"""Define DoorKey as TensorFlow operations, which run eagerly, in graphs and with XLA.

The positions of wall, door and key determine the grid, so ten integers describe the whole state of
an episode. Observations are computed from these integers and equal those of MiniGrid.
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

from rrl_tf._arguments import number_from, positive_int
from rrl_tf._typing import Tensor
from rrl_tf.envs.doorkey.env import ACTIONS, MINIMUM_SIZE, DoorKeyStart, make_doorkey
from rrl_tf.envs.minigrid_view import AGENT_CELL, EMPTY, VIEW_SIZE, spread_table
from rrl_tf.errors import InvalidInput

LARGEST_SIZE = 255
"""Largest side of a grid: `state_key` has eight bits per coordinate."""

_OPEN, _CLOSED, _LOCKED = (STATE_TO_IDX[name] for name in ("open", "closed", "locked"))
_CARRIED = -1  # coordinates of a carried key, as in MiniGrid


def _packed(codes):
    """Return one integer whose bytes are the codes of a cell; `observe` bitcasts it to uint8."""
    return sum(int(code) << 8 * channel for channel, code in enumerate(codes))


_EMPTY, _WALL, _GOAL, _KEY, _DOOR = map(
    _packed,
    (EMPTY, Wall().encode(), Goal().encode(), Key("yellow").encode(), Door("yellow").encode()[:2]),
)
_STATE_BYTE, _DIRECTION_BYTE = 1 << 16, 1 << 24

# Views have shape (7, 7, E). The environments are last because XLA vectorises the last axis.
# `_ASIDE` and `_AHEAD` are the offsets of each cell (x, y) from the agent, to its right and ahead.
_X, _Y, _ = np.ogrid[:VIEW_SIZE, :VIEW_SIZE, :1]
_ASIDE, _AHEAD = np.int32(_X - AGENT_CELL[0]), np.int32(AGENT_CELL[1] - _Y)
_IS_AGENT = (_ASIDE == 0) & (_AHEAD == 0)
_BIT = np.int32(1 << _X)


class DoorKeyState(NamedTuple):
    """The state of E environments, as int32 tensors `(E,)` or NumPy arrays.

    As a `tf.nest` structure, it can be a loop variable or an argument of a `tf.function`.

    Attributes:
        size: side of the grid, which may differ between environments.
        wall: x of the splitting wall.
        door: y of the door in that wall.
        lock: state of the door: 0 open, 1 closed, 2 locked, as in MiniGrid.
        key_x, key_y: the key's cell, or (-1, -1) while the agent carries the key.
        x, y: the agent's cell.
        direction: direction of the agent: 0 right, 1 down, 2 left, 3 up.
        steps: number of steps taken in this episode.

    Example:
        >>> from rrl_tf.envs import DoorKeyGraph
        >>> state = DoorKeyGraph(8).initial_state(64, seed=(0, 0))
        >>> variables = tf.nest.map_structure(tf.Variable, state)
        >>> variables.x.shape
        TensorShape([64])
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
    """MiniGrid's DoorKey for E environments as pure functions of tensors.

    The methods take states (`DoorKeyState`) as arguments and return new ones. Each call gets the
    seed of its random numbers, and all shapes are static. The methods therefore run eagerly, in a
    `tf.function`, in a `tf.while_loop`, and with `jit_compile=True`.

    Args:
        size: side of the grid in cells, 5 to 255.
        observation, actions, reward: as in `make_doorkey`.
        max_steps: time limit of an episode in steps; `None` is MiniGrid's 10 * size².
        starts: starts from which new episodes are drawn uniformly; `None` draws them with the
            probabilities of MiniGrid's generator.
        reset_on_truncation: whether a time limit ends an episode. If `False`, `truncated` is always
            false.

    Attributes:
        observation_space, action_space: spaces of one environment.
        action_names: one name per action.

    Raises:
        InvalidInput: if a name is unknown, a number is out of range, or a start is invalid.

    Example:
        >>> env = DoorKeyGraph(8)
        >>> state = env.initial_state(num_envs=1024, seed=(0, 0))
        >>> step = tf.function(env.step, jit_compile=True)
        >>> state, observation, reward, terminated, _ = step(state, tf.zeros(1024, tf.int32))
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
        self.size = number_from("size", positive_int("size", size), MINIMUM_SIZE, LARGEST_SIZE)
        starts = None if starts is None else tuple(starts)
        # Making this environment checks the arguments; it also has the spaces.
        example: Any = make_doorkey(
            self.size, observation, 1, actions, reward, max_steps=max_steps, starts=starts
        )
        self.observation_space: Box = example.observation_space
        self.action_space: Discrete = example.action_space
        self.action_names: tuple[str, ...] = example.get_wrapper_attr("action_names")
        self.max_steps = max_steps
        self.reset_on_truncation = reset_on_truncation
        self._channels = self.observation_space.shape[-1]
        self._codes = np.array(ACTIONS[actions], np.int32)
        self._reward = reward
        self._starts = None if starts is None else _columns(starts)

    def initial_state(self, num_envs: int, seed: Any) -> DoorKeyState:
        """Return the state of new episodes, drawn from `starts` or as MiniGrid draws them.

        Args:
            num_envs: E, a Python integer.
            seed: two integers or an integer tensor `(2,)`, for example the run's seed and the
                number of the call. The same pair always selects the same episodes, in eager mode
                and in compiled functions.

        Returns:
            A `DoorKeyState` of E environments.
        """
        num_envs = positive_int("num_envs", num_envs)
        if self._starts is None:
            return _generate(self.size, num_envs, seed)
        drawn, _ = _below(len(self._starts), _random_bits((num_envs,), seed))
        return _begin(*tf.unstack(tf.gather(self._starts, drawn), axis=1))

    def state_of(self, starts: Iterable[DoorKeyStart]) -> DoorKeyState:
        """Return the state of E episodes that begin at E given starts.

        Raises:
            InvalidInput: if there is no start, or a start has a wrong size.

        Example:
            >>> from rrl_tf.envs import enumerate_starts
            >>> DoorKeyGraph(6).state_of(enumerate_starts(6)).x.shape
            TensorShape([816])
        """
        starts = tuple(starts)
        if not starts:
            raise InvalidInput("`starts` must hold at least one DoorKeyStart; received none")
        for start in starts:
            if not isinstance(start, DoorKeyStart) or start.size != self.size:
                raise InvalidInput(
                    f"every start must be a DoorKeyStart of size {self.size}; received {start!r}"
                )
        return _begin(*map(tf.constant, _columns(starts).T))

    def observe(self, state: DoorKeyState) -> Tensor:
        """Return the observations `(E, 7, 7, 3)` uint8, or `(E, 7, 7, 4)` with a compass."""
        view = tf.transpose(tf.bitcast(packed_view(state), tf.uint8), (2, 0, 1, 3))
        return view[..., : self._channels]

    def step(
        self, state: DoorKeyState, action: Any
    ) -> tuple[DoorKeyState, Tensor, Tensor, Tensor, Tensor]:
        """Take the step of MiniGrid in every environment, without starting new episodes.

        Args:
            state: `DoorKeyState` of E environments.
            action: `(E,)` integers from 0 to A - 1.

        Returns:
            `(state, observation, reward, terminated, truncated)`: the next state, its observation
            `(E, 7, 7, C)` uint8, rewards `(E,)` float32, and two bool tensors `(E,)`. Both are true
            if the last step before the time limit reaches the goal. XLA does not compute results
            that the caller does not use.
        """
        state = DoorKeyState(*map(tf.convert_to_tensor, state))
        state, terminated = _move(state, tf.gather(tf.constant(self._codes), action))
        limit = 10 * state.size**2 if self.max_steps is None else self.max_steps
        truncated = (state.steps >= limit) & self.reset_on_truncation
        reward = self._rewarded(state.steps, limit, terminated)
        return state, self.observe(state), reward, terminated, truncated

    @property
    def time_limit(self) -> int:
        """Number of steps after which an episode is truncated."""
        return 10 * self.size**2 if self.max_steps is None else self.max_steps

    def succeeded(self, reward: Tensor, terminated: Tensor) -> Tensor:
        """Return `terminated`, because only the goal terminates an episode."""
        return terminated

    def state_key(self, state: DoorKeyState) -> Tensor:
        """Return an int64 that identifies each environment's state, `(E,)`.

        Two states have the same identifier if and only if they have the same future; the step count
        is not part of it. A deterministic policy without a memory that meets the same identifier
        twice in an episode therefore repeats its actions until the time limit.
        """
        key = tf.cast(state.size, tf.int64)
        for coordinate in (state.wall, state.door, state.key_x, state.key_y, state.x, state.y):
            key = key * 256 + tf.cast(coordinate + 1, tf.int64)  # + 1, as a carried key is at -1
        return key * 12 + tf.cast(state.lock * 4 + state.direction, tf.int64)

    def _rewarded(self, steps, limit, terminated):
        if self._reward == "success":
            return tf.cast(terminated, tf.float32)
        # Like MiniGrid, compute in float64; the cast at the end then has the same result.
        fraction = tf.cast(steps, tf.float64) / tf.cast(limit, tf.float64)
        goal = tf.cast(1 - 0.9 * fraction, tf.float32)
        return tf.where(terminated, goal, -0.01 if self._reward == "book" else 0.0)


def packed_view(state: DoorKeyState) -> Tensor:
    """Return the views as integers `(7, 7, E)` int32, whose bytes are the four channels of a cell.

    `DoorKeyGraph.observe` unpacks them to observations. Code that stores many views can store the
    integers instead.
    """
    dx, dy = _forward(state.direction)
    wall, door, goal, key = _things(
        state, state.x + dx * _AHEAD - dy * _ASIDE, state.y + dy * _AHEAD + dx * _ASIDE
    )
    codes = tf.where(wall, _WALL, tf.where(goal, _GOAL, tf.where(key, _KEY, _EMPTY)))
    codes = tf.where(door, _DOOR + state.lock * _STATE_BYTE, codes)
    transparent = ~wall & (~door | (state.lock == _OPEN))
    codes = tf.where(_visible(transparent), codes, 0)
    # The agent's cell contains the object that the agent carries.
    codes = tf.where(_IS_AGENT, tf.where(state.key_x == _CARRIED, _KEY, _EMPTY), codes)
    return codes + state.direction * _DIRECTION_BYTE


def _generate(size, num_envs, seed):
    """Draw the states of E new episodes with the probabilities of MiniGrid's generator.

    `DoorKeyEnv._gen_grid` draws cells until it finds a free one. Drawing one of the free cells
    uniformly has the same distribution.
    """
    for_layout, for_agent, for_key = tf.unstack(_random_bits((3, num_envs), seed))
    height = size - 2
    wall, for_layout = _below(size - 4, for_layout)
    door, for_layout = _below(size - 3, for_layout)
    direction, _ = _below(4, for_layout)
    cells = (wall + 1) * height
    agent, _ = _below(cells, for_agent)
    key, _ = _below(cells - 1, for_key)
    key += tf.cast(key >= agent, tf.int32)  # the agent's cell is not free
    key_x, key_y, x, y = key // height, key % height, agent // height, agent % height
    size = tf.fill((num_envs,), size)
    return _begin(size, 2 + wall, 1 + door, 1 + key_x, 1 + key_y, 1 + x, 1 + y, direction)


def _begin(size, wall, door, key_x, key_y, x, y, direction):
    """Return the first state of an episode, in which the door is locked and `steps` is 0."""
    steps = tf.zeros_like(wall)
    return DoorKeyState(size, wall, door, steps + _LOCKED, key_x, key_y, x, y, direction, steps)


def _columns(starts):
    """Return the starts as an int32 array `(E, 8)`; its columns are the arguments of `_begin`."""
    rows = [(s.size, s.wall, s.door, *s.key, *s.agent, s.direction) for s in starts]
    return np.array(rows, np.int32)


def _random_bits(shape, seed):
    """Return random uint32 from Philox, whose numbers are the same with and without XLA."""
    return tf.random.stateless_uniform(shape, seed, None, None, tf.uint32, alg="philox")


def _below(limit, bits):
    """Return a random integer from 0 to limit - 1, and bits from which another one can be drawn.

    With 32 random bits b, the integer is the integer part of limit * b / 2³², and the bits that
    remain are the fractional part. If several integers are drawn in turn from the same bits, every
    combination has the probability 1 / (product of the limits), with a relative error of at most
    (product of the limits) / 2³².
    """
    product = tf.cast(bits, tf.uint64) * tf.cast(limit, tf.uint64)
    number = tf.bitwise.right_shift(product, tf.constant(32, tf.uint64))
    return tf.cast(number, tf.int32), tf.cast(product, tf.uint32)


def _move(state, action):
    """Return the state after `MiniGridEnv.step`, and whether the agent is at the goal."""
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


def _forward(direction):
    """Return the unit vector (dx, dy) of a direction; (-dy, dx) points to its right."""
    axes = ((0, 2), (1, 3))
    return (tf.cast(direction == a, tf.int32) - tf.cast(direction == b, tf.int32) for a, b in axes)


def _things(state, x, y):
    """Return whether a wall, the door, the goal and the key are in cells (x, y).

    Cells outside of the grid are walls.
    """
    last = state.size - 1
    splits = x == state.wall
    door = splits & (y == state.door)
    wall = (x <= 0) | (y <= 0) | (x >= last) | (y >= last) | (splits & ~door)
    goal = (x == last - 1) & (y == last - 1)
    key = (x == state.key_x) & (y == state.key_y)
    return wall, door, goal, key


def _visible(transparent):
    """Return a mask `(7, 7, E)` of the visible cells, given the mask of transparent cells.

    The loop goes from the agent's row to the farthest row. For each row, the table contains its
    visible cells and the cells of the next row that they reveal.
    """
    table = spread_table().ravel()
    transparent = tf.unstack(tf.reduce_sum(tf.where(transparent, _BIT, 0), axis=0))
    rows, visible = [], 1 << AGENT_CELL[0]
    for row in reversed(transparent):
        both = tf.gather(table, visible * 2**VIEW_SIZE + row)
        rows.append(both & 2**VIEW_SIZE - 1)
        visible = tf.bitwise.right_shift(both, VIEW_SIZE)
    return (tf.stack(rows[::-1]) & _BIT) > 0
