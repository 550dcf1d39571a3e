"""Packed numbers of protobuf messages, as arrays: without an object for each of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from serving.errors import TooLarge

#: Of a message, which are read while all others wait.
MOST_FIELDS = 1 << 20
_BLOCK = 1 << 18  # numbers that are made at a time
_VARINT, _LENGTH_DELIMITED = 0, 2
_FIXED = {1: 8, 5: 4}  # bytes
_VARINT_TYPES = {
    getattr(FieldDescriptor, f"TYPE_{name}")
    for name in ("INT32", "INT64", "UINT32", "UINT64", "SINT32", "SINT64", "BOOL", "ENUM")
}
_LONGEST_SHIFT = 63
_PACKED_PER_FIELD = 16  # packed varints that take as long to read as a field


def check_fields(data: bytes, described: Descriptor) -> None:
    """Raises RESOURCE_EXHAUSTED for a message of too many fields; arguments as `count_fields`."""
    if count_fields(data, described, MOST_FIELDS) > MOST_FIELDS:
        raise TooLarge(f"a message may have {MOST_FIELDS} fields; received more")


def count_fields(data: bytes, described: Descriptor, most: int) -> int:
    """Returns of how many fields a message consists, those of messages in it included.

    Reading a message keeps all other threads waiting, for as long as it has fields, however few
    bytes they are; to count them does not. It ends beyond `most`, and at what is no message.

    Args:
        data: The message as it came.
        described: Its type.
        most: How many it may have.
    """
    count, parts = 0, [(0, len(data), described)]
    try:
        while parts and count <= most:
            position, end, described = parts.pop()
            while position < end and count <= most:
                tag, position = _read_varint(data, position)
                count += 1
                if tag & 7 == _VARINT:
                    _, position = _read_varint(data, position)
                elif tag & 7 != _LENGTH_DELIMITED:
                    position += _FIXED.get(tag & 7, 0)
                else:
                    size, position = _read_varint(data, position)
                    field = described.fields_by_number.get(tag >> 3)
                    if field is not None and field.message_type is not None:
                        parts.append((position, position + size, field.message_type))
                    elif field is not None and field.type in _VARINT_TYPES:
                        count += size // _PACKED_PER_FIELD
                    position += size
    except IndexError:
        pass  # whoever reads it says what is wrong
    return count


def _read_varint(data, position):
    """Returns (value, where the next one begins)."""
    value = shift = 0
    while True:
        code = data[position]
        position += 1
        value |= (code & 127) << shift
        shift += 7
        if code < 128:
            return value, position
        if shift > _LONGEST_SHIFT:
            raise IndexError("a number of more than ten bytes")


def read_packed(message: Message, number: int, dtype: np.dtype) -> np.ndarray:
    """Returns a message's repeated field of numbers; whole ones wrap around to the dtype.

    Args:
        message: Any message, of which this field is all that is large.
        number: The field's number; it is a packed one.
        dtype: float32 and float64 are what the field holds itself, whole ones and bool are varints.
    """
    payload = b"".join(_payloads(message.SerializeToString(), number))
    if dtype.kind == "f":
        return np.frombuffer(payload, dtype)
    codes = np.frombuffer(payload, np.uint8)
    ends = np.flatnonzero(codes < 128)
    if len(ends) == len(codes):
        return codes.astype(dtype)
    values, start = np.empty(len(ends), dtype), 0
    for first in range(0, len(ends), _BLOCK):
        block = ends[first : first + _BLOCK]
        values[first : first + _BLOCK] = _varints(codes[start : block[-1] + 1], block - start)
        start = block[-1] + 1
    return values


def _varints(codes, ends):
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    values = np.zeros(len(ends), np.uint64)
    for index in range(lengths.max()):
        longer = lengths > index
        digits = (codes[starts[longer] + index] & 127).astype(np.uint64)
        values[longer] |= digits << np.uint64(7 * index)
    return values


def write_packed(message: Message, number: int, values: np.ndarray) -> None:
    """Appends numbers to a message's repeated field; arguments as in `read_packed`."""
    if values.dtype.kind == "f":
        payload = values.tobytes()
    else:
        payload = _as_varints(values.astype(np.int64).view(np.uint64)).tobytes()
    head = _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(payload))
    message.MergeFromString(head + payload)


def _as_varints(values):
    if not values.size or values.max() < 128:
        return values.astype(np.uint8)
    digits = np.empty((len(values), 10), np.uint8)
    for index in range(10):
        digits[:, index] = (values >> np.uint64(7 * index)) & np.uint64(127)
    # All digits up to the last that is not zero, and at least one.
    last = np.where(digits.any(1), 9 - np.argmax(digits[:, ::-1] != 0, axis=1), 0)
    place = np.arange(10)
    digits[place < last[:, None]] |= 128
    return digits[place <= last[:, None]]


def _varint(value):
    codes = bytearray()
    while value >= 128:
        codes.append(value & 127 | 128)
        value >>= 7
    codes.append(value)
    return bytes(codes)


def _payloads(data: bytes, wanted: int) -> Iterator[bytes]:
    """Yields what the fields of a number hold, of a message as protobuf itself writes it."""
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        number, kind = divmod(tag, 8)
        if kind == _LENGTH_DELIMITED:
            size, position = _read_varint(data, position)
            if number == wanted:
                yield data[position : position + size]
            position += size
        elif kind == _VARINT:
            _, position = _read_varint(data, position)
        else:
            position += _FIXED[kind]
