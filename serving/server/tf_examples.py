"""Classify and Regress: signatures that take tf.Examples and give classes or one value."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from tensorflow.core.example import example_pb2
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import classification_pb2, input_pb2, regression_pb2

from serving.errors import ServingError, invalid
from serving.server import json_replies

CLASSIFY, REGRESS = "tensorflow/serving/classify", "tensorflow/serving/regress"
_OUTPUTS = {
    CLASSIFY: {"classes": types_pb2.DT_STRING, "scores": types_pb2.DT_FLOAT},
    REGRESS: {"outputs": types_pb2.DT_FLOAT},
}


class Task:
    """What is asked of one signature: the run, and how its outputs become a result.

    Args:
        servable: The version that answers.
        method: `CLASSIFY` or `REGRESS`.
        signature_name: "" for `serving_default`.
        input: The Input message with the examples.

    Raises:
        ServingError: INVALID_ARGUMENT if the signature is of another kind, or there is no example.
    """

    def __init__(self, servable: Any, method: str, signature_name: str, input: Any) -> None:
        try:
            self.signature = servable.signature(signature_name)
        except ServingError as error:
            raise invalid(error.message) from error
        self.signature.check_method(method)
        self.method = method
        self.outputs = _outputs_of(self.signature, method)
        examples = _serialized(input)
        self.inputs = {"inputs": np.empty(len(examples), object)}
        self.inputs["inputs"][:] = examples
        self.inputs = self.signature.check(self.inputs)

    @property
    def num_examples(self) -> int:
        """How many examples are asked about."""
        return len(self.inputs["inputs"])

    def result(self, outputs: Any) -> Any:
        """Returns the ClassificationResult or RegressionResult."""
        if self.method == REGRESS:
            return self._regressions(outputs["outputs"])
        return self._classifications(outputs)

    def _regressions(self, values):
        if values.shape not in ((self.num_examples,), (self.num_examples, 1)):
            raise self._wrong_shape("outputs", values)
        result = regression_pb2.RegressionResult()
        for value in values.ravel().tolist():
            result.regressions.add(value=value)
        return result

    def _classifications(self, outputs):
        for name, values in outputs.items():
            if values.ndim != 2 or len(values) != self.num_examples:
                raise self._wrong_shape(name, values)
        shapes = {values.shape for values in outputs.values()}
        if len(shapes) > 1:
            raise invalid(f"classes and scores differ in shape: {sorted(shapes)}")
        (shape,) = shapes
        classes = outputs.get("classes", np.full(shape, b"", object)).tolist()
        scores = outputs.get("scores", np.zeros(shape, np.float32)).tolist()
        result = classification_pb2.ClassificationResult()
        for labels, values in zip(classes, scores):
            entry = result.classifications.add()
            for label, score in zip(labels, values):
                entry.classes.add(label=label.decode("utf-8", "replace"), score=score)
        return result

    def _wrong_shape(self, name, values):
        return invalid(
            f"output {name!r} of signature {self.signature.name!r} has shape "
            f"{list(values.shape)} for {self.num_examples} examples"
        )


def _outputs_of(signature, method):
    known = _OUTPUTS[method]
    inputs_fit = list(signature.inputs) == ["inputs"] and (
        signature.inputs["inputs"].dtype == types_pb2.DT_STRING
    )
    outputs = {name: spec.dtype for name, spec in signature.outputs.items()}
    if not inputs_fit or not outputs or not outputs.items() <= known.items():
        expected = ", ".join(known)
        raise invalid(
            f"signature {signature.name!r} is not for {method.rpartition('/')[2]}: it must take "
            f"'inputs' (strings) and give {expected}; it takes {list(signature.inputs)} and gives "
            f"{list(outputs)}"
        )
    return tuple(outputs)


def count_examples(input: input_pb2.Input) -> int:
    """Returns how many examples an Input message holds."""
    kind = input.WhichOneof("kind")
    return len(getattr(input, kind).examples) if kind else 0


def _serialized(input):
    kind = input.WhichOneof("kind")
    if kind == "example_list_with_context":
        context = input.example_list_with_context.context
        merged = []
        for example in input.example_list_with_context.examples:
            whole = example_pb2.Example()
            whole.CopyFrom(context)
            whole.MergeFrom(example)
            merged.append(whole.SerializeToString())
    else:
        merged = [example.SerializeToString() for example in input.example_list.examples]
    if not merged:
        raise invalid("Input is empty: there is no example")
    return merged


def result_to_json(result: Any) -> bytes:
    """Returns the body of a REST classify or regress reply."""
    if isinstance(result, regression_pb2.RegressionResult):
        values = np.array([entry.value for entry in result.regressions], np.float32)
        texts = json_replies.leaf_texts("results", values)
    else:
        texts = [_classes_text(entry.classes) for entry in result.classifications]
    return f'{{"results": [{", ".join(texts)}]}}'.encode()


def _classes_text(classes):
    scores = json_replies.leaf_texts("scores", np.array([c.score for c in classes], np.float32))
    pairs = [
        f"[{json.dumps(entry.label, ensure_ascii=False)}, {score}]"
        for entry, score in zip(classes, scores)
    ]
    return "[" + ", ".join(pairs) + "]"
