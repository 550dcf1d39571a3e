"""DoorKey in the graph: many environments in one step, eagerly, in a `tf.function` or under XLA."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium.spaces import Box, Discrete

from rrl_tf._arguments import positive_int
from rrl_tf._typing import Tensor
from rrl_tf.envs import doorkey_rules as rules
from rrl_tf.envs import wrappers
from rrl_tf.envs.doorkey import DoorKeyStart, make_doorkey
from rrl_tf.envs.doorkey_rules import LARGEST_SIZE, DoorKeyState
from rrl_tf.envs.graph import choose
from rrl_tf.errors import InvalidInput


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
        example: Any = make_doorkey(
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
            return rules.generate(self.size, num_envs, seed)
        return rules.draw(self._starts, num_envs, seed)

    def state_of(self, starts: Iterable[DoorKeyStart]) -> DoorKeyState:
        """The state of E episodes that begin at E given starts.

        Raises:
            InvalidInput: there is no start, or one of another size.

        Example:
            >>> from rrl_tf.envs import enumerate_starts
            >>> DoorKeyGraph(6).state_of(enumerate_starts(6)).x.shape
            TensorShape([816])
        """
        starts = tuple(starts)
        for start in starts:
            if not isinstance(start, DoorKeyStart) or start.size != self.size:
                raise InvalidInput(f"a start must be of size {self.size}; received {start!r}")
        if not starts:
            raise InvalidInput("`starts` needs at least one DoorKeyStart; received none")
        return rules.begin(*map(tf.constant, _columns(starts).T))

    def observe(self, state: DoorKeyState) -> Tensor:
        """What the agents see: `(E, 7, 7, 3)` uint8, or `(E, 7, 7, 4)` with a compass."""
        view = tf.transpose(tf.bitcast(rules.packed_view(state), tf.uint8), (2, 0, 1, 3))
        return view[..., : self._channels]

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
        state = DoorKeyState(*map(tf.convert_to_tensor, state))
        action = self._checked(action, state)
        state, terminated = rules.move(state, tf.gather(tf.constant(self._codes), action))
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
        new = self.initial_state(reward.shape[0], seed)
        state = choose(terminated | truncated, new, state)
        return state, self.observe(state), reward, terminated, truncated, final_observation

    @property
    def time_limit(self) -> int:
        """Steps after which an episode is truncated."""
        return 10 * self.size**2 if self.max_steps is None else self.max_steps

    def succeeded(self, reward: Tensor, terminated: Tensor) -> Tensor:
        """Which episodes have reached the goal: nothing else ends one before its time."""
        return terminated

    def state_key(self, state: DoorKeyState) -> Tensor:
        """Numbers `(E,)` int64, equal for two states exactly when they have the same future."""
        return rules.state_key(state)

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


def _columns(starts):
    """Starts as int32 `(E, 8)`: size, wall, door, key_x, key_y, x, y, direction."""
    rows = [(s.size, s.wall, s.door, *s.key, *s.agent, s.direction) for s in starts]
    return np.array(rows, np.int32)
