"""Batches of windows for TensorFlow, drawn as they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

    from rrl_tf.offline.scaling import Scaling
    from rrl_tf.offline.windows import Windows


def batches_of(
    current: Callable[[], tuple[Windows, int]],
    size: int,
    scaling: Scaling,
    seed: int = 0,
    output: str = "action",
) -> tf.data.Dataset:
    """`Windows.dataset` of the windows there are whenever it is begun to be read.

    TensorFlow never lets go of what such a dataset reads from, so who has other windows again and
    again makes one of these.

    Args:
        current: function that returns `Windows` and the number of the first batch.
        size, scaling, seed, output: as those of `Windows.dataset`.
    """
    import tensorflow as tf  # what draws windows alone needs none of it

    signature = {
        name: tf.TensorSpec((size, *values.shape[1:]), values.dtype)
        for name, values in current()[0].batch(1, 0).items()
    }

    def batches():
        windows, number = current()
        while True:
            yield windows.batch(size, (seed, number))
            number += 1

    def prepare(window):
        inputs = scaling.window(window)
        return inputs, {output: inputs["actions"]}, {output: inputs["mask"]}

    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    return dataset.map(prepare, num_parallel_calls=1).prefetch(4)
