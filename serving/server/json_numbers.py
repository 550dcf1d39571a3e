"""Lists of numbers in a JSON text, read without an object for each of them.

A predict request is a small document around large lists of numbers. The lists are cut out of the
text, what is left is read by Python's `json`, and the lists by simdjson, as arrays. Whatever form
is not certain to come out the same is left to `json` altogether: NaN, integers beyond 64 bits,
ragged and empty lists, mistakes.
"""

from __future__ import annotations

import functools
import json
import math
from typing import Any

import numpy as np
import simdjson

# What numbers consist of; what is left of a list without it is its brackets and commas.
_NUMBERS = b"0123456789+-.eE \t\n\r"
# Nothing that a client sends begins so: strings hold no control characters, except escaped.
_MARK = "\0"
_MOST_AXES = 32
_SHORT = 4096
#: Values of a body that may be made as objects, which take a microsecond or two each.
MOST_VALUES = 1 << 20
_REFUSALS = (ValueError, TypeError, RuntimeError)  # of simdjson
# Kind of a NumPy dtype -> simdjson's types that hold its values, the first that does is taken.
_TYPES = {"f": (("d", "f8"),), "i": (("i", "i8"),), "u": (("i", "i8"), ("u", "u8"))}


class Unusual(Exception):
    """A text that is left to `json`."""


def count_values(text: bytes) -> int:
    """Returns how many values a JSON text has at most: commas and brackets in strings count too."""
    return 1 + sum(map(text.count, (b",", b"[", b"{")))


class Numbers:
    """The text of a list, most likely one of numbers."""

    __slots__ = ("text", "was_read")

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.was_read = False

    def array(self, kind: str) -> np.ndarray:
        """Returns the array of a rectangular list of numbers; raises `Unusual` for anything else.

        Args:
            kind: "f" takes all numbers, as float64; "i" and "u" only whole ones, in 64 bits.
        """
        for code, dtype in _TYPES.get(kind, ()):
            try:
                parsed: Any = simdjson.Parser().parse(self.text)
                buffer = parsed.as_buffer(of_type=code)
            except _REFUSALS:
                continue
            self.was_read = True
            brackets = self.text.translate(None, _NUMBERS)
            flat, shape = np.frombuffer(buffer, dtype), _shape(brackets)
            if not flat.size or math.prod(shape) != flat.size:
                raise Unusual
            return flat.reshape(shape)
        raise Unusual

    def check(self) -> None:
        """Raises `Unusual` unless the text is JSON."""
        if not self.was_read:
            try:
                simdjson.Parser().parse(self.text)
            except _REFUSALS as error:
                raise Unusual from error


def _shape(brackets):
    """Returns the shape of nested lists, of which only brackets and commas are given."""
    # Requests are alike, and those that count are short.
    return _known_shape(brackets) if len(brackets) <= _SHORT else _find_shape(brackets)


def _find_shape(brackets):
    depth = len(brackets) - len(brackets.lstrip(b"["))
    if depth > _MOST_AXES:  # each axis takes a look at all of the text
        raise Unusual
    shape, leaves, expected = [], 1, b""
    for level in range(1, depth + 1):
        # The first list of this level ends where so many brackets close for the first time.
        end = brackets.find(b"]" * level)
        size = (brackets.count(b",", depth - level, end) + 1) // leaves
        leaves *= size
        shape.insert(0, size)
        expected = b"[" + (expected + b",") * (size - 1) + expected + b"]"
    if brackets != expected:
        raise Unusual
    return tuple(shape)


_known_shape = functools.lru_cache(256)(_find_shape)


def joined(lists: list[Numbers]) -> Numbers:
    """Returns the list of several lists."""
    for each in lists:
        each.was_read = True
    return Numbers(b"[" + b",".join([each.text for each in lists]) + b"]")


def cut(text: bytes) -> tuple[dict, list[Numbers]]:
    """Returns (a request's object with `Numbers` where lists were, all of these)."""
    if b"\\" in text:
        raise Unusual
    if text.count(b'"') > 4 * MOST_VALUES:  # those of as many names and texts
        raise Unusual
    lists: list[Numbers] = []
    parts = text.split(b'"')
    for index in range(0, len(parts), 2):  # what is not inside a string
        part = parts[index]
        start = part.find(b"[")
        if start < 0:
            continue
        brace = part.find(b"}", start)
        stop = part.rfind(b"]", start, brace if brace >= 0 else len(part)) + 1
        if stop:
            parts[index] = b'%b"\\u0000%d"%b' % (part[:start], len(lists), part[stop:])
            lists.append(Numbers(part[start:stop]))
    rest = b'"'.join(parts)
    if count_values(rest) > MOST_VALUES:
        raise Unusual
    try:
        document = json.loads(rest.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise Unusual from error
    if not isinstance(document, dict) or _put_back(document, lists) != len(lists):
        raise Unusual
    return document, lists


def _put_back(document, lists):
    """Puts the lists where they were in a request, and returns how many of them."""
    inputs, instances = document.get("inputs"), document.get("instances")
    objects = [document, inputs, *(instances if isinstance(instances, list) else ())]
    count = 0
    for members in objects:
        if isinstance(members, dict):
            for name, value in members.items():
                if isinstance(value, str) and value.startswith(_MARK):
                    members[name] = lists[int(value[1:])]
                    count += 1
    return count
