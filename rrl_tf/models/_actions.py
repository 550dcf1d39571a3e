"""What a policy that imitates says of an action: logits, a point, or a distribution."""

from __future__ import annotations

import keras

from rrl_tf._arguments import number_from, one_of
from rrl_tf._typing import Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers import CensoredNormal

DISTRIBUTIONS = ("point", "censored_normal")


def distribution_layer(
    distribution: str, discrete: bool, noise_scale: float
) -> CensoredNormal | None:
    """What makes a distribution of an action's locations; nothing where a point is predicted.

    Raises:
        InvalidInput: for an unknown distribution, or one of discrete actions.
    """
    one_of("distribution", distribution, DISTRIBUTIONS)
    if distribution == "point":
        return None
    if discrete:
        raise InvalidInput(
            f"`distribution` must be 'point' where actions are discrete; received {distribution!r}"
        )
    return CensoredNormal(noise_scale, dtype="float32", name="distribution")


def set_noise_scale(model: keras.Model, share: float) -> None:
    """Sets the share of the noise over which a model averages the actions it plays from now on.

    Functions of it that were traced before go on as they were.

    Args:
        model: with an `action_distribution`.
        share: from 0 to 1.

    Raises:
        InvalidInput: if the share is another, or the model has no distribution.
    """
    if model.action_distribution is None:
        raise InvalidInput("a share of the noise needs a model that has learned one; received none")
    share = number_from("noise_scale", share, 0, 1)
    model.noise_scale = model.action_distribution.noise_scale = share


def activation(distribution: str, discrete: bool) -> str | None:
    """Of the layer that predicts actions."""
    return "tanh" if distribution == "point" and not discrete else None


def predicted(prediction: Tensor, distribution: CensoredNormal | None) -> dict[str, Tensor]:
    """`"action"`, and `"distribution"` where there is one, of what was predicted `(..., A)`."""
    return {"action": prediction} if distribution is None else distribution(prediction)


def predicted_specs(
    spec: keras.KerasTensor, distribution: CensoredNormal | None
) -> dict[str, keras.KerasTensor]:
    """What `predicted` returns, of a symbolic tensor."""
    return {"action": spec} if distribution is None else distribution.compute_output_spec(spec)
