"""Define a censored normal distribution of actions: the layer, the loss and the mean."""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import number_from
from rrl_tf._typing import Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers.base import BaseLayer

BOUND = 1.0 - 1e-6
"""Actions of at least this absolute value count as clipped; scaling may have rounded a bound."""


@keras.saving.register_keras_serializable(package="rrl_tf")
class CensoredNormal(BaseLayer):
    """Output layer for actions that are samples of a normal distribution, clipped to [-1, 1].

    Recorded actions are often the actions of a policy plus normal noise, clipped to the bounds of
    the action space. Clipping shifts the mean of the recorded actions. A model that is trained with
    a squared error learns this shifted mean. The likelihood of a censored normal distribution
    (Tobin, 1958) recovers the action of the policy; see `CensoredNormalLoss`.

    The scale σ of each component of the action is learned. The layer returns the action
    `E[clip(μ + c σ z, -1, 1)]` with standard normal z. For c = 1, this is the mean of the recorded
    actions; for c = 0, it is the action of the policy without noise.

    Args:
        noise_scale: c, from 0 to 1.
        initial_scale: σ before training.

    Call arguments:
        inputs: locations μ, `(..., A)`.

    Returns:
        Dict of `"action"` `(..., A)`, in [-1, 1], and `"distribution"` `(..., 2 A)`: the locations,
        then the logarithms of the scales.

    Raises:
        InvalidInput: for an argument out of its range.

    Example:

    >>> outputs = CensoredNormal()(keras.ops.array([[0.0, 3.0]]))
    >>> keras.ops.convert_to_numpy(outputs["action"]).round(3).tolist()
    [[0.0, 1.0]]

    References:
        - [Tobin, 1958](https://doi.org/10.2307/1907382)
    """

    def __init__(self, noise_scale: float = 1.0, initial_scale: float = 0.4, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.noise_scale = number_from("noise_scale", noise_scale, 0, 1)
        self.initial_scale = number_from("initial_scale", initial_scale, 1e-6)

    def build(self, inputs_shape: Shape) -> None:
        self.log_scale = self.add_weight(
            shape=(inputs_shape[-1],),
            initializer=keras.initializers.Constant(math.log(self.initial_scale)),
            name="log_scale",
        )

    def call(self, inputs: Tensor) -> dict[str, Tensor]:
        log_scale = ops.cast(self.log_scale, inputs.dtype)
        scale = ops.exp(log_scale) * self.noise_scale
        action = censored_normal_mean(inputs, scale) if self.noise_scale else _clipped(inputs)
        every = ops.broadcast_to(log_scale, ops.shape(inputs))
        return {"action": action, "distribution": ops.concatenate([inputs, every], axis=-1)}

    def compute_output_shape(self, inputs_shape: Shape) -> dict[str, Shape]:
        *rest, size = inputs_shape
        return {"action": (*rest, size), "distribution": (*rest, 2 * size)}


@keras.saving.register_keras_serializable(package="rrl_tf")
class CensoredNormalLoss(keras.losses.Loss):
    """Negative log-likelihood of recorded actions, averaged over their components.

    For an action a between the bounds, the loss is `log σ + ((a - μ) / σ)² / 2`, where the constant
    term is left out. For an action at a bound, it is the negative logarithm of the probability
    beyond the bound, which approaches 0 as μ moves beyond it.

    Args:
        reduction, name, dtype: see `keras.losses.Loss`.

    Call arguments:
        y_true: actions `(..., A)`, in [-1, 1].
        y_pred: `(..., 2 A)`, the `"distribution"` of a `CensoredNormal`.

    Returns:
        A number, or an array `(...)` if the reduction is None.

    Raises:
        InvalidInput: if the last axis of `y_pred` is not twice that of `y_true`.

    Example:

    >>> loss = CensoredNormalLoss()
    >>> round(float(loss(keras.ops.array([[1.0]]), keras.ops.array([[9.0, 0.0]]))), 3)
    0.0
    """

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        size = y_true.shape[-1]
        if y_pred.shape[-1] != 2 * size:
            raise InvalidInput(
                f"the last axis of `y_pred` must be {2 * size}, twice that of `y_true`; "
                f"received the shape {tuple(y_pred.shape)}"
            )
        location, log_scale = y_pred[..., :size], y_pred[..., size:]
        inverse = ops.exp(-log_scale)
        inside = 0.5 * ops.square((y_true - location) * inverse) + log_scale
        beyond = -_log_normal_cdf((ops.sign(y_true) * location - 1.0) * inverse)
        return ops.mean(ops.where(ops.abs(y_true) >= BOUND, beyond, inside), axis=-1)


def censored_normal_mean(location: Tensor, scale: Tensor) -> Tensor:
    """Return `E[clip(μ + σ z, -1, 1)]` for standard normal z.

    Args:
        location: μ, `(..., A)`.
        scale: σ > 0, with a shape that broadcasts to that of `location`.

    Returns:
        `(..., A)`.

    Example:

    >>> round(float(censored_normal_mean(keras.ops.array(1.0), keras.ops.array(0.5))), 3)
    0.801
    """
    # The mean is 1 minus the integral of P(action <= x) over x from -1 to 1.
    low, high = (-1.0 - location) / scale, (1.0 - location) / scale
    return _clipped(1.0 - scale * (_normal_cdf_integral(high) - _normal_cdf_integral(low)))


def _clipped(actions):
    return ops.clip(actions, -1.0, 1.0)


def _normal_cdf_integral(x):
    """Return the integral of Φ from -∞ to x, x Φ(x) + φ(x)."""
    cdf = 0.5 * (1.0 + ops.erf(x / math.sqrt(2.0)))
    return x * cdf + ops.exp(-0.5 * ops.square(x)) / math.sqrt(2.0 * math.pi)


# erfc(z) = t exp(-z² + polynomial(t)), t = 1 / (1 + z / 2), z >= 0, with a relative error below
# 1.2e-7: "Numerical Recipes", 6.2.2. Keras has no erfc, and 1 - erf is 0 for z above 4.
_POLYNOMIAL = (
    *(0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807),
    *(-0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223),
)


def _log_normal_cdf(x):
    """Return log Φ(x), also for x so low that Φ(x) underflows in float32."""
    z = ops.abs(x) / math.sqrt(2.0)
    t = 1.0 / (1.0 + 0.5 * z)
    polynomial = _POLYNOMIAL[0]
    for coefficient in _POLYNOMIAL[1:]:
        polynomial = polynomial * t + coefficient
    log_tail = ops.log(0.5 * t) - z * z + polynomial  # log Φ(-|x|)
    return ops.where(x < 0.0, log_tail, ops.log1p(-ops.exp(log_tail)))
