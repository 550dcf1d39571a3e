"""TensorProto codec, compared with TensorFlow's."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tensorflow.core.framework import tensor_pb2

from serving import tensors
from serving.errors import ServingError
from serving.server.model import TensorSpec

pytestmark = pytest.mark.tf_only
NUMBERS = [
    "float32 float64 float16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool "
    "complex64 complex128"
][0].split()
arrays = st.sampled_from(NUMBERS).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
)


def to_proto(array, as_content=False):
    proto = tensor_pb2.TensorProto()
    tensors.fill_proto(proto, array, tf.as_dtype(array.dtype).as_datatype_enum, as_content)
    return proto


def parsed_by_tensorflow(proto):
    return tf.io.parse_tensor(proto.SerializeToString(), proto.dtype).numpy()


@settings(max_examples=60, deadline=None)
@given(arrays, st.booleans())
def test_tensorflow_reads_what_we_write(array, as_content):
    proto = to_proto(array, as_content)
    np.testing.assert_array_equal(parsed_by_tensorflow(proto), array)
    assert bool(proto.tensor_content) == (as_content and array.size > 0)


@settings(max_examples=60, deadline=None)
@given(arrays)
def test_we_read_what_tensorflow_writes(array):
    # make_tensor_proto fills tensor_content; serialize_tensor of one value fills typed fields.
    for proto in (
        tf.make_tensor_proto(array),
        tensor_pb2.TensorProto.FromString(tf.io.serialize_tensor(array).numpy()),
        to_proto(array),
    ):
        decoded = tensors.from_proto(proto)
        np.testing.assert_array_equal(decoded, array)
        assert decoded.dtype == array.dtype and decoded.shape == array.shape


def test_integers_beyond_int64_are_exact():
    """NumPy converts a repeated field of protobuf before version 7 to float64."""
    array = np.array([0, 1 << 53, (1 << 64) - 1], np.uint64)
    np.testing.assert_array_equal(tensors.from_proto(to_proto(array)), array)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=5))
def test_strings_survive_the_round_trip(values):
    array = np.empty(len(values), object)
    array[:] = values
    proto = tensor_pb2.TensorProto()
    tensors.fill_proto(proto, array, tf.string.as_datatype_enum)
    packed = tensor_pb2.TensorProto.FromString(tf.io.serialize_tensor(values).numpy())
    for candidate in (proto, packed) if values else (proto,):
        assert tensors.from_proto(candidate).tolist() == values


def test_bfloat16_travels_as_bits():
    array = tf.constant([1.5, -2.0], tf.bfloat16).numpy()
    proto = to_proto(array)
    assert list(proto.half_val) == [0x3FC0, 0xC000]
    np.testing.assert_array_equal(tensors.from_proto(proto), array)


@pytest.mark.parametrize("values", [[], [7], [1, 2], [1, 2, 3], [-5, 300, 4]])
def test_short_lists_repeat_their_last_value(values):
    proto = tensor_pb2.TensorProto(dtype=tf.uint8.as_datatype_enum, int_val=values)
    proto.tensor_shape.dim.add(size=3)
    np.testing.assert_array_equal(tensors.from_proto(proto), parsed_by_tensorflow(proto))


def broken(dtype="float32", sizes=(2,), unknown_rank=False, **fields):
    proto = tensor_pb2.TensorProto(dtype=tf.as_dtype(dtype).as_datatype_enum, **fields)
    for size in sizes:
        proto.tensor_shape.dim.add(size=size)
    proto.tensor_shape.unknown_rank = unknown_rank
    return proto


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (tensor_pb2.TensorProto(), "DT_INVALID"),
        (tensor_pb2.TensorProto(dtype=999), "999"),
        (broken("resource"), "DT_RESOURCE"),
        (broken(sizes=(-1,)), r"\[-1\]"),
        (broken(unknown_rank=True), "fully defined"),
        (broken(float_val=[1, 2, 3]), "holds 3"),
        (broken(tensor_content=bytes(4)), "holds 1"),
        (broken(tensor_content=bytes(5)), "5 bytes"),
        (broken(sizes=(1 << 40,), float_val=[1]), "holds 1 of"),
        (broken(sizes=(1 << 62, 1 << 62, 0)), "holds 0 values"),
        (broken(sizes=(1,) * 100), "holds 1 values"),
        (broken("string", tensor_content=b"\x05\x05ab"), "hold 2 strings"),
        (broken("string", tensor_content=b"\xff\xff"), "strings"),
    ],
)
def test_messages_without_a_tensor_are_refused(proto, message):
    with pytest.raises(ServingError, match=message) as refusal:
        tensors.from_proto(proto)
    assert refusal.value.code == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("shape", "array", "fits"),
    [
        ((None, 2), np.zeros((5, 2), "float32"), True),
        ((None, 2), np.zeros((5, 3), "float32"), False),
        ((None, 2), np.zeros(2, "float32"), False),
        ((None, 2), np.zeros((5, 2), "float64"), False),
        (None, np.zeros((1, 1, 1), "float32"), True),
        ((), np.zeros((), "float32"), True),
    ],
)
def test_spec_compares_shape_and_dtype(shape, array, fits):
    spec = TensorSpec("x", tf.float32.as_datatype_enum, shape)
    if fits:
        spec.check(array)
    else:
        with pytest.raises(ServingError, match=r"'x' has .*expected"):
            spec.check(array)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_more_values_than_a_chunk_survive_the_round_trip(dtype):
    array = np.random.default_rng(0).integers(0, 100, 40_000).astype(dtype)
    written = to_proto(array)
    np.testing.assert_array_equal(parsed_by_tensorflow(written), array)
    assert not written.tensor_content
    back = tensors.from_proto(written)
    np.testing.assert_array_equal(back, array)
    assert back.dtype == array.dtype
