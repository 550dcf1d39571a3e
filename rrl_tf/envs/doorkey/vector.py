"""Define `DoorKeyVectorEnv`, a Gymnasium vector environment with one compiled call per step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rrl_tf._arguments import natural, positive_int, reset_option
from rrl_tf.envs.doorkey.env import DoorKeyStart
from rrl_tf.envs.doorkey.graph import DoorKeyGraph, DoorKeyState, packed_view
from rrl_tf.envs.graph import choose
from rrl_tf.errors import InvalidInput


class DoorKeyVectorEnv(VectorEnv):
    """A vector environment of MiniGrid's DoorKey, which computes a step with tensor operations.

    It has the same spaces, dynamics and `info` as a `SeededVectorEnv` of `make_doorkey`, and also
    restarts an ended episode in the same step. These things differ:

    - For the same seed, it draws different episodes from the same distribution.
    - It has no `get_state` and `set_state`, so its state cannot be stored.
    - The only option of `reset` is `starts`, with one start per environment, instead of `start`.
    - It has no `reset_options`, so every later episode is drawn at random.
    - It has no `envs` and cannot render.

    Args:
        size: side of the grid in cells, 5 to 255.
        num_envs: number of environments E.
        seed: non-negative integer.
        observation, actions, reward, max_steps, starts, reset_on_truncation: as in `DoorKeyGraph`.
        jit_compile: whether to compile the step with XLA.

    Attributes:
        graph: the underlying `DoorKeyGraph`.
        action_names: one name per action.

    Raises:
        InvalidInput: if a name is unknown, a number is out of range, or a start is invalid.

    Example:
        >>> env = DoorKeyVectorEnv(8, num_envs=1024)
        >>> observation, info = env.reset()
        >>> observation, reward, terminated, truncated, info = env.step(np.zeros(1024, int))
        >>> observation.shape, info["final_obs"].shape
        ((1024, 7, 7, 4), (1024, 7, 7, 4))
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(
        self,
        size: int,
        num_envs: int,
        seed: int = 0,
        observation: str = "compass",
        *,
        actions: str = "task",
        reward: str = "env",
        max_steps: int | None = None,
        starts: Iterable[DoorKeyStart] | None = None,
        reset_on_truncation: bool = True,
        jit_compile: bool = True,
    ) -> None:
        self.graph = DoorKeyGraph(
            size, observation, actions, reward, max_steps, starts, reset_on_truncation
        )
        self.num_envs = positive_int("num_envs", num_envs)
        self.single_observation_space = self.graph.observation_space
        self.single_action_space = self.graph.action_space
        self.action_names = self.graph.action_names
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._jit_compile = jit_compile
        packed = tf.TensorSpec((len(DoorKeyState._fields), self.num_envs), tf.int32)
        action, key = tf.TensorSpec((self.num_envs,), tf.int32), tf.TensorSpec((2,), tf.int64)
        self._begin = self._compiled(self._begun, key)
        self._look = self._compiled(_looked, packed)
        self._step = self._compiled(self._stepped, packed, action, key)
        self._start_over(seed)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin a new episode in every environment.

        Args:
            seed: non-negative integer; the environments begin with the first episodes of this seed.
                `None` keeps the seed and continues with the next episodes.
            options: `{"starts": [...]}` with one `DoorKeyStart` per environment sets where these
                episodes begin. Later episodes are drawn at random.

        Returns:
            Observations `(E, 7, 7, C)` and an empty dict.

        Raises:
            InvalidInput: if a seed, option or start is invalid. The current episodes then continue.
        """
        starts, state = reset_option("starts", options), None
        if starts is not None:
            if not isinstance(starts, Sequence) or len(starts) != self.num_envs:
                raise InvalidInput(
                    f"`starts` must be a list of {self.num_envs} starts, one per environment; "
                    f"received {starts!r}"
                )
            state = tf.stack(self.graph.state_of(starts))
        if seed is not None:
            self._start_over(seed)
        self._state = self._begin(self._next_seed()) if state is None else state
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, int)
        return self._unpacked(self._look(self._state)), {}

    def step(
        self, actions: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take one action in every environment, and begin a new episode where one ends.

        Args:
            actions: `(E,)` integers.

        Returns:
            `(observation, reward, terminated, truncated, info)` as from `SeededVectorEnv.step`.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
            InvalidInput: if `actions` are not E valid actions. No environment then takes a step.
        """
        if self._state is None:
            raise ResetNeeded("Call reset before step.")
        action = tf.constant(self._checked(actions))
        self._state, views, *outcome = self._step(self._state, action, self._next_seed())
        observation, final = np.split(self._unpacked(views), 2)
        reward, terminated, truncated = (each.numpy() for each in outcome)
        self._returns += reward
        self._lengths += 1
        done = terminated | truncated
        info = {
            "final_obs": final,
            "episode": {
                "return": np.where(done, self._returns, 0),
                "length": np.where(done, self._lengths, 0),
                "success": terminated.copy(),
                "_success": done.copy(),
            },
            "_episode": done,
        }
        self._returns[done] = self._lengths[done] = 0
        return observation, reward, terminated, truncated, info

    @property
    def state(self) -> DoorKeyState:
        """The current state of the environments.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
        """
        if self._state is None:
            raise ResetNeeded("Call reset before reading the state.")
        return DoorKeyState(*tf.unstack(self._state))

    def _compiled(self, function, *specs):
        """Return a concrete function; unlike a `tf.function`, it skips checks of its arguments."""
        compiled = tf.function(function, jit_compile=self._jit_compile, autograph=False)
        return compiled.get_concrete_function(*specs)

    def _begun(self, seed):
        return tf.stack(self.graph.initial_state(self.num_envs, seed))

    def _stepped(self, packed, action, seed):
        """Take a step and start new episodes where one ends; the state is packed into one tensor.

        Each additional argument of a compiled call costs as much time as steps of many
        environments. Unpacking views to observations is faster outside of the graph.
        """
        state = DoorKeyState(*tf.unstack(packed))
        state, _, reward, terminated, truncated = self.graph.step(state, action)
        truncated &= ~terminated
        new = self.graph.initial_state(self.num_envs, seed)
        packed, final = tf.stack(choose(terminated | truncated, new, state)), tf.stack(state)
        views = _looked(tf.concat((packed, final), axis=1))
        return packed, views, reward, terminated, truncated

    def _unpacked(self, view):
        cells = np.ascontiguousarray(view.numpy().transpose(2, 0, 1))
        observation = cells.view(np.uint8).reshape(*cells.shape, -1)
        return observation[..., : self.single_observation_space.shape[-1]]

    def _start_over(self, seed):
        self._seed, self._calls, self._state = natural("seed", seed), 0, None
        # TensorFlow seeds have 64 bits; `SeedSequence` hashes a larger seed to this size.
        (self._key,) = np.random.SeedSequence(seed).generate_state(1, np.uint64).view(np.int64)

    def _next_seed(self):
        self._calls += 1
        return tf.constant((self._key, self._calls), tf.int64)

    def _checked(self, actions):
        taken = np.asarray(actions)
        count = int(self.single_action_space.n)
        if taken.shape != (self.num_envs,) or taken.dtype.kind not in "iu":
            raise InvalidInput(f"`actions` must be {self.num_envs} integers; received {actions!r}")
        if wrong := [action for action in np.unique(taken).tolist() if not 0 <= action < count]:
            raise InvalidInput(f"an action must be 0 to {count - 1}; received {wrong[0]}")
        return taken.astype(np.int32)


def _looked(packed):
    return packed_view(DoorKeyState(*tf.unstack(packed)))
