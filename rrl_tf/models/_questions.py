"""What the models share that answer questions about pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import keras

from rrl_tf._arguments import positive_ints
from rrl_tf._typing import Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.models._grids import check_grid_shape

INPUTS = ("images", "questions")


def check_inputs_shape(name: str, shapes: Mapping[str, Shape] | None) -> tuple[Shape, Shape]:
    """The shapes of images and questions, or an `InvalidInput`."""
    if not isinstance(shapes, Mapping) or set(shapes) != set(INPUTS):
        raise InvalidInput(
            f'{name} takes a dict {{"images", "questions"}}; received the shapes {shapes!r}'
        )
    images, questions = (tuple(shapes[part]) for part in INPUTS)
    check_grid_shape(name, images)
    if None in images[1:3]:
        raise InvalidInput(f"{name} takes images of a known size; received the shape {images}")
    if len(questions) != 3 or questions[-1] is None:
        raise InvalidInput(
            f"{name} takes questions (B, Q, bits) with known bits; received the shape {questions}"
        )
    batches = {images[0], questions[0]} - {None}
    if len(batches) > 1 or 0 in images + questions:
        raise InvalidInput(
            f"{name} takes as many pictures as lists of questions, and nothing that is empty; "
            f"received the shapes {images} and {questions}"
        )
    return images, questions


def check_inputs(name: str, expected: tuple[Shape, Shape], inputs: Mapping[str, Tensor]) -> None:
    """Raises an `InvalidInput` if a batch is not of the shapes that a model was built for."""
    if not isinstance(inputs, Mapping):
        raise InvalidInput(
            f'{name} takes a dict {{"images", "questions"}}; received a {type(inputs).__name__}'
        )
    shapes = {part: tensor.shape for part, tensor in inputs.items()}
    images, questions = check_inputs_shape(name, shapes)
    if images[1:] != expected[0][1:] or questions[-1] != expected[1][-1]:
        raise InvalidInput(
            f"{name} was built for images {expected[0][1:]} and questions of {expected[1][-1]} "
            f"bits; received {images[1:]} and {questions[-1]}"
        )


def convolutions(model: keras.Model) -> list[keras.layers.Conv2D]:
    """The convolutions of a model with `conv_filters`, `conv_kernel_sizes`, `conv_strides`."""
    sizes = zip(model.conv_filters, model.conv_kernel_sizes, model.conv_strides, strict=True)
    return [
        keras.layers.Conv2D(
            filters,
            kernel_size,
            strides,
            padding="same",
            activation="relu",
            kernel_initializer=model.kernel_initializer.clone(),
            dtype=model.dtype_policy,
            name=f"convolution_{i}",
        )
        for i, (filters, kernel_size, strides) in enumerate(sizes, start=1)
    ]


def one_for_each(name: str, sizes: Sequence[int], count: int) -> tuple[int, ...]:
    """Positive integers, one for each of `count` convolutions, or an `InvalidInput`."""
    sizes = positive_ints(name, sizes)
    if len(sizes) != count:
        raise InvalidInput(
            f"`{name}` must be one integer for each of the {count} convolutions; received {sizes!r}"
        )
    return sizes


def build_in_turn(layers: Sequence[keras.Layer], shape: Shape) -> Shape:
    """Builds layers that follow each other, and returns the shape behind the last."""
    for layer in layers:
        layer.build(shape)
        shape = layer.compute_output_shape(shape)
    return shape
