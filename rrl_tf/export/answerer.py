"""Writes a model that answers questions about pictures as a servable SavedModel version."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
from keras import ops

from rrl_tf.export.writer import input_spec, model_endpoints, write_version


def export_answerer(
    directory: str | os.PathLike,
    model: keras.Layer,
    prepare: Callable[[Any], Any],
    image_shape: Sequence[int],
    question_size: int,
    details: Mapping[str, Any] | None = None,
    version: int | None = None,
) -> Path:
    """Writes a model of pictures and questions as `directory/<version>/`, ready to be served.

    Signatures (batch dimension free, float32 and int32 out, no Python, no forced XLA):

    - `answer`, also called `serving_default`: `{"image" (B, height, width, C) uint8, "question"
      (B, bits) float32} -> {"answer" (B,), "probabilities" (B, K)}`, one question a picture;
    - `answer_with_attention`, where the model can return its attention: the same and one output
      `attention_<name>` (B, H, N + 1, N + 1) for each entry of the model's dict of scores.

    Args:
        directory, version: As in `rrl_tf.export.writer.write_version`.
        model: `RelationalAnswerer` or `ConvolutionalAnswerer`.
        prepare: Function of tensors, raw images (B, ...) as float32 to the model's images.
        image_shape: Shape of one raw image, without the batch.
        question_size: Bits of a question.
        details: JSON-able dict for `policy.json`: `answer_names`, `scores`, ...

    Returns:
        The version folder.

    Raises:
        InvalidInput, FileExistsError: As in `write_version`; nothing is written.

    Example:

    >>> from rrl_tf.data.sort_of_clevr import QUESTION_SIZE, ink
    >>> from rrl_tf.models import ConvolutionalAnswerer
    >>> model = ConvolutionalAnswerer.from_preset("fast")
    >>> export_answerer("runs/clevr/export", model, ink, (75, 75, 3), QUESTION_SIZE)
    PosixPath('runs/clevr/export/1')
    """

    def answer(ask, image, question):
        images = prepare(ops.cast(image, "float32"))
        logits = ask({"images": images, "questions": question[:, None]})[:, 0]
        return {"answer": ops.argmax(logits, axis=-1), "probabilities": ops.softmax(logits)}

    inputs = [
        input_spec("image", image_shape, "uint8"),
        input_spec("question", (question_size,), "float32"),
    ]
    endpoints = model_endpoints("answer", model, answer, inputs)
    return write_version(directory, model, endpoints, details, version)
