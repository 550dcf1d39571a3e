"""Implement Classify and Regress, whose signatures map tf.Examples to class scores or values."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from tensorflow.core.example import example_pb2
from tensorflow.core.framework import types_pb2

from serving.errors import ServingError, invalid
from serving.server.json_codec import check_copies
from serving.server.model import Servable, Signature

CLASSIFY, REGRESS = "tensorflow/serving/classify", "tensorflow/serving/regress"
_OUTPUTS = {
    CLASSIFY: {"classes": types_pb2.DT_STRING, "scores": types_pb2.DT_FLOAT},
    REGRESS: {"outputs": types_pb2.DT_FLOAT},
}


@dataclasses.dataclass(frozen=True)
class Head:
    """A signature for Classify or Regress.

    Attributes:
        method: The method name, `CLASSIFY` or `REGRESS`.
        signature: The signature.
        outputs: The names of its outputs.
    """

    method: str
    signature: Signature
    outputs: tuple[str, ...]

    @classmethod
    def find(cls, servable: Servable, method: str, signature_name: str) -> Head:
        """Return the head of a servable with a method and signature name.

        Raises:
            ServingError: INVALID_ARGUMENT if the signature is missing or does not suit the method,
                UNIMPLEMENTED for a method other than Classify and Regress.
        """
        if method not in _OUTPUTS:
            raise ServingError("UNIMPLEMENTED", f"Unsupported signature method: {method}")
        try:
            signature = servable.signature(signature_name)
        except ServingError as error:
            raise invalid(error.message) from error
        if signature.method not in (None, method):
            raise invalid(f"Expected {method} signature method_name; got {signature.method}")
        inputs = {name: spec.dtype for name, spec in signature.inputs.items()}
        outputs = {name: spec.dtype for name, spec in signature.outputs.items()}
        known = _OUTPUTS[method]
        if inputs != {"inputs": types_pb2.DT_STRING} or not (
            outputs and outputs.items() <= known.items()
        ):
            raise invalid(
                f"signature {signature.name!r} does not support {method.rpartition('/')[2]}: it "
                f"must have the input 'inputs' (strings) and the outputs {', '.join(known)}; it "
                f"has the inputs {list(inputs)} and the outputs {list(outputs)}"
            )
        return cls(method, signature, tuple(outputs))

    def read(self, outputs: dict[str, np.ndarray], count: int) -> tuple[np.ndarray, ...]:
        """Return the result from the outputs of a run on `count` examples.

        Returns:
            (values,) for Regress, (labels, scores) for Classify.
        """
        if self.method == REGRESS:
            values = outputs["outputs"]
            if values.shape not in ((count,), (count, 1)):
                raise self._wrong_shape("outputs", values, count)
            return (values.ravel(),)
        for name, values in outputs.items():
            if values.ndim != 2 or len(values) != count:
                raise self._wrong_shape(name, values, count)
        shapes = {values.shape for values in outputs.values()}
        if len(shapes) > 1:
            raise invalid(f"classes and scores differ in shape: {sorted(shapes)}")
        (shape,) = shapes
        labels = outputs.get("classes", np.full(shape, b"", object))
        return labels, outputs.get("scores", np.zeros(shape, np.float32))

    def _wrong_shape(self, name, values, count):
        return invalid(
            f"output {name!r} of signature {self.signature.name!r} has shape "
            f"{list(values.shape)} for {count} examples"
        )


def count_examples(message: Any) -> int:
    """Return the number of examples in an Input message; raise if its context is too large."""
    kind = message.WhichOneof("kind")
    count = len(getattr(message, kind).examples) if kind else 0
    check_copies(count, message.example_list_with_context.context.ByteSize())
    return count


def serialize_examples(message: Any) -> list[bytes]:
    """Return the serialized examples of an Input message, each merged with the shared context."""
    if message.WhichOneof("kind") != "example_list_with_context":
        return [example.SerializeToString() for example in message.example_list.examples]
    serialized = []
    for example in message.example_list_with_context.examples:
        whole = example_pb2.Example()
        whole.CopyFrom(message.example_list_with_context.context)
        whole.MergeFrom(example)
        serialized.append(whole.SerializeToString())
    return serialized


def as_inputs(examples: list[bytes]) -> dict[str, np.ndarray]:
    """Return the inputs of a head for serialized examples."""
    if not examples:
        raise invalid("Input is empty: it must contain at least one example")
    array = np.empty(len(examples), object)
    array[:] = examples
    return {"inputs": array}


def fill_result(result: Any, arrays: tuple[np.ndarray, ...]) -> None:
    """Write the arrays from `Head.read` into a ClassificationResult or RegressionResult."""
    if len(arrays) == 1:
        for value in arrays[0].tolist():
            result.regressions.add(value=value)
        return
    for labels, scores in zip(*(array.tolist() for array in arrays)):
        entry = result.classifications.add()
        for label, score in zip(labels, scores):
            entry.classes.add(label=label.decode("utf-8", "replace"), score=score)
