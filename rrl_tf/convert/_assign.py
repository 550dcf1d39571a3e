"""Strict assignment of foreign weights: all of them, or none and one error that lists why."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from rrl_tf.errors import InvalidInput
from rrl_tf.layers import MultiHeadDotProductAttention


class Assignment(NamedTuple):
    """How one of our variables is made of an original's.

    Attributes:
        variable: the Keras variable to fill.
        sources: original name -> shape, in the order `combine` takes them.
        combine: the originals' arrays -> the variable's value.
    """

    variable: Any
    sources: dict[str, tuple[int, ...]]
    combine: Callable[..., np.ndarray] = lambda array: array


def torch_linear(name: str, dense: keras.layers.Dense) -> list[Assignment]:
    """The two assignments of a PyTorch `Linear`, whose weight is `(out, in)`."""
    inputs, outputs = dense.kernel.shape
    return [
        Assignment(dense.kernel, {f"{name}.weight": (outputs, inputs)}, np.transpose),
        Assignment(dense.bias, {f"{name}.bias": (outputs,)}),
    ]


def torch_pointwise_conv(name: str, dense: keras.layers.Dense) -> list[Assignment]:
    """The two assignments of a PyTorch 1 x 1 `Conv2d`, `(out, in, 1, 1)`: a dense layer."""
    inputs, outputs = dense.kernel.shape
    return [
        Assignment(
            dense.kernel,
            {f"{name}.weight": (outputs, inputs, 1, 1)},
            lambda weight: weight[:, :, 0, 0].T,
        ),
        Assignment(dense.bias, {f"{name}.bias": (outputs,)}),
    ]


def torch_conv(name: str, conv: keras.layers.Conv2D) -> list[Assignment]:
    """The two assignments of a PyTorch `Conv2d`, whose weight is `(out, in, height, width)`."""
    height, width, inputs, outputs = conv.kernel.shape
    return [
        Assignment(
            conv.kernel,
            {f"{name}.weight": (outputs, inputs, height, width)},
            lambda weight: weight.transpose(2, 3, 1, 0),
        ),
        Assignment(conv.bias, {f"{name}.bias": (outputs,)}),
    ]


def torch_query_key_value(
    attention: MultiHeadDotProductAttention, names: Sequence[str]
) -> list[Assignment]:
    """Three PyTorch `Linear` with columns `[head][size]` become one with `[head][q | k | v]`.

    Args:
        attention: a built `MultiHeadDotProductAttention`, over one set of entities.
        names: of the linear layers of queries, keys and values.
    """
    dense, heads = attention.query_key_value, attention.num_heads
    features, _ = dense.kernel.shape
    sizes = (attention.key_size, attention.key_size, attention.value_size)
    widths = {name: heads * size for name, size in zip(names, sizes)}

    def kernel(*weights):  # (H * size, F) each
        per_head = [weight.T.reshape(features, heads, -1) for weight in weights]
        return np.concatenate(per_head, axis=-1).reshape(features, -1)

    def bias(*biases):  # (H * size,) each
        return np.concatenate([b.reshape(heads, -1) for b in biases], axis=-1).reshape(-1)

    return [
        Assignment(
            dense.kernel, {f"{name}.weight": (w, features) for name, w in widths.items()}, kernel
        ),
        Assignment(dense.bias, {f"{name}.bias": (w,) for name, w in widths.items()}, bias),
    ]


def torch_layer_norm(
    name: str, norm: keras.layers.LayerNormalization, shape: tuple[int, ...] | None = None
) -> list[Assignment]:
    """The two assignments of a PyTorch `LayerNorm` over the same axes.

    `shape` is the original's, where ours has axes of size 1 besides.
    """
    ours = tuple(norm.gamma.shape)
    shape = shape or ours
    return [
        Assignment(norm.gamma, {f"{name}.weight": shape}, lambda array: array.reshape(ours)),
        Assignment(norm.beta, {f"{name}.bias": shape}, lambda array: array.reshape(ours)),
    ]


def assign(
    variables: Mapping[str, Any],
    assignments: Sequence[Assignment],
    leftovers: Collection[str] = (),
) -> None:
    """Fills our variables from the original's.

    Args:
        variables: mapping original name -> array (NumPy, or what has `.numpy()`).
        assignments: list of `Assignment`.
        leftovers: original names that carry nothing the model uses, and may be there.

    Raises:
        InvalidInput: listing every name that is missing, unknown or wrongly shaped. Nothing has
            been assigned then.
    """
    arrays = {name: _to_numpy(value) for name, value in variables.items()}
    expected = {name: shape for item in assignments for name, shape in item.sources.items()}
    problems = [
        f"missing: {name}, of the shape {shape}"
        for name, shape in expected.items()
        if name not in arrays
    ]
    problems += [
        f"unknown: {name}, of the shape {array.shape}"
        for name, array in arrays.items()
        if name not in expected and name not in leftovers
    ]
    problems += [
        f"wrong shape: {name} is {arrays[name].shape}, expected {shape}"
        for name, shape in expected.items()
        if name in arrays and arrays[name].shape != shape
    ]
    if problems:
        raise InvalidInput("The weights do not fit the model:\n- " + "\n- ".join(problems))
    for item in assignments:
        item.variable.assign(item.combine(*(arrays[name] for name in item.sources)))


def _to_numpy(value):
    if hasattr(value, "detach"):  # a PyTorch parameter gives no array while it records gradients
        value = value.detach()
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)
