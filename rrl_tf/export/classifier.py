"""Export classifiers and visual-question-answering models as SavedModels."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
from keras import ops

from rrl_tf.export.writer import argmax, input_spec, model_endpoints, write_version


def export_classifier(
    directory: str | os.PathLike,
    model: keras.Layer,
    preprocessor: Callable[[Any], Any],
    input_shape: Sequence[int],
    details: Mapping[str, Any] | None = None,
    version: int | None = None,
    input_name: str = "image",
    input_dtype: Any = "uint8",
) -> Path:
    """Write a classifier with its preprocessing as `directory/<version>/`, ready to be served.

    Signatures (free batch dimension, float32 and int32 outputs, no Python, no forced XLA):

    - `classify` and `serving_default`: `{"image" (B, ...) uint8} -> {"class" (B,),
      "probabilities" (B, K)}`;
    - `classify_with_attention`, if the model returns attention scores: adds one output
      `attention_<name>` for each entry of the model's dict of scores. The shape is (B, H, N, S), or
      (B, T, H, N, S) for a model that reads a sequence into a memory.

    Args:
        directory: See `write_version`.
        model: Keras model; `model(x)` returns the logits (B, K) of preprocessed inputs `x`.
        preprocessor: Function that maps a tensor of raw inputs (B, ...) to the model's inputs.
        input_shape: Shape of one raw input.
        details: JSON-able dict for `policy.json`: `class_names`, `scores`, ...
        version: See `write_version`.
        input_name: Name of the input, such as `"sequence"`.
        input_dtype: Dtype of the input.

    Returns:
        The version folder.

    Raises:
        InvalidInput, FileExistsError: See `write_version`; nothing is written.

    Example:

    >>> from rrl_tf.data import clean
    >>> from rrl_tf.models import MLPClassifier
    >>> model = MLPClassifier.from_preset("patch-mnist")
    >>> export_classifier("runs/mnist/mine/export", model, clean, (28, 28))
    PosixPath('runs/mnist/mine/export/1')
    """

    def classify(predict, raw):
        logits = predict(preprocessor(raw))
        return {"class": argmax(logits), "probabilities": ops.softmax(logits)}

    inputs = [input_spec(input_name, input_shape, input_dtype)]
    endpoints = model_endpoints("classify", model, classify, inputs)
    return write_version(directory, model, endpoints, details, version)


def export_vqa(
    directory: str | os.PathLike,
    model: keras.Layer,
    preprocessor: Callable[[Any], Any],
    image_shape: Sequence[int],
    question_size: int,
    details: Mapping[str, Any] | None = None,
    version: int | None = None,
) -> Path:
    """Write a visual-question-answering model as `directory/<version>/`, ready to be served.

    Signatures (free batch dimension, float32 and int32 outputs, no Python, no forced XLA):

    - `answer` and `serving_default`: `{"image" (B, height, width, C) uint8, "question" (B, bits)
      float32} -> {"answer" (B,), "probabilities" (B, K)}`, one question for each image;
    - `answer_with_attention`, if the model returns attention scores: adds one output
      `attention_<name>` (B, H, N + 1, N + 1) for each entry of the model's dict of scores.

    Args:
        directory: See `write_version`.
        model: `RelationalVQA` or `ConvolutionalVQA`; it maps `{"images", "questions"}` to logits.
        preprocessor: Function that maps a float32 tensor of raw images (B, ...) to the model's
            images.
        image_shape: Shape of one raw image.
        question_size: Number of bits of a question.
        details: JSON-able dict for `policy.json`: `answer_names`, `scores`, ...
        version: See `write_version`.

    Returns:
        The version folder.

    Raises:
        InvalidInput, FileExistsError: See `write_version`; nothing is written.

    Example:

    >>> from rrl_tf.data.sort_of_clevr import QUESTION_SIZE, ink
    >>> from rrl_tf.models import ConvolutionalVQA
    >>> model = ConvolutionalVQA.from_preset("fast")
    >>> export_vqa("runs/clevr/export", model, ink, (75, 75, 3), QUESTION_SIZE)
    PosixPath('runs/clevr/export/1')
    """

    def answer(predict, image, question):
        images = preprocessor(ops.cast(image, "float32"))
        logits = predict({"images": images, "questions": question[:, None]})[:, 0]
        return {"answer": argmax(logits), "probabilities": ops.softmax(logits)}

    inputs = [
        input_spec("image", image_shape, "uint8"),
        input_spec("question", (question_size,), "float32"),
    ]
    endpoints = model_endpoints("answer", model, answer, inputs)
    return write_version(directory, model, endpoints, details, version)
