"""Export of classifiers."""

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
    """Write a classifier with its preprocessing as `directory/<version>/`, ready to be served.

    Signatures (free batch dimension, float32 and int32 outputs, no Python, no forced XLA):

    - `classify` and `serving_default`: `{"image" (B, ...) uint8} -> {"class" (B,),
      "probabilities" (B, K)}`;
    - `classify_with_attention`, if the model returns attention scores: the same and one output
      `attention_<name>` (B, H, N, S) for each entry of the model's dict of scores, or
      (B, T, H, N, S) if a memory reads a sequence.

    Args:
        directory: See `rrl_tf.export.write_version`.
        model: Keras model, `model(x) -> logits (B, K)` of preprocessed inputs `x`.
        prepare: Function of tensors, raw inputs (B, ...) to the inputs of the model.
        input_shape: Shape of one raw input.
        details: JSON-able dict for `policy.json`: `class_names`, `scores`, ...
        version: See `rrl_tf.export.write_version`.
        input_name: Name of the input, such as `"sequence"`.
        input_dtype: Dtype of the input.

    Returns:
        The version folder.

    Raises:
        InvalidInput, FileExistsError: See `rrl_tf.export.write_version`; nothing is written.

    Example:

    >>> from rrl_tf.data import clean
    >>> from rrl_tf.models import MLPClassifier
    >>> model = MLPClassifier.from_preset("patch-mnist")
    >>> export_classifier("runs/mnist/mine/export", model, clean, (28, 28))
    PosixPath('runs/mnist/mine/export/1')
    """

    def classify(predict, raw):
        logits = predict(prepare(raw))
        return {"class": ops.argmax(logits, axis=-1), "probabilities": ops.softmax(logits)}

    inputs = [input_spec(input_name, input_shape, input_dtype)]
    endpoints = model_endpoints("classify", model, classify, inputs)
    return write_version(directory, model, endpoints, details, version)
