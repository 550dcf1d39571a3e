"""Several rounds of message passing between entities."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras

from rrl_tf._arguments import positive_int
from rrl_tf._typing import Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers._masks import carry_mask, padding_mask
from rrl_tf.layers.relational_block import RelationalBlock


@keras.saving.register_keras_serializable(package="rrl_tf")
class RelationalModule(keras.layers.Layer):
    """Repeats a round of message passing, so that entities learn of relations of relations.

    Args:
        block: a `RelationalBlock` that is not built yet: the round to repeat.
        num_rounds: how often.
        share_weights: whether all rounds are the same block, as Zambaldi et al.'s, or each one a
            new block with the configuration of `block`. The seed of its dropout, if it has one, is
            counted up; a seeded initialiser gives all of them the same weights, as everywhere in
            Keras.

    Call arguments:
        inputs: entities `(B, N, F)`.
        mask: `(B, N)`, true for the entities that count, as Keras injects it; or four axes that
            broadcast to `(B, H, N, N)`, true where attention is allowed.
        edges: a graph that holds in every round: its adjacency `(B, N, N)`, or with the block's
            `edge_size` features of its edges `(B, N, N, E)`, see `RelationalBlock`.
        grid: `(rows, columns)` of the entities, where the block has a `max_offset`.
        entity: index of the only entity whose output is wanted, `(B, 1, F)`; the last round then
            does no work for the others.
        training: whether to apply dropout.
        return_attention_scores: whether to return the scores as well.

    Returns:
        The entities after the last round; with `return_attention_scores`, a pair of that and of a
        dict `"round_1"`, `"round_2"`, ... -> attention `(B, H, N, N)`.

    Raises:
        InvalidInput: if `block` is no unbuilt `RelationalBlock`, if `num_rounds` is not positive,
            or if shared rounds would change the size of the entities.

    Example:

    >>> module = RelationalModule(RelationalBlock(num_heads=2, key_size=16), num_rounds=2)
    >>> entities, attention = module(keras.ops.ones((1, 49, 32)), return_attention_scores=True)
    >>> tuple(entities.shape), sorted(attention)
    ((1, 49, 32), ['round_1', 'round_2'])

    References:
        - [Zambaldi et al., 2019](https://arxiv.org/abs/1806.01830)
    """

    def __init__(
        self,
        block: RelationalBlock,
        num_rounds: int = 1,
        share_weights: bool = False,
        **kwargs: Any,
    ) -> None:
        if not isinstance(block, RelationalBlock) or block.built:
            raise InvalidInput(
                f"`block` must be a RelationalBlock not built yet; received {block!r}"
            )
        super().__init__(**kwargs)
        self.num_rounds = positive_int("num_rounds", num_rounds)
        self.share_weights = share_weights
        self.blocks = [block]
        if not share_weights:
            self.blocks += [self._another(block, i) for i in range(1, self.num_rounds)]
        self.supports_masking = True

    @staticmethod
    def _another(block, number):
        """A new block like the first one, which drops other attention than that does."""
        seed = None if block.seed is None else block.seed + number
        own = {"name": f"{block.name}_{number + 1}", "seed": seed}
        return RelationalBlock.from_config({**block.get_config(), **own})

    @property
    def block(self) -> RelationalBlock:
        """The block of the first round."""
        return self.blocks[0]

    def __dir__(self) -> Iterable[str]:
        # Keras saves a layer under the first name it finds: that is not to be a second one.
        return (name for name in super().__dir__() if name != "block")

    @property
    def rounds(self) -> list[RelationalBlock]:
        """The block of each round; the same one every time if the weights are shared."""
        return self.blocks * self.num_rounds if self.share_weights else self.blocks

    def build(self, inputs_shape: Shape) -> None:
        shape = inputs_shape
        for block in self.rounds:
            if not block.built:
                block.build(shape)
            elif shape[-1] != inputs_shape[-1]:
                raise InvalidInput(
                    "Rounds that share weights must keep the size of the entities, "
                    f"{inputs_shape[-1]}; received a block that makes it {shape[-1]}"
                )
            shape = block.compute_output_shape(shape)

    def call(
        self,
        inputs: Tensor,
        mask: Tensor | None = None,
        edges: Tensor | None = None,
        grid: tuple[Any, Any] | None = None,
        entity: int | None = None,
        training: bool = False,
        return_attention_scores: bool = False,
    ) -> Tensor | tuple[Tensor, dict[str, Tensor]]:
        x, attention = inputs, {}
        for i, block in enumerate(self.rounds, start=1):
            x, attention[f"round_{i}"] = block(
                x,
                mask=mask,
                edges=edges,
                grid=grid,
                entity=entity if i == self.num_rounds else None,
                training=training,
                return_attention_scores=True,
            )
        return (x, attention) if return_attention_scores else x

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        return padding_mask(inputs, previous_mask)

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        for block in self.rounds:
            inputs_shape = block.compute_output_shape(inputs_shape)
        return inputs_shape

    def compute_output_spec(
        self,
        inputs: Tensor,
        mask: Tensor | None = None,
        edges: Tensor | None = None,
        grid: tuple[Any, Any] | None = None,
        entity: int | None = None,
        training: bool = False,
        return_attention_scores: bool = False,
    ) -> keras.KerasTensor | tuple[keras.KerasTensor, dict[str, keras.KerasTensor]]:
        x, attention = inputs, {}
        for i, block in enumerate(self.rounds, start=1):
            x, attention[f"round_{i}"] = block.compute_output_spec(
                x,
                edges=edges,
                grid=grid,
                entity=entity if i == self.num_rounds else None,
                return_attention_scores=True,
            )
        if entity is not None:
            carry_mask(x, padding_mask(inputs, mask), slice(entity, entity + 1))
        return (x, attention) if return_attention_scores else x

    def get_config(self) -> dict[str, Any]:
        block = keras.saving.serialize_keras_object(self.block)
        block.pop("build_config", None)  # the module builds its blocks itself
        return {
            **super().get_config(),
            "block": block,
            "num_rounds": self.num_rounds,
            "share_weights": self.share_weights,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> RelationalModule:
        block = keras.saving.deserialize_keras_object(config["block"])
        return cls(**{**config, "block": block})
