"""Compare training steps of rrl_tf and PyTorch in a table."""

import dataclasses
from typing import Literal

import numpy as np
import tensorflow as tf

from benchmarks.measure import Report, Rounds, has_amx, median, middle, take_turns

PRECISIONS = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
"""Dict from the precision in the tables to Keras' dtype policy."""
OURS, OURS_XLA, OURS_VISIBLE = "ours", "ours, XLA", "ours, visible cells only"
EAGER, COMPILED = "PyTorch eager", "PyTorch compiled"


@dataclasses.dataclass(frozen=True)
class Config(Rounds):
    """Set the precisions, the size of the reference product, and the number of measurements."""

    precisions: tuple[Literal["float32", "bfloat16"], ...] = ("float32", "bfloat16")
    """float32, and bfloat16 with float32 weights."""
    product_size: int = 1024
    """Rows and columns of the large matrix product."""
    rounds: int = 15
    calls: int = 2


def check_equal(losses, precision):
    """Raise a `ValueError` unless all implementations have the same first loss.

    Args:
        losses: dict from an implementation to the loss of its first update.
        precision: a key of `PRECISIONS`, which sets the tolerance.
    """
    values = list(losses.values())
    if not np.allclose(values, values[0], rtol=1e-4 if precision == "float32" else 0.1):
        raise ValueError(
            f"the first losses of all implementations must be equal; received {losses}"
        )


def compare(config, title, updates, flops, notes, baselines=(EAGER, COMPILED), **others):
    """Measure updates and large matrix products, and return a `Report` that compares them.

    Args:
        config: `Config`.
        title: title of the report.
        updates: dict (network, precision, implementation) → function.
        flops: dict from such a key to the floating-point operations of the matrix products of an
            update. Rows of updates without an entry omit the fraction of the matmul rate.
        notes: function of the seconds, a dict name → array, that returns further notes.
        baselines: implementations with which every row is compared.
        others: further functions to measure, by name.
    """
    products = {name: large_product(name, config.product_size) for name in config.precisions}
    seconds = take_turns({**updates, **products, **others}, config)
    rates = {name: 2 * config.product_size**3 / median(seconds[name]) for name in products}

    def row(name):
        network, precision, implementation = name
        cells = {"network": network, "precision": precision, "update": implementation}
        cells |= {"ms": 1e3 * median(seconds[name]), "10 to 90 %": middle(1e3 * seconds[name])}
        if name in flops:
            fraction = flops[name] / median(seconds[name]) / rates[precision]
            cells["fraction of the matmul rate"] = f"{fraction:.0%}"
        columns = {f"of {baseline}": (network, precision, baseline) for baseline in baselines}
        columns[f"of {EAGER} in float32"] = (network, "float32", EAGER)
        for column, baseline in columns.items():
            found = baseline in seconds
            cells[column] = median(seconds[name]) / median(seconds[baseline]) if found else None
        return cells

    reached = ", ".join(f"{rate / 1e9:.0f} GFLOP/s in {name}" for name, rate in rates.items())
    common = (
        f"Large matrix products reach {reached} (TensorFlow).",
        "bfloat16 is `mixed_bfloat16` in Keras and autocast in PyTorch: float32 weights and "
        "optimiser, products in bfloat16.",
        f"The CPU has {'AMX' if has_amx() else 'no AMX'}.",
    )
    rows = [row(name) for name in updates]
    return Report(title, rows, (*notes(seconds), *common), apart_with_amx=True)


def large_product(precision, size):
    """Return a function that multiplies two matrices of `size` rows."""
    a, b = (tf.cast(tf.random.normal((size, size), seed=seed), precision) for seed in (0, 1))
    multiply = tf.function(tf.matmul)
    return lambda: multiply(a, b)
