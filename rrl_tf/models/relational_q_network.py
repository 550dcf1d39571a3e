"""From a grid to the value of every action, by way of relations between its cells."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras

from rrl_tf._arguments import positive_int, positive_ints
from rrl_tf._typing import Activation, Initializer, Shape, Tensor
from rrl_tf.layers._shapes import tensor_spec
from rrl_tf.models._dueling import dueling_values
from rrl_tf.models._encoders import RelationalEncoder, with_preprocessor
from rrl_tf.models._from_preset import FromPreset
from rrl_tf.models._grids import dense
from rrl_tf.models.presets import RELATIONAL_Q_NETWORK


@keras.saving.register_keras_serializable(package="rrl_tf")
class RelationalQNetwork(FromPreset, RelationalEncoder, presets=RELATIONAL_Q_NETWORK):
    """Values the actions in a grid world by letting the grid's cells attend to each other.

    Convolutions make an entity of every cell, or of every patch of a picture, coordinates or
    learned positions tell it where it is, rounds of message passing relate the entities, and a
    readout turns all of them into one vector for a dense network. Cell (row, column) of an input
    `(B, height, width, F)` is node `row * width + column`, where convolutions keep the size.

    Args:
        num_actions: A, the number of actions.
        conv_filters: channels of each convolution.
        conv_kernel_size: edge of the convolutions' kernels, in cells: one, or one for each.
        conv_padding: `"valid"`; or, to keep the size, `"same"` by zeros all round or `"top_left"`
            by zeros above and to the left.
        conv_activation: activation of the convolutions.
        coordinates: arguments of `AppendCoordinates`, or `None` for no coordinates.
        position_embedding: whether to add a learned vector for every cell.
        block: arguments of `RelationalBlock`; with a `max_offset`, positions are relative: a
            learned bias for the way from a cell to another, on grids of any size.
        num_rounds: rounds of message passing.
        share_weights: whether the rounds share their weights.
        unseen_feature: index of the feature of an observation that is 1 where a cell is out of
            sight; nothing attends to such a cell. `None` lets every cell be attended to.
        readout: `"max"` over the nodes of every feature (any number of nodes), `"flatten"`, or
            `"cell"`: only `readout_cell`, so that what the Q values know of the other cells has
            reached it by attention; or `"feature"`: only the cell that `readout_feature` marks.
        readout_cell: (row, column) of that cell, after the convolutions.
        hidden_units: sizes of the ReLU layers after the readout.
        dueling: whether Q is made of the value of the state and centred advantages, as
            `V + A - mean(A)` (Wang et al., 2016).
        output_activation: activation of the Q values.
        kernel_initializer: initialiser of every matrix.
        readout_feature: index of the feature of an observation that is 1 in one cell, the agent's,
            and 0 elsewhere.
        max_entities: where most cells of a grid are never attended to (`unseen_feature`), how many
            are at the most: only these are computed, with the same result, unless attention is
            asked for. Cells beyond them, in the order of the nodes, are left out, also then.
        conv_strides: step of the convolutions, in cells: one, or one for each.
        conv_pool: edge of the max-pooling after the convolutions: one, or one for each; 1 is none.
        random_shift: in training, observations are moved by up to so many cells (`RandomShift`).

    Call arguments:
        observation: preprocessed observation `(B, height, width, F)`.
        training: whether to apply dropout and shift observations.
        return_attention_scores: whether to return the attention as well.
        removed: `(B, N)` bool, entities that nothing attends to in any round, as if they were not
            there; what is read of them is still read.

    Returns:
        Q values `(B, A)`, float32 also under a mixed policy; with `return_attention_scores`, a pair
        of them and a dict `"round_1"`, `"round_2"`, ... -> attention `(B, H, N, N)`.

    Raises:
        InvalidInput: for an argument out of its range, or an observation that is no such grid.

    Example:

    >>> model = RelationalQNetwork.from_preset("book", num_actions=5)
    >>> q, attention = model(keras.ops.ones((1, 7, 7, 3)), return_attention_scores=True)
    >>> tuple(q.shape), tuple(attention["round_1"].shape), model.count_params()
    ((1, 5), (1, 3, 49, 49), 91597)

    References:
        - [Zambaldi et al., 2019](https://arxiv.org/abs/1806.01830)
        - [Wang et al., 2016](https://arxiv.org/abs/1511.06581)
        - "Deep Reinforcement Learning in Action", chapter 10
    """

    def __init__(
        self,
        num_actions: int,
        conv_filters: Sequence[int] = (32,),
        conv_kernel_size: int | Sequence[int] = 1,
        conv_padding: str = "valid",
        conv_activation: Activation = "relu",
        coordinates: Mapping[str, Any] | None = None,
        position_embedding: bool = False,
        block: Mapping[str, Any] | None = None,
        num_rounds: int = 1,
        share_weights: bool = False,
        unseen_feature: int | None = None,
        readout: str = "max",
        readout_cell: Sequence[int] | None = None,
        hidden_units: Sequence[int] = (64,),
        dueling: bool = False,
        output_activation: Activation = None,
        kernel_initializer: Initializer = "glorot_uniform",
        readout_feature: int | None = None,
        max_entities: int | None = None,
        conv_strides: int | Sequence[int] = 1,
        conv_pool: int | Sequence[int] = 1,
        random_shift: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            conv_filters,
            conv_kernel_size,
            conv_padding,
            conv_activation,
            coordinates,
            position_embedding,
            block,
            num_rounds,
            share_weights,
            unseen_feature,
            readout,
            readout_cell,
            kernel_initializer,
            readout_feature,
            max_entities,
            conv_strides,
            conv_pool,
            random_shift,
            **kwargs,
        )
        self.num_actions = positive_int("num_actions", num_actions)
        self.hidden_units = positive_ints("hidden_units", hidden_units)
        self.dueling = dueling
        self.output_activation = keras.activations.get(output_activation)
        self.hidden = [
            dense(self, f"hidden_{i}", units, "relu")
            for i, units in enumerate(self.hidden_units, start=1)
        ]
        # With a dueling head, the first column is the value of the state.
        columns = self.num_actions + (1 if self.dueling else 0)
        self.head = dense(self, "head", columns, full_precision=True)

    def build(self, observation_shape: Shape) -> None:
        super().build(observation_shape)
        features = self.read_size
        for layer in [*self.hidden, self.head]:
            layer.build((None, features))
            features = layer.units

    def call(  # type: ignore[override]  # an encoder returns more
        self,
        observation: Tensor,
        training: bool = False,
        return_attention_scores: bool = False,
        removed: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, dict[str, Tensor]]:
        # Whoever looks at the attention wants all rows, also where one cell is read.
        x, _, attention = super().call(observation, training, return_attention_scores, removed)
        for layer in self.hidden:
            x = layer(x)
        x = self.head(x)
        q = self.output_activation(dueling_values(x) if self.dueling else x)
        return (q, attention) if return_attention_scores else q

    def compute_output_shape(self, observation_shape: Shape) -> Shape:
        return (observation_shape[0], self.num_actions)

    def compute_output_spec(
        self,
        observation: Tensor,
        training: bool = False,
        return_attention_scores: bool = False,
        removed: Tensor | None = None,
    ) -> keras.KerasTensor | tuple[keras.KerasTensor, dict[str, keras.KerasTensor]]:
        q = tensor_spec(self.head, self.compute_output_shape(observation.shape))
        if not return_attention_scores:
            return q
        nodes = keras.KerasTensor(self._nodes_shape(observation.shape), dtype=self.compute_dtype)
        _, attention = self.relations.compute_output_spec(
            nodes, grid=self.grid_shape(observation.shape), return_attention_scores=True
        )
        return q, attention

    @classmethod
    def from_preset(  # type: ignore[override]  # what an observation holds comes second
        cls, name: str | os.PathLike, preprocessor: Any = None, **overrides: Any
    ) -> Self:
        """A network with a published configuration, or ours, and new weights; or a trained one.

        What an observation holds, its preprocessor knows: `"fast"` hides the cells that the
        preprocessor says are out of sight, and reads the agent's cell, where it always is or where
        a feature marks it, or by `"max"` where the preprocessor knows none. Without a preprocessor
        it hides nothing and reads by `"max"`. The weights are the same in number and shape either
        way. The other presets do not ask.

        Args:
            name: one of `presets`, which says what each of them is; `rrl_tf.models.presets` has
                their numbers and sources.
            preprocessor: what has an `unseen_feature` (index or `None`), an `agent_cell` ((row,
                column) or `None`) and an `agent_feature` (index or `None`), as
                `rrl_tf.envs.Preprocessor`.
            **overrides: `load_weights`, as of other models, and arguments that replace the
                preset's and the preprocessor's. A dict (`block=`, `coordinates=`) replaces single
                entries of the preset's dict.

        Raises:
            InvalidInput: for an unknown name; it lists the known ones.

        Example:

        >>> model = RelationalQNetwork.from_preset("fast", readout_cell=(3, 6), unseen_feature=0)
        >>> model.readout
        'cell'
        """
        if RELATIONAL_Q_NETWORK.get(str(name), {}).get("takes_preprocessor"):
            overrides = with_preprocessor(preprocessor, overrides)
        return super().from_preset(name, **overrides)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_actions": self.num_actions,
            "hidden_units": self.hidden_units,
            "dueling": self.dueling,
            "output_activation": keras.activations.serialize(self.output_activation),
        }
