"""Define `RelationalModule`, several rounds of message passing between entities."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras

from rrl_tf._arguments import positive_int
from rrl_tf._typing import Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers.masks import EntityLayer
from rrl_tf.layers.relational_block import RelationalBlock


@keras.saving.register_keras_serializable(package="rrl_tf")
class RelationalModule(EntityLayer):
    """Several rounds of message passing, so that entities learn about relations of relations.

    Args:
        block: the `RelationalBlock` of the first round, which must not be built yet.
        num_rounds: number of rounds.
        share_weights: whether all rounds use the same block, as in Zambaldi et al. Otherwise, each
            round uses a new block with the configuration of `block`. If `block` has a dropout seed,
            it increases by 1 in each round. A seeded initialiser gives all rounds the same initial
            weights, as is usual in Keras.

    Call arguments:
        inputs: entities `(B, N, F)`.
        mask: `(B, N)`, false for padding, as Keras passes it; or four axes that broadcast to
            `(B, H, N, N)`, true where attention is allowed.
        edges: edges of a graph, used in all rounds: the adjacency matrix `(B, N, N)`, or features
            `(B, N, N, E)` if the block has an `edge_size`; see `RelationalBlock`.
        grid: `(rows, columns)` of the entities, required if the block has a `max_offset`.
        entity: index of the only entity to compute an output for, `(B, 1, F)`. The last round then
            skips the other entities.
        training: whether to apply dropout.
        return_attention_scores: whether to return the scores as well.

    Returns:
        The entities after the last round. With `return_attention_scores`, a pair of the entities
        and a dict `"round_1"`, `"round_2"`, ... -> attention `(B, H, N, N)`.

    Raises:
        InvalidInput: if `block` is not an unbuilt `RelationalBlock`, if `num_rounds` is below 1, or
            if shared rounds would change the size of the entities.

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
                f"`block` must be a RelationalBlock that is not built; received {block!r}"
            )
        super().__init__(**kwargs)
        self.num_rounds = positive_int("num_rounds", num_rounds)
        self.share_weights = share_weights
        self.blocks = [block]
        if not share_weights:
            for i in range(1, self.num_rounds):
                # A different seed for each round, so that dropout masks differ between rounds.
                seed = None if block.seed is None else block.seed + i
                changes = {"name": f"{block.name}_{i + 1}", "seed": seed}
                self.blocks.append(RelationalBlock.from_config({**block.get_config(), **changes}))

    @property
    def block(self) -> RelationalBlock:
        """The block of the first round."""
        return self.blocks[0]

    def __dir__(self) -> Iterable[str]:
        # Keras saves a layer under the first attribute that holds it, which must be `blocks`.
        return (name for name in super().__dir__() if name != "block")

    @property
    def rounds(self) -> list[RelationalBlock]:
        """The block of each round: always the same block if the rounds share their weights."""
        return self.blocks * self.num_rounds if self.share_weights else self.blocks

    def build(self, inputs_shape: Shape) -> None:
        shape = inputs_shape
        for block in self.rounds:
            if not block.built:
                block.build(shape)
            elif shape[-1] != inputs_shape[-1]:
                raise InvalidInput(
                    "rounds that share weights must keep the size of the entities, "
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
            result = block(
                x,
                mask=mask,
                edges=edges,
                grid=grid,
                entity=entity if i == self.num_rounds else None,
                training=training,
                return_attention_scores=return_attention_scores,
            )
            if return_attention_scores:
                x, attention[f"round_{i}"] = result
            else:
                x = result
        return (x, attention) if return_attention_scores else x

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        for block in self.rounds:
            inputs_shape = block.compute_output_shape(inputs_shape)
        return inputs_shape

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        config["block"].pop("build_config", None)  # the module builds its blocks itself
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> RelationalModule:
        block = keras.saving.deserialize_keras_object(config["block"])
        return cls(**{**config, "block": block})
