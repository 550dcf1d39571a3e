"""Bodies of REST requests: unpacked and read, within limits that are checked on the way.

What a request may hold is known before any object of it is made: bytes while they are unpacked,
and values by the commas between them. All of it may run in one of the `Workers`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping

import numpy as np

from serving import packed_fields
from serving.errors import TooLarge, invalid
from serving.server import json_values

_PIECE = 1 << 20
# Of zlib: looks whether it is gzip or deflate.
_ANY_HEADER = 47
_MOST_MEMBERS = 100  # of a gzip file; each takes the time of a copy of all that follow


def read_predict(
    body: bytes,
    encoding: str,
    limit: int,
    most_values: int | None,
    signatures: Mapping[str, Mapping[str, np.dtype | None]],
) -> tuple[str, dict[str, np.ndarray] | None, bool]:
    """Returns what `json_values.read_predict` does, of a body as it came.

    Args:
        body: As received.
        encoding: Its Content-Encoding.
        limit: Most bytes of it, unpacked.
        most_values: Most values of its lists, None where that is not known.
        signatures: As in `json_values.read_predict`.
    """
    return json_values.read_predict(_text(body, encoding, limit, most_values), signatures)


def read_examples(
    body: bytes, encoding: str, limit: int, most_values: int | None
) -> tuple[str, bytes]:
    """Returns (signature's name, Input message as bytes) of a classify or regress request."""
    from serving.server import json_examples

    document = json_values.parse(_text(body, encoding, limit, most_values))
    name = json_values.signature_name(document)
    message = json_examples.input_from_json(document)
    examples = message.SerializeToString()
    packed_fields.check_fields(examples, message.DESCRIPTOR)
    return name, examples


def _text(body, encoding, limit, most_values):
    if encoding not in ("", "identity"):
        body = b"".join(_unpacked(body, encoding, limit))
    if most_values is not None and body.count(b",") > most_values:
        raise invalid(f"the request holds more than {most_values} values")
    return body


def _unpacked(body: bytes, encoding: str, limit: int) -> Iterator[bytes]:
    """Yields pieces of an unpacked body, until there are too many."""
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise invalid(f"Content-Encoding must be gzip or deflate; received {encoding!r}")
    size, packed = 0, body
    try:
        for _ in range(_MOST_MEMBERS + 1):  # a gzip file may consist of several
            if not packed:
                return
            member = zlib.decompressobj(_ANY_HEADER)
            while not member.eof:
                piece = member.decompress(packed, _PIECE)
                packed = member.unused_data if member.eof else member.unconsumed_tail
                size += len(piece)
                if size > limit:
                    raise TooLarge(f"the body is larger than {limit} bytes")
                if not piece and not member.eof:
                    raise invalid(f"the {encoding} body ends early")
                yield piece
        raise invalid(f"the body is more than {_MOST_MEMBERS} {encoding} files in a row")
    except zlib.error as error:
        raise invalid(f"the body is no {encoding}: {error}") from error
