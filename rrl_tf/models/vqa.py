"""Define models for visual question answering: relational, and a convolutional baseline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import optional_dict, positive_int, positive_ints
from rrl_tf._typing import Initializer, Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers.base import dense_on_rows, make_dense
from rrl_tf.layers.masks import without_removed
from rrl_tf.models.architectures import CONVOLUTIONAL_VQA, RELATIONAL_VQA
from rrl_tf.models.base import build_in_turn, make_hidden
from rrl_tf.models.image_model import (
    ImageModel,
    make_coordinates,
    make_relations,
    one_per_convolution,
)

INPUTS = ("images", "questions")


class _VQA(ImageModel):
    """Base class of both models, with the convolutions and the checks of the inputs."""

    def _convolutions(self):
        sizes = zip(self.conv_filters, self.conv_kernel_size, self.conv_strides)
        return [
            self._convolution(f"convolution_{i}", filters, kernel_size, strides, "same")
            for i, (filters, kernel_size, strides) in enumerate(sizes, start=1)
        ]

    def _shapes(self, shapes: Any) -> tuple[Shape, Shape]:
        """Return the shapes of images and questions, or raise an `InvalidInput`."""
        if not isinstance(shapes, Mapping) or set(shapes) != set(INPUTS):
            raise InvalidInput(f"`inputs` must be a dict of {INPUTS}; received {shapes!r}")
        images, questions = (tuple(shapes[part]) for part in INPUTS)
        sizes = {*images[1:], *questions[2:]}
        batches = {*images[:1], *questions[:1]} - {None}
        is_empty = 0 in images + questions
        if len(images) != 4 or len(questions) != 3 or None in sizes or len(batches) > 1 or is_empty:
            raise InvalidInput(
                "images and questions must be (B, height, width, C) and (B, Q, bits) with known "
                f"sizes greater than 0; received the shapes {images} and {questions}"
            )
        return images, questions

    def _check_inputs(self, inputs: Mapping[str, Tensor]) -> None:
        if not isinstance(inputs, Mapping):
            raise InvalidInput(
                f"`inputs` must be a dict of {INPUTS}; received a {type(inputs).__name__}"
            )
        images, questions = self._shapes({name: x.shape for name, x in inputs.items()})
        if (images[1:], questions[2:]) != self._built_for:
            raise InvalidInput(
                "images and questions must have the sizes for which the model was built, "
                f"{self._built_for}; received the shapes {images} and {questions}"
            )


@keras.saving.register_keras_serializable(package="rrl_tf")
class RelationalVQA(_VQA, architectures=RELATIONAL_VQA):
    """Answer questions about images by attention between questions and parts of the image.

    Convolutions turn the image into a smaller grid. The entities are its cells, with coordinates,
    and the questions. In each round of message passing, all entities attend to the cells, and a
    question also attends to itself. No other entity attends to a question, so the answer does not
    depend on the other questions, and the cells are computed once for all questions about an image.
    Dense layers map the entity of a question after the last round to the logits of the answers.
    Cell (row, column) is entity `row * columns + column`.

    Args:
        num_classes: K, the number of answers.
        conv_filters: channels of each convolution; a ReLU follows each. The padding is 0, so the
            background of an image should be 0 too.
        conv_kernel_size: edge of the kernels in pixels: an int for all convolutions, or a sequence
            with one size for each.
        conv_strides: step of each convolution's kernels.
        coordinates: arguments of `AppendCoordinates`.
        cell_units: sizes of the ReLU layers from a cell, with its coordinates, to its entity.
        width: F, the size of an entity.
        block: arguments of `RelationalBlock`, without `"joint"` norms and `"book_additive"` scores,
            which would make an answer depend on the other questions.
        num_rounds: number of rounds of message passing.
        share_weights: whether the rounds share their weights.
        hidden_units: sizes of the ReLU layers between the last round and the answers.
        kernel_initializer: initialiser of every matrix.

    Call arguments:
        inputs: dict of `"images"` `(B, height, width, C)`, values in [0, 1], and `"questions"`
            `(B, Q, bits)`.
        training: whether to apply dropout.
        return_attention_scores: whether to return the attention as well.
        removed: `(B, N)` bool, true for cells that no entity attends to in any round. Questions
            cannot be removed. `None` means that no cells are removed.

    Returns:
        Logits `(B, Q, K)`, float32 also under a mixed-precision policy. With
        `return_attention_scores`, a pair of the logits and a dict `"round_1"`, `"round_2"`, ... ->
        attention `(B, H, N + Q, N + Q)`, whose rows are the N cells, followed by the Q questions.

    Raises:
        InvalidInput: for an argument out of its range, or inputs of a shape that does not fit.

    Example:

    >>> model = RelationalVQA.from_preset("fast")
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
        conv_kernel_size: int | Sequence[int] = (5, 5),
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
        self.conv_kernel_size = one_per_convolution("conv_kernel_size", conv_kernel_size, count)
        self.conv_strides = one_per_convolution("conv_strides", conv_strides, count)
        self.coordinates = optional_dict("coordinates", coordinates, {})
        self.cell_units = positive_ints("cell_units", cell_units)
        self.width = positive_int("width", width)
        self.block = optional_dict("block", block, {"num_heads": 4, "key_size": 16})
        self._check_block()
        self.num_rounds = positive_int("num_rounds", num_rounds)
        self.share_weights = share_weights
        self.hidden_units = positive_ints("hidden_units", hidden_units)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.grid_layers = [*self._convolutions(), *make_coordinates(self)]
        self.cell_layers = [
            make_dense(self, f"cell_{i}", units, activation="relu")
            for i, units in enumerate(self.cell_units, start=1)
        ]
        self.cell_layers.append(make_dense(self, "cell", self.width))
        self.question = make_dense(self, "question", self.width)
        self.relations = make_relations(self)
        self.hidden = make_hidden(self, self.hidden_units)
        self.head = make_dense(self, "head", self.num_classes, full_precision=True)

    def _check_block(self):
        """Raise an `InvalidInput` if an answer would depend on the other questions."""
        joint = "joint" in (self.block.get("norm"), self.block.get("qkv_norm"))
        if joint or self.block.get("score") == "book_additive":
            raise InvalidInput(
                "`block` must have no 'joint' norms and no 'book_additive' scores, which make an "
                f"answer depend on the other questions; received {self.block!r}"
            )

    def build(self, inputs_shape: dict[str, Shape] | None = None) -> None:
        images, questions = self._shapes(inputs_shape)
        self._built_for = (images[1:], questions[2:])
        *_, features = self._build_grid(images)
        build_in_turn(self.cell_layers, (None, features))
        self.question.build((None, questions[-1]))
        build_in_turn([self.relations, *self.hidden, self.head], (None, None, self.width))

    def call(
        self,
        inputs: Mapping[str, Tensor],
        training: bool = False,
        return_attention_scores: bool = False,
        removed: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, dict[str, Tensor]]:
        self._check_inputs(inputs)
        x = self._cells(inputs["images"])
        rows, columns = self.grid_shape(inputs["images"].shape)
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
        """Return the attention mask `(B or 1, 1, N + Q, N + Q)` of cells and questions.

        All entities attend to the cells. A question also attends to itself.
        """
        place = ops.arange(cells + ops.shape(questions)[1])
        allowed = ops.logical_or(place[None, :] < cells, place[:, None] == place[None, :])
        if removed is None:
            return allowed[None, None]
        kept = without_removed(None, removed, (questions.shape[0], cells))
        kept = ops.concatenate([kept, ops.ones_like(questions[..., 0], "bool")], axis=1)
        return ops.logical_and(allowed[None, None], kept[:, None, None])


@keras.saving.register_keras_serializable(package="rrl_tf")
class ConvolutionalVQA(_VQA, architectures=CONVOLUTIONAL_VQA):
    """Answer questions about images with convolutions and dense layers, as a baseline.

    Args:
        num_classes: K, the number of answers.
        conv_filters: channels of each convolution; a ReLU follows each. The padding is 0, so the
            background of an image should be 0 too.
        conv_kernel_size: edge of the kernels in pixels: an int for all convolutions, or a sequence
            with one size for each.
        conv_strides: step of each convolution's kernels.
        hidden_units: sizes of the ReLU layers after the convolutions, at least one.
        kernel_initializer: initialiser of every matrix.

    Call arguments:
        inputs: dict of `"images"` `(B, height, width, C)`, values in [0, 1], and `"questions"`
            `(B, Q, bits)`.

    Returns:
        Logits `(B, Q, K)`, float32 also under a mixed-precision policy.

    Raises:
        InvalidInput: for an argument out of its range, or inputs of a shape that does not fit.

    Example:

    >>> model = ConvolutionalVQA.from_preset("fast")
    >>> inputs = {"images": ops.ones((1, 75, 75, 3)), "questions": ops.ones((1, 20, 11))}
    >>> tuple(model(inputs).shape)
    (1, 20, 10)

    References:
        - [Santoro et al., 2017](https://arxiv.org/abs/1706.01427)
    """

    def __init__(
        self,
        num_classes: int = 10,
        conv_filters: Sequence[int] = (24, 24, 24, 24),
        conv_kernel_size: int | Sequence[int] = (3, 3, 3, 3),
        conv_strides: Sequence[int] = (2, 2, 2, 2),
        hidden_units: Sequence[int] = (96, 96),
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_classes = positive_int("num_classes", num_classes)
        self.conv_filters = positive_ints("conv_filters", conv_filters)
        count = len(self.conv_filters)
        self.conv_kernel_size = one_per_convolution("conv_kernel_size", conv_kernel_size, count)
        self.conv_strides = one_per_convolution("conv_strides", conv_strides, count)
        self.hidden_units = positive_ints("hidden_units", hidden_units)
        positive_int("the number of hidden_units", len(self.hidden_units))
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.grid_layers = self._convolutions()
        first, *others = self.hidden_units
        self.picture = make_dense(self, "picture", first)
        self.question = make_dense(self, "question", first, use_bias=False)  # the image has one
        self.hidden = [
            make_dense(self, f"hidden_{i}", units, activation="relu")
            for i, units in enumerate(others, start=2)
        ]
        self.head = make_dense(self, "head", self.num_classes, full_precision=True)

    def build(self, inputs_shape: dict[str, Shape] | None = None) -> None:
        images, questions = self._shapes(inputs_shape)
        self._built_for = (images[1:], questions[2:])
        self._features = math.prod(self._build_grid(images)[1:])
        self.picture.build((None, self._features))
        self.question.build((None, questions[-1]))
        build_in_turn([*self.hidden, self.head], (None, self.hidden_units[0]))

    def call(self, inputs: Mapping[str, Tensor], training: bool = False) -> Tensor:
        self._check_inputs(inputs)
        x = ops.reshape(self._cells(inputs["images"]), (-1, self._features))
        # Equal to a dense layer that reads image and question, but computes the image's term once.
        picture = self.picture(x)
        x = ops.relu(picture[:, None] + dense_on_rows(self.question, inputs["questions"]))
        for layer in [*self.hidden, self.head]:
            x = dense_on_rows(layer, x)
        return x
