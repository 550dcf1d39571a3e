"""Times that can be compared on a machine that does other things as well."""

import dataclasses
import sys
import time

import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Rounds:
    """How long is measured."""

    rounds: int = 20
    """Turns of each contestant."""
    calls: int = 10
    """Calls measured in a turn, after one that isn't."""


def use_one_thread():
    """Lets TensorFlow, and PyTorch where it is imported, run on one thread.

    To be called before TensorFlow has run. It may also run on one thread beside the calling one.

    Raises:
        RuntimeError: if TensorFlow has begun to run operations.
    """
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.get_logger().setLevel("ERROR")  # it warns where one function is traced for several models
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def timed(function, calls, clock=time.process_time):
    """Seconds of each of `calls` calls, after one that warms the caches and isn't counted.

    Args:
        function: what to call.
        calls: int, calls that count.
        clock: function → seconds. `time.process_time` is the CPU time of all threads of the
            process, so that who else uses the machine matters little; `time.perf_counter` is what
            a user waits.

    Example:
        >>> len(timed(lambda: sum(range(1000)), calls=3))
        3
    """
    function()
    seconds = []
    for _ in range(calls):
        begun = clock()
        function()
        seconds.append(clock() - begun)
    return seconds


def take_turns(contestants, config, clock=time.process_time):
    """Seconds of every call of contestants that take turns, so that the machine's moods meet all.

    Args:
        contestants: dict name → function.
        config: `Rounds`.
        clock: as for `timed`.

    Returns:
        A dict name → array of `rounds * calls` seconds.

    Example:
        >>> times = take_turns({"a": work_a, "b": work_b}, Rounds(rounds=20, calls=5))
        >>> np.median(times["a"]) / np.median(times["b"])
    """
    seconds = {name: [] for name in contestants}
    for _ in range(config.rounds):
        for name, function in contestants.items():
            seconds[name].extend(timed(function, config.calls, clock))
    return {name: np.array(values) for name, values in seconds.items()}


def latencies(contestants, config, reference, wall="µs of wall time"):
    """What waiting for each contestant costs, in medians.

    Args:
        contestants: dict name → function.
        config: `Rounds`.
        reference: name of the contestant that all are compared with.
        wall: the column's title.

    Returns:
        A dict name → dict column → cell.
    """
    clocks = (time.perf_counter, time.process_time)
    waited, worked = (take_turns(contestants, config, clock) for clock in clocks)
    return {
        name: {
            wall: 1e6 * median(waited[name]),
            "10 to 90 %": spread(1e6 * waited[name], ",.0f"),
            "µs of CPU time": 1e6 * median(worked[name]),
            f"of {reference}": median(waited[name]) / median(waited[reference]),
        }
        for name in contestants
    }


def median(values):
    """The median as a number that JSON can hold."""
    return float(np.median(values))


def spread(values, form=".3g"):
    """Where the middle 80 % of values lie, in words."""
    low, high = np.quantile(values, (0.1, 0.9))
    return f"{low:{form}} to {high:{form}}"
