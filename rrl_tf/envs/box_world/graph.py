"""Define Box-World as TensorFlow operations, which run eagerly, in graphs and with XLA."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from rrl_tf._arguments import positive_int
from rrl_tf._typing import Tensor
from rrl_tf.envs.box_world.env import AGENT, LOOKS, MOVES, REWARDS, BoxWorld
from rrl_tf.envs.box_world.levels import (
    COLOUR_BITS,
    COLOURS,
    DISTRACTOR,
    FLOOR,
    GEM,
    KEY,
    LOCK,
    BoxWorldStart,
)
from rrl_tf.errors import InvalidInput

_REWARDS = np.array([REWARDS.get(kind, 0.0) for kind in range(DISTRACTOR + 1)], np.float32)


class BoxWorldState(NamedTuple):
    """The state of E environments of N cells each, as int32 tensors or NumPy arrays.

    Attributes:
        cells: `(E, N)`, codes of the cells as in `BoxWorldStart`.
        agent: `(E,)`, number of the agent's cell, counted row by row.
        held: `(E,)`, colour of the held key, or 0.
        steps: `(E,)`, number of steps taken in this episode.
    """

    cells: Tensor
    agent: Tensor
    held: Tensor
    steps: Tensor


class BoxWorldGraph:
    """`BoxWorld` for E environments as pure functions of tensors.

    A step has the same result as in `BoxWorld`. New episodes are drawn uniformly from a pool of
    levels. `BoxWorldLevels` generates the pool once, in NumPy.

    Args:
        pool: number of levels in the pool. Its random numbers differ from those of `BoxWorld.reset`
            for any seed below 2**32, so evaluations use different levels.
        reset_on_truncation: whether a time limit ends an episode. If `False`, `truncated` is always
            false.
        **options: arguments of `BoxWorld`.

    Attributes:
        observation_space, action_space: spaces of one environment.
        action_names: one name per action.
        time_limit: number of steps after which an episode is truncated.

    Raises:
        InvalidInput: if a number is out of range.

    Example:
        >>> env = BoxWorldGraph(pool=1000, size=8, goal_length=2, num_distractors=1)
        >>> state = env.initial_state(num_envs=64, seed=(0, 0))
        >>> state, observation, reward, *_ = env.step(state, tf.zeros(64, tf.int32))
        >>> observation.shape
        TensorShape([64, 8, 8, 2])
    """

    def __init__(
        self,
        pool: int = 20_000,
        reset_on_truncation: bool = True,
        **options: Any,
    ) -> None:
        self.pool = positive_int("pool", pool)
        self.reset_on_truncation = reset_on_truncation
        env = BoxWorld(**options)
        self.levels = env.levels
        self.size = env.levels.size
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self.action_names = env.action_names
        self.time_limit = env.max_steps

    @functools.cached_property
    def _pool(self):
        """Cells `(P, N)` and agents `(P,)` of the pool, made when an episode is first drawn."""
        rng = np.random.default_rng((0, 1))
        with tf.init_scope():  # the first use may be inside a `tf.function`
            state = self.state_of(self.levels.draw(rng) for _ in range(self.pool))
            return tf.cast(state.cells, tf.uint8), state.agent

    def initial_state(self, num_envs: int, seed: Any) -> BoxWorldState:
        """Return the state of new episodes, drawn from the pool.

        Args:
            num_envs: E, a Python integer.
            seed: two integers or an integer tensor `(2,)`. The same pair always selects the same
                episodes, in eager mode and in compiled functions.
        """
        cells, agents = self._pool
        drawn = tf.random.stateless_uniform(
            (positive_int("num_envs", num_envs),), seed, 0, self.pool, tf.int32, alg="philox"
        )
        return _begin(tf.cast(tf.gather(cells, drawn), tf.int32), tf.gather(agents, drawn))

    def state_of(self, starts: Iterable[BoxWorldStart]) -> BoxWorldState:
        """Return the state of E episodes that begin at E given starts.

        Raises:
            InvalidInput: if there is no start, or a start has a wrong size or too many colours.
        """
        starts = tuple(map(self.levels.checked, starts))
        if not starts:
            raise InvalidInput("`starts` must hold at least one BoxWorldStart; received none")
        cells = np.frombuffer(b"".join(start.cells for start in starts), np.uint8)
        agents = [row * self.size + column for row, column in (start.agent for start in starts)]
        cells = cells.reshape(len(starts), -1).astype(np.int32)
        return _begin(tf.constant(cells), tf.constant(agents, tf.int32))

    def observe(self, state: BoxWorldState) -> Tensor:
        """Return the observations `(E, size, size, 2)` uint8."""
        seen = tf.gather(tf.constant(LOOKS), state.cells)  # (E, N, 2)
        agent = tf.cast(tf.stack((tf.fill(state.held.shape, AGENT), state.held), -1), tf.uint8)
        here = _at(state.agent, state.cells)[..., None]
        seen = tf.where(here, agent[:, None], seen)
        return tf.reshape(seen, (-1, self.size, self.size, 2))

    def step(
        self, state: BoxWorldState, action: Any
    ) -> tuple[BoxWorldState, Tensor, Tensor, Tensor, Tensor]:
        """Take a step in every environment, without starting new episodes.

        Args:
            state: `BoxWorldState` of E environments.
            action: `(E,)` integers, 0 to 3.

        Returns:
            `(state, observation, reward, terminated, truncated)`: the next state, its observation
            `(E, size, size, 2)` uint8, rewards `(E,)` float32, and two bool tensors `(E,)`.
        """
        state = BoxWorldState(*map(tf.convert_to_tensor, state))
        target, inside = self._target(state.agent, action)
        kind, colour = _split(_cell(state.cells, target))
        right, _ = _split(_cell(state.cells, tf.minimum(target + 1, self.size**2 - 1)))
        locked = ((right == LOCK) | (right == DISTRACTOR)) & (target % self.size < self.size - 1)
        is_lock = (kind == LOCK) | (kind == DISTRACTOR)
        is_thing = (kind == KEY) | (kind == GEM)
        moves = inside & ~(is_lock & (colour != state.held)) & ~(is_thing & locked)
        kind = tf.where(moves, kind, FLOOR)
        held = tf.where(kind == KEY, colour, tf.where(moves & is_lock, 0, state.held))
        emptied = moves[:, None] & _at(target, state.cells)
        state = BoxWorldState(
            tf.where(emptied, FLOOR, state.cells),
            tf.where(moves, target, state.agent),
            held,
            state.steps + 1,
        )
        reward = tf.gather(tf.constant(_REWARDS), kind)
        terminated = (kind == DISTRACTOR) | (kind == GEM)
        truncated = (state.steps >= self.time_limit) & self.reset_on_truncation
        return state, self.observe(state), reward, terminated, truncated

    def succeeded(self, reward: Tensor, terminated: Tensor) -> Tensor:
        """Return, `(E,)` bool, whether each environment's step ends its episode with the gem."""
        return terminated & (reward > 0)

    def state_key(self, state: BoxWorldState) -> Tensor:
        """Return an int64 that identifies each environment's state, `(E,)`.

        If two states of the same episode have the same identifier, they have the same future.
        """
        # Steps can only empty cells. Two states of an episode with the same number of objects
        # therefore have the same cells.
        left = tf.math.count_nonzero(state.cells, axis=1)
        key = left * self.size**2 + tf.cast(state.agent, tf.int64)
        return key * (COLOURS + 1) + tf.cast(state.held, tf.int64)

    def _target(self, agent, action):
        """Return the cell that an action leads to, and whether it is in the room, both `(E,)`.

        Outside of the room, the cell is the agent's own.
        """
        down, right = tf.unstack(tf.gather(tf.constant(MOVES, tf.int32), action), axis=1)
        row, column = agent // self.size + down, agent % self.size + right
        inside = (row >= 0) & (row < self.size) & (column >= 0) & (column < self.size)
        return tf.where(inside, row * self.size + column, agent), inside


def _begin(cells, agent):
    zeros = tf.zeros_like(agent)
    return BoxWorldState(cells, agent, zeros, zeros)


def _at(cell, cells):
    """Return a mask `(E, N)` that is true at the cell number `cell` `(E,)` of each environment."""
    return cell[:, None] == tf.range(cells.shape[1])


def _cell(cells, number):
    return tf.gather(cells, number, axis=1, batch_dims=1)


def _split(code):
    return tf.bitwise.right_shift(code, COLOUR_BITS), tf.bitwise.bitwise_and(code, COLOURS)
