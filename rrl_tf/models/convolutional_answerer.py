"""Answers questions about a picture by convolutions and dense layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from rrl_tf._arguments import positive_int, positive_ints
from rrl_tf._typing import Initializer, Shape, Tensor
from rrl_tf.layers.base import dense_on_rows, tensor_spec
from rrl_tf.models._from_preset import FromPreset
from rrl_tf.models._grids import dense
from rrl_tf.models._questions import (
    build_in_turn,
    check_inputs,
    check_inputs_shape,
    convolutions,
    one_for_each,
)
from rrl_tf.models.answerer_presets import CONVOLUTIONAL_ANSWERER


@keras.saving.register_keras_serializable(package="rrl_tf")
class ConvolutionalAnswerer(FromPreset, keras.Model, presets=CONVOLUTIONAL_ANSWERER):
    """The network that relations are compared with: convolutions, the question, dense layers.

    Args:
        num_classes: K, the number of answers.
        conv_filters: channels of each convolution; a ReLU follows each. They are padded by
            zeros, so that the ground of a picture had better be 0, too.
        conv_kernel_sizes: edge of the kernels of each, in pixels.
        conv_strides: step of the kernels of each.
        hidden_units: sizes of the ReLU layers that take picture and question to the answers; at
            least one.
        kernel_initializer: initialiser of every matrix.

    Call arguments:
        inputs: dict of `"images"` `(B, height, width, C)`, values in [0, 1], and `"questions"`
            `(B, Q, bits)`.

    Returns:
        Logits `(B, Q, K)`, float32 also under a mixed policy.

    Raises:
        InvalidInput: for an argument out of its range, or inputs of a shape that does not fit.

    Example:

    >>> model = ConvolutionalAnswerer.from_preset("fast")
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
        conv_kernel_sizes: Sequence[int] = (3, 3, 3, 3),
        conv_strides: Sequence[int] = (2, 2, 2, 2),
        hidden_units: Sequence[int] = (96, 96),
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_classes = positive_int("num_classes", num_classes)
        self.conv_filters = positive_ints("conv_filters", conv_filters)
        count = len(self.conv_filters)
        self.conv_kernel_sizes = one_for_each("conv_kernel_sizes", conv_kernel_sizes, count)
        self.conv_strides = one_for_each("conv_strides", conv_strides, count)
        self.hidden_units = positive_ints("hidden_units", hidden_units)
        positive_int("the number of hidden_units", len(self.hidden_units))
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.grid_layers = convolutions(self)
        first, *others = self.hidden_units
        self.picture = dense(self, "picture", first)
        self.question = keras.layers.Dense(
            first,
            use_bias=False,  # the picture's is enough
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name="question",
        )
        self.hidden = [
            dense(self, f"hidden_{i}", units, "relu") for i, units in enumerate(others, start=2)
        ]
        self.head = dense(self, "head", self.num_classes, full_precision=True)

    def build(self, inputs_shape: dict[str, Shape] | None = None) -> None:
        self._expected_shapes = check_inputs_shape("ConvolutionalAnswerer", inputs_shape)
        images, questions = self._expected_shapes
        self._features = math.prod(build_in_turn(self.grid_layers, images)[1:])
        self.picture.build((None, self._features))
        self.question.build((None, questions[-1]))
        build_in_turn([*self.hidden, self.head], (None, self.hidden_units[0]))

    def call(self, inputs: Mapping[str, Tensor], training: bool = False) -> Tensor:
        check_inputs(self.name, self._expected_shapes, inputs)
        x = inputs["images"]
        for layer in self.grid_layers:
            x = layer(x)
        picture = self.picture(ops.reshape(x, (-1, self._features)))
        # One dense layer on picture and question side by side, but the picture's part only once.
        x = ops.relu(picture[:, None] + dense_on_rows(self.question, inputs["questions"]))
        for layer in [*self.hidden, self.head]:
            x = dense_on_rows(layer, x)
        return x

    def compute_output_shape(self, inputs_shape: dict[str, Shape]) -> Shape:
        return (*inputs_shape["questions"][:2], self.num_classes)

    def compute_output_spec(
        self, inputs: Mapping[str, Tensor], training: bool = False
    ) -> keras.KerasTensor:
        shapes = {name: tensor.shape for name, tensor in inputs.items()}
        return tensor_spec(self.head, self.compute_output_shape(shapes))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "conv_filters": self.conv_filters,
            "conv_kernel_sizes": self.conv_kernel_sizes,
            "conv_strides": self.conv_strides,
            "hidden_units": self.hidden_units,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
