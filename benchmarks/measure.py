"""Times that can be compared on a machine that does other things as well."""

import time

import numpy as np
import tensorflow as tf


def use_one_thread():
    """Lets TensorFlow run on the calling thread and one more; to be called before it has run.

    Raises:
        RuntimeError: if TensorFlow has begun to run operations.
    """
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def timed(function, repeats, clock=time.process_time):
    """Seconds of each of `repeats` calls, after one that warms the caches and isn't counted.

    Args:
        function: what to call.
        repeats: int, calls that count.
        clock: function → seconds. `time.process_time` is the CPU time of all threads of the
            process, so that who else uses the machine matters little; `time.perf_counter` is what
            a user waits.

    Example:
        >>> len(timed(lambda: sum(range(1000)), repeats=3))
        3
    """
    function()
    seconds = []
    for _ in range(repeats):
        begun = clock()
        function()
        seconds.append(clock() - begun)
    return seconds


def alternate(contestants, rounds):
    """Lets contestants take turns, so that a change of the machine's speed meets all of them.

    Args:
        contestants: dict name → function that returns a list of seconds, as `timed` does.
        rounds: int, turns of each.

    Returns:
        A dict name → array of all seconds.

    Example:
        >>> times = alternate({"a": lambda: timed(work_a, 5), "b": lambda: timed(work_b, 5)}, 20)
        >>> np.median(times["a"]) / np.median(times["b"])
    """
    seconds = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, take_turn in contestants.items():
            seconds[name].extend(take_turn())
    return {name: np.array(values) for name, values in seconds.items()}
