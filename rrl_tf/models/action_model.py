"""The base class of policies that predict actions: logits, a point, or a distribution."""

from __future__ import annotations

from rrl_tf._arguments import one_of, positive_int
from rrl_tf._typing import Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers import CensoredNormal
from rrl_tf.models.base import BaseModel

DISTRIBUTIONS = ("point", "censored_normal")


class ActionModel(BaseModel):
    """A model with a prediction of an action: its arguments and the activation of its last layer.

    Attributes:
        action_distribution: a `CensoredNormal` layer, or None. Setting its `noise_scale` affects
            functions that are traced later.
    """

    def _set_action(
        self,
        state_size: int,
        action_size: int,
        discrete: bool,
        distribution: str,
        noise_scale: float,
    ) -> None:
        """Store the arguments about states and actions and make the distribution's layer.

        Raises:
            InvalidInput: for an argument out of its range, or a distribution of discrete actions.
        """
        self.state_size = positive_int("state_size", state_size)
        self.action_size = positive_int("action_size", action_size)
        self.discrete = bool(discrete)
        self.distribution = one_of("distribution", distribution, DISTRIBUTIONS)
        self.noise_scale = noise_scale
        self.action_distribution = None
        if distribution != "point":
            if discrete:
                raise InvalidInput(
                    "`distribution` must be 'point' for discrete actions; received "
                    f"{distribution!r}"
                )
            self.action_distribution = CensoredNormal(
                noise_scale, dtype="float32", name="distribution"
            )
        self._action_activation = "tanh" if distribution == "point" and not discrete else None

    def _actions(self, prediction: Tensor) -> dict[str, Tensor]:
        """Return `"action"`, and `"distribution"` if there is one, of a prediction `(..., A)`."""
        if self.action_distribution is None:
            return {"action": prediction}
        return self.action_distribution(prediction)
