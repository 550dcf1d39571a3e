"""JSON of classify and regress requests to messages, by the REST rules of TensorFlow Serving."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensorflow_serving.apis import input_pb2

from serving.errors import invalid
from serving.server import json_values


def input_from_json(document: Mapping[str, Any]) -> input_pb2.Input:
    """Returns the Input message of a REST classify or regress request."""
    examples = document.get("examples")
    if not isinstance(examples, list) or not examples:
        raise invalid("'examples' must be a list with at least one entry")
    message = input_pb2.Input()
    filled = message.example_list
    if "context" in document:
        filled = message.example_list_with_context
        _fill(filled.context, document["context"])
    for example in examples:
        _fill(filled.examples.add(), example)
    return message


def _fill(example, features):
    if not isinstance(features, dict):
        raise invalid(f"an example must be an object of features; received {features!r}")
    for name, value in features.items():
        values = value if isinstance(value, list) else [value]
        kinds = {_feature_kind(name, entry) for entry in values}
        if len(kinds) > 1:
            raise invalid(f"feature {name!r} mixes kinds: {sorted(kinds)}")
        feature = example.features.feature[name]
        if not kinds:
            continue
        (kind,) = kinds
        if kind == "bytes_list":
            values = [json_values.to_bytes(entry, name) for entry in values]
        elif kind == "int64_list":
            values = [int(entry) for entry in values]  # protobuf takes no bool
        try:
            getattr(feature, kind).value.extend(values)
        except (ValueError, TypeError) as error:
            raise invalid(f"feature {name!r}: {error}") from error


def _feature_kind(name, value):
    if isinstance(value, int):  # bool is one
        return "int64_list"
    if isinstance(value, float):
        return "float_list"
    if isinstance(value, (str, dict)):
        return "bytes_list"
    raise invalid(f"feature {name!r} must be a number, a bool, a string or base64")
