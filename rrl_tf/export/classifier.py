"""Writes an image classifier as a servable SavedModel version."""

import inspect

import keras
import tensorflow as tf
from keras import ops

from rrl_tf.errors import InvalidInput
from rrl_tf.export.policy import policy_details, write_version


def export_classifier(directory, model, prepare, image_shape, details=None, version=None):
    """Writes a classifier with its preprocessing as `directory/<version>/`, ready to be served.

    Signatures (batch dimension free, float32 and int32 out, no Python, no forced XLA):

    - `classify`, also called `serving_default`: `{"image" (B, ...) uint8} -> {"class" (B,),
      "probabilities" (B, K)}`;
    - `classify_with_attention`, where the model can return its attention: the same and one output
      `attention_<name>` (B, H, N, S) for each entry of the model's dict of scores.

    Beside the graph lie `assets.extra/policy.json` and the warm-up requests, as for any policy.

    Args:
        directory: The model's base folder, made if missing.
        model: Keras model, `model(x) -> logits (B, K)` for prepared images `x`.
        prepare: Function of tensors, raw images (B, ...) to the model's input.
        image_shape: Shape of one raw image, without the batch.
        details: JSON-able dict for `policy.json`: `class_names`, `scores`, ...
        version: Positive integer; by default one more than the highest version in `directory`.

    Returns:
        `pathlib.Path` of the version folder.

    Raises:
        ValueError: If the details are no JSON, or the model fails; nothing is written.
        FileExistsError: If the version is already there.

    Example:

    >>> export_classifier("runs/mnist/fast/export", model, clean, (28, 28))
    PosixPath('runs/mnist/fast/export/1')
    """
    if keras.backend.backend() != "tensorflow":
        raise InvalidInput(
            "export_classifier needs Keras' TensorFlow backend; "
            f"received a model of the {keras.backend.backend()!r} backend"
        )

    def classify(image):
        return _answer(model(prepare(image)))

    def classify_with_attention(image):
        logits, scores = model(prepare(image), return_attention_scores=True)
        attention = {f"attention_{name}": ops.cast(s, "float32") for name, s in scores.items()}
        return _answer(logits) | attention

    specs = [tf.TensorSpec((None, *image_shape), "uint8", name="image")]
    endpoints = {"classify": (classify, specs), "serving_default": (classify, specs)}
    if "return_attention_scores" in inspect.signature(model.call).parameters:
        endpoints["classify_with_attention"] = (classify_with_attention, specs)
    return write_version(directory, model, endpoints, policy_details(details), version)


def _answer(logits):
    # Mixed precision would answer in bfloat16, which REST cannot carry.
    logits = ops.cast(logits, "float32")
    return {"class": ops.argmax(logits, axis=-1), "probabilities": ops.softmax(logits)}
