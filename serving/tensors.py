"""Convert TensorProto messages to NumPy arrays and back."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np
from tensorflow.core.framework import tensor_pb2, types_pb2

from serving.errors import ServingError, invalid

# dtype -> (NumPy dtype, typed field of TensorProto, NumPy dtype of the values in the field)
_LAYOUTS: dict[int, tuple[np.dtype, str, np.dtype]] = {
    dtype: (np.dtype(array), field, np.dtype(values))
    for dtype, array, field, values in (
        (types_pb2.DT_FLOAT, np.float32, "float_val", np.float32),
        (types_pb2.DT_DOUBLE, np.float64, "double_val", np.float64),
        (types_pb2.DT_HALF, np.float16, "half_val", np.uint16),
        (types_pb2.DT_BFLOAT16, ml_dtypes.bfloat16, "half_val", np.uint16),
        (types_pb2.DT_INT8, np.int8, "int_val", np.int8),
        (types_pb2.DT_INT16, np.int16, "int_val", np.int16),
        (types_pb2.DT_INT32, np.int32, "int_val", np.int32),
        (types_pb2.DT_INT64, np.int64, "int64_val", np.int64),
        (types_pb2.DT_UINT8, np.uint8, "int_val", np.uint8),
        (types_pb2.DT_UINT16, np.uint16, "int_val", np.uint16),
        (types_pb2.DT_UINT32, np.uint32, "uint32_val", np.uint32),
        (types_pb2.DT_UINT64, np.uint64, "uint64_val", np.uint64),
        (types_pb2.DT_BOOL, np.bool_, "bool_val", np.bool_),
        (types_pb2.DT_COMPLEX64, np.complex64, "scomplex_val", np.float32),
        (types_pb2.DT_COMPLEX128, np.complex128, "dcomplex_val", np.float64),
        (types_pb2.DT_STRING, np.object_, "string_val", np.object_),
    )
}
# If a TensorProto lists fewer values than its shape has, the last one is repeated. This limit keeps
# a request of a few bytes from allocating any amount of memory.
_MAX_FILLED = 1 << 24
_CHUNK = 1 << 14  # values per call of `extend`; other threads can run between two calls


def _varint(value):
    codes = bytearray()
    while value >= 128:
        codes.append(value & 127 | 128)
        value >>= 7
    return bytes([*codes, value])


# Field of floats -> the bytes before the length of its values.
_FLOAT_TAGS = {
    name: _varint(tensor_pb2.TensorProto.DESCRIPTOR.fields_by_name[name].number << 3 | 2)
    for _, name, stored in _LAYOUTS.values()
    if stored.kind == "f"
}


def numpy_dtype(dtype: int) -> np.dtype | None:
    """Return the NumPy dtype of a DataType, or None for the few types that NumPy does not have."""
    return _LAYOUTS[dtype][0] if dtype in _LAYOUTS else None


def dtype_name(dtype: np.dtype) -> str:
    """Return the DataType name of a NumPy dtype, for example "DT_FLOAT" for float32."""
    known = (types_pb2.DataType.Name(key) for key, (each, *_) in _LAYOUTS.items() if each == dtype)
    return next(known, str(dtype))


def format_shape(sizes: Iterable[Any]) -> str:
    """Return a shape as text, for example `[?,7,7]` for (None, 7, 7)."""
    return f"[{','.join('?' if size is None else str(size) for size in sizes)}]"


def from_proto(proto: Any, max_filled: int = _MAX_FILLED) -> np.ndarray:
    """Return a TensorProto as an array.

    Args:
        proto: The TensorProto.
        max_filled: Maximum number of values in an array whose last value is repeated.

    Raises:
        ServingError: INVALID_ARGUMENT if it is malformed.
    """
    if proto.dtype not in _LAYOUTS:
        known = types_pb2.DataType.values()
        name = types_pb2.DataType.Name(proto.dtype) if proto.dtype in known else proto.dtype
        raise invalid(f"tensor has an unsupported dtype: {name}")
    dtype, field, stored = _LAYOUTS[proto.dtype]
    shape = tuple(dim.size for dim in proto.tensor_shape.dim)
    if proto.tensor_shape.unknown_rank or min(shape, default=0) < 0:
        raise invalid(f"tensor has no fully defined shape: {format_shape(shape)}")
    count = math.prod(shape)
    if proto.tensor_content:
        values = _from_content(proto.tensor_content, dtype, count)
    else:
        values = _from_field(getattr(proto, field), dtype, stored)
        if len(values) < count:
            values = _repeat_last(values, count, dtype, max_filled)
    try:
        return values.reshape(shape)
    except ValueError as error:  # NumPy also raises this for too many dimensions
        raise invalid(
            f"tensor of shape {format_shape(shape)} holds {len(values)} values"
        ) from error


def _from_field(field, dtype, stored):
    if dtype.kind == "O":
        values = np.empty(len(field), object)
        values[:] = field
        return values
    # The elements of int_val and half_val have more bits than the dtype. TensorFlow keeps the low
    # bits, and so does this. For integers beyond int64, NumPy would choose float64.
    values = np.asarray(field, stored if stored == np.uint64 else None).astype(stored)
    if dtype.kind == "c":
        values = values[: len(values) // 2 * 2]
    return values.view(dtype)


def _repeat_last(values, count, dtype, max_filled):
    if count > max_filled:
        raise invalid(f"tensor holds {len(values)} of {count} values")
    fill = values[-1] if len(values) else b"" if dtype.kind == "O" else 0
    full = np.full(count, fill, dtype)
    full[: len(values)] = values
    return full


def _from_content(content, dtype, count):
    if dtype.kind == "O":
        return _strings_from_content(content, count)
    if len(content) % dtype.itemsize:
        raise invalid(
            f"tensor_content has {len(content)} bytes, which is not a multiple of the "
            f"{dtype.itemsize} bytes of {dtype}"
        )
    return np.frombuffer(content, dtype)


def _strings_from_content(content, count):
    """Read strings as TensorFlow packs them: first all lengths as varints, then all bytes."""
    lengths: list[int] = []
    position = length = shift = 0
    while len(lengths) < count and position < len(content) and shift < 64:
        byte = content[position]
        position += 1
        length |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            lengths.append(length)
            length = shift = 0
    if len(lengths) < count or position + sum(lengths) != len(content):
        raise invalid(f"tensor_content of {len(content)} bytes does not hold {count} strings")
    values = np.empty(count, object)
    for index, length in enumerate(lengths):
        values[index] = content[position : position + length]
        position += length
    return values


def fill_proto(proto: Any, array: np.ndarray, dtype: int, as_content: bool = False) -> None:
    """Write an array into an empty TensorProto.

    Args:
        proto: The TensorProto.
        array: The array to write.
        dtype: The DataType of the array.
        as_content: Whether to fill `tensor_content`. By default the typed fields are filled, as
            tensorflow_model_server does, because many clients read `float_val` directly.
    """
    if dtype not in _LAYOUTS:
        name = types_pb2.DataType.Name(dtype)
        raise ServingError("UNIMPLEMENTED", f"an output has the unsupported dtype {name}")
    numpy, name, stored = _LAYOUTS[dtype]
    head = _head(dtype, array.shape)
    if as_content and numpy.kind != "O":
        proto.MergeFromString(head)
        proto.tensor_content = array.tobytes()
        return
    flat = array.ravel()
    if stored != numpy:
        flat = flat.view(stored)
    # Protobuf packs floats as their bytes in memory, so these can be copied in one piece.
    if stored.kind == "f":
        proto.MergeFromString(head + _FLOAT_TAGS[name] + _varint(flat.nbytes) + flat.tobytes())
        return
    proto.MergeFromString(head)
    extend_field(getattr(proto, name), flat)


@functools.lru_cache(1024)
def _head(dtype, shape):
    """Return the bytes of a TensorProto that has a dtype and a shape, but no values."""
    proto = tensor_pb2.TensorProto(dtype=dtype)
    for size in shape:
        proto.tensor_shape.dim.add(size=size)
    return proto.SerializeToString()


def extend_field(field: Any, values: np.ndarray) -> None:
    """Append the values of an array to a repeated field; meanwhile other threads can run."""
    for start in range(0, values.size, _CHUNK):
        field.extend(values[start : start + _CHUNK].tolist())


def pack(array: np.ndarray) -> Any:
    """Return the TensorProto of an array; all dtypes except strings fill `tensor_content`."""
    if array.dtype.kind in "SU":
        array = np.char.encode(array, "utf-8") if array.dtype.kind == "U" else array
        array = array.astype(object)
    for dtype, (known, *_) in _LAYOUTS.items():
        if known == array.dtype:
            proto = tensor_pb2.TensorProto()
            fill_proto(proto, array, dtype, as_content=True)
            return proto
    raise invalid(f"a tensor of dtype {array.dtype} cannot be sent")
