"""Experience replay of sequences, with what an agent knew where they begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rrl_tf._arguments import natural, positive_int
from rrl_tf.agents.timeline import Timeline
from rrl_tf.errors import InvalidInput


class SequenceTimeline(Timeline):
    """A `Timeline` from which sequences are drawn, with what the agent knew at their first steps.

    A sequence may go over the end of an episode: `previous_action` is -1 where the next one begins.

    Args:
        capacity, observation_shape, observation_dtype, num_envs: as for `Timeline`.
        length: L, steps of a sequence.
        period: steps from the beginning of one sequence to that of the next.
        memory_size: M, numbers an agent remembers.
        options: `discount`, exponents, `observe_returns` and `jit_compile`, as for `Timeline`.

    Raises:
        InvalidInput: as `Timeline`, or if the capacity does not always hold a whole sequence.

    Example:
        >>> replay = SequenceTimeline(
        ...     50_000, (7, 7, 4), "uint8", num_envs=16, length=24, period=8, memory_size=128
        ... )
        >>> (sequence,), index = replay.sample(8, seed=(0, 0))
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
        recall = {
            "memory": ((natural("memory_size", memory_size),), "float32"),
            "previous_action": ((), "int32"),
            "previous_reward": ((), "float32"),
        }
        positive_int("length", length)
        super().__init__(
            capacity, observation_shape, observation_dtype, n_step=length, recall=recall, **options
        )
        self.period = positive_int("period", period)
        # Otherwise there are moments in which none of those kept is the first of a whole sequence.
        if self.steps < length + period - 1:
            raise InvalidInput(
                f"capacity must hold length + period - 1 = {length + period - 1} steps of each "
                f"environment, {self.num_envs} here; received {capacity}"
            )

    def _sample(self, batch_size: int, seed: Any) -> Any:
        """Draws sequences with replacement; there must be one.

        Args:
            batch_size, seed: as for `Timeline`.

        Returns:
            A tuple of one dict: columns `(B, L, ...)`, `memory` `(B, M)` at the first step and
            `weight_t` `(B,)`; and the rows `(B,)` they begin in, for `set_priorities`.
        """
        index, weight_t = self._draw(batch_size, seed)
        later = tf.range(self.n_step) * self.num_envs
        rows = (index[:, None] + later) % self.capacity
        names = ("observation_t", "action_t", "reward_t", "terminated", "over", "floor_t")
        sequence = {
            name: self._read(name, rows) for name in (*names, "previous_action", "previous_reward")
        }
        sequence |= {"memory": self._read("memory", index), "weight_t": weight_t}
        return (sequence,), index
