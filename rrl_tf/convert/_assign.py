"""Copy the weights of another implementation, or raise one error that lists all mismatches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from rrl_tf.errors import InvalidInput
from rrl_tf.layers import MultiHeadDotProductAttention


class Assignment(NamedTuple):
    """A Keras variable and the original variables from which its value is computed.

    Attributes:
        variable: the Keras variable to fill.
        sources: dict original name -> shape, in the order of the arguments of `combine`.
        combine: function that maps the original arrays to the value of the variable.
    """

    variable: Any
    sources: dict[str, tuple[int, ...]]
    combine: Callable[..., np.ndarray] = lambda array: array


def check_built(model: Any, kinds: Sequence[type[keras.layers.Layer]], build: str) -> None:
    """Raise an `InvalidInput` unless a model has one of the given classes and is built.

    Args:
        model: the model.
        kinds: the classes.
        build: code that builds the model, for the error message.
    """
    is_kind = isinstance(model, tuple(kinds))
    if not is_kind:
        raise InvalidInput(
            f"the model must be a {' or a '.join(kind.__name__ for kind in kinds)}; received "
            f"{model!r}"
        )
    if not model.built:
        raise InvalidInput(f"the model must be built first, with `{build}`; received {model!r}")


def different_arguments(model: Any, original: Any, names: Collection[str]) -> list[str]:
    """Return the arguments of `original` that differ from those of `model`, as `name=value`."""
    config, wanted = model.get_config(), original.get_config()
    return [f"{name}={wanted[name]!r}" for name in names if config[name] != wanted[name]]


def check_same_network(model: Any, original: str, differences: Sequence[str]) -> None:
    """Raise an `InvalidInput` if there are differences from the network that `original` creates.

    Args:
        model: the model.
        original: code that creates the original's network, for the error message.
        differences: the result of `different_arguments`.
    """
    if differences:
        raise InvalidInput(
            f"the model must be the original's network, {original}, which has "
            f"{', '.join(differences)}; received {model!r}"
        )


def torch_layer(name: str, layer: keras.layers.Layer, pointwise: bool = False) -> list[Assignment]:
    """Return the assignments of a PyTorch `Linear` or `Conv2d`, whose weight is `(out, in, ...)`.

    Args:
        name: name of the original layer.
        layer: our dense layer or convolution.
        pointwise: whether the original of a dense layer is a 1 x 1 `Conv2d`.
    """
    *window, inputs, outputs = layer.kernel.shape
    shape = (outputs, inputs, 1, 1) if pointwise else (outputs, inputs, *window)

    def kernel(weight):
        return np.moveaxis(weight, (0, 1), (-1, -2)).reshape(layer.kernel.shape)

    return [
        Assignment(layer.kernel, {f"{name}.weight": shape}, kernel),
        Assignment(layer.bias, {f"{name}.bias": (outputs,)}),
    ]


def torch_query_key_value(
    attention: MultiHeadDotProductAttention, names: Sequence[str]
) -> list[Assignment]:
    """Return the assignments of three PyTorch `Linear` layers to our one, for self-attention.

    The columns of our kernel are ordered `[head][q | k | v]`. The outputs of each original layer
    are ordered `[head][size]`.

    Args:
        attention: a built `MultiHeadDotProductAttention` for self-attention.
        names: names of the original layers of queries, keys and values.
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
    """Return the assignments of a PyTorch `LayerNorm` over the same axes.

    Args:
        name: name of the original layer.
        norm: our layer.
        shape: shape of the original weights, if it has other axes of size 1 than the weights of
            `norm`; None means that the shapes are equal.
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
    """Assign values from the original's variables to our variables.

    Args:
        variables: mapping original name -> array (NumPy, or an object with `.numpy()`).
        assignments: list of `Assignment`.
        leftovers: original names that are ignored if they exist.

    Raises:
        InvalidInput: if names are missing, unknown or have a wrong shape. The message lists all of
            them, and no variable is changed.
    """
    arrays = {name: _to_numpy(value) for name, value in variables.items()}
    expected = {name: shape for item in assignments for name, shape in item.sources.items()}
    problems = [
        f"missing: {name} with shape {shape}"
        for name, shape in expected.items()
        if name not in arrays
    ]
    problems += [
        f"unknown: {name} with shape {array.shape}"
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
    if hasattr(value, "detach"):  # a PyTorch parameter that records gradients
        value = value.detach()
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)
