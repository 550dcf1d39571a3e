"""One step on several devices, of one host or of many: each computes a part of the batch.

The variables stay where they are, on every host's first device. A step lends each device their
values, adds up what the devices return, and updates the variables once a host. So models,
optimisers, checkpoints and exports know nothing of devices; clipping sees the whole gradient; and
as all hosts add the same sum to the same variables, they remain equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from rrl_tf.errors import InvalidInput


class DataParallel:
    """Spreads a function of a batch over the devices of a strategy.

    Every device draws random numbers of its own; the first draws those that a single one would.

    Args:
        strategy: `MirroredStrategy` or `MultiWorkerMirroredStrategy` of R devices.
        compute: function of a part of the batch, B / R rows → `(sums, rows)`: tensors that are
            added up over all parts, and tensors with a row for each of the part's, which are put
            one after the other.
        variables: what `compute` reads.
        sources: variables that those stand for, by default themselves. One that is R times as long
            has rows for the whole batch, such as the state of a stateful layer.
        jit_compile: compile `compute` with XLA.

    Example:
        >>> strategy = tf.distribute.MirroredStrategy(["CPU:0"])  # of two, each computes a half
        >>> double = DataParallel(strategy, lambda x: (tf.reduce_sum(x), 2 * x), [])
        >>> total, rows = tf.function(double)(tf.range(4.0))
        >>> float(total), rows.numpy().tolist()
        (6.0, [0.0, 2.0, 4.0, 6.0])
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        compute: Callable[[Any], tuple[Any, Any]],
        variables: Sequence[keras.Variable],
        *,
        sources: Sequence[keras.Variable] | None = None,
        jit_compile: bool = False,
    ) -> None:
        self._strategy, self._compute = strategy, compute
        self._count = strategy.num_replicas_in_sync
        self._variables = list(variables)
        self._sources = self._variables if sources is None else list(sources)
        pairs = enumerate(zip(self._variables, self._sources))
        self._of_rows = {i for i, (own, source) in pairs if own.shape != source.shape}
        self._bound = self._on_values
        if jit_compile:
            self._bound = tf.function(self._on_values, jit_compile=True, autograph=False)

    def __call__(self, batch: Any) -> tuple[Any, Any]:
        """Computes on a batch and updates the random states; to be called in a `tf.function`.

        Args:
            batch: structure of tensors `(B, ...)`, on all hosts the same.

        Returns:
            `(sums, rows)` of the whole batch, on all hosts the same.

        Raises:
            InvalidInput: if B is no multiple of R.
        """
        require_even_parts(batch, self._count)
        values = [tf.convert_to_tensor(source.value) for source in self._sources]
        on_replica = tf.autograph.experimental.do_not_convert(self._on_replica)
        results, alike = self._strategy.run(on_replica, (values, batch))
        (sums, rows, states, slices), (seeds, shapes) = self._added_up(results), self._first(alike)
        for i, new in {**states, **seeds}.items():
            self._sources[i].assign(new)
        flat = tf.nest.flatten(sums)
        for i, (numbers, indices) in slices.items():
            flat[i] = tf.IndexedSlices(numbers, indices, shapes[i])
        return tf.nest.pack_sequence_as(sums, flat), rows

    def _on_replica(self, values, batch):
        """What one device does, with its part of the batch and its place among the devices."""
        context = tf.distribute.get_replica_context()
        place = int(tf.get_static_value(context.replica_id_in_sync_group))

        def part(rows):
            return tf.split(rows, self._count)[place]

        with tf.device("CPU:0"):
            share = tf.nest.map_structure(part, batch)
            own = [part(v) if i in self._of_rows else v for i, v in enumerate(values)]
            for i in filter(self._is_seed, range(len(own))):
                own[i] = _moved(own[i], place)
        sums, rows, changed = self._bound(own, share)
        states = {i: changed[i] for i in changed if i in self._of_rows}
        seeds = {i: _moved(changed[i], -place) for i in changed if i not in self._of_rows}
        sums, slices, shapes = _without_slices(sums)
        padded = tf.nest.map_structure(
            lambda x: _padded(x, place, self._count), (rows, states, slices)
        )
        results = (sums, *padded)
        numbers = [tf.reshape(tf.cast(x, "float32"), [-1]) for x in tf.nest.flatten(results)]
        return (results, tf.concat(numbers, axis=0)), (seeds, shapes)

    def _on_values(self, values, part):
        """`compute` where the variables have these values, and the new ones of those it changes."""
        mapping = list(zip(self._variables, values))
        with keras.StatelessScope(mapping, initialize_variables=False) as scope:
            sums, rows = self._compute(part)
            after = [scope.get_current_value(variable) for variable in self._variables]
        changed = {i: new for i, (new, old) in enumerate(zip(after, values)) if new is not old}
        for i in changed:
            if i not in self._of_rows and not self._is_seed(i):
                raise InvalidInput(
                    "several devices can share what is learned by gradients, and no layer that "
                    f"changes its weights otherwise; received {self._variables[i].path}"
                )
        return sums, rows, changed

    def _added_up(self, results):
        """Adds up all devices' results, in one go however many there are."""
        like, flat = self._first(results[0]), results[1]
        total = self._strategy.reduce("SUM", flat, axis=None)
        parts = tf.split(total, [tf.size(x) for x in tf.nest.flatten(like)])
        whole = [
            tf.ensure_shape(tf.cast(tf.reshape(part, tf.shape(x)), x.dtype), x.shape)
            for part, x in zip(parts, tf.nest.flatten(like))
        ]
        return tf.nest.pack_sequence_as(like, whole)

    def _first(self, results):
        """The first device's results."""
        return tf.nest.map_structure(
            lambda x: self._strategy.experimental_local_results(x)[0], results
        )

    def _is_seed(self, i):
        return self._variables[i].name == "seed_generator_state"


def require_even_parts(batch: Any, count: int) -> None:
    """Raises `InvalidInput` unless a batch, of tensors or a number of rows, has `count` parts."""
    for rows in tf.nest.flatten(batch):
        size = rows if isinstance(rows, int) else rows.shape[0]
        if size is not None and size % count:
            raise InvalidInput(
                f"a batch must have a multiple of {count} rows, as so many devices share it; "
                f"received {size}"
            )


def _moved(seed, place):
    """The state of a random generator for the device at this place."""
    return seed + tf.constant([place * 0x9E3779B1, 0], seed.dtype)


def _without_slices(sums):
    """Structure without gradients of embeddings, their rows, and their shapes when they are dense.

    These rows are put one after the other, too: Keras clips them before it adds them up.
    """
    flat = tf.nest.flatten(sums)
    sliced = {i: x for i, x in enumerate(flat) if isinstance(x, tf.IndexedSlices)}
    dense = [tf.zeros([]) if i in sliced else x for i, x in enumerate(flat)]
    return (
        tf.nest.pack_sequence_as(sums, dense),
        {i: (x.values, x.indices) for i, x in sliced.items()},
        {i: x.dense_shape for i, x in sliced.items()},
    )


def _padded(rows, place, count):
    """A part's rows in their place among zeros for all the others."""
    size = tf.shape(rows)[0]
    others = [[0, 0]] * (rows.shape.rank - 1)
    return tf.pad(rows, [[place * size, (count - 1 - place) * size], *others])
