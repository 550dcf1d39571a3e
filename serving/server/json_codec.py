"""Convert the JSON of REST requests and replies to NumPy and back, as TensorFlow Serving does.

Values must match the dtype in the signature: `1.0` is not a valid int32, and `"1"` is not a valid
number. For large bodies, these functions run in the processes of `serving.server.workers`, so this
module must not need TensorFlow itself.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import itertools
import json
import math
import sys
import types
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import orjson
import simdjson
from tensorflow.core.example import example_pb2

from serving.errors import ServingError, invalid, shown, too_large
from serving.server.sequences import PARAMETERS, SequenceParameters, read_parameters

#: Maximum number of values in a body that Python's `json` parses, at one or two microseconds each.
MOST_VALUES = 1 << 20
#: Maximum number of bytes of all copies of a context, which is copied into each example.
MOST_COPIED = 1 << 26
_GZIP_OR_ZLIB = 47  # window bits with which zlib detects the format
_MOST_AXES = 32
_SIMDJSON_TYPES = {"f": ("d", "f8"), "i": ("i", "i8"), "u": ("u", "u8")}
_SIMDJSON_ERRORS = (ValueError, TypeError, RuntimeError, LookupError, AttributeError)
_WHITE_SPACE = b" \t\n\v\f\r"
_NUMBER_CHARACTERS = b"0123456789+-.eE \t\n\r"
_LEAVES: dict[str, set[type]] = {
    "f": {int, float},
    "i": {int},
    "u": {int},
    "b": {bool},
    "O": {str, dict},
}
_EXPECTED = {
    "f": "numbers",
    "i": "whole numbers",
    "u": "whole numbers",
    "b": "true or false",
    "O": 'strings or {"b64": "..."}',
}


_NONE: Mapping[str, Any] = types.MappingProxyType({})


class NeedsSlowPath(Exception):
    """Signals that simdjson might parse a body differently from Python's `json`."""


def read_predict(
    body: bytes,
    encoding: str,
    limit: int,
    signatures: Mapping[str, Mapping[str, np.dtype | None]],
    steps: Mapping[str, Mapping[str, np.dtype | None]] = _NONE,
) -> tuple[str, dict[str, np.ndarray] | None, bool, SequenceParameters | None]:
    """Return (signature name, input name -> array, whether in row form, place in a sequence).

    simdjson converts rectangular lists of numbers to arrays without a Python object for each
    number. Python's `json` parses all other bodies: those with NaN, integers beyond 64 bits, ragged
    lists or strings, and invalid ones.

    Args:
        body: The body as received.
        encoding: The Content-Encoding of the body.
        limit: The maximum number of bytes after decompression.
        signatures: Signature name -> input name -> dtype; "" stands for the default signature. If
            the requested signature is not in it, None is returned instead of the arrays.
        steps: The same for requests in a sequence, which may omit inputs.
    """
    text = decompress(body, encoding, limit)
    with contextlib.suppress(NeedsSlowPath, ServingError):
        return _predict(parse_numbers(text, _unpack_predict), signatures, steps)
    return _predict(parse(text), signatures, steps)


def read_examples(body: bytes, encoding: str, limit: int) -> tuple[str, list[bytes]]:
    """Return (signature name, serialized tf.Examples) of a classify or regress request."""
    document = parse(decompress(body, encoding, limit))
    return _signature_name(document), examples_from_json(document)


def check_encoding(encoding: str) -> None:
    """Raise INVALID_ARGUMENT if `decompress` does not support a Content-Encoding."""
    if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
        raise invalid(f"Content-Encoding must be gzip or deflate; received {encoding!r}")


def decompress(body: bytes, encoding: str, limit: int) -> bytes:
    """Return a decompressed body; raise RESOURCE_EXHAUSTED if it has more than `limit` bytes."""
    check_encoding(encoding)
    if encoding in ("", "identity"):
        return body
    decompressor = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        text = decompressor.decompress(body, min(limit + 1, sys.maxsize))
    except zlib.error as error:
        raise invalid(f"the body is not valid {encoding}: {error}") from error
    if len(text) > limit:
        raise too_large(f"the body is larger than {limit} bytes")
    if not decompressor.eof or decompressor.unused_data:
        raise invalid(f"the {encoding} body is incomplete, or is followed by other data")
    return text


def parse(text: bytes) -> dict[str, Any]:
    """Return the JSON object in a request body, parsed with Python's `json`."""
    # An upper bound of the number of values, because punctuation inside strings counts too.
    count = 1 + sum(map(text.count, (b",", b"[", b"{")))
    if count > MOST_VALUES:
        raise too_large(
            f"a body may have at most {MOST_VALUES} values, unless it contains only rectangular "
            f"lists of numbers; received {count}"
        )
    try:
        document = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        # Without Python's advice about the digits of an integer.
        raise invalid(f"JSON Parse error: {str(error).partition('; use sys.')[0]}") from error
    if not isinstance(document, dict):
        raise invalid(f"JSON Parse error: expected an object, received {_kind(document)}")
    return document


def parse_numbers(text: bytes, unpack: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """Return the members of a request, in which each list of numbers is a simdjson `Array`.

    Args:
        text: The JSON text.
        unpack: A function of the simdjson object that returns its members, such as `unpack`.

    Raises:
        NeedsSlowPath: If `parse` must parse the text instead.
    """
    if text.count(b"{") > MOST_VALUES:
        raise NeedsSlowPath
    try:
        document = unpack(simdjson.Parser().parse(text))
        layout = _layout(document)
    except _SIMDJSON_ERRORS as error:
        raise NeedsSlowPath from error
    if text.translate(None, _NUMBER_CHARACTERS) != layout:
        raise NeedsSlowPath
    return document


def unpack(value: Any) -> Any:
    """Return a simdjson object as a dict, and each list of objects in it as a tuple of dicts."""
    if isinstance(value, simdjson.Object):
        return {name: unpack(member) for name, member in _members(value).items()}
    if isinstance(value, simdjson.Array) and isinstance(value[0], simdjson.Object):
        return tuple(map(unpack, value))
    return value


def _unpack_predict(document):
    """Return the members of a predict request, in which rows of named inputs are a list."""
    members = unpack(document).items()
    return {name: list(each) if isinstance(each, tuple) else each for name, each in members}


def _members(value):
    names = list(value.keys())
    if len(set(names)) != len(names):
        raise NeedsSlowPath
    return {name: value[name] for name in names}


def _layout(value):
    """Return what the text of a request would be without numbers, if its lists are rectangular.

    The comparison with the actual text shows whether all of its lists are rectangular.
    """
    if isinstance(value, simdjson.Array):
        return _brackets(_shape(value))
    if isinstance(value, dict):
        members = (b'"%b":%b' % (_stripped(name), _layout(each)) for name, each in value.items())
        return b"{" + b",".join(members) + b"}"
    if isinstance(value, list):  # rows, all of which must have the layout of the first one
        return b"[" + b",".join([_layout(value[0])] * len(value)) + b"]"
    if isinstance(value, tuple):
        return b"[" + b",".join(map(_layout, value)) + b"]"
    if isinstance(value, str):
        return b'"' + _stripped(value) + b'"'
    if isinstance(value, bool):
        return _stripped(str(value).lower())
    if not isinstance(value, int | float):
        raise NeedsSlowPath
    return b""


def _stripped(text):
    return text.encode().translate(None, _NUMBER_CHARACTERS)


def _shape(array):
    """Return the shape of nested lists, measured along the first element of each."""
    shape: list[int] = []
    while isinstance(array, simdjson.Array):
        shape.append(len(array))
        array = array[0]
        if len(shape) > _MOST_AXES:
            raise NeedsSlowPath
    return tuple(shape)


@functools.lru_cache(64)
def _brackets(shape):
    layout = b""
    for size in reversed(shape):
        layout = b"[" + b",".join([layout] * size) + b"]"
    return layout


def _signature_name(document):
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(f"'signature_name' must be a string; received {shown(name)}")
    return name


def _predict(document, signatures, steps=_NONE):
    name, parameters = _signature_name(document), None
    if not document.keys().isdisjoint(PARAMETERS):
        parameters, signatures = read_parameters(document), steps
    in_rows = "instances" in document
    if in_rows == ("inputs" in document):
        raise invalid("the request body must have either 'instances' (rows) or 'inputs' (columns)")
    dtypes = signatures.get(name)
    if dtypes is None:
        return name, None, in_rows, parameters
    form = "instances" if in_rows else "inputs"
    columns = document[form]
    given = columns[0] if isinstance(columns, list) and columns else columns
    if parameters is not None and _is_named(given):
        dtypes = {key: dtypes[key] for key in dtypes if key in given}
    if in_rows and not isinstance(columns, simdjson.Array):
        columns = _columns(columns, dtypes)
    if not _is_named(columns):
        if len(dtypes) != 1:
            raise invalid(f"{form!r} must be objects with the keys {sorted(dtypes)}")
        columns = {next(iter(dtypes)): columns}
    if not dtypes.keys() <= columns.keys():
        raise invalid(f"'inputs' must have the keys {sorted(dtypes)}; received {sorted(columns)}")
    unsupported_code = "INVALID_ARGUMENT" if in_rows else "UNIMPLEMENTED"
    arrays = {
        key: to_array(columns[key], key, dtype, unsupported_code) for key, dtype in dtypes.items()
    }
    return name, arrays, in_rows, parameters


def _columns(instances, dtypes):
    """Return input name -> list of values if the rows are objects, otherwise the rows unchanged."""
    if not isinstance(instances, list) or not instances:
        raise invalid("'instances' must be a list with at least one entry")
    are_named = set(map(_is_named, instances))
    if len(are_named) > 1:
        raise invalid("'instances' must be all objects or all plain values")
    if not are_named.pop():
        return instances
    for instance in instances:
        if instance.keys() != dtypes.keys():
            raise invalid(
                f"every entry of 'instances' must have exactly the keys {sorted(dtypes)}; "
                f"received {sorted(instance)}"
            )
    return {name: [instance[name] for instance in instances] for name in dtypes}


def _is_named(value):
    """Whether a value is an object with the inputs by name, and not a base64 string."""
    return isinstance(value, dict) and value.keys() != {"b64"}


def to_array(value: Any, name: str, dtype: np.dtype | None, unsupported_code: str) -> np.ndarray:
    """Return a value from JSON, such as nested lists, as an array.

    Args:
        value: The value, in which lists may be simdjson arrays.
        name: The name of the input, for error messages.
        dtype: The dtype of the array; None for one that NumPy does not have.
        unsupported_code: The code of the error for a dtype that JSON cannot represent.
    """
    if dtype is None or dtype.kind not in _LEAVES or (dtype.itemsize == 2 and dtype.kind == "f"):
        raise ServingError(unsupported_code, f"input {name!r}: JSON cannot represent {dtype}")
    if isinstance(value, simdjson.Array):
        return _numbers(value, dtype)
    if isinstance(value, list) and isinstance(value[:1] and value[0], simdjson.Array):
        return np.stack([_numbers(row, dtype) for row in value])
    leaves, shape = _flatten(value, name)
    unfit = set(map(type, leaves)) - _LEAVES[dtype.kind]
    if unfit:
        example = next(leaf for leaf in leaves if type(leaf) in unfit)
        raise invalid(
            f"input {name!r} must be {_EXPECTED[dtype.kind]} ({dtype}); received {_kind(example)}"
        )
    try:
        return _from_leaves(leaves, name, dtype).reshape(shape)
    except OverflowError as error:
        limits = np.iinfo(dtype)
        raise invalid(
            f"input {name!r} must be {dtype}, {limits.min} to {limits.max}; "
            f"received {min(leaves)} to {max(leaves)}"
        ) from error
    except ValueError as error:  # NumPy allows fewer dimensions
        raise invalid(f"input {name!r}: {error}") from error


def _numbers(array, dtype):
    """Return a rectangular list of numbers as an array.

    Raise NeedsSlowPath if a number is not valid for the dtype.
    """
    try:
        code, wide_dtype = _SIMDJSON_TYPES[dtype.kind]
        wide = np.frombuffer(array.as_buffer(of_type=code), wide_dtype).reshape(_shape(array))
    except _SIMDJSON_ERRORS as error:
        raise NeedsSlowPath from error
    if dtype.kind == "f":
        with np.errstate(over="ignore", under="ignore"):
            return wide.astype(dtype)
    limits = np.iinfo(dtype)
    if wide.min() < limits.min or wide.max() > limits.max:
        raise NeedsSlowPath
    return wide.astype(dtype)


def _flatten(value, name):
    """Return (all values in nested lists, shape); raise INVALID_ARGUMENT if they are ragged."""
    level, shape = [value], []
    while level and list in (kinds := set(map(type, level))):
        sizes = set(map(len, level)) if len(kinds) == 1 else ()
        if len(sizes) != 1:
            raise invalid(f"input {name!r}: lists at depth {len(shape)} differ in length or depth")
        shape.append(sizes.pop())
        level = list(itertools.chain.from_iterable(level))
    return level, shape


def _from_leaves(leaves, name, dtype):
    if dtype.kind == "O":
        values = np.empty(len(leaves), object)
        values[:] = [_to_bytes(leaf, name) for leaf in leaves]
        return values
    if dtype.kind != "f":
        return np.array(leaves, dtype)
    with np.errstate(over="ignore", under="ignore"):
        return np.array([_to_float(leaf) for leaf in leaves], np.float64).astype(dtype)


def _to_float(number):
    try:
        return float(number)
    except OverflowError:  # an integer beyond the range of float64
        return math.inf if number > 0 else -math.inf


def _to_bytes(value, name):
    """Return the bytes of a string or of an object `{"b64": ...}`."""
    try:
        if isinstance(value, str):
            return value.encode("utf-8")
        if value.keys() == {"b64"} and isinstance(value["b64"], str):
            return _from_base64(value["b64"])
    except ValueError as error:  # the string has a lone surrogate, or is not valid base64
        raise invalid(f"{name!r}: {error}") from error
    raise invalid(f'{name!r}: expected a string or {{"b64": "..."}}; received {shown(value)}')


def _from_base64(text):
    """Return the bytes of a text in base64, with or without padding and white space."""
    encoded = text.encode("ascii").translate(None, _WHITE_SPACE)
    if not encoded.endswith(b"="):
        encoded += b"=" * (-len(encoded) % 4)
    return base64.b64decode(encoded, validate=True)


def _kind(value):
    names = {dict: "an object", list: "a list", str: "a string", bool: "a bool"}
    return names.get(type(value), "null" if value is None else f"{value}")


def examples_from_json(document: Mapping[str, Any]) -> list[bytes]:
    """Return the serialized tf.Examples of a classify or regress request."""
    examples = document.get("examples")
    if not isinstance(examples, list) or not examples:
        raise invalid("'examples' must be a list with at least one entry")
    context = example_pb2.Example()
    if "context" in document:
        _fill_example(context, document["context"])
    check_copies(len(examples), context.ByteSize())
    serialized = []
    for features in examples:
        example = example_pb2.Example()
        example.CopyFrom(context)
        _fill_example(example, features)
        serialized.append(example.SerializeToString())
    return serialized


def check_copies(num_examples: int, context_size: int) -> None:
    """Raise RESOURCE_EXHAUSTED if the copies of a context in all examples would be too large.

    Args:
        num_examples: The number of examples, each of which gets a copy.
        context_size: The bytes of the context.
    """
    size = num_examples * context_size
    if size > MOST_COPIED:
        raise too_large(
            f"the copies of the context may have at most {MOST_COPIED} bytes in all examples "
            f"together; received {num_examples} examples, whose copies have {size} bytes"
        )


def _fill_example(example, features):
    if not isinstance(features, dict):
        raise invalid(f"an example must be an object of features; received {shown(features)}")
    for name, value in features.items():
        values = value if isinstance(value, list) else [value]
        kinds = {_feature_kind(name, entry) for entry in values}
        if len(kinds) > 1:
            raise invalid(f"feature {name!r} mixes kinds: {sorted(kinds)}")
        try:
            feature = example.features.feature[name]
            feature.Clear()  # a feature of the example replaces that of the context
            for kind in kinds:
                convert = _TO_PROTOBUF.get(kind, lambda entry, _: entry)
                getattr(feature, kind).value.extend(convert(entry, name) for entry in values)
        except (ValueError, TypeError) as error:
            raise invalid(f"feature {name!r}: {error}") from error


# Kind of list -> conversion of its values. The int64 list of protobuf does not accept bools.
_TO_PROTOBUF = {"bytes_list": _to_bytes, "int64_list": lambda entry, _: int(entry)}


def _feature_kind(name, value):
    for kind, field in ((int, "int64_list"), (float, "float_list"), ((str, dict), "bytes_list")):
        if isinstance(value, kind):  # bools match int, which is intended
            return field
    raise invalid(f"feature {name!r} must be a number, a bool, a string or base64")


def predict_reply(outputs: Mapping[str, np.ndarray], rows: bool) -> bytes:
    """Return the body of a predict reply.

    Args:
        outputs: name -> array.
        rows: Whether to write a list of rows ("predictions") or columns ("outputs"). The reply has
            the form of the request.
    """
    sizes = {array.shape[0] if array.ndim else None for array in outputs.values()}
    if rows and (len(sizes) != 1 or None in sizes):
        shapes = {name: list(array.shape) for name, array in outputs.items()}
        raise invalid(f"outputs of shapes {shapes} have no rows: send 'inputs', not 'instances'")
    values, dump = to_json(outputs)
    value: Any = values
    if len(values) == 1:
        (value,) = values.values()
    elif rows:
        value = [dict(zip(values, row)) for row in zip(*values.values())]
    return dump({"predictions" if rows else "outputs": value})


def to_json(
    arrays: Mapping[str, np.ndarray],
) -> tuple[dict[str, Any], Callable[[Mapping[str, Any]], bytes]]:
    """Return (name -> value, function that writes a document with these values as JSON)."""
    if all(map(_is_fast, arrays.values())):
        dump = functools.partial(orjson.dumps, option=orjson.OPT_SERIALIZE_NUMPY)
        return {name: np.ascontiguousarray(array) for name, array in arrays.items()}, dump
    return {name: _to_lists(name, array) for name, array in arrays.items()}, _dumps


def classify_reply(labels: np.ndarray, scores: np.ndarray) -> bytes:
    """Return the body of a classify reply, which lists (label, score) pairs for each example."""
    pairs = zip(_to_lists("labels", labels), _to_lists("scores", scores))
    return _dumps({"results": [list(zip(*pair)) for pair in pairs]})


def regress_reply(values: np.ndarray) -> bytes:
    """Return the body of a regress reply, which lists one value for each example."""
    return _dumps({"results": _to_lists("outputs", values)})


def _dumps(reply):
    return json.dumps(reply, ensure_ascii=False).encode("utf-8")


def _is_fast(array):
    """Whether orjson writes an array as the protocol requires; it cannot write NaN."""
    kind, size = array.dtype.kind, array.dtype.itemsize
    return array.ndim > 0 and (
        kind in "iub" or (kind == "f" and size >= 4 and bool(np.isfinite(array).all()))
    )


def _to_lists(name, array):
    """Return an array as nested lists that `json.dumps` writes as the protocol requires."""
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind == "O":
        texts = np.empty(array.size, object)
        texts[:] = [_string(name, value) for value in array.ravel().tolist()]
        return texts.reshape(array.shape).tolist()
    if kind == "f" and size == 4:
        # float64 values whose text is the shortest one that identifies each float32
        array = array.astype("U").astype(np.float64)
    elif kind not in "iub" and not (kind == "f" and size == 8):
        raise invalid(f"output {name!r}: JSON cannot represent {array.dtype}")
    return array.tolist()


def _string(name, value):
    if name.endswith("_bytes"):
        return {"b64": base64.b64encode(value).decode()}
    return value.decode("utf-8", "replace")
