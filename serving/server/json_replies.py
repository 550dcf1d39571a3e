"""Predictions as the JSON of a reply, by the REST rules of TensorFlow Serving."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping

import numpy as np
import orjson

from serving.errors import invalid

_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_NUMPY = orjson.OPT_SERIALIZE_NUMPY
_NARROWEST = {"f": 4}  # bytes: float16 has no form here


def predictions(outputs: Mapping[str, np.ndarray], rows: bool) -> bytes:
    """Returns the body of a predict reply.

    Args:
        outputs: name -> array.
        rows: Whether the request came in rows, and the reply goes out so.
    """
    if not rows:
        texts = {name: _whole(name, array) for name, array in outputs.items()}
        only = (
            next(iter(texts.values())) if len(texts) == 1 else _form(texts) % tuple(texts.values())
        )
        return b'{"outputs": %b}' % only
    sizes = {array.shape[0] if array.ndim else None for array in outputs.values()}
    if len(sizes) != 1 or None in sizes:
        shapes = {name: list(array.shape) for name, array in outputs.items()}
        raise invalid(f"outputs of shapes {shapes} cannot be given in rows: ask with 'inputs'")
    if len(outputs) == 1:
        ((name, array),) = outputs.items()
        return b'{"predictions": %b}' % _whole(name, array)
    columns = (_rows(name, array) for name, array in outputs.items())
    form = _form(outputs)
    entries = [form % row for row in zip(*columns)]
    return b'{"predictions": [%b]}' % b", ".join(entries)


def _form(names):
    """Returns the text of an object with a place for each value."""
    members = (json.dumps(name).encode().replace(b"%", b"%%") + b": %b" for name in names)
    return b"{" + b", ".join(members) + b"}"


def _whole(name, array):
    """Returns the text of an array, an output of that name."""
    simple = array.dtype.kind in "iub" or (array.dtype.kind == "f" and np.isfinite(array).all())
    if simple and array.size and array.dtype.itemsize >= _NARROWEST.get(array.dtype.kind, 1):
        text = orjson.dumps(np.atleast_1d(np.ascontiguousarray(array)), option=_NUMPY)
        return text if array.ndim else text[1:-1]
    (text,) = _nested(name, array, 0)
    return text.encode("utf-8")


def _rows(name, array):
    """Returns the text of each row of an array."""
    if array.dtype.kind == "O" or not array.size:
        return [text.encode("utf-8") for text in _nested(name, array, 1)]
    depth = array.ndim
    text, inner = _whole(name, array).replace(b" ", b""), depth - 1
    opening, closing = b"[" * inner, b"]" * inner
    rows = text[depth:-depth].split(closing + b"," + opening)
    return rows if not inner else [opening + row + closing for row in rows]


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


def leaf_texts(name: str, flat: np.ndarray) -> list[str]:
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
