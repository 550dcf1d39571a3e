"""Training steps of ours against PyTorch's: which, how long, and the table of it."""

import dataclasses
from typing import Literal

import numpy as np
import tensorflow as tf

from benchmarks.measure import Rounds, median, spread, take_turns
from benchmarks.report import Report, has_amx

PRECISIONS = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
"""A precision's name in the tables → Keras' name of the policy."""
OURS, OURS_XLA, OURS_FEWER = "ours", "ours, XLA", "ours, cells attended to"
EAGER, COMPILED = "PyTorch eager", "PyTorch compiled"


@dataclasses.dataclass(frozen=True)
class Config(Rounds):
    """What is compared, and how long."""

    precisions: tuple[Literal["float32", "bfloat16"], ...] = ("float32", "bfloat16")
    """float32, and bfloat16 with float32 weights."""
    product_size: int = 1024
    """Rows and columns of the large matrix product."""
    rounds: int = 15
    calls: int = 2


def check_equal(losses, precision):
    """Raises a `ValueError` unless all contestants, name → first loss, compute the same."""
    values = list(losses.values())
    if not np.allclose(values, values[0], rtol=1e-4 if precision == "float32" else 0.1):
        raise ValueError(f"the contestants do not compute the same: first losses {losses}")


def compare(config, title, keys, steps, products, notes, versus=(EAGER, COMPILED), **others):
    """Measures training steps and says what they cost, beside the rate of a large matrix product.

    Args:
        config: `Config`.
        title: of the report.
        keys: the columns that name a contestant; the last two are its precision and who it is.
        steps: dict name, a tuple with an item for each of `keys` → function.
        products: dict name → floating-point operations of a step's matrix products; for whom it is
            missing, the share of the product rate is not told.
        notes: function of the seconds, dict name → array, → the report's own notes.
        versus: whose steps all are compared with.
        others: more functions to measure, by name.

    Returns:
        The `Report`.
    """
    rates = {name: large_product(name, config.product_size) for name in config.precisions}
    seconds = take_turns({**steps, **rates, **others}, config)
    rate = {name: 2 * config.product_size**3 / median(seconds[name]) for name in rates}

    def row(name):
        *task, precision, _ = name
        times = 1e3 * seconds[name]
        cells = {**dict(zip(keys, name)), "ms": median(times), "10 to 90 %": spread(times)}
        if name in products:
            share = products[name] / median(seconds[name]) / rate[precision]
            cells["share of the product rate"] = f"{share:.0%}"
        rivals = {f"of {who}": (*task, precision, who) for who in versus}
        rivals[f"of {EAGER} in float32"] = (*task, "float32", EAGER)
        return cells | {column: ratio(seconds, name, rival) for column, rival in rivals.items()}

    said = notes(seconds) + common_notes(rate)
    return Report(title, [row(name) for name in steps], said, apart_with_amx=True)


def large_product(precision, size):
    """A function that multiplies two matrices of `size` rows, for the rate a core can reach."""
    a, b = (tf.cast(tf.random.normal((size, size), seed=seed), precision) for seed in (0, 1))
    multiply = tf.function(tf.matmul)
    return lambda: multiply(a, b)


def ratio(seconds, name, rival):
    """The median of a contestant by that of another; `None` if that one is absent."""
    return median(seconds[name]) / median(seconds[rival]) if rival in seconds else None


def common_notes(rate):
    """What holds for each of the tables.

    Args:
        rate: dict precision → operations a second of a large product.
    """
    rates = ", ".join(f"{value / 1e9:.0f} GFLOP/s in {name}" for name, value in rate.items())
    return (
        f"Large matrix products reach {rates} (TensorFlow).",
        "bfloat16 is `mixed_bfloat16` in Keras and autocast in PyTorch: float32 weights and "
        "optimiser, products in bfloat16.",
        f"The CPU has {'AMX' if has_amx() else 'no AMX'}.",
    )
