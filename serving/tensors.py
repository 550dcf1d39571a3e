"""TensorProto to NumPy and back, and what a signature says about a tensor."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from tensorflow.core.framework import tensor_pb2, types_pb2

from serving import packed_fields
from serving.errors import ServingError, invalid

# dtype -> (NumPy dtype, typed field of TensorProto, dtype that the field's values are seen as)
_LAYOUTS: dict[int, tuple[Any, str, Any]] = {
    types_pb2.DT_FLOAT: (np.float32, "float_val", np.float32),
    types_pb2.DT_DOUBLE: (np.float64, "double_val", np.float64),
    types_pb2.DT_HALF: (np.float16, "half_val", np.uint16),
    types_pb2.DT_BFLOAT16: (ml_dtypes.bfloat16, "half_val", np.uint16),
    types_pb2.DT_INT8: (np.int8, "int_val", np.int8),
    types_pb2.DT_INT16: (np.int16, "int_val", np.int16),
    types_pb2.DT_INT32: (np.int32, "int_val", np.int32),
    types_pb2.DT_INT64: (np.int64, "int64_val", np.int64),
    types_pb2.DT_UINT8: (np.uint8, "int_val", np.uint8),
    types_pb2.DT_UINT16: (np.uint16, "int_val", np.uint16),
    types_pb2.DT_UINT32: (np.uint32, "uint32_val", np.uint32),
    types_pb2.DT_UINT64: (np.uint64, "uint64_val", np.uint64),
    types_pb2.DT_BOOL: (np.bool_, "bool_val", np.bool_),
    types_pb2.DT_COMPLEX64: (np.complex64, "scomplex_val", np.float32),
    types_pb2.DT_COMPLEX128: (np.complex128, "dcomplex_val", np.float64),
    types_pb2.DT_STRING: (np.object_, "string_val", np.object_),
}
_LAYOUTS = {
    dtype: (np.dtype(array), field, np.dtype(values))
    for dtype, (array, field, values) in _LAYOUTS.items()
}

# A short list repeats its last value, so a few bytes can ask for any amount of memory.
_MOST_FILLED = 1 << 24
# Up to so many values, a list of them is as quick as an array.
_FEW = 256
_NUMBERS = {
    field: tensor_pb2.TensorProto.DESCRIPTOR.fields_by_name[field].number
    for _, field, _ in _LAYOUTS.values()
}


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """Name, dtype and shape of a signature's input or output (None: unknown size, or rank)."""

    name: str
    dtype: int
    shape: tuple | None

    @classmethod
    def from_info(cls, name: str, info: Any) -> TensorSpec:
        """Reads a TensorInfo."""
        shape = None
        if not info.tensor_shape.unknown_rank:
            shape = tuple(d.size if d.size >= 0 else None for d in info.tensor_shape.dim)
        return cls(name, info.dtype, shape)

    @property
    def numpy_dtype(self) -> np.dtype | None:
        """The NumPy dtype, None for the few types that have none here."""
        return _LAYOUTS.get(self.dtype, (None,))[0]

    @property
    def rows(self) -> bool:
        """Whether the first dimension is a free batch dimension."""
        return self.shape is not None and self.shape[:1] == (None,)

    def from_json(self, array: np.ndarray) -> np.ndarray:
        """Returns what a JSON value stands for: `[]` is an empty batch, whatever a row's shape."""
        batch, *row = self.shape or (0,)
        if array.shape == (0,) and batch is None and None not in row:
            return array.reshape(0, *row)
        return array

    def check(self, array: np.ndarray) -> None:
        """Raises INVALID_ARGUMENT naming both sides unless the array fits."""
        if array.dtype != self.numpy_dtype:
            raise invalid(
                f"input {self.name!r} has dtype {dtype_name(array.dtype)}; "
                f"expected {types_pb2.DataType.Name(self.dtype)}"
            )
        self.check_shape(array.shape)

    def check_shape(self, shape: Sequence[int]) -> None:
        """Raises INVALID_ARGUMENT naming both sides unless an array of this shape fits."""
        if self.shape is None:
            return
        fits = len(shape) == len(self.shape) and all(
            expected is None or size == expected for size, expected in zip(shape, self.shape)
        )
        if not fits:
            expected = ["?" if size is None else size for size in self.shape]
            raise invalid(
                f"input {self.name!r} has shape [{_join(shape)}]; expected [{_join(expected)}]"
            )


def dtype_name(numpy_dtype: np.dtype) -> str:
    """Returns the DataType name of a NumPy dtype: float32 -> "DT_FLOAT"."""
    for dtype, (known, _, _) in _LAYOUTS.items():
        if known == numpy_dtype:
            return types_pb2.DataType.Name(dtype)
    return str(numpy_dtype)


def _join(sizes):
    return ",".join(str(size) for size in sizes)


def num_bytes(array: np.ndarray) -> int:
    """Returns how many bytes an array's values take, those of its strings included."""
    if array.dtype.kind != "O":
        return array.nbytes
    return array.nbytes + sum(map(len, array.ravel().tolist()))


def from_proto(proto: Any) -> np.ndarray:
    """Returns a TensorProto's array; raises INVALID_ARGUMENT where it does not hold one."""
    if proto.dtype not in _LAYOUTS:
        raise invalid(f"tensor has no usable dtype: {_dtype_of(proto)}")
    dtype, field, stored = _LAYOUTS[proto.dtype]
    shape = tuple(dim.size for dim in proto.tensor_shape.dim)
    if proto.tensor_shape.unknown_rank or min(shape, default=0) < 0:
        raise invalid(f"tensor has no definite shape: [{_join(shape)}]")
    count = math.prod(shape)
    if proto.tensor_content:
        values = _from_content(proto.tensor_content, dtype, count)
    else:
        values = _from_field(proto, field, dtype, stored)
        if len(values) < count:
            values = _filled(values, count, dtype)
    try:
        return values.reshape(shape)
    except ValueError as error:  # also more dimensions than NumPy has
        raise invalid(f"tensor of shape [{_join(shape)}] holds {len(values)} values") from error


def _dtype_of(proto):
    known = types_pb2.DataType.values()
    return types_pb2.DataType.Name(proto.dtype) if proto.dtype in known else proto.dtype


def _from_field(proto, name, dtype, stored):
    field = getattr(proto, name)
    if dtype.kind == "O":
        values = np.empty(len(field), object)
        values[:] = field
        return values
    if len(field) > _FEW:
        values = packed_fields.read_packed(proto, _NUMBERS[name], stored)
    elif stored.kind not in "iu":
        values = np.array(field, stored)
    else:
        # int_val and half_val are wider than what they carry; like TensorFlow, keep the low bits.
        values = np.array(field, stored if stored.itemsize == 8 else np.int64).astype(stored)
    if dtype.kind == "c":
        values = values[: len(values) // 2 * 2]
    return values.view(dtype)


def _filled(values, count, dtype):
    if count > _MOST_FILLED:
        raise invalid(f"tensor holds {len(values)} of {count} values")
    full = np.zeros(count, dtype)
    if dtype.kind == "O":
        full[:] = b""
    full[: len(values)] = values
    if len(values):
        full[len(values) :] = values[-1]
    return full


def _from_content(content, dtype, count):
    if dtype.kind == "O":
        return _strings(content, count)
    if len(content) % dtype.itemsize:
        raise invalid(f"tensor_content of {len(content)} bytes is no whole number of {dtype}")
    return np.frombuffer(content, dtype)


def _strings(content, count):
    """Reads TensorFlow's packing of strings: all lengths as varints, then all bytes."""
    if count > len(content):
        raise invalid(f"tensor_content of {len(content)} bytes cannot hold {count} strings")
    lengths, position = [], 0
    for _ in range(count):
        length, position = _varint(content, position)
        lengths.append(length)
    if position + sum(lengths) != len(content):
        raise invalid(f"tensor_content does not hold {count} strings")
    values = np.empty(count, object)
    for index, length in enumerate(lengths):
        values[index] = content[position : position + length]
        position += length
    return values


def _varint(content, position):
    value = shift = 0
    while position < len(content) and shift < 64:
        byte = content[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, position
    raise invalid("tensor_content does not hold strings")


def to_proto(array: np.ndarray, spec: TensorSpec, as_content: bool = False) -> Any:
    """Returns the TensorProto of an output, as `fill_proto` makes it."""
    proto = tensor_pb2.TensorProto()
    fill_proto(proto, array, spec, as_content)
    return proto


def fill_proto(proto: Any, array: np.ndarray, spec: TensorSpec, as_content: bool = False) -> None:
    """Writes an output into an empty TensorProto.

    Typed fields by default, as the stock server answers: many clients read `float_val` directly.
    `as_content` packs the bytes instead.
    """
    if spec.dtype not in _LAYOUTS:
        name = types_pb2.DataType.Name(spec.dtype)
        raise ServingError("UNIMPLEMENTED", f"output {spec.name!r} is of type {name}")
    dtype, field, stored = _LAYOUTS[spec.dtype]
    proto.dtype = spec.dtype
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    if as_content and dtype.kind != "O":
        proto.tensor_content = array.tobytes()
        return
    flat = array.ravel()
    if stored != dtype:
        flat = flat.view(stored)
    if flat.size > _FEW and dtype.kind != "O":
        packed_fields.write_packed(proto, _NUMBERS[field], flat)
    else:
        getattr(proto, field).extend(flat.tolist())


def pack(array: np.ndarray) -> Any:
    """Returns the TensorProto of a request's array, as bytes where the dtype allows it."""
    if array.dtype.kind in "SU":
        array = np.char.encode(array, "utf-8") if array.dtype.kind == "U" else array
        array = array.astype(object)
    for dtype, (known, _, _) in _LAYOUTS.items():
        if known == array.dtype:
            spec = TensorSpec("", dtype, array.shape)
            return to_proto(array, spec, as_content=True)
    raise invalid(f"a tensor of dtype {array.dtype} cannot be sent")
