"""Define the base class of layers and models, and the sub-layers and checks that they share."""

from __future__ import annotations

import inspect
from typing import Any

import keras
from keras import ops

from rrl_tf._typing import Activation, Initializer, Shape, Tensor
from rrl_tf.layers._sublayer_states import restore_sublayers, sublayer_states

HIDDEN = -1e30
"""Added to scores that a softmax must ignore: far below every score, and finite (no row is NaN)."""


class BaseLayer(keras.layers.Layer):
    """Base class of layers, which implements the configuration that Keras saves.

    A subclass stores every argument of `__init__` in an attribute of the same name, and
    `get_config` reads these attributes. `get_build_config` adds what `quantize`, `enable_lora` and
    `trainable` have changed in the sublayers. `compute_output_spec` traces `call`, so symbolic
    outputs always agree with the results of `call`. A subclass overrides it only to pass on a mask.
    """

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        for kind in type(self).__mro__:
            if issubclass(kind, BaseLayer) and "__init__" in vars(kind):
                arguments = list(inspect.signature(kind.__init__).parameters.values())[1:]
                names = [a.name for a in arguments if a.kind is not a.VAR_KEYWORD]
                config |= {name: _serialized(name, getattr(self, name)) for name in names}
        return config

    def get_build_config(self) -> dict[str, Any] | None:
        config = super().get_build_config()
        states = sublayer_states(self)
        return {**config, "sublayers": states} if config is not None and states else config

    def build_from_config(self, config: dict[str, Any]) -> None:
        super().build_from_config({name: config[name] for name in config if name != "sublayers"})
        restore_sublayers(self, config.get("sublayers", {}))

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        return keras.Operation.compute_output_spec(self, *args, **kwargs)


def _serialized(name, value):
    if isinstance(value, keras.layers.Layer):
        return keras.saving.serialize_keras_object(value)
    if callable(value):
        module = keras.activations if name.endswith("activation") else keras.initializers
        return module.serialize(value)
    return dict(value) if isinstance(value, dict) else value


def make_dense(
    owner: keras.layers.Layer,
    name: str,
    units: int,
    features: int | None = None,
    activation: Activation = None,
    use_bias: bool = True,
    bias_initializer: Initializer = "zeros",
    full_precision: bool = False,
    kernel_initializer: Initializer | None = None,
) -> keras.layers.Dense:
    """Return a dense layer with the `kernel_initializer` and the dtype policy of its owner.

    Args:
        owner: layer or model with a `kernel_initializer`.
        name: name of the dense layer.
        units: size of its output.
        features: size of the input for which the dense layer is built; `None` leaves it unbuilt.
        activation: activation of the dense layer.
        use_bias: whether the dense layer has a bias.
        bias_initializer: initialiser of the bias.
        full_precision: whether the layer computes in float32 under a mixed-precision policy. Logits
            and Q values need this, because bfloat16 with its three digits would lose small
            differences between them.
        kernel_initializer: initialiser of the matrix; `None` means the owner's.
    """
    dense = keras.layers.Dense(
        units,
        activation=activation,
        use_bias=use_bias,
        # A clone, because an unseeded initialiser returns the same numbers each time it is called.
        kernel_initializer=kernel_initializer or owner.kernel_initializer.clone(),
        bias_initializer=bias_initializer,
        dtype=owner.dtype_policy.variable_dtype if full_precision else owner.dtype_policy,
        name=name,
    )
    if features is not None:
        dense.build((None, features))
    return dense


def dense_on_rows(dense: keras.layers.Layer, inputs: Tensor) -> Tensor:
    """Apply `dense` to the last axis of `inputs`, which may have any rank, as one matrix product.

    `Dense` returns the same, but is slow on TensorFlow with a free batch dimension. It calls
    `tensordot`, which computes shapes in the graph with about ten small operations per layer. For
    one observation and a small network, these take longer than the matrix product.
    """
    rows = dense(ops.reshape(inputs, (-1, inputs.shape[-1])))
    return ops.reshape(rows, (-1, *ops.shape(inputs)[1:-1], rows.shape[-1]))


def softmax(scores: Tensor) -> Tensor:
    """Return the softmax over the last axis, without Keras' warning for an axis of size 1."""
    return ops.ones_like(scores) if scores.shape[-1] == 1 else ops.softmax(scores, axis=-1)


def masked_softmax(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """Return the softmax of the allowed scores over the last axis.

    Args:
        scores: `(..., S)`, finite.
        allowed: bool, broadcasts to `scores`; `None` means that all scores are allowed.

    Returns:
        `(..., S)`, 0 for scores that are not allowed and in a row without an allowed score.
    """
    if allowed is None:
        return softmax(scores)
    # Half precision would lose small probabilities, so the softmax is at least float32.
    dtype = keras.backend.result_type(scores.dtype, "float32")
    # Adding to scores makes their softmax exactly 0. On a CPU, a sum that broadcasts is ten times
    # faster than `where`.
    weights = softmax(ops.cast(scores, dtype) + HIDDEN * ops.cast(ops.logical_not(allowed), dtype))
    # The softmax of a row without an allowed score is uniform, but must be 0.
    weights = weights * ops.cast(ops.any(allowed, axis=-1, keepdims=True), dtype)
    return ops.cast(weights, scores.dtype)


def same_shape(shape: Shape, expected: Shape, broadcast: bool = False) -> bool:
    """Return whether two shapes can be equal, where None stands for any size.

    Args:
        shape: shape to check.
        expected: shape to compare it with.
        broadcast: whether a size of 1 in `shape` fits every expected size.
    """
    fitting = (None, 1) if broadcast else (None,)
    return len(shape) == len(expected) and all(
        size == wanted or size in fitting or wanted is None for size, wanted in zip(shape, expected)
    )


class LayerNormalization(keras.layers.LayerNormalization):
    """Keras' layer with a faster gradient on a CPU; weights and outputs are the same.

    Keras differentiates through the mean and the variance, which needs twice as many passes over
    the array as the explicit formula.
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
    """Return a layer normalisation with its owner's dtype policy, built for inputs of `shape`.

    Args:
        owner: layer or model that the normalisation is part of.
        name: name of the normalisation.
        shape: shape of its input.
        epsilon: added to the variance; the default is that of PyTorch and Sonnet.
        **arguments: other arguments of `keras.layers.LayerNormalization`.
    """
    norm = LayerNormalization(epsilon=epsilon, dtype=owner.dtype_policy, name=name, **arguments)
    norm.build(shape)
    return norm
