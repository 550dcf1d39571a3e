"""Define replay buffers in TensorFlow variables, for n-step transitions and for sequences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rrl_tf._arguments import finite, natural, number_from, positive_int, stored_arrays
from rrl_tf._typing import Tensor
from rrl_tf.agents import random
from rrl_tf.envs.checks import ArrayCheck
from rrl_tf.errors import InvalidInput

IMPORTANCE_EXPONENT = 0.4
"""β, the exponent of the importance weights."""

_BELOW_ONE = 1 - 1e-6  # a sum times this factor stays below the sum after rounding
_SMALLEST = np.finfo("float32").tiny  # XLA rounds smaller numbers to 0


class ReplayBuffer:
    """Stores the last T steps of E environments, and samples n-step transitions.

    The buffer stores single steps. `sample` computes the n-step returns, so both `add` and `sample`
    can run inside a `tf.function`. A transition can be sampled once the n - 1 steps that follow it
    are stored.

    A transition covers n steps, or fewer if its episode ends before. A terminal transition has no
    bootstrap value (`discount_t = 0`). A truncated transition bootstraps from the last observation
    of its episode. With `priority_exponent` α > 0, transition i is sampled with probability
    `P(i) = p_i^α / Σ p^α`, where `p_i` is its last absolute temporal-difference error plus 1e-6, or
    plus a thousandth of the largest error of its batch if that is less. A new transition has the
    largest priority so far, which is at least 1. If rewards are much smaller than 1, new
    transitions are therefore sampled first. Importance weights are `P(i)^-β`, divided by the
    largest weight in the batch, where β is `IMPORTANCE_EXPONENT`.

    Args:
        capacity: number of stored steps over all environments; T = `capacity // num_envs`.
        observation_shape: shape of one raw observation.
        observation_dtype: dtype of a raw observation.
        num_envs: E, number of environments.
        n_step: n, number of rewards summed before bootstrapping.
        discount: discount factor in [0, 1].
        priority_exponent: α; 0 samples uniformly. Sampling is with replacement.
        positive_copies: factor by which transitions with a positive return are sampled more often.
        use_return_lower_bound: compute `return_lower_bound` when an episode terminates. In a
            deterministic environment, the observed return is a lower bound of the optimal value
            (He et al., 2017).
        frames: number of frames that an observation stacks along the last axis, oldest first. If it
            is larger than 1, the buffer stores each frame once, and `add` needs `episode_step`.
            The first observation of an episode must repeat its first frame.
        state: dict name → (shape, dtype) of the agent's recurrent state, which is stored with each
            step.
        jit_compile: compile `add`, `sample` and `set_priorities` with XLA.

    Raises:
        InvalidInput: if a number is out of range, or the buffer does not fit in memory.

    Example:
        >>> replay = ReplayBuffer(100, (7, 7, 3), "uint8", num_envs=2, discount=0.9)
        >>> view, no = np.zeros((2, 7, 7, 3), "uint8"), tf.constant([False, False])
        >>> replay.add(view, [0, 1], [1.0, 0.0], terminated=no, truncated=no, observation_tp1=view)
        >>> batch, index = replay.sample(4, seed=(0, 0))
        >>> batch["return_t"].shape
        TensorShape([4])

    Source: Schaul et al., "Prioritized experience replay" (2016).
    """

    def __init__(
        self,
        capacity: int,
        observation_shape: Sequence[int],
        observation_dtype: Any,
        *,
        num_envs: int,
        n_step: int = 1,
        discount: float = 0.99,
        priority_exponent: float = 0.0,
        positive_copies: int = 1,
        use_return_lower_bound: bool = False,
        frames: int = 1,
        state: Mapping[str, tuple[Sequence[int], Any]] | None = None,
        jit_compile: bool = True,
    ) -> None:
        self.num_envs = positive_int("num_envs", num_envs)
        self.n_step = positive_int("n_step", n_step)
        self.frames = positive_int("frames", frames)
        self.steps = positive_int("capacity", capacity) // self.num_envs
        if self.steps < self._history + self.n_step:
            raise InvalidInput(
                f"`capacity` must be at least {num_envs * (self._history + self.n_step)}, which is "
                f"{self._history + self.n_step} steps of each of {num_envs} environments; received "
                f"{capacity}."
            )
        self.discount = number_from("discount", discount, 0, 1)
        self.priority_exponent = number_from("priority_exponent", priority_exponent, 0)
        self.positive_copies = positive_int("positive_copies", positive_copies)
        self.use_return_lower_bound = use_return_lower_bound
        self.period = 1  # steps between the starts of successive transitions or sequences
        self._columns = self._empty_columns(
            tuple(observation_shape), observation_dtype, state or {}
        )
        self._checks = self._column_checks(observation_shape)
        self._added = tf.Variable(0, dtype=tf.int32, name="added")  # steps, not transitions
        self._largest_priority = tf.Variable(1.0, name="largest_priority")
        options = {"jit_compile": jit_compile, "autograph": False}
        self._add_compiled = tf.function(self._add, **options)
        self.sample = tf.function(self._sample, **options)
        self.set_priorities = tf.function(self._set_priorities, **options)

    @property
    def capacity(self) -> int:
        """Number of steps that the buffer can store, T * E."""
        return self.steps * self.num_envs

    @property
    def _history(self) -> int:
        """Number of preceding steps that contain the older frames of an observation."""
        return self.frames - 1

    def __len__(self) -> int:
        """Return the number of complete rows; see `complete_rows`."""
        return self.complete_rows(int(self._added))

    def complete_rows(self, added: int) -> int:
        """Return the number of rows whose following n - 1 steps are stored.

        A row is a step of one environment. If `period` is 1, all complete rows can be sampled.

        Args:
            added: number of steps of each environment that have been added.
        """
        # In a full buffer, older frames of the oldest observations are already overwritten.
        kept = min(added, self.steps - self._history)
        return max(0, kept - self.n_step + 1) * self.num_envs

    def _empty_columns(self, shape, dtype, state):
        # The step of all environments in a slot is a block of E rows: row = slot * E + env.
        if self.frames > 1:
            if not shape or shape[-1] % self.frames:
                raise InvalidInput(
                    f"the last axis of `observation_shape` must be a multiple of `frames`="
                    f"{self.frames}; received {shape}."
                )
            shape = (*shape[:-1], shape[-1] // self.frames)
            state = {"episode_step": ((), "int32"), **state}
        columns = {
            "observation_t": (shape, dtype),
            "observation_tp1": (shape, dtype),
            "action_t": ((), "int32"),
            "reward_t": ((), "float32"),
            "terminated": ((), "bool"),
            "over": ((), "bool"),  # `done`; checkpoints contain this name
            "return_lower_bound": ((), "float32"),
            "weight": ((), "float32"),
            **state,
        }
        try:
            return {
                name: tf.Variable(np.zeros((self.capacity, *each), kind), name=name)
                for name, (each, kind) in columns.items()
            }
        except (MemoryError, ValueError, OverflowError, tf.errors.ResourceExhaustedError) as error:
            raise InvalidInput(
                f"`capacity` must fit in memory ({type(error).__name__}); received {self.capacity}."
            ) from error

    def _column_checks(self, observation_shape):
        """Return name -> `ArrayCheck` of one environment's value, for the arguments of `add`."""
        columns = {name: (each.shape[1:], each.dtype) for name, each in self._columns.items()}
        columns["truncated"] = columns["terminated"]
        for name in ("observation_t", "observation_tp1"):
            columns[name] = (observation_shape, columns[name][1])
        return {
            name: ArrayCheck(f"`{name}`", shape, dtype.as_numpy_dtype)
            for name, (shape, dtype) in columns.items()
        }

    def add(
        self,
        observation_t: Any,
        action_t: Any,
        reward_t: Any,
        terminated: Any,
        truncated: Any,
        observation_tp1: Any,
        episode_step: Any = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """Add one step of every environment.

        Args:
            observation_t: `(E, ...)` observations before the actions.
            action_t: `(E,)` int32 actions.
            reward_t: `(E,)` float32 rewards.
            terminated: `(E,)` bool, whether the episode reached a terminal state.
            truncated: `(E,)` bool, whether a time limit ended the episode.
            observation_tp1: `(E, ...)` observations after the actions. At the end of an episode,
                this is its last observation and not the first one of the next episode.
            episode_step: `(E,)` int32, number of steps since the episode began; required if
                `frames` is larger than 1. If it is 0, an unfinished previous episode is marked as
                truncated.
            state: dict name → `(E, ...)`, the agent's recurrent state before the step.

        Raises:
            InvalidInput: if a value has a wrong shape, would be changed by its conversion to the
                stored dtype, or is not finite; see `rrl_tf.envs.checks.ArrayCheck`. In a
                `tf.function`, where tensors have no values yet, only shapes and dtypes are checked.
        """
        columns = {
            "observation_t": observation_t,
            "action_t": action_t,
            "reward_t": reward_t,
            "terminated": terminated,
            "truncated": truncated,
            "observation_tp1": observation_tp1,
            "episode_step": episode_step,
        }
        for name, value in columns.items():
            if value is not None:
                columns[name] = self._checked(name, value)
        state = {name: self._checked(name, value) for name, value in (state or {}).items()}
        self._add_compiled(**columns, state=state)

    def _checked(self, name, value):
        check = self._checks.get(name)
        if check is None:  # without stacked frames, `episode_step` is not stored
            return value
        if not tf.is_symbolic_tensor(value):
            place = "environment {} in step {}".format
            return check.batch(value, self.num_envs, lambda i: place(i, int(self._added) + 1))
        loses_fraction = value.dtype.is_floating and check.dtype.kind != "f"
        if loses_fraction or not value.shape.is_compatible_with((self.num_envs, *check.shape)):
            raise InvalidInput(
                f"{check.name} must be {check.dtype} of shape {(self.num_envs, *check.shape)}; "
                f"received {value.dtype.name} of shape {value.shape}"
            )
        return value

    def _add(
        self,
        observation_t: Tensor,
        action_t: Tensor,
        reward_t: Tensor,
        terminated: Tensor,
        truncated: Tensor,
        observation_tp1: Tensor,
        episode_step: Tensor | None,
        state: Mapping[str, Tensor],
    ) -> None:
        """Add one step of every environment; the arguments are those of `add`."""
        terminated = tf.convert_to_tensor(terminated)
        columns = {
            "observation_t": self._newest_frame(observation_t),
            "observation_tp1": self._newest_frame(observation_tp1),
            "action_t": action_t,
            "reward_t": reward_t,
            "terminated": terminated,
            "over": terminated | truncated,
            "return_lower_bound": tf.fill((self.num_envs,), -np.inf),
            "weight": tf.zeros((self.num_envs,)),
            **state,
        }
        if self.frames > 1:
            columns["episode_step"] = episode_step
        if episode_step is not None:  # the episodes of a lost actor remain unfinished
            before = self._block(1)
            done = self._read("over", before) | tf.equal(episode_step, 0)
            self._write(before, {"over": done})
        self._write(self._block(0), columns)
        complete = self._block(self.n_step - 1)
        largest = self._largest_priority**self.priority_exponent
        weight = self._limited(self._copies(complete) * largest)
        # While fewer than n steps are stored, this block is still empty.
        begins = self._added + 1 - self.n_step
        may_begin = (begins >= 0) & (begins % self.period == 0)
        self._write(complete, {"weight": tf.where(may_begin, weight, 0.0)})
        if self._history:  # this step has overwritten the oldest frame of these observations
            self._write(self._block(-self._history), {"weight": tf.zeros((self.num_envs,))})
        if self.use_return_lower_bound:
            self._set_lower_bounds(terminated)
        self._added.assign_add(1)

    def _newest_frame(self, observation):
        if self.frames == 1:
            return observation
        observation = tf.convert_to_tensor(observation)
        return observation[..., -(observation.shape[-1] // self.frames) :]

    def _block(self, back):
        """Return the row indices `(E,)` of the step that is `back` steps before the newest."""
        slot = (self._added - back) % self.steps
        return slot * self.num_envs + tf.range(self.num_envs)

    def _write(self, rows, columns):
        for name, values in columns.items():
            variable = self._columns[name]
            variable.scatter_update(tf.IndexedSlices(tf.cast(values, variable.dtype), rows))

    def _read(self, name, rows):
        return tf.gather(self._columns[name], rows)

    def _observations(self, rows):
        """Return the observations `(*rows.shape, ...)` before the actions of the given rows."""
        if self.frames == 1:
            return self._read("observation_t", rows)
        back = tf.range(self._history, -1, -1)
        # The first observation of an episode repeats its first frame.
        back = tf.minimum(back, self._read("episode_step", rows)[..., None])
        frames = self._read(
            "observation_t", (rows[..., None] - back * self.num_envs) % self.capacity
        )
        return tf.concat(tf.unstack(frames, axis=len(rows.shape)), axis=-1)

    def _next_observations(self, rows):
        """Return the observations after the actions of the given rows."""
        newest = self._read("observation_tp1", rows)
        if self.frames == 1:
            return newest
        return tf.concat([self._observations(rows)[..., newest.shape[-1] :], newest], axis=-1)

    def _copies(self, rows):
        if self.positive_copies == 1:
            return tf.ones_like(rows, tf.float32)
        return_t, *_ = self._n_steps(rows)
        return tf.where(return_t > 0, float(self.positive_copies), 1.0)

    def _set_lower_bounds(self, terminated):
        """Store the observed returns of all steps of the episodes that terminate at this step."""
        stored = tf.minimum(self._added + 1, self.steps)

        def inside(back, walking, _):
            return tf.reduce_any(walking) & (back < stored)

        def walk(back, walking, return_t):
            rows = self._block(back)
            return_t = self._read("reward_t", rows) + self.discount * return_t
            bound = tf.where(walking, return_t, self._read("return_lower_bound", rows))
            self._write(rows, {"return_lower_bound": bound})
            return back + 1, walking & ~self._read("over", self._block(back + 1)), return_t

        tf.while_loop(inside, walk, (0, terminated, tf.zeros((self.num_envs,))))

    def _sample(self, batch_size: int, seed: Any) -> tuple[dict[str, Tensor], Tensor]:
        """Sample transitions with replacement; at least one transition must be available.

        Args:
            batch_size: B, a Python integer.
            seed: two integers or a tensor `(2,)`.

        Returns:
            The batch, and the row indices `(B,)` for `set_priorities`. The batch is a dict of

            - `observation_t`, `(B, ...)`, observations before the actions;
            - `action_t`, `(B,)`, actions taken;
            - `return_t`, `(B,)`, discounted sums of up to n rewards;
            - `discount_t`, `(B,)`, factors of the bootstrap values, 0 after a termination;
            - `observation_tpn`, `(B, ...)`, observations to bootstrap from;
            - `return_lower_bound`, `(B,)`, observed returns until the end of the episode, -inf if
              unknown;
            - `weight_t`, `(B,)`, importance weights.
        """
        index, weight_t = self._draw(batch_size, seed)
        return_t, discount_t, last = self._n_steps(index)
        batch = {
            "observation_t": self._observations(index),
            "action_t": self._read("action_t", index),
            "return_t": return_t,
            "discount_t": discount_t,
            "return_lower_bound": self._read("return_lower_bound", index),
            "observation_tpn": self._next_observations(last),
            "weight_t": weight_t,
        }
        return batch, index

    def _draw(self, batch_size, seed):
        """Sample row indices `(B,)` in proportion to their weights.

        Also return the importance weights `(B,)`.
        """
        weight = tf.reshape(self._columns["weight"], (self.steps, self.num_envs))
        # Sample a block of steps, then a step, then an environment, because short sums are faster
        # and more accurate than one sum over all rows.
        size = math.isqrt(self.steps - 1) + 1
        of_step = tf.pad(tf.reduce_sum(weight, axis=1), ((0, size**2 - self.steps),))
        of_step = tf.reshape(of_step, (size, size))
        of_block = tf.reduce_sum(of_step, axis=1)
        total = tf.reduce_sum(of_block)
        drawn = random.uniform((batch_size,), seed) * total
        block, drawn = _choose(tf.broadcast_to(of_block, (batch_size, size)), drawn)
        within, drawn = _choose(tf.gather(of_step, block), drawn)
        slot = block * size + within
        env, _ = _choose(tf.gather(weight, slot), drawn)
        index = slot * self.num_envs + env
        if self.priority_exponent == 0:
            return index, tf.ones((batch_size,))
        probability = tf.maximum(self._read("weight", index) / total, _SMALLEST)
        weight_t = probability**-IMPORTANCE_EXPONENT
        return index, weight_t / tf.reduce_max(weight_t)

    def _n_steps(self, index):
        """Return `return_t`, `discount_t` and the last row index of transitions, `(B,)` each."""
        rows = (index[:, None] + tf.range(self.n_step) * self.num_envs) % self.capacity
        continues = 1.0 - tf.cast(self._read("over", rows), tf.float32)
        counts = tf.math.cumprod(continues, axis=1, exclusive=True)  # 1 up to the episode's end
        discounts = self.discount ** np.arange(self.n_step, dtype="float32")
        return_t = tf.reduce_sum(counts * discounts * self._read("reward_t", rows), axis=1)
        length = tf.cast(tf.reduce_sum(counts, axis=1), tf.int32)
        last = (index + (length - 1) * self.num_envs) % self.capacity
        discount_t = self.discount ** tf.cast(length, tf.float32)
        return return_t, tf.where(self._read("terminated", last), 0.0, discount_t), last

    def _set_priorities(self, index: Tensor, error: Tensor) -> None:
        """Set the priorities of rows from their temporal-difference errors.

        A row whose error is nan or infinite keeps its priority. In half precision, Q values of some
        rows can overflow for a few updates, and all rows must remain drawable.

        Args:
            index: `(B,)` row indices that `sample` returned.
            error: `(B,)` errors.
        """
        if self.priority_exponent == 0:
            return
        is_finite = tf.math.is_finite(error)
        error = tf.where(is_finite, tf.abs(error), 0.0)
        # Rows without an error stay drawable. 1e-6 would be too much for errors below 1e-3.
        largest = tf.reduce_max(error)
        priority = error + tf.where(largest > 0, tf.minimum(1e-6, 1e-3 * largest), 1e-6)
        weight = self._limited(self._copies(index) * priority**self.priority_exponent)
        weight = tf.where(is_finite, weight, self._read("weight", index))
        self._write(index, {"weight": weight})
        self._largest_priority.assign(tf.maximum(self._largest_priority, tf.reduce_max(priority)))

    def _limited(self, weight):
        """Limit weights so that no weight is 0 and the sum of all rows is finite."""
        most = np.float32(np.finfo("float32").max / 2 / self.capacity)
        return tf.clip_by_value(weight, _SMALLEST, most)

    def get_state(self) -> dict[str, Any]:
        """Return the contents as a dict of arrays and JSON-serialisable values."""
        rows = min(int(self._added), self.steps) * self.num_envs
        return {
            **{name: column[:rows].numpy() for name, column in self._columns.items()},
            "added": int(self._added),
            "largest_priority": float(self._largest_priority),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state from `get_state`.

        Raises:
            InvalidInput: if an array is not finite or of a wrong shape. The buffer is not changed.
        """
        added = natural("added", state["added"])
        rows = min(added, self.steps) * self.num_envs
        expected = {
            name: ((rows, *column.shape[1:]), column.dtype.as_numpy_dtype)
            for name, column in self._columns.items()
        }
        arrays = stored_arrays("replay", state, expected)
        for name, array in arrays.items():
            if array.dtype.kind == "f" and name != "return_lower_bound":  # -inf: unknown
                finite(f"replay state {name!r}", array)
        largest = float(number_from("priority", state["largest_priority"], 0))
        for name, column in self._columns.items():
            whole = np.zeros(column.shape, column.dtype.as_numpy_dtype)
            whole[:rows] = arrays[name]
            column.assign(whole)
        self._added.assign(added)
        self._largest_priority.assign(largest)


class SequenceReplayBuffer(ReplayBuffer):
    """A `ReplayBuffer` that samples sequences of steps, with the recurrent state at their start.

    A sequence may contain the end of an episode. At the first step of the next episode,
    `previous_action` is -1.

    Args:
        capacity, observation_shape, observation_dtype: as for `ReplayBuffer`.
        length: L, number of steps in a sequence.
        period: number of steps between the starts of successive sequences.
        memory_size: M, size of the memory of one environment.
        **options: other arguments of `ReplayBuffer`: `num_envs`, `discount`, `priority_exponent`,
            `use_return_lower_bound`, `frames` and `jit_compile`.

    Raises:
        InvalidInput: if a number is out of range, the buffer does not fit in memory, or the
            capacity is too small for a whole sequence.

    Example:
        >>> replay = SequenceReplayBuffer(
        ...     50_000, (7, 7, 4), "uint8", num_envs=16, length=24, period=8, memory_size=128
        ... )
        >>> sequence, index = replay.sample(8, seed=(0, 0))
        >>> sequence["action_t"].shape, sequence["memory"].shape
        (TensorShape([8, 24]), TensorShape([8, 128]))

    Source: Kapturowski et al. (2019), "stored state".
    """

    def __init__(
        self,
        capacity: int,
        observation_shape: Sequence[int],
        observation_dtype: Any,
        *,
        length: int,
        period: int,
        memory_size: int,
        **options: Any,
    ) -> None:
        state = {
            "memory": ((natural("memory_size", memory_size),), "float32"),
            "previous_action": ((), "int32"),
            "previous_reward": ((), "float32"),
        }
        positive_int("length", length)
        super().__init__(
            capacity, observation_shape, observation_dtype, n_step=length, state=state, **options
        )
        self.period = positive_int("period", period)
        # A smaller buffer does not contain the start of a whole sequence at all times.
        needed = self._history + length + period - 1
        if self.steps < needed:
            raise InvalidInput(
                f"`capacity` must be at least {self.num_envs * needed}, which is {needed} steps of "
                f"each of {self.num_envs} environments; received {capacity}."
            )

    def _sample(self, batch_size: int, seed: Any) -> tuple[dict[str, Tensor], Tensor]:
        """Sample sequences with replacement; at least one sequence must be available.

        Args:
            batch_size, seed: as for `ReplayBuffer`.

        Returns:
            The batch, and the row indices `(B,)` for `set_priorities`. The batch is a dict of
            `memory` `(B, M)` before the first step, importance weights `weight_t` `(B,)`, and
            tensors `(B, L, ...)`: `observation_t`, `action_t`, `reward_t`, `terminated`, `over`,
            `return_lower_bound`, `previous_action` and `previous_reward`.
        """
        index, weight_t = self._draw(batch_size, seed)
        rows = (index[:, None] + tf.range(self.n_step) * self.num_envs) % self.capacity
        names = ("action_t", "reward_t", "terminated", "over", "return_lower_bound")
        sequence = {
            name: self._read(name, rows) for name in (*names, "previous_action", "previous_reward")
        }
        sequence["observation_t"] = self._observations(rows)
        return sequence | {"memory": self._read("memory", index), "weight_t": weight_t}, index


def _choose(weight, drawn):
    """Return the first columns `(B,)` where the cumulative sums of `(B, N)` exceed `drawn`.

    Also return `drawn` minus the weights of the columns before.
    """
    # Rounding must not select a column of weight 0. Both `drawn` and the cumulative sum have
    # rounding errors; under XLA, the sum may even increase at a column of weight 0.
    up_to = tf.where(weight > 0, tf.cumsum(weight, axis=1), 0.0)
    drawn = tf.clip_by_value(drawn, 0.0, tf.reduce_max(up_to, axis=1) * _BELOW_ONE)
    column = tf.argmax(tf.cast(up_to > drawn[:, None], tf.int32), axis=1, output_type=tf.int32)
    return column, drawn - tf.gather(up_to - weight, column, batch_dims=1)
