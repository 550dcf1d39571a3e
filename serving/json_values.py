"""JSON to NumPy and back, by the REST rules of TensorFlow Serving.

The signature's dtype rules and nothing is guessed: `1.0` is no int32, `"1"` no number.
"""

import base64
import itertools
import json
import math

import numpy as np

from serving.errors import ServingError, invalid

_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_LEAVES = {"f": {int, float}, "i": {int}, "u": {int}, "b": {bool}, "O": {str, dict}}
_EXPECTED = {
    "f": "numbers",
    "i": "whole numbers",
    "u": "whole numbers",
    "b": "true or false",
    "O": 'strings or {"b64": "..."}',
}


def parse(body):
    """Returns the object in a request body."""
    try:
        document = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise invalid(f"JSON Parse error: {error}") from error
    if not isinstance(document, dict):
        raise invalid(f"JSON Parse error: expected an object, received {_kind(document)}")
    return document


def predict_inputs(document, specs):
    """Returns (dict of arrays, whether in row form) of a predict request.

    Args:
        document: The request, from `parse`.
        specs: name -> `TensorSpec` of the signature's inputs.
    """
    if ("instances" in document) == ("inputs" in document):
        raise invalid("Request body must hold either 'instances' (rows) or 'inputs' (columns)")
    if "instances" in document:
        return _from_rows(document["instances"], specs), True
    return _from_columns(document["inputs"], specs), False


def _from_rows(instances, specs):
    if not isinstance(instances, list) or not instances:
        raise invalid("'instances' must be a list with at least one entry")
    named = [_is_named(instance) for instance in instances]
    if any(named) != all(named):
        raise invalid("'instances' must be all objects or all plain values")
    if not named[0]:
        if len(specs) != 1:
            raise invalid(f"'instances' must be objects with the keys {sorted(specs)}")
        (spec,) = specs.values()
        return {spec.name: _array(instances, spec, "INVALID_ARGUMENT")}
    for instance in instances:
        if instance.keys() != specs.keys():
            raise invalid(
                f"every entry of 'instances' must have exactly the keys {sorted(specs)}; "
                f"received {sorted(instance)}"
            )
    return {
        name: _array([instance[name] for instance in instances], spec, "INVALID_ARGUMENT")
        for name, spec in specs.items()
    }


def _from_columns(inputs, specs):
    if _is_named(inputs):
        missing = sorted(specs.keys() - inputs.keys())
        if missing:
            raise invalid(f"'inputs' misses {missing}; it has {sorted(inputs)}")
        return {name: _array(inputs[name], spec, "UNIMPLEMENTED") for name, spec in specs.items()}
    if len(specs) != 1:
        raise invalid(f"'inputs' must be an object with the keys {sorted(specs)}")
    (spec,) = specs.values()
    return {spec.name: _array(inputs, spec, "UNIMPLEMENTED")}


def _is_named(value):
    """Whether a value is an object of inputs, and not one string as base64."""
    return isinstance(value, dict) and value.keys() != {"b64"}


def _array(value, spec, unsupported_code):
    dtype = spec.numpy_dtype
    if dtype is None or dtype.kind not in _LEAVES or (dtype.itemsize == 2 and dtype.kind == "f"):
        raise ServingError(unsupported_code, f"input {spec.name!r}: JSON has no form of {dtype}")
    leaves, shape = _flatten(value, spec.name)
    unfit = set(map(type, leaves)) - _LEAVES[dtype.kind]
    if unfit:
        example = next(leaf for leaf in leaves if type(leaf) in unfit)
        raise invalid(
            f"input {spec.name!r} takes {_EXPECTED[dtype.kind]} ({dtype}); "
            f"received {_kind(example)}"
        )
    values = _READERS[dtype.kind](leaves, dtype, spec.name)
    try:
        return values.reshape(shape)
    except ValueError as error:  # more dimensions than NumPy has
        raise invalid(f"input {spec.name!r}: {error}") from error


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


def to_bytes(value, name):
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


def predictions(outputs, rows):
    """Returns the body of a predict reply.

    Args:
        outputs: name -> array.
        rows: Whether the request came in rows, and the reply goes out so.
    """
    if not rows:
        texts = {name: _whole(name, array) for name, array in outputs.items()}
        only = next(iter(texts.values())) if len(texts) == 1 else _object(texts)
        return f'{{"outputs": {only}}}'.encode()
    sizes = {array.shape[0] if array.ndim else None for array in outputs.values()}
    if len(sizes) != 1 or None in sizes:
        shapes = {name: list(array.shape) for name, array in outputs.items()}
        raise invalid(f"outputs of shapes {shapes} cannot be given in rows: ask with 'inputs'")
    columns = {name: _nested(name, array, 1) for name, array in outputs.items()}
    if len(columns) == 1:
        entries = next(iter(columns.values()))
    else:
        entries = [_object(dict(zip(columns, row))) for row in zip(*columns.values())]
    return f'{{"predictions": [{", ".join(entries)}]}}'.encode()


def _object(texts):
    return "{" + ", ".join(f"{json.dumps(name)}: {text}" for name, text in texts.items()) + "}"


def _whole(name, array):
    (text,) = _nested(name, array, 0)
    return text


def _nested(name, array, depth):
    """Returns the texts of the parts of an array below its first `depth` axes."""
    texts = leaf_texts(name, array.ravel())
    for axis in range(array.ndim - 1, depth - 1, -1):
        size = array.shape[axis]
        count = math.prod(array.shape[:axis])
        texts = [
            "[" + ", ".join(texts[start * size : (start + 1) * size]) + "]"
            for start in range(count)
        ]
    return texts


def leaf_texts(name, flat):
    """Returns the JSON texts of the values of a flat array, an output of that name."""
    kind = flat.dtype.kind
    if kind in "iu":
        return list(map(str, flat.tolist()))
    if kind == "b":
        return ["true" if value else "false" for value in flat.tolist()]
    if kind == "f" and flat.dtype.itemsize >= 4:
        texts = flat.astype("U").tolist()  # the shortest that reads back, for either width
        return texts if np.isfinite(flat).all() else [_NOT_FINITE.get(t, t) for t in texts]
    if kind == "O":
        return [_string_text(name, value) for value in flat.tolist()]
    raise invalid(f"output {name!r}: JSON has no form of {flat.dtype}")


def _string_text(name, value):
    if name.endswith("_bytes"):
        return f'{{"b64": "{base64.b64encode(value).decode()}"}}'
    return json.dumps(value.decode("utf-8", "replace"), ensure_ascii=False)
