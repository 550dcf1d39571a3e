"""JSON requests to NumPy, by the REST rules of TensorFlow Serving.

The signature's dtype rules and nothing is guessed: `1.0` is no int32, `"1"` no number.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from serving.errors import ServingError, TooLarge, invalid
from serving.server.json_numbers import MOST_VALUES, Numbers, Unusual, count_values, cut, joined

_LEAVES = {"f": {int, float}, "i": {int}, "u": {int}, "b": {bool}, "O": {str, dict}}
_EXPECTED = {
    "f": "numbers",
    "i": "whole numbers",
    "u": "whole numbers",
    "b": "true or false",
    "O": 'strings or {"b64": "..."}',
}


def parse(body: bytes) -> dict[str, Any]:
    """Returns the object in a request body; raises ServingError for too large a one, or none."""
    count = count_values(body)
    if count > MOST_VALUES:
        raise TooLarge(
            f"a body may have {MOST_VALUES} values beside those of plain lists of numbers; "
            f"received {count}"
        )
    try:
        document = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise invalid(f"JSON Parse error: {error}") from error
    if not isinstance(document, dict):
        raise invalid(f"JSON Parse error: expected an object, received {_kind(document)}")
    return document


def read_predict(
    text: bytes, signatures: Mapping[str, Mapping[str, np.dtype | None]]
) -> tuple[str, dict[str, np.ndarray] | None, bool]:
    """Returns (signature's name, dict of arrays, whether in row form) of a predict request.

    Args:
        text: The request's body.
        signatures: name -> dtype by name of the inputs; "" is the one meant if none is named. A
            request of another signature has no arrays, but None.
    """
    with contextlib.suppress(Unusual, ServingError):
        document, lists = cut(text)
        request = _predict(document, signatures)
        for each in lists:
            each.check()
        return request
    # What is rare, and what is wrong: with the words of Python's `json`.
    return _predict(parse(text), signatures)


def signature_name(document: Mapping[str, Any]) -> str:
    """Returns the signature that a request names, "" if it names none."""
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(f"'signature_name' must be a string; received {name!r}")
    return name


def _predict(document, signatures):
    name = signature_name(document)
    if ("instances" in document) == ("inputs" in document):
        raise invalid("Request body must hold either 'instances' (rows) or 'inputs' (columns)")
    dtypes, rows = signatures.get(name), "instances" in document
    if dtypes is None:
        return name, None, rows
    read = _from_rows if rows else _from_columns
    return name, read(document["instances" if rows else "inputs"], dtypes), rows


def _from_rows(instances, dtypes):
    plain = isinstance(instances, Numbers)
    if not plain and (not isinstance(instances, list) or not instances):
        raise invalid("'instances' must be a list with at least one entry")
    named = [False] if plain else [_is_named(instance) for instance in instances]
    if any(named) != all(named):
        raise invalid("'instances' must be all objects or all plain values")
    if not named[0]:
        if len(dtypes) != 1:
            raise invalid(f"'instances' must be objects with the keys {sorted(dtypes)}")
        ((name, dtype),) = dtypes.items()
        return {name: _array(instances, name, dtype, "INVALID_ARGUMENT")}
    for instance in instances:
        if instance.keys() != dtypes.keys():
            raise invalid(
                f"every entry of 'instances' must have exactly the keys {sorted(dtypes)}; "
                f"received {sorted(instance)}"
            )
    return {
        name: _array([instance[name] for instance in instances], name, dtype, "INVALID_ARGUMENT")
        for name, dtype in dtypes.items()
    }


def _from_columns(inputs, dtypes):
    if _is_named(inputs):
        missing = sorted(dtypes.keys() - inputs.keys())
        if missing:
            raise invalid(f"'inputs' misses {missing}; it has {sorted(inputs)}")
        return {
            name: _array(inputs[name], name, dtype, "UNIMPLEMENTED")
            for name, dtype in dtypes.items()
        }
    if len(dtypes) != 1:
        raise invalid(f"'inputs' must be an object with the keys {sorted(dtypes)}")
    ((name, dtype),) = dtypes.items()
    return {name: _array(inputs, name, dtype, "UNIMPLEMENTED")}


def _is_named(value):
    """Whether a value is an object of inputs, and not one string as base64."""
    return isinstance(value, dict) and value.keys() != {"b64"}


def _array(value, name, dtype, unsupported_code):
    if dtype is None or dtype.kind not in _LEAVES or (dtype.itemsize == 2 and dtype.kind == "f"):
        raise ServingError(unsupported_code, f"input {name!r}: JSON has no form of {dtype}")
    if isinstance(value, Numbers):
        return _narrowed(value.array(dtype.kind), dtype)
    if isinstance(value, list) and any(isinstance(entry, Numbers) for entry in value):
        return _array_of_rows(value, dtype)
    leaves, shape = _flatten(value, name)
    unfit = set(map(type, leaves)) - _LEAVES[dtype.kind]
    if unfit:
        example = next(leaf for leaf in leaves if type(leaf) in unfit)
        raise invalid(
            f"input {name!r} takes {_EXPECTED[dtype.kind]} ({dtype}); received {_kind(example)}"
        )
    values = _READERS[dtype.kind](leaves, dtype, name)
    try:
        return values.reshape(shape)
    except ValueError as error:  # more dimensions than NumPy has
        raise invalid(f"input {name!r}: {error}") from error


def _array_of_rows(rows, dtype):
    if not all(isinstance(row, Numbers) for row in rows):
        raise Unusual
    whole = _narrowed(joined(rows).array(dtype.kind), dtype)
    if len(whole) != len(rows):  # one of them was no single list
        raise Unusual
    return whole


def _narrowed(wide, dtype):
    """Returns an array of the dtype; raises `Unusual` where whole numbers do not fit in."""
    if dtype.kind == "f":
        with np.errstate(over="ignore", under="ignore"):
            return wide.astype(dtype)
    limits = np.iinfo(dtype)
    if wide.min() < limits.min or wide.max() > limits.max:
        raise Unusual
    return wide.astype(dtype)


def _flatten(value, name):
    """Returns (leaves, shape) of nested lists, a level at a time, at the speed of itertools."""
    level, shape = [value], []
    while level and list in (kinds := set(map(type, level))):
        sizes = set(map(len, level)) if len(kinds) == 1 else ()
        if len(sizes) != 1:
            raise invalid(f"input {name!r}: lists at depth {len(shape)} differ in length or depth")
        shape.append(sizes.pop())
        level = list(itertools.chain.from_iterable(level))
    return level, shape


def _floats(leaves, dtype, name):
    try:
        wide = np.array(leaves, np.float64)
    except OverflowError:  # a whole number beyond float64
        wide = np.array([_to_float(leaf) for leaf in leaves])
    with np.errstate(over="ignore", under="ignore"):
        return wide.astype(dtype)


def _to_float(number):
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _integers(leaves, dtype, name):
    try:
        return np.array(leaves, dtype)
    except OverflowError as error:
        limits = np.iinfo(dtype)
        raise invalid(
            f"input {name!r} takes {dtype}, {limits.min} to {limits.max}; "
            f"received {min(leaves)} to {max(leaves)}"
        ) from error


def _booleans(leaves, dtype, name):
    return np.array(leaves, dtype)


def _strings(leaves, dtype, name):
    values = np.empty(len(leaves), object)
    values[:] = [to_bytes(leaf, name) for leaf in leaves]
    return values


def to_bytes(value: Any, name: str) -> bytes:
    """Returns the bytes of a string or of an object `{"b64": ...}`."""
    try:
        if isinstance(value, str):
            return value.encode("utf-8")
        if value.keys() == {"b64"} and isinstance(value["b64"], str):
            return base64.b64decode(value["b64"], validate=True)
    except ValueError as error:  # a lone surrogate, or no base64
        raise invalid(f"{name!r}: {error}") from error
    raise invalid(f'{name!r}: expected a string or {{"b64": "..."}}; received {value}')


_READERS = {"f": _floats, "i": _integers, "u": _integers, "b": _booleans, "O": _strings}


def _kind(value):
    names = {dict: "an object", list: "a list", str: "a string", bool: "a bool"}
    return names.get(type(value), "null" if value is None else f"{value}")
