"""Answers questions about a picture by way of relations between its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import optional_dict, positive_int, positive_ints
from rrl_tf._typing import Initializer, Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers import AppendCoordinates, RelationalBlock, RelationalModule
from rrl_tf.layers.masks import without_removed
from rrl_tf.layers.base import dense_on_rows, tensor_spec
from rrl_tf.models._from_preset import FromPreset
from rrl_tf.models._grids import dense, layer_of
from rrl_tf.models._questions import (
    build_in_turn,
    check_inputs,
    check_inputs_shape,
    convolutions,
    one_for_each,
)
from rrl_tf.models.answerer_presets import RELATIONAL_ANSWERER


@keras.saving.register_keras_serializable(package="rrl_tf")
class RelationalAnswerer(FromPreset, keras.Model, presets=RELATIONAL_ANSWERER):
    """Answers questions about pictures by letting the questions attend to the pictures' parts.

    Convolutions turn the picture into a smaller grid whose cells, with coordinates, are entities,
    and every question is one more. Rounds of message passing relate them: all entities attend to
    the cells, and a question to itself as well. No question is seen by a cell or by another
    question, so its answer is the same whatever else is asked, and the cells' part of the work is
    done once for all questions about a picture. What a question is after the last round goes
    through dense layers to the answers. Cell (row, column) is entity `row * columns + column`.

    Args:
        num_classes: K, the number of answers.
        conv_filters: channels of each convolution; a ReLU follows each. They are padded by
            zeros, so that the ground of a picture had better be 0, too.
        conv_kernel_sizes: edge of the kernels of each, in pixels.
        conv_strides: step of the kernels of each.
        coordinates: arguments of `AppendCoordinates`.
        cell_units: sizes of the ReLU layers from a cell, with its coordinates, to its entity.
        width: F, the size of an entity.
        block: arguments of `RelationalBlock`, of those that relate an entity to what it attends to
            alone: no `"joint"` norm and no `"book_additive"` score.
        num_rounds: rounds of message passing.
        share_weights: whether the rounds share their weights.
        hidden_units: sizes of the ReLU layers between the last round and the answers.
        kernel_initializer: initialiser of every matrix.

    Call arguments:
        inputs: dict of `"images"` `(B, height, width, C)`, values in [0, 1], and `"questions"`
            `(B, Q, bits)`.
        training: whether to apply dropout.
        return_attention_scores: whether to return the attention as well.
        removed: `(B, N)` bool, cells that nothing attends to in any round, as if they were not
            there. Questions cannot be removed.

    Returns:
        Logits `(B, Q, K)`, float32 also under a mixed policy; with `return_attention_scores`, a
        pair of them and a dict `"round_1"`, `"round_2"`, ... -> attention `(B, H, N + Q, N + Q)`
        of the N cells and, behind them, the Q questions.

    Raises:
        InvalidInput: for an argument out of its range, or inputs of a shape that does not fit.

    Example:

    >>> model = RelationalAnswerer.from_preset("fast")
    >>> inputs = {"images": ops.ones((1, 75, 75, 3)), "questions": ops.ones((1, 20, 11))}
    >>> logits, attention = model(inputs, return_attention_scores=True)
    >>> tuple(logits.shape), tuple(attention["round_1"].shape)
    ((1, 20, 10), (1, 4, 101, 101))

    References:
        - [Santoro et al., 2017](https://arxiv.org/abs/1706.01427)
        - [Zambaldi et al., 2019](https://arxiv.org/abs/1806.01830)
    """

    def __init__(
        self,
        num_classes: int = 10,
        conv_filters: Sequence[int] = (32, 64),
        conv_kernel_sizes: Sequence[int] = (5, 5),
        conv_strides: Sequence[int] = (3, 3),
        coordinates: Mapping[str, Any] | None = None,
        cell_units: Sequence[int] = (128,),
        width: int = 64,
        block: Mapping[str, Any] | None = None,
        num_rounds: int = 3,
        share_weights: bool = False,
        hidden_units: Sequence[int] = (128,),
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_classes = positive_int("num_classes", num_classes)
        self.conv_filters = positive_ints("conv_filters", conv_filters)
        count = len(self.conv_filters)
        self.conv_kernel_sizes = one_for_each("conv_kernel_sizes", conv_kernel_sizes, count)
        self.conv_strides = one_for_each("conv_strides", conv_strides, count)
        self.coordinates = optional_dict("coordinates", coordinates) or {}
        self.cell_units = positive_ints("cell_units", cell_units)
        self.width = positive_int("width", width)
        block = optional_dict("block", block)
        self.block = {"num_heads": 4, "key_size": 16} if block is None else block
        self._check_block()
        self.num_rounds = positive_int("num_rounds", num_rounds)
        self.share_weights = share_weights
        self.hidden_units = positive_ints("hidden_units", hidden_units)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self._make_layers()

    def _check_block(self):
        """Else what is answered depended on what else is asked."""
        joint = "joint" in (self.block.get("norm"), self.block.get("qkv_norm"))
        if joint or self.block.get("score") == "book_additive":
            raise InvalidInput(
                "`block` must relate an entity to what it attends to alone, without 'joint' norms "
                f"and 'book_additive' scores; received {self.block!r}"
            )

    def _make_layers(self):
        ours = {"dtype": self.dtype_policy, "name": "places"}
        places = layer_of("coordinates", AppendCoordinates, self.coordinates, **ours)
        self.grid_layers = [*convolutions(self), places]
        self.cell_layers = [
            dense(self, f"cell_{i}", units, "relu")
            for i, units in enumerate(self.cell_units, start=1)
        ]
        self.cell_layers.append(dense(self, "cell", self.width))
        self.question = dense(self, "question", self.width)
        self.relations = RelationalModule(
            layer_of(
                "block",
                RelationalBlock,
                self.block,
                kernel_initializer=self.kernel_initializer.clone(),
                dtype=self.dtype_policy,
                name="block",
            ),
            num_rounds=self.num_rounds,
            share_weights=self.share_weights,
            dtype=self.dtype_policy,
            name="relations",
        )
        self.hidden = [
            dense(self, f"hidden_{i}", units, "relu")
            for i, units in enumerate(self.hidden_units, start=1)
        ]
        self.head = dense(self, "head", self.num_classes, full_precision=True)

    def build(self, inputs_shape: dict[str, Shape] | None = None) -> None:
        self._expected_shapes = check_inputs_shape("RelationalAnswerer", inputs_shape)
        images, questions = self._expected_shapes
        *_, features = build_in_turn(self.grid_layers, images)
        build_in_turn(self.cell_layers, (None, features))
        self.question.build((None, questions[-1]))
        entities = (None, None, self.width)
        self.relations.build(entities)
        features = self.relations.compute_output_shape(entities)[-1]
        build_in_turn([*self.hidden, self.head], (None, features))

    def grid_shape(self, images_shape: Shape) -> tuple[int, int]:
        """The grid that the cells lie on, `(rows, columns)`, of images `(B, height, width, C)`."""
        shape = images_shape
        for layer in self.grid_layers:
            shape = layer.compute_output_shape(shape)
        return shape[1], shape[2]

    def call(
        self,
        inputs: Mapping[str, Tensor],
        training: bool = False,
        return_attention_scores: bool = False,
        removed: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, dict[str, Tensor]]:
        check_inputs(self.name, self._expected_shapes, inputs)
        x = inputs["images"]
        for layer in self.grid_layers:
            x = layer(x)
        rows, columns = self.grid_shape(self._expected_shapes[0])
        cells = ops.reshape(x, (-1, rows * columns, x.shape[-1]))  # (B, N, features)
        for layer in self.cell_layers:
            cells = dense_on_rows(layer, cells)
        questions = dense_on_rows(self.question, inputs["questions"])
        x, attention = self.relations(
            ops.concatenate([cells, questions], axis=1),  # (B, N + Q, F)
            mask=self._allowed(rows * columns, inputs["questions"], removed),
            grid=(rows, columns),
            training=training,
            return_attention_scores=True,
        )
        x = x[:, rows * columns :]
        for layer in [*self.hidden, self.head]:
            x = dense_on_rows(layer, x)
        return (x, attention) if return_attention_scores else x

    def _allowed(self, cells, questions, removed):
        """`(B or 1, 1, N + Q, N + Q)`: everyone may attend to cells, a question to itself too."""
        place = ops.arange(cells + ops.shape(questions)[1])
        allowed = ops.logical_or(place[None, :] < cells, place[:, None] == place[None, :])
        if removed is None:
            return allowed[None, None]
        kept = without_removed(None, removed, (questions.shape[0], cells))
        kept = ops.concatenate([kept, ops.ones_like(questions[..., 0], "bool")], axis=1)
        return ops.logical_and(allowed[None, None], kept[:, None, None])

    def compute_output_shape(self, inputs_shape: dict[str, Shape]) -> Shape:
        return (*inputs_shape["questions"][:2], self.num_classes)

    def compute_output_spec(
        self,
        inputs: Mapping[str, Tensor],
        training: bool = False,
        return_attention_scores: bool = False,
        removed: Tensor | None = None,
    ) -> keras.KerasTensor | tuple[keras.KerasTensor, dict[str, keras.KerasTensor]]:
        shapes = {name: tensor.shape for name, tensor in inputs.items()}
        logits = tensor_spec(self.head, self.compute_output_shape(shapes))
        if not return_attention_scores:
            return logits
        batch, questions, _ = shapes["questions"]
        rows, columns = self.grid_shape(shapes["images"])
        count = questions and rows * columns + questions
        entities = keras.KerasTensor((batch, count, self.width), dtype=self.compute_dtype)
        _, attention = self.relations.compute_output_spec(
            entities, grid=(rows, columns), return_attention_scores=True
        )
        return logits, attention

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "conv_filters": self.conv_filters,
            "conv_kernel_sizes": self.conv_kernel_sizes,
            "conv_strides": self.conv_strides,
            "coordinates": dict(self.coordinates),
            "cell_units": self.cell_units,
            "width": self.width,
            "block": dict(self.block),
            "num_rounds": self.num_rounds,
            "share_weights": self.share_weights,
            "hidden_units": self.hidden_units,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
