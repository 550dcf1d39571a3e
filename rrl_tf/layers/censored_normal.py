"""A censored normal distribution of actions: a layer, its loss and its mean."""

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
"""Actions beyond it count as clipped, because scaling to [-1, 1] may have rounded them."""


@keras.saving.register_keras_serializable(package="rrl_tf")
class CensoredNormal(BaseLayer):
    """A normal distribution around each prediction, with the mass beyond ±1 moved to ±1.

    Recorded actions are often a policy's actions plus normal noise, clipped to their bounds. Their
    mean differs from the policy's action, and a squared error learns that mean. The likelihood of
    clipped values (Tobin, 1958) recovers the action: see `CensoredNormalLoss`.

    The scales σ are learned, one per component. The played action is the mean of the distribution,
    `E[clip(μ + c σ z, -1, 1)]` with standard normal z: for c = 1 the mean recorded action, for
    c = 0 the policy without its noise.

    Args:
        noise_scale: c, from 0 to 1, the fraction of the noise to average over in a played action.
        initial_scale: σ before training.

    Call arguments:
        inputs: locations μ, `(..., A)`.

    Returns:
        Dict of `"action"` `(..., A)`, in [-1, 1], and `"distribution"` `(..., 2 A)`: locations,
        then logarithms of the scales.

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

    Between the bounds it is `log σ + ((a - μ) / σ)² / 2`, without the constant. At a bound it is
    `-log Φ` of the mass beyond it, which approaches 0 as μ moves out.

    Args:
        reduction, name, dtype: of `keras.losses.Loss`.

    Call arguments:
        y_true: actions `(..., A)`, in [-1, 1].
        y_pred: `(..., 2 A)`, the `"distribution"` of a `CensoredNormal`.

    Returns:
        A number, or `(...)` where the reduction is None.

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
        scale: σ > 0, of a shape that broadcasts.

    Returns:
        `(..., A)`.

    Example:

    >>> round(float(censored_normal_mean(keras.ops.array(1.0), keras.ops.array(0.5))), 3)
    0.801
    """
    # The upper bound, less what P(action <= x) integrates to between the bounds.
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
    """Return log Φ(x), also where Φ(x) underflows in float32."""
    z = ops.abs(x) / math.sqrt(2.0)
    t = 1.0 / (1.0 + 0.5 * z)
    polynomial = _POLYNOMIAL[0]
    for coefficient in _POLYNOMIAL[1:]:
        polynomial = polynomial * t + coefficient
    log_tail = ops.log(0.5 * t) - z * z + polynomial  # log Φ(-|x|)
    return ops.where(x < 0.0, log_tail, ops.log1p(-ops.exp(log_tail)))
