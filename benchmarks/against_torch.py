"""What the comparisons of a training step with PyTorch's have in common."""

import numpy as np
import tensorflow as tf

from benchmarks.report import has_amx

PRECISIONS = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
"""A precision's name in the tables → Keras' name of the policy."""


def check_equal(losses, precision):
    """Raises a `ValueError` unless all contestants, name → first loss, compute the same."""
    values = list(losses.values())
    if not np.allclose(values, values[0], rtol=1e-4 if precision == "float32" else 0.1):
        raise ValueError(f"the contestants do not compute the same: first losses {losses}")


def large_product(precision, size):
    """A function that multiplies two matrices of `size` rows, for the rate a core can reach."""
    a, b = (tf.cast(tf.random.normal((size, size), seed=seed), precision) for seed in (0, 1))
    multiply = tf.function(tf.matmul)
    return lambda: multiply(a, b)


def milliseconds(seconds):
    """Median and spread of times, as cells of a table."""
    low, high = 1e3 * np.quantile(seconds, (0.1, 0.9))
    return float(1e3 * np.median(seconds)), f"{low:.3g} to {high:.3g}"


def ratios(seconds, name, others):
    """The median of contestant `name` by that of each of the others; `None` for who is absent.

    Args:
        seconds: dict contestant → times.
        name: who is compared.
        others: with whom.
    """
    median = np.median(seconds[name])
    return [float(median / np.median(seconds[o])) if o in seconds else None for o in others]


def notes(rate):
    """What holds for each of the tables.

    Args:
        rate: dict precision → operations a second of a large product.
    """
    rates = ", ".join(f"{value / 1e9:.0f} GFLOP/s in {name}" for name, value in rate.items())
    return (
        f"Large matrix products reach {rates} (TensorFlow).",
        "bfloat16 is `mixed_bfloat16` in Keras and autocast in PyTorch: float32 weights and "
        "optimiser, products in bfloat16.",
        "Aims, against PyTorch eager in float32: at most 0.7 in float32; at most 0.5 in bfloat16 "
        f"where the CPU has AMX, and this one has {'it' if has_amx() else 'not'}.",
    )
