"""Layer normalisation with an explicit gradient."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from rrl_tf._typing import Shape, Tensor


class LayerNormalization(keras.layers.LayerNormalization):
    """Keras' layer over the last axes: same weights, same numbers, faster on a CPU.

    Keras differentiates through mean and variance, which takes twice as many passes over the array.
    """

    def call(self, inputs: Tensor) -> Tensor:
        # In half precision the sums would lose digits.
        x = ops.cast(inputs, keras.backend.result_type(inputs.dtype, "float32"))
        x = _normalise(x, self.axis, self.epsilon)
        if self.gamma is not None:
            x = x * ops.cast(self.gamma, x.dtype)
        if self.beta is not None:
            x = x + ops.cast(self.beta, x.dtype)
        return ops.cast(x, self.compute_dtype)


def _normalise(x, axis, epsilon):
    """Return `x` with mean 0 and variance 1 over `axis`."""

    @ops.custom_gradient
    def normalise(x):
        centred = x - ops.mean(x, axis=axis, keepdims=True)
        variance = ops.mean(ops.square(centred), axis=axis, keepdims=True)
        scale = ops.rsqrt(variance + epsilon)
        normal = centred * scale

        def gradient(*upstreams, upstream=None):
            upstream = upstreams[0] if upstream is None else upstream
            mean = ops.mean(upstream, axis=axis, keepdims=True)
            slope = ops.mean(upstream * normal, axis=axis, keepdims=True)
            return scale * (upstream - mean - slope * normal)

        return normal, gradient

    return normalise(x)


def make_norm(
    owner: keras.layers.Layer, name: str, shape: Shape, epsilon: float = 1e-5, **arguments: Any
) -> LayerNormalization:
    """Return a norm with its owner's precision, built for inputs of `shape`.

    Args:
        owner: layer or model that the norm is part of.
        name: name of the norm.
        shape: shape of its input.
        epsilon: added to the variance; PyTorch's and Sonnet's 1e-5.
        **arguments: other arguments of `keras.layers.LayerNormalization`.
    """
    norm = LayerNormalization(epsilon=epsilon, dtype=owner.dtype_policy, name=name, **arguments)
    norm.build(shape)
    return norm
