"""Define `MultiInputQNetwork`, a Q network for dict observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras

from rrl_tf._arguments import optional_dict, positive_int, positive_ints
from rrl_tf._typing import Initializer, Shape, Tensor
from rrl_tf.models.base import BaseModel, build_in_turn, make_q_head, q_values
from rrl_tf.models.encoders import MultiInputEncoder, encoders_of


@keras.saving.register_keras_serializable(package="rrl_tf")
class MultiInputQNetwork(BaseModel):
    """Compute Q values of a dict of observations, with one encoder per part.

    The outputs of the encoders are concatenated. A dense network maps them to the Q values.

    Args:
        num_actions: A, the number of actions.
        encoders: dict name of a part -> dict of the arguments of its encoder, and `"encoder"`:

            - `"relational"` for a grid `(height, width, F)`, with the arguments of
              `RelationalQNetwork` from `conv_filters` on;
            - `"dense"` for a part of any shape, which is flattened, with `hidden_units` and, for an
              image, `convolutions`: a sequence of (filters, kernel size, stride).
        hidden_units: sizes of the ReLU layers after the encoders.
        dueling: as in `RelationalQNetwork`.
        kernel_initializer: initialiser of the matrices after the encoders.

    Call arguments:
        observation: dict name -> preprocessed part `(B, ...)`.
        training: whether to apply dropout and shift observations.
        return_attention_scores: whether to return the attention as well.

    Returns:
        Q values `(B, A)`, float32 also under a mixed-precision policy. With
        `return_attention_scores`, a pair of the Q values and a dict `"<part>_round_1"`,
        `"<part>_round_2"`, ... -> attention `(B, H, N, N)` between the cells of a grid.

    Raises:
        InvalidInput: for an argument out of its range, or an observation with other parts.

    Example:

    >>> encoders = {"view": {"encoder": "relational"}, "speed": {"encoder": "dense"}}
    >>> model = MultiInputQNetwork(3, encoders)
    >>> observation = {"view": keras.ops.ones((1, 5, 5, 4)), "speed": keras.ops.ones((1, 2))}
    >>> q, attention = model(observation, return_attention_scores=True)
    >>> tuple(q.shape), tuple(attention["view_round_1"].shape)
    ((1, 3), (1, 2, 25, 25))
    """

    def __init__(
        self,
        num_actions: int,
        encoders: Mapping[str, Mapping[str, Any]],
        hidden_units: Sequence[int] = (64,),
        dueling: bool = True,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_actions = positive_int("num_actions", num_actions)
        self.encoders = optional_dict("encoders", encoders)
        self.hidden_units = positive_ints("hidden_units", hidden_units)
        self.dueling = dueling
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.encoder_layer = MultiInputEncoder(
            self.encoders, dtype=self.dtype_policy, name="encoder"
        )
        self.hidden, self.head = make_q_head(self, self.num_actions, self.hidden_units, dueling)

    def build(self, observation_shape: Mapping[str, Shape]) -> None:
        self.encoder_layer.build(observation_shape)
        build_in_turn([*self.hidden, self.head], (None, self.encoder_layer.read_size))

    def call(
        self,
        observation: dict[str, Tensor],
        training: bool = False,
        return_attention_scores: bool = False,
    ) -> Tensor | tuple[Tensor, dict[str, Tensor]]:
        x, _, attention = self.encoder_layer(
            observation, training=training, every_entity=return_attention_scores
        )
        q = q_values([*self.hidden, self.head], x, self.dueling)
        return (q, attention) if return_attention_scores else q

    @classmethod
    def for_preprocessor(
        cls,
        preprocessor: Any,
        grids: str = "grid",
        num_rounds: int | None = None,
        block: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Return a network with new weights and the encoders that fit preprocessed observations.

        Args:
            preprocessor: `Preprocessor` with `parts`, such as the `preprocessor` of a task.
            grids: encoder of small grids: `"dense"` (also of images), `"convolutional"`, or an
                architecture of `RelationalQNetwork`.
            num_rounds, block: arguments of `RelationalQNetwork` that replace those of the
                architecture.
            **kwargs: other arguments of the network.
        """
        given = {"num_rounds": num_rounds, "block": block}
        given = {name: value for name, value in given.items() if value is not None}
        return cls(encoders=encoders_of(preprocessor, grids, **given), **kwargs)
