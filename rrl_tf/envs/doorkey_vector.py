"""DoorKey as a vector environment of Gymnasium, computed by one compiled call a step."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rrl_tf._arguments import positive_int
from rrl_tf.envs.doorkey import DoorKeyStart
from rrl_tf.envs.doorkey_graph import DoorKeyGraph, DoorKeyState
from rrl_tf.errors import InvalidInput


class DoorKeyVectorEnv(VectorEnv):
    """E environments of MiniGrid's DoorKey that step together and restart in the same step.

    It does what `SeededVectorEnv` of `make_doorkey` does, `info` included, in tensor operations:
    the dynamics are equal, the episodes that are drawn are others of the same distribution.

    Args:
        size: side of the grid in cells, 5 to 255.
        num_envs: number of environments E.
        seed: integer, not negative.
        observation: `"compass"` or `"view"`, as in `make_doorkey`.
        actions: `"task"`, five of them, or `"all"` seven, as in `make_doorkey`.
        reward: `"env"`, `"success"` or `"book"`, as in `make_doorkey`.
        max_steps: time limit of an episode; `None` is MiniGrid's 10 * size².
        starts: starts to draw new episodes from, uniformly; `None` draws as MiniGrid's generator.
        reset_on_truncation: `False` ignores the time limit: `truncated` is never true.
        jit_compile: compile the step with XLA.

    Attributes:
        graph: the `DoorKeyGraph` behind it, for those who stay in TensorFlow.
        state: its `DoorKeyState`, `None` before the first reset.

    Raises:
        InvalidInput: an unknown name, or a number or start that is not possible.

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
        self._begin = tf.function(self.graph.initial_state, jit_compile=jit_compile)
        self._observe = tf.function(self.graph.observe, jit_compile=jit_compile)
        self._step = tf.function(self.graph.step_and_restart, jit_compile=jit_compile)
        self._start_over(seed)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins a new episode everywhere, or the first one of another seed.

        Args:
            seed: integer, not negative, or `None` to go on.
            options: `{"starts": [...]}`, one `DoorKeyStart` an environment, to begin there; the
                episodes after these are drawn.

        Returns:
            Observations `(E, 7, 7, C)` and an empty dict.

        Raises:
            InvalidInput: a seed, option or start that is not possible; the episodes go on as if
                `reset` had not been called.
        """
        state = self._requested(dict(options or {}))
        if seed is not None:
            self._start_over(seed)
        self.state = self._begin(self.num_envs, self._next_seed()) if state is None else state
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, int)
        return self._observe(self.state).numpy(), {}

    def step(
        self, actions: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Takes one action in every environment; those whose episode ends begin the next one.

        Args:
            actions: `(E,)` integers.

        Returns:
            `(observation, reward, terminated, truncated, info)` as `SeededVectorEnv.step` returns
            them.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
            InvalidInput: other than E actions of the space; nothing is stepped.
        """
        if self.state is None:
            raise ResetNeeded("Call reset or set_state before step.")
        action = tf.constant(self._checked(actions))
        self.state, *outcome = self._step(self.state, action, self._next_seed())
        observation, reward, terminated, truncated, final = (each.numpy() for each in outcome)
        self._returns += reward
        self._lengths += 1
        ended = terminated | truncated
        info = {
            "final_obs": final,
            "episode": {
                "return": np.where(ended, self._returns, 0),
                "length": np.where(ended, self._lengths, 0),
                "success": terminated,
                "_success": ended,
            },
            "_episode": ended,
        }
        self._returns[ended] = self._lengths[ended] = 0
        return observation, reward, terminated, truncated, info

    def get_state(self) -> dict[str, Any]:
        """Returns all there is to know about the environments, ready for JSON.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset there is nothing to know.
        """
        if self.state is None:
            raise ResetNeeded("Call reset before get_state.")
        columns = {name: values.numpy().tolist() for name, values in self.state._asdict().items()}
        returns, lengths = self._returns.tolist(), self._lengths.tolist()
        episodes = {**columns, "return": returns, "length": lengths}
        return {"seed": self._seed, "calls": self._calls, "environments": episodes}

    def set_state(self, state: Mapping[str, Any]) -> np.ndarray:
        """Goes on from what `get_state` returned.

        Args:
            state: the dict.

        Returns:
            The current observations `(E, 7, 7, C)`.

        Raises:
            InvalidInput: the state is of another number of environments, or of another size.
        """
        columns = dict(state["environments"])
        num_envs, sizes = len(columns["size"]), set(columns["size"])
        if num_envs != self.num_envs or sizes != {self.graph.size}:
            raise InvalidInput(
                f"expected the state of {self.num_envs} environments of size {self.graph.size}; "
                f"received that of {num_envs} of {', '.join(map(str, sorted(sizes)))}"
            )
        self._start_over(state["seed"])
        self._calls = state["calls"]
        self._returns = np.array(columns.pop("return"), float)
        self._lengths = np.array(columns.pop("length"), int)
        self.state = DoorKeyState(
            **{name: tf.constant(values, tf.int32) for name, values in columns.items()}
        )
        return self._observe(self.state).numpy()

    def _start_over(self, seed):
        try:
            seed = operator.index(seed)
        except TypeError:
            raise InvalidInput(f"seed must be an integer; received {seed!r}") from None
        if seed < 0:
            raise InvalidInput(f"seed must not be negative; received {seed!r}")
        self._seed, self._calls, self.state = seed, 0, None
        # Any number of bits becomes as many as a seed of TensorFlow has.
        (self._key,) = np.random.SeedSequence(seed).generate_state(1, np.uint64).view(np.int64)

    def _next_seed(self):
        self._calls += 1
        return tf.constant((self._key, self._calls), tf.int64)

    def _requested(self, options):
        """The state that options of a reset ask for, `None` if they do not."""
        starts = options.pop("starts", None)
        if options:
            raise InvalidInput(f"the only option of reset is 'starts'; received {sorted(options)}")
        if starts is None:
            return None
        starts = tuple(starts)
        if len(starts) != self.num_envs:
            raise InvalidInput(
                f"'starts' needs a start for each of {self.num_envs} environments; received "
                f"{len(starts)}"
            )
        return self.graph.state_of(starts)

    def _checked(self, actions):
        taken = np.asarray(actions)
        count = int(self.single_action_space.n)
        if taken.shape != (self.num_envs,) or taken.dtype.kind not in "iu":
            raise InvalidInput(f"expected {self.num_envs} integer actions; received {actions!r}")
        if wrong := [action for action in np.unique(taken).tolist() if not 0 <= action < count]:
            raise InvalidInput(f"an action must be 0 to {count - 1}; received {wrong[0]}")
        return taken.astype(np.int32)
