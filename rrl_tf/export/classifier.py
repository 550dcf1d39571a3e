"""Writes a classifier as a servable SavedModel version."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
from keras import ops

from rrl_tf.export.writer import input_spec, model_endpoints, write_version


def export_classifier(
    directory: str | os.PathLike,
    model: keras.Layer,
    prepare: Callable[[Any], Any],
    input_shape: Sequence[int],
    details: Mapping[str, Any] | None = None,
    version: int | None = None,
    input_name: str = "image",
    input_dtype: Any = "uint8",
) -> Path:
    """Writes a classifier with its preprocessing as `directory/<version>/`, ready to be served.

    Signatures (batch dimension free, float32 and int32 out, no Python, no forced XLA):

    - `classify`, also called `serving_default`: `{"image" (B, ...) uint8} -> {"class" (B,),
      "probabilities" (B, K)}`;
    - `classify_with_attention`, where the model can return its attention: the same and one output
      `attention_<name>` (B, H, N, S) for each entry of the model's dict of scores, of a memory
      that reads a sequence (B, T, H, N, S).

    Args:
        directory, version: As in `rrl_tf.export.writer.write_version`.
        model: Keras model, `model(x) -> logits (B, K)` for preprocessed inputs `x`.
        prepare: Function of tensors, raw inputs (B, ...) to the model's.
        input_shape: Shape of one raw input, without the batch.
        details: JSON-able dict for `policy.json`: `class_names`, `scores`, ...
        input_name, input_dtype: What else than images goes in, such as a `"sequence"`.

    Returns:
        The version folder.

    Raises:
        InvalidInput, FileExistsError: As in `write_version`; nothing is written.

    Example:

    >>> from rrl_tf.data import clean
    >>> from rrl_tf.models import MLPClassifier
    >>> model = MLPClassifier.from_preset("patch-mnist")
    >>> export_classifier("runs/mnist/mine/export", model, clean, (28, 28))
    PosixPath('runs/mnist/mine/export/1')
    """

    def classify(ask, raw):
        logits = ask(prepare(raw))
        return {"class": ops.argmax(logits, axis=-1), "probabilities": ops.softmax(logits)}

    inputs = [input_spec(input_name, input_shape, input_dtype)]
    endpoints = model_endpoints("classify", model, classify, inputs)
    return write_version(directory, model, endpoints, details, version)
