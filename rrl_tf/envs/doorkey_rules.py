"""The rules of MiniGrid's DoorKey as arithmetic on tensors: its generator, a step, a view.

A DoorKey grid follows from where its wall, its door and its key are, so ten integers are a whole
state, and what the agent sees is arithmetic on them. Every number equals MiniGrid's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from minigrid.core.actions import Actions
from minigrid.core.constants import STATE_TO_IDX
from minigrid.core.world_object import Door, Goal, Key, Wall

from rrl_tf._typing import Tensor
from rrl_tf.envs.field_of_view import EMPTY, spread_table
from rrl_tf.envs.minigrid_view import AGENT_CELL, VIEW_SIZE

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

# Cells of views are (7, 7, E): environments come last, as XLA makes vector instructions of the last
# axis. Of cell (x, y): how far it is to the right of the agent, and in front of it.
_X, _Y, _ = np.ogrid[:VIEW_SIZE, :VIEW_SIZE, :1]
_ASIDE, _AHEAD = np.int32(_X - AGENT_CELL[0]), np.int32(AGENT_CELL[1] - _Y)
_IS_AGENT = (_ASIDE == 0) & (_AHEAD == 0)
_BIT = np.int32(1 << _X)


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


def generate(size: int, num_envs: int, seed: Any) -> DoorKeyState:
    """The states that E new episodes begin in, with the probabilities of MiniGrid's generator.

    `DoorKeyEnv._gen_grid` draws a cell again and again until it is free, so any free one is as
    likely as another, and one draw does. Arguments are those of `DoorKeyGraph.initial_state`.
    """
    for_layout, for_agent, for_key = tf.unstack(_random_bits((3, num_envs), seed))
    height = size - 2
    wall, for_layout = _below(size - 4, for_layout)
    door, for_layout = _below(size - 3, for_layout)
    direction, _ = _below(4, for_layout)
    cells = (wall + 1) * height
    agent, _ = _below(cells, for_agent)
    key, _ = _below(cells - 1, for_key)
    key += tf.cast(key >= agent, tf.int32)  # the agent's cell is taken
    key_x, key_y, x, y = key // height, key % height, agent // height, agent % height
    size = tf.fill((num_envs,), size)
    return begin(size, 2 + wall, 1 + door, 1 + key_x, 1 + key_y, 1 + x, 1 + y, direction)


def draw(starts: Tensor, num_envs: int, seed: Any) -> DoorKeyState:
    """The states that E new episodes begin in, each of the starts `(S, 8)` as likely as another."""
    drawn, _ = _below(len(starts), _random_bits((num_envs,), seed))
    return begin(*tf.unstack(tf.gather(starts, drawn), axis=1))


def begin(
    size: Tensor,
    wall: Tensor,
    door: Tensor,
    key_x: Tensor,
    key_y: Tensor,
    x: Tensor,
    y: Tensor,
    direction: Tensor,
) -> DoorKeyState:
    """The first state of an episode: the door is locked, no step is taken."""
    steps = tf.zeros_like(wall)
    return DoorKeyState(size, wall, door, steps + _LOCKED, key_x, key_y, x, y, direction, steps)


def _random_bits(shape, seed):
    # The generator is named: the one that XLA would choose draws other numbers.
    return tf.random.stateless_uniform(shape, seed, None, None, tf.uint32, alg="philox")


def _below(limit, bits):
    # The whole part of limit * bits / 2³², 0 to limit - 1, and the bits of the rest, from which
    # another number may be drawn. Likelihoods differ by at most the product of limits / 2³².
    product = tf.cast(bits, tf.uint64) * tf.cast(limit, tf.uint64)
    number = tf.bitwise.right_shift(product, tf.constant(32, tf.uint64))
    return tf.cast(number, tf.int32), tf.cast(product, tf.uint32)


def move(state: DoorKeyState, action: Tensor) -> tuple[DoorKeyState, Tensor]:
    """`MiniGridEnv.step`: the next state, and whether it is the goal, `(E,)` bool.

    Args:
        state: `DoorKeyState` of E environments.
        action: `(E,)` int32, MiniGrid's numbers; any other does nothing.
    """
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


def packed_view(state: DoorKeyState) -> Tensor:
    """What the agents see, `(7, 7, E)` int32: the bytes of a number are a cell's four channels.

    `DoorKeyGraph.observe` rereads the bytes and puts environments first; who keeps many views may
    keep these instead, and do so when they are used.
    """
    dx, dy = _forward(state.direction)
    wall, door, goal, key = _things(
        state, state.x + dx * _AHEAD - dy * _ASIDE, state.y + dy * _AHEAD + dx * _ASIDE
    )
    codes = tf.where(wall, _WALL, tf.where(goal, _GOAL, tf.where(key, _KEY, _EMPTY)))
    codes = tf.where(door, _DOOR + state.lock * _STATE_BYTE, codes)
    clear = ~wall & (~door | (state.lock == _OPEN))
    codes = tf.where(_visible(clear), codes, 0)
    # Its own cell shows the agent what it carries.
    codes = tf.where(_IS_AGENT, tf.where(state.key_x == _CARRIED, _KEY, _EMPTY), codes)
    return codes + state.direction * _DIRECTION_BYTE


def state_key(state: DoorKeyState) -> Tensor:
    """Numbers `(E,)` int64 that are equal for two states exactly when they have the same future.

    The number of steps taken is left out: an agent without a memory that meets the same number
    twice in an episode walks in a circle until the time is up.
    """
    key = tf.cast(state.size, tf.int64)
    for coordinate in (state.wall, state.door, state.key_x, state.key_y, state.x, state.y):
        key = key * 256 + tf.cast(coordinate + 1, tf.int64)  # -1 is a carried key's
    return key * 12 + tf.cast(state.lock * 4 + state.direction, tf.int64)


def _forward(direction):
    # The unit vector of a direction; the one to its right is (-dy, dx).
    axes = ((0, 2), (1, 3))
    return (tf.cast(direction == a, tf.int32) - tf.cast(direction == b, tf.int32) for a, b in axes)


def _things(state, x, y):
    # Whether wall, door, goal and key are at cells (x, y), which may lie outside of the grid.
    last = state.size - 1
    splits = x == state.wall
    door = splits & (y == state.door)
    wall = (x <= 0) | (y <= 0) | (x >= last) | (y >= last) | (splits & ~door)
    goal = (x == last - 1) & (y == last - 1)
    key = (x == state.key_x) & (y == state.key_y)
    return wall, door, goal, key


def _visible(clear):
    # The visible cells (7, 7, E) of views; `clear` are those one can see through. From the agent's
    # row to the farthest, a table tells what of a row is seen, and what of the next that shows.
    table = spread_table().ravel()
    clear = tf.unstack(tf.reduce_sum(tf.where(clear, _BIT, 0), axis=0))
    rows, seen = [], 1 << AGENT_CELL[0]
    for row in reversed(clear):
        both = tf.gather(table, seen * 2**VIEW_SIZE + row)
        rows.append(both & 2**VIEW_SIZE - 1)
        seen = tf.bitwise.right_shift(both, VIEW_SIZE)
    return (tf.stack(rows[::-1]) & _BIT) > 0
