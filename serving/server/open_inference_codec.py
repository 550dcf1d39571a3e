"""Convert requests and replies of the Open Inference Protocol to NumPy arrays and back.

A tensor is JSON, raw bytes or, over gRPC, a typed list. The shape and datatype in the request must
match its values exactly. Like `json_codec`, this module runs in the worker processes for large
REST bodies, so it must not need TensorFlow itself.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from google.protobuf.message import Message

from serving import tensors
from serving.errors import ServingError, invalid, shown, too_large
from serving.server import json_codec
from serving.server.sequences import PARAMETERS, SequenceParameters, read_parameters

# Datatype -> (NumPy dtype, typed field of InferTensorContents or "")
_DATATYPES: dict[str, tuple[np.dtype, str]] = {
    datatype: (np.dtype(dtype), field)
    for datatype, dtype, field in (
        ("BOOL", np.bool_, "bool_contents"),
        ("INT8", np.int8, "int_contents"),
        ("INT16", np.int16, "int_contents"),
        ("INT32", np.int32, "int_contents"),
        ("INT64", np.int64, "int64_contents"),
        ("UINT8", np.uint8, "uint_contents"),
        ("UINT16", np.uint16, "uint_contents"),
        ("UINT32", np.uint32, "uint_contents"),
        ("UINT64", np.uint64, "uint64_contents"),
        ("FP16", np.float16, ""),
        ("BF16", ml_dtypes.bfloat16, ""),
        ("FP32", np.float32, "fp32_contents"),
        ("FP64", np.float64, "fp64_contents"),
        ("BYTES", np.object_, "bytes_contents"),
    )
}
_NAMES = {dtype: datatype for datatype, (dtype, _) in _DATATYPES.items()}
_MAX_AXES = 64  # of a NumPy array
_MAX_TEXT = 1024  # characters of an id, of the name of a tensor and of that of a signature
_SURROGATES = re.compile("[\ud800-\udfff]")  # which a reply could not contain
_LENGTH = re.compile("[0-9]{1,18}")  # in a header
_LENGTH_BYTES = 4  # before each string in raw bytes
# Parameters of a tensor that change where or how its values are sent.
_UNSUPPORTED = ("shared_memory_region", "classification")


class InferRequest(NamedTuple):
    """An inference request.

    Attributes:
        id: The identifier that the reply repeats, of limited length; "" for none.
        signature_name: The name of the signature; "" for the default one.
        sequence: The place of the request in its sequence, or None.
        inputs: input name -> array.
        outputs: Name of a requested output -> whether to send raw bytes; empty for all outputs.
        is_raw: Whether to send raw bytes of outputs that are not in `outputs`.
        only_input: The raw bytes of the only input, in a REST request without JSON.
    """

    id: str = ""
    signature_name: str = ""
    sequence: SequenceParameters | None = None
    inputs: Mapping[str, np.ndarray] = {}
    outputs: Mapping[str, bool] = {}
    is_raw: bool = True
    only_input: bytes | None = None


def datatype_of(dtype: Any) -> str | None:
    """Return the datatype of a NumPy dtype; None if the protocol has no such datatype."""
    return _NAMES.get(dtype)


def read_body(body: bytes, encoding: str, limit: int, header_length: str | None) -> InferRequest:
    """Return the inference request in a REST body.

    Args:
        body: The body as received: JSON, and after it the raw bytes of some inputs.
        encoding: The Content-Encoding of the body.
        limit: The maximum number of bytes after decompression.
        header_length: The header Inference-Header-Content-Length, the number of bytes of JSON;
            None if the whole body is JSON.
    """
    body = json_codec.decompress(body, encoding, limit)
    length = len(body)
    if header_length is not None:
        length = int(header_length) if _LENGTH.fullmatch(header_length) else -1
    if not 0 <= length <= len(body):
        raise invalid(
            f"Inference-Header-Content-Length must be a number from 0 to {len(body)}, the length "
            f"of the body; received {shown(header_length)}"
        )
    if header_length is not None and length == 0:
        return InferRequest(only_input=body)
    text, raw = body[:length], body[length:]
    with contextlib.suppress(json_codec.NeedsSlowPath, ServingError):
        return _from_document(_take_raw(json_codec.parse_numbers(text, json_codec.unpack), raw))
    return _from_document(_take_raw(json_codec.parse(text), raw))


def _take_raw(document, raw):
    """Return a JSON document whose binary inputs have their part of the raw bytes as data."""
    end = 0
    for given, parameters in _tensors(document, "inputs"):
        size = parameters.get("binary_data_size")
        if size is None:
            continue
        if not _is_size(size) or "data" in given:
            raise invalid(
                f"input {given['name']!r} must have either data or a binary_data_size from 0; "
                f"received binary_data_size {shown(size)}{' and data' if 'data' in given else ''}"
            )
        given["data"] = raw[end : end + size]
        end += size
    if end != len(raw):
        raise invalid(f"the inputs have {end} bytes of binary data; received {len(raw)}")
    return document


def read_message(request: Any) -> InferRequest:
    """Return the inference request in a ModelInferRequest.

    The outputs have the form of the inputs: raw bytes, unless an input has typed contents.
    """
    raw = request.raw_input_contents
    is_raw = not any(given.HasField("contents") for given in request.inputs)
    if raw and not (is_raw and len(raw) == len(request.inputs)):
        raise invalid(
            "raw_input_contents must have an entry for each input, and no input may have contents; "
            f"received {len(raw)} for {len(request.inputs)} inputs"
        )
    document = {
        "id": request.id,
        "parameters": _values(request.parameters) | {"binary_data_output": is_raw},
        "inputs": [
            {
                "name": given.name,
                "datatype": given.datatype,
                "shape": given.shape,
                "parameters": _values(given.parameters),
                "data": raw[index] if raw else given.contents,
            }
            for index, given in enumerate(request.inputs)
        ],
        "outputs": [
            {"name": wanted.name, "parameters": _values(wanted.parameters)}
            for wanted in request.outputs
        ],
    }
    return _from_document(document)


def _values(parameters):
    """Return name -> value of a map of InferParameters."""
    return {
        name: getattr(value, value.WhichOneof("parameter_choice") or "", None)
        for name, value in parameters.items()
    }


def read_only_input(signature: Any, data: bytes) -> dict[str, np.ndarray]:
    """Return the inputs of a REST request that contains only the raw bytes of one row."""
    if len(signature.inputs) != 1:
        raise invalid(
            "a request without JSON needs a signature with one input; "
            f"{signature.name!r} has {list(signature.inputs)}"
        )
    ((name, spec),) = signature.inputs.items()
    datatype = datatype_of(spec.numpy_dtype)
    shape = [1, *spec.shape[1:]] if spec.has_rows else list(spec.shape or [None])
    if shape.count(None) > 1 or datatype is None:
        raise invalid(f"input {name!r} needs a request with JSON, which contains its shape")
    if None in shape:
        known = math.prod(size for size in shape if size is not None) * spec.numpy_dtype.itemsize
        shape[shape.index(None)] = 1 if datatype == "BYTES" else len(data) // max(known, 1)
    return {name: _to_array({"name": name, "datatype": datatype, "shape": shape, "data": data})}


def _from_document(document):
    """Return the request in a JSON document, or in a message that was converted to one."""
    parameters = _parameters(document)
    texts = (("id", document), ("signature_name", parameters))
    names = [_text(holder.get(member, ""), member) for member, holder in texts]
    is_raw = parameters.get("binary_data_output", False)
    inputs = {given["name"]: _to_array(given) for given, _ in _tensors(document, "inputs")}
    outputs = {
        wanted["name"]: more.get("binary_data", is_raw)
        for wanted, more in _tensors(document, "outputs")
    }
    for flag in (is_raw, *outputs.values()):
        if not isinstance(flag, bool):
            raise invalid(
                f"binary_data_output and binary_data must be true or false; received {shown(flag)}"
            )
    return InferRequest(*names, _sequence(parameters), inputs, outputs, is_raw)


def _text(value, name):
    """Return a text from a request; raise INVALID_ARGUMENT if it is too long, or no text."""
    if not isinstance(value, str) or len(value) > _MAX_TEXT or _SURROGATES.search(value):
        raise invalid(
            f"{name} must be text of at most {_MAX_TEXT} characters; received {shown(value)}"
        )
    return value


def _tensors(document, member):
    """Yield (object, its parameters) for each of the inputs or outputs in a document."""
    given, names = document.get(member, ()), set()
    if not isinstance(given, list | tuple):
        raise invalid(f"{member!r} must be a list of objects")
    for each in given:
        if not isinstance(each, dict) or "name" not in each:
            raise invalid(f"every entry of {member!r} must be an object with a name")
        if _text(each["name"], f"a name in {member!r}") in names:
            raise invalid(f"{member!r} repeats {each['name']!r}")
        names.add(each["name"])
        parameters = _parameters(each)
        for name in _UNSUPPORTED:
            if name in parameters:
                raise ServingError("UNIMPLEMENTED", f"the parameter {name!r} is not supported")
        yield each, parameters


def _parameters(document):
    parameters = document.get("parameters", {})
    if not isinstance(parameters, dict):
        raise invalid("'parameters' must be an object")
    return parameters


def _sequence(parameters):
    """Return the place of a request in its sequence, or None.

    Without a sequence, a client may send the id 0 or "", and flags that are false.
    """
    given = {name: parameters[name] for name in PARAMETERS if name in parameters}
    if type(name := given.get("sequence_id")) in (str, int) and name in ("", 0):
        del given["sequence_id"]
    if "sequence_id" not in given and all(flag is False for flag in given.values()):
        return None
    return read_parameters(given)


def _is_size(value):
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _to_array(given):
    """Return a tensor of a document, whose data is raw bytes, typed contents or JSON."""
    name, datatype, data = given["name"], given.get("datatype"), given.get("data")
    if not isinstance(datatype, str) or datatype not in _DATATYPES:
        raise invalid(
            f"input {name!r} must have one of the datatypes {', '.join(_DATATYPES)}; "
            f"received {shown(datatype)}"
        )
    shape = given.get("shape")
    with contextlib.suppress(TypeError):  # another value than a list
        shape = list(itertools.islice(shape, _MAX_AXES + 1))
    if not isinstance(shape, list) or len(shape) > _MAX_AXES or not all(map(_is_size, shape)):
        raise invalid(
            f"input {name!r} must have a shape of at most {_MAX_AXES} sizes from 0; "
            f"received {shown(shape)}"
        )
    dtype, _ = _DATATYPES[datatype]
    if isinstance(data, bytes):
        values = _from_raw(name, dtype, shape, data)
    elif isinstance(data, Message):
        values = _from_contents(name, datatype, data)
    else:
        values = json_codec.to_array(data, name, dtype, "INVALID_ARGUMENT")
    if values.size != math.prod(shape) or (values.ndim != 1 and list(values.shape) != shape):
        raise invalid(
            f"input {name!r} of shape {shown(shape)} needs as many values, in one list or nested "
            f"like the shape; received {values.size} in the shape {list(values.shape)}"
        )
    try:
        return values.reshape(shape)
    except ValueError as error:  # an empty array of a shape that NumPy cannot represent
        raise invalid(f"input {name!r}: {error}") from error


def _from_contents(name, datatype, contents):
    dtype, field = _DATATYPES[datatype]
    if not field:
        raise invalid(f"input {name!r}: {datatype} must be in raw_input_contents")
    filled = [member.name for member, _ in contents.ListFields()]
    if filled not in ([], [field]):
        raise invalid(f"input {name!r}: {datatype} must be in {field} alone; received {filled}")
    wide = {"i": np.int64, "u": np.uint64}.get(dtype.kind, dtype)
    received = np.asarray(getattr(contents, field), wide)
    values = received.astype(dtype)
    if dtype.kind in "iu" and not np.array_equal(values, received):
        limits = np.iinfo(dtype)
        raise invalid(
            f"input {name!r} must be {datatype}, {limits.min} to {limits.max}; "
            f"received {received.min()} to {received.max()}"
        )
    return values


def _from_raw(name, dtype, shape, data):
    if dtype.kind == "O":
        return _strings(name, math.prod(shape), data)
    if len(data) != (size := math.prod(shape) * dtype.itemsize):
        raise invalid(
            f"input {name!r} of shape {shown(shape)} and datatype {_NAMES[dtype]} must have "
            f"{shown(size)} bytes; received {len(data)}"
        )
    # A byte of a bool other than 0 and 1 would confuse NumPy.
    return np.frombuffer(data, np.uint8) != 0 if dtype.kind == "b" else np.frombuffer(data, dtype)


def _strings(name, count, data):
    """Return the strings in raw bytes, each of which comes after its length."""
    if count > json_codec.MOST_VALUES:
        raise too_large(
            f"a tensor may have at most {json_codec.MOST_VALUES} strings; received {shown(count)}"
        )
    end, values = 0, np.empty(min(count, len(data) // _LENGTH_BYTES), object)
    for index in range(len(values)):
        start = end + _LENGTH_BYTES
        end = start + int.from_bytes(data[end:start], "little")
        values[index] = data[start:end]
    if len(values) != count or end != len(data):
        raise invalid(f"input {name!r}: {len(data)} bytes do not hold {count} strings with lengths")
    return values


def write_body(
    model: str,
    version: str,
    request_id: str,
    outputs: Mapping[str, np.ndarray],
    raw_names: Collection[str],
) -> tuple[bytes, int | None]:
    """Return (body of a REST reply, number of its bytes that are JSON or None for all).

    Args:
        model: The name of the model.
        version: The version of the model.
        request_id: The identifier of the request; "" for none.
        outputs: name -> array.
        raw_names: The outputs whose raw bytes follow the JSON.
    """
    in_json = {name: array for name, array in outputs.items() if name not in raw_names}
    texts = {name: _texts(name, each) for name, each in in_json.items() if each.dtype == "O"}
    numbers = {name: _flat(each) for name, each in in_json.items() if name not in texts}
    values, dump = json_codec.to_json(numbers)
    values |= texts
    entries, parts = [], [b""]
    for name, array in outputs.items():
        entry = {"name": name, "datatype": _datatype(name, array), "shape": list(array.shape)}
        if name in raw_names:
            parts.append(_to_raw(array))
            entry["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            entry["data"] = values[name]
        entries.append(entry)
    document = {"model_name": model, "model_version": version, "outputs": entries}
    parts[0] = dump(document | ({"id": request_id} if request_id else {}))
    return b"".join(parts), len(parts[0]) if raw_names else None


def fill_message(response: Any, outputs: Mapping[str, np.ndarray], is_raw: bool) -> None:
    """Write the outputs into a ModelInferResponse, as raw bytes or as typed contents.

    If a datatype has no typed contents, all outputs are raw bytes.
    """
    names = {name: _datatype(name, array) for name, array in outputs.items()}
    fields = {name: _DATATYPES[datatype][1] for name, datatype in names.items()}
    for name, array in outputs.items():
        entry = response.outputs.add(name=name, datatype=names[name], shape=array.shape)
        if is_raw or not all(fields.values()):
            response.raw_output_contents.append(_to_raw(array))
        else:
            tensors.extend_field(getattr(entry.contents, fields[name]), array.ravel())


def _datatype(name, array):
    datatype = datatype_of(array.dtype)
    if datatype is None:
        raise ServingError(
            "UNIMPLEMENTED", f"output {name!r}: the protocol cannot represent {array.dtype}"
        )
    return datatype


def _flat(array):
    """Return the numbers of an array in one axis, in a dtype that JSON can represent."""
    has_no_json = _NAMES.get(array.dtype) in ("FP16", "BF16")
    return array.astype(np.float32).ravel() if has_no_json else array.ravel()


def _texts(name, array):
    try:
        return [value.decode("utf-8") for value in array.ravel().tolist()]
    except UnicodeDecodeError as error:
        raise invalid(f"output {name!r} is not UTF-8 text; request it as binary data") from error


def _to_raw(array):
    if array.dtype.kind != "O":
        return array.tobytes()
    strings = array.ravel().tolist()
    return b"".join(len(each).to_bytes(_LENGTH_BYTES, "little") + each for each in strings)
