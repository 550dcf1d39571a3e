"""Experience replay in TensorFlow's variables: the last steps of several environments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rrl_tf._arguments import natural, number_from, positive_int, stored_arrays
from rrl_tf._typing import Tensor
from rrl_tf.agents import graph_random
from rrl_tf.errors import InvalidInput

_BELOW_ONE = 1 - 1e-6  # a number drawn below a sum stays below it when it is rounded


class Timeline:
    """The last T steps of E environments, step by step, from which transitions are drawn.

    What `ReplayBuffer` computes as experience comes in is computed here when it is drawn, so that
    a `tf.function` can hold it whole: the sum of up to n rewards, and what follows them. A
    transition may be drawn as soon as n - 1 steps have followed its first. Priorities, importance
    weights and observed returns are those of `ReplayBuffer`; its arguments mean the same.

    Args:
        capacity: transitions kept; T = `capacity // num_envs`.
        observation_shape: shape of one raw observation.
        observation_dtype: dtype of a raw observation.
        num_envs: E.
        n_step: rewards summed before bootstrapping.
        discount: in [0, 1], per step.
        priority_exponent: α; 0 draws uniformly.
        importance_exponent: β, in [0, 1].
        positive_copies: how much likelier a transition with a positive reward is drawn.
        observe_returns: fill in `floor_t` when an episode has terminated.
        jit_compile: compile with XLA.
        recall: name → shape and dtype of what else is kept of a step: what an agent knew before it
            looked.

    Raises:
        InvalidInput: if a number is out of range, or that many transitions do not fit in memory.

    Example:
        >>> replay = Timeline(100, (7, 7, 3), "uint8", num_envs=2, discount=0.9)
        >>> view, no = np.zeros((2, 7, 7, 3), "uint8"), tf.constant([False, False])
        >>> replay.add(view, [0, 1], [1.0, 0.0], terminated=no, truncated=no, observation_tp1=view)
        >>> (_, action_t, return_t, *_), index = replay.sample(4, seed=(0, 0))
        >>> return_t.shape
        TensorShape([4])
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
        importance_exponent: float = 0.4,
        positive_copies: int = 1,
        observe_returns: bool = False,
        jit_compile: bool = True,
        recall: Mapping[str, tuple[Sequence[int], Any]] | None = None,
    ) -> None:
        self.num_envs = positive_int("num_envs", num_envs)
        self.n_step = positive_int("n_step", n_step)
        # A step's transition may be drawn when n - 1 have followed it, and must still be there.
        if positive_int("capacity", capacity) < num_envs * n_step:
            raise InvalidInput(
                f"capacity must hold the {n_step} steps that are drawn together, of {num_envs} "
                f"environments: at least {num_envs * n_step}; received {capacity}"
            )
        self.steps = capacity // num_envs
        self.discount = number_from("discount", discount, 0, 1)
        self.priority_exponent = number_from("priority_exponent", priority_exponent, 0)
        self.importance_exponent = number_from("importance_exponent", importance_exponent, 0, 1)
        self.positive_copies = positive_int("positive_copies", positive_copies)
        self.observe_returns = observe_returns
        self.period = 1  # from a draw's first step to the next one's
        self._recall = dict(recall or {})
        self._columns = self._empty_columns(tuple(observation_shape), observation_dtype)
        self._added = tf.Variable(0, dtype=tf.int32, name="added")  # steps, not transitions
        self._largest_priority = tf.Variable(1.0, name="largest_priority")
        self.add = tf.function(self._add, jit_compile=jit_compile)
        self.sample = tf.function(self._sample, jit_compile=jit_compile)
        self.set_priorities = tf.function(self._set_priorities, jit_compile=jit_compile)

    @property
    def capacity(self) -> int:
        """Transitions kept, T * E."""
        return self.steps * self.num_envs

    def __len__(self) -> int:
        return self.drawable(int(self._added))

    def drawable(self, added: int) -> int:
        """How many transitions may be drawn when so many steps were added."""
        return max(0, min(added, self.steps) - self.n_step + 1) * self.num_envs

    def _empty_columns(self, shape, dtype):
        # Row `slot * E + env`: a step of all environments is a block of E rows.
        columns = {
            "observation_t": (shape, dtype),
            "observation_tp1": (shape, dtype),
            "action_t": ((), "int32"),
            "reward_t": ((), "float32"),
            "terminated": ((), "bool"),
            "over": ((), "bool"),
            "floor_t": ((), "float32"),
            "weight": ((), "float32"),
            **self._recall,
        }
        try:
            return {
                name: tf.Variable(np.zeros((self.capacity, *each), kind), name=name)
                for name, (each, kind) in columns.items()
            }
        except (MemoryError, ValueError, OverflowError, tf.errors.ResourceExhaustedError) as error:
            raise InvalidInput(
                f"the replay's capacity must fit in memory ({type(error).__name__}); received "
                f"{self.capacity}"
            ) from error

    def _add(
        self,
        observation_t: Tensor,
        action_t: Tensor,
        reward_t: Tensor,
        terminated: Tensor,
        truncated: Tensor,
        observation_tp1: Tensor,
        recall: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Takes one step of every environment.

        Args:
            observation_t: `(E, ...)`, what was seen before acting.
            action_t: `(E,)` int32, actions taken.
            reward_t: `(E,)` float32, rewards received.
            terminated: `(E,)` bool, the episode came to an end of its own.
            truncated: `(E,)` bool, the episode was cut by its time limit.
            observation_tp1: `(E, ...)`, what was seen after acting, never a new episode's start.
            recall: name → `(E, ...)`, what else is kept.
        """
        terminated = tf.convert_to_tensor(terminated)
        now = self._block(0)
        self._write(
            now,
            observation_t=observation_t,
            observation_tp1=observation_tp1,
            action_t=action_t,
            reward_t=reward_t,
            terminated=terminated,
            over=terminated | truncated,
            floor_t=tf.fill((self.num_envs,), -np.inf),
            weight=tf.zeros((self.num_envs,)),
            **(recall or {}),
        )
        complete = self._block(self.n_step - 1)
        weight = self._copies(complete) * self._largest_priority**self.priority_exponent
        # Before n steps there are, that block is one of those that nothing was written to yet.
        begins = self._added + 1 - self.n_step
        may_begin = (begins >= 0) & (begins % self.period == 0)
        self._write(complete, weight=tf.where(may_begin, weight, 0.0))
        if self.observe_returns:
            self._set_floors(terminated)
        self._added.assign_add(1)

    def _block(self, back):
        """Rows `(E,)` of the step that was taken so many steps before the newest one."""
        slot = (self._added - back) % self.steps
        return slot * self.num_envs + tf.range(self.num_envs)

    def _write(self, rows, **columns):
        for name, values in columns.items():
            variable = self._columns[name]
            values = tf.cast(values, variable.dtype)
            variable.scatter_update(tf.IndexedSlices(values, rows))

    def _read(self, name, rows):
        return tf.gather(self._columns[name], rows)

    def _copies(self, rows):
        if self.positive_copies == 1:
            return tf.ones((len(rows),))
        return_t, *_ = self._n_steps(rows)
        return tf.where(return_t > 0, float(self.positive_copies), 1.0)

    def _set_floors(self, terminated):
        """Walks back through the episodes that end now and writes their returns from each step."""
        stored = tf.minimum(self._added + 1, self.steps)

        def inside(back, walking, _):
            return tf.reduce_any(walking) & (back < stored)

        def walk(back, walking, return_t):
            rows = self._block(back)
            return_t = self._read("reward_t", rows) + self.discount * return_t
            floor_t = tf.where(walking, return_t, self._read("floor_t", rows))
            self._write(rows, floor_t=floor_t)
            return back + 1, walking & ~self._read("over", self._block(back + 1)), return_t

        tf.while_loop(inside, walk, (0, terminated, tf.zeros((self.num_envs,))))

    def _sample(self, batch_size: int, seed: Any) -> tuple[tuple[Tensor, ...], Tensor]:
        """Draws transitions with replacement; there must be one.

        Args:
            batch_size: B, a Python integer.
            seed: two integers or a tensor `(2,)`.

        Returns:
            `(observation_t, action_t, return_t, discount_t, floor_t, observation_tpn, weight_t)`,
            the fields of a `Batch`, and the rows `(B,)` they begin in, for `set_priorities`.
        """
        index, weight_t = self._draw(batch_size, seed)
        return_t, discount_t, last = self._n_steps(index)
        batch = (
            self._read("observation_t", index),
            self._read("action_t", index),
            return_t,
            discount_t,
            self._read("floor_t", index),
            self._read("observation_tp1", last),
            weight_t,
        )
        return batch, index

    def _draw(self, batch_size, seed):
        """Rows `(B,)` drawn by their weights, and what importance each has."""
        weight = tf.reshape(self._columns["weight"], (self.steps, self.num_envs))
        # Blocks of steps, steps, environments: short sums are quicker and more exact than one over
        # all rows.
        size = math.isqrt(self.steps - 1) + 1
        of_step = tf.pad(tf.reduce_sum(weight, axis=1), ((0, size**2 - self.steps),))
        of_step = tf.reshape(of_step, (size, size))
        of_block = tf.reduce_sum(of_step, axis=1)
        total = tf.reduce_sum(of_block)
        drawn = graph_random.uniform((batch_size,), seed) * total
        block, drawn = _choose(tf.broadcast_to(of_block, (batch_size, size)), drawn)
        within, drawn = _choose(tf.gather(of_step, block), drawn)
        slot = block * size + within
        env, _ = _choose(tf.gather(weight, slot), drawn)
        index = slot * self.num_envs + env
        if self.priority_exponent == 0:
            return index, tf.ones((batch_size,))
        probability = self._read("weight", index) / total
        # Times the number of rows it is the importance, but that is divided by the largest anyway.
        weight_t = probability**-self.importance_exponent
        return index, weight_t / tf.reduce_max(weight_t)

    def _n_steps(self, index):
        """Return, discount and last row, `(B,)` each, of transitions that begin in these rows."""
        later = tf.range(self.n_step) * self.num_envs
        rows = (index[:, None] + later) % self.capacity
        going_on = 1.0 - tf.cast(self._read("over", rows), tf.float32)
        counts = tf.math.cumprod(going_on, axis=1, exclusive=True)  # 1 up to the episode's end
        discounts = self.discount ** np.arange(self.n_step, dtype="float32")
        return_t = tf.reduce_sum(counts * discounts * self._read("reward_t", rows), axis=1)
        length = tf.cast(tf.reduce_sum(counts, axis=1), tf.int32)
        last = (index + (length - 1) * self.num_envs) % self.capacity
        discount_t = self.discount ** tf.cast(length, tf.float32)
        return return_t, tf.where(self._read("terminated", last), 0.0, discount_t), last

    def _set_priorities(self, index: Tensor, error: Tensor) -> None:
        """Remembers temporal-difference errors `(B,)` of sampled rows as their new priorities."""
        if self.priority_exponent == 0:
            return
        priority = tf.abs(error) + 1e-6
        weight = self._copies(index) * priority**self.priority_exponent
        self._write(index, weight=weight)
        self._largest_priority.assign(tf.maximum(self._largest_priority, tf.reduce_max(priority)))

    def get_state(self) -> dict[str, Any]:
        """Everything needed to go on exactly, as a dict of arrays and JSON-able values."""
        rows = min(int(self._added), self.steps) * self.num_envs
        return {
            **{name: column[:rows].numpy() for name, column in self._columns.items()},
            "added": int(self._added),
            "largest_priority": float(self._largest_priority),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restores what `get_state` returned.

        Raises:
            InvalidInput: if it came from a timeline of another shape, or holds a number that is
                none; nothing is changed then.
        """
        added = natural("added", state["added"])
        rows = min(added, self.steps) * self.num_envs
        expected = {
            name: ((rows, *column.shape[1:]), column.dtype.as_numpy_dtype)
            for name, column in self._columns.items()
        }
        arrays = stored_arrays("replay", state, expected, ("observation_t", "observation_tp1"))
        largest = float(number_from("priority", state["largest_priority"], 0))
        for name, column in self._columns.items():
            whole = np.zeros(column.shape, column.dtype.as_numpy_dtype)
            whole[:rows] = arrays[name]
            column.assign(whole)
        self._added.assign(added)
        self._largest_priority.assign(largest)


def _choose(weight, drawn):
    """Columns `(B,)` of `(B, N)` where the sums of weights pass the numbers drawn, and the rest."""
    # What was rounded must not choose a column that weighs nothing: neither the number drawn, nor
    # the sum, which XLA adds up by parts, so that it may grow where nothing is added.
    up_to = tf.where(weight > 0, tf.cumsum(weight, axis=1), 0.0)
    drawn = tf.clip_by_value(drawn, 0.0, tf.reduce_max(up_to, axis=1) * _BELOW_ONE)
    column = tf.argmax(tf.cast(up_to > drawn[:, None], tf.int32), axis=1, output_type=tf.int32)
    return column, drawn - tf.gather(up_to - weight, column, batch_dims=1)
