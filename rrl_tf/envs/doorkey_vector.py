"""DoorKey as a vector environment of Gymnasium, computed by one compiled call a step."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping, Sized
from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rrl_tf._arguments import positive_int, reset_option
from rrl_tf.envs import doorkey_rules as rules
from rrl_tf.envs.doorkey import DoorKeyStart
from rrl_tf.envs.doorkey_graph import DoorKeyGraph
from rrl_tf.envs.doorkey_rules import DoorKeyState
from rrl_tf.envs.graph import choose
from rrl_tf.errors import InvalidInput

_SEED = tf.TensorSpec((2,), tf.int64)


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
        action_names: one name an action.

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
        self._jit_compile = jit_compile
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
        state = self._requested(options)
        if seed is not None:
            self._start_over(seed)
        self._state = self._begin(self._next_seed()) if state is None else tf.stack(state)
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, int)
        return self._unpacked(self._look(self._state)), {}

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
        if self._state is None:
            raise ResetNeeded("Call reset or set_state first.")
        action = tf.constant(self._checked(actions))
        self._state, views, *outcome = self._step(self._state, action, self._next_seed())
        observation, final = np.split(self._unpacked(views), 2)
        reward, terminated, truncated = (each.numpy() for each in outcome)
        self._returns += reward
        self._lengths += 1
        ended = terminated | truncated
        info = {
            "final_obs": final,
            "episode": {
                "return": np.where(ended, self._returns, 0),
                "length": np.where(ended, self._lengths, 0),
                "success": terminated.copy(),
                "_success": ended.copy(),
            },
            "_episode": ended,
        }
        self._returns[ended] = self._lengths[ended] = 0
        return observation, reward, terminated, truncated, info

    @property
    def state(self) -> DoorKeyState:
        """Where everything is in every environment.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset nothing is anywhere.
        """
        if self._state is None:
            raise ResetNeeded("Call reset or set_state first.")
        return DoorKeyState(*tf.unstack(self._state))

    def get_state(self) -> dict[str, Any]:
        """Returns all there is to know about the environments, ready for JSON.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset there is nothing to know.
        """
        columns = {name: column.numpy().tolist() for name, column in self.state._asdict().items()}
        columns["return"] = self._returns.tolist()
        return {"seed": self._seed, "calls": self._calls, "environments": columns}

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
        returns, lengths = columns.pop("return"), columns["steps"]
        packed = tf.stack(DoorKeyState(**columns))
        self._start_over(state["seed"])
        self._state, self._calls = packed, state["calls"]
        self._returns, self._lengths = np.array(returns, float), np.array(lengths, int)
        return self._unpacked(self._look(self._state))

    @functools.cached_property
    def _begin(self):
        return self._compiled(self._begun, _SEED)

    @functools.cached_property
    def _look(self):
        return self._compiled(self._looked, self._spec(len(DoorKeyState._fields)))

    @functools.cached_property
    def _step(self):
        state, action = self._spec(len(DoorKeyState._fields)), self._spec()
        return self._compiled(self._stepped, state, action, _SEED)

    def _spec(self, *rows):
        return tf.TensorSpec((*rows, self.num_envs), tf.int32)

    def _compiled(self, function, *specs):
        # A concrete function: a `tf.function` looks at its arguments at every call, which takes as
        # long as the rest of the call.
        compiled = tf.function(function, jit_compile=self._jit_compile, autograph=False)
        return compiled.get_concrete_function(*specs)

    def _begun(self, seed):
        return tf.stack(self.graph.initial_state(self.num_envs, seed))

    def _looked(self, packed):
        return rules.packed_view(DoorKeyState(*tf.unstack(packed)))

    def _stepped(self, packed, action, seed):
        # `DoorKeyGraph.step_and_restart`, but a state is one tensor, as each that is passed takes
        # the time of many environments' steps; and views are turned into observations outside,
        # where it takes less time.
        state = DoorKeyState(*tf.unstack(packed))
        state, _, reward, terminated, truncated = self.graph.step(state, action)
        truncated &= ~terminated
        new = self.graph.initial_state(self.num_envs, seed)
        packed, final = tf.stack(choose(terminated | truncated, new, state)), tf.stack(state)
        views = self._looked(tf.concat((packed, final), axis=1))
        return packed, views, reward, terminated, truncated

    def _unpacked(self, view):
        cells = np.ascontiguousarray(view.numpy().transpose(2, 0, 1))
        observation = cells.view(np.uint8).reshape(*cells.shape, -1)
        return observation[..., : self.single_observation_space.shape[-1]]

    def _start_over(self, seed):
        try:
            seed = operator.index(seed)
        except TypeError:
            raise InvalidInput(f"seed must be an integer; received {seed!r}") from None
        if seed < 0:
            raise InvalidInput(f"seed must not be negative; received {seed!r}")
        self._seed, self._calls, self._state = seed, 0, None
        # Any number of bits becomes as many as a seed of TensorFlow has.
        (self._key,) = np.random.SeedSequence(seed).generate_state(1, np.uint64).view(np.int64)

    def _next_seed(self):
        self._calls += 1
        return tf.constant((self._key, self._calls), tf.int64)

    def _requested(self, options):
        """The state that options of a reset ask for, `None` if they do not."""
        if (starts := reset_option("starts", options)) is None:
            return None
        if not isinstance(starts, Sized) or len(starts) != self.num_envs:
            raise InvalidInput(
                f"'starts' must be a list of {self.num_envs} starts, one an environment; received "
                f"{starts!r}"
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
