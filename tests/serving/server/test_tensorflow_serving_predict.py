"""TensorFlow Serving's published cases of Predict over gRPC."""

import shutil

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

pytestmark = pytest.mark.tf_only
BOOL = tensor_pb2.TensorProto(dtype=types_pb2.DT_BOOL, bool_val=[True])
TEXT = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[b"any_key"])
TEXT.tensor_shape.dim.add(size=1)


def floats(value):
    """Return a number or nested lists as a TensorProto with `float_val`, as most clients do."""
    array = np.asarray(value, np.float32)
    proto = tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, float_val=array.ravel().tolist())
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    return proto


def request_of(model="half_plus_two", signature="", version=None, outputs=(), **inputs):
    request = predict_pb2.PredictRequest(output_filter=outputs)
    request.model_spec.name, request.model_spec.signature_name = model, signature
    if version is not None:
        request.model_spec.version.value = version
    for name, value in inputs.items():
        is_proto = isinstance(value, tensor_pb2.TensorProto)
        request.inputs[name].CopyFrom(value if is_proto else floats(value))
    return request


def values(response, name):
    """Return an output as nested lists, read from `float_val`."""
    proto = response.outputs[name]
    assert proto.dtype == types_pb2.DT_FLOAT
    return np.reshape(proto.float_val, [dim.size for dim in proto.tensor_shape.dim]).tolist()


@pytest.mark.parametrize("filters", [[], ["y"]])
@pytest.mark.parametrize(
    ("model", "signature", "x", "expected"),
    [
        ("half_plus_two", "", [2.0], [3.0]),
        ("half_plus_two", "serving_default", [2.0], [3.0]),
        ("half_plus_two", "", 2.0, 3.0),
        ("half_plus_two", "", [2.0, 3.0, 4.0], [3.0, 3.5, 4.0]),
        ("half_plus_two", "", [[1.0, 2.0], [3.0, 4.0]], [[2.5, 3.0], [3.5, 4.0]]),
        ("half_plus_three", "", [2.0], [4.0]),
        ("half_plus_two_tf2", "", [2.0], [3.0]),
        ("half_plus_two_tf2", "", [2.0, 3.0, 4.0], [3.0, 3.5, 4.0]),
        ("times_six", "", [2.0], [12.0]),
        ("constants", "custom_signature_key", [2.0], 2.0),
        ("constants", "", [2.0], 1.0),
        ("shapes", "", [[2.0]], [[2.0]]),
        ("shapes", "", [2.0], [2.0]),
        ("shapes", "scalar", 2.0, 3.0),
        ("shapes", "scalar", [2.0], [3.0]),
    ],
)
def test_the_graph_decides_which_shapes_it_takes(published, filters, model, signature, x, expected):
    request = request_of(model, signature, outputs=filters, x=x)
    response = published.stub.Predict(request, timeout=20)
    assert values(response, "y") == expected and list(response.outputs) == ["y"]
    spec = response.model_spec
    assert (spec.name, spec.version.value) == (model, 123)
    assert spec.signature_name == (signature or "serving_default")


@pytest.mark.parametrize(
    ("signature", "name", "outputs"),
    [
        ("regress_x2_to_y3", "inputs", "outputs"),
        ("classify_x2_to_y3", "inputs", "scores"),
    ],
)
@pytest.mark.parametrize("model", ["half_plus_two", "half_plus_two_tf2"])
@pytest.mark.parametrize(("x", "expected"), [(2.0, 4.0), ([2.0], [4.0])])
def test_predict_with_signatures_of_other_methods(
    published, model, signature, name, outputs, x, expected
):
    request = request_of(model, signature, version=123, **{name: x})
    response = published.stub.Predict(request, timeout=20)
    assert values(response, outputs) == expected
    assert response.model_spec.signature_name == signature


def test_signatures_with_a_state_and_without_inputs(published):
    steps = [
        ("get_counter", {}, [], 0.0),
        ("incr_counter", {}, [], 1.0),
        ("reset_counter", {}, [], 0.0),
        ("incr_counter", {}, ["output"], 1.0),
        ("incr_counter_by", {"delta": 3.0}, [], 4.0),
    ]
    for signature, inputs, filters, expected in steps:
        request = request_of("counter", signature, 123, filters, **inputs)
        response = published.stub.Predict(request, timeout=20)
        assert values(response, "output") == expected


def test_the_default_of_a_signature_stands_for_a_missing_input(published):
    response = published.stub.Predict(request_of("half_plus_two_tf2"), timeout=20)
    assert values(response, "y") == [2.0]
    body = {"inputs": {}}  # REST has no defaults
    status, reply = published.ask("POST", "/v1/models/half_plus_two_tf2:predict", body)
    assert status == 400 and "'inputs' must have the keys ['x']" in reply["error"]


@pytest.mark.parametrize(
    ("request_arguments", "code", "words"),
    [
        ({"model": "", "x": 2.0}, "INVALID_ARGUMENT", "name"),
        ({"model": "test", "x": 2.0}, "NOT_FOUND", "test"),
        ({"model": "half_plus_two", "version": 99, "x": 2.0}, "NOT_FOUND", "99"),
        ({}, "INVALID_ARGUMENT", "missing but required: ['x']"),
        ({"key": TEXT}, "INVALID_ARGUMENT", "sent extra: ['key']"),
        ({"x": TEXT}, "INVALID_ARGUMENT", "DT_STRING; expected DT_FLOAT"),
        ({"x": TEXT, "outputs": ["y"]}, "INVALID_ARGUMENT", "DT_STRING"),
        ({"x": BOOL}, "INVALID_ARGUMENT", "DT_BOOL; expected DT_FLOAT"),
        ({"x": 2.0, "outputs": ["output_filter"]}, "INVALID_ARGUMENT", "output_filter"),
        ({"x": 2.0, "outputs": ["y", "y"]}, "INVALID_ARGUMENT", "repeats"),
        ({"x": 2.0, "signature": "none"}, "FAILED_PRECONDITION", "none"),
    ],
)
def test_refused_predict_requests(published, refusal, request_arguments, code, words):
    received, details = refusal(published.stub.Predict, request_of(**request_arguments))
    assert received == code and words in details


def test_a_predict_request_needs_a_model(published, refusal):
    assert refusal(published.stub.Predict, predict_pb2.PredictRequest())[0] == "INVALID_ARGUMENT"


def test_a_shape_that_the_graph_refuses_is_an_invalid_argument(published, refusal):
    request = request_of("shapes", "matrix", x=[[1.0, 2.0, 3.0]])
    code, details = refusal(published.stub.Predict, request)
    assert code == "INVALID_ARGUMENT" and "[1,3]" in details


def test_batching_merges_no_request_of_another_shape_than_declared(serve_published):
    """Softmax over the last axis would mix the rows of two requests of shape [4]."""
    rng = np.random.default_rng(0)
    arrays = [
        rng.normal(size=shape).astype(np.float32)
        for _ in range(12)
        for shape in ((4,), (1, 4), (2, 4), (3, 2, 4), (2, 5), (5,))
    ]
    with serve_published(enable_batching=True) as batched:
        calls = [
            batched.stub.Predict.future(request_of("shapes", "softmax", x=array), timeout=20)
            for array in arrays
        ]
        for array, call in zip(arrays, calls, strict=True):
            exponents = np.exp(array)
            expected = exponents / exponents.sum(axis=-1, keepdims=True)
            np.testing.assert_allclose(values(call.result(), "y"), expected, rtol=1e-5)
        total = request_of("shapes", "sum", x=[1.0, 2.0, 3.0, 4.0])
        assert values(batched.stub.Predict(total, timeout=20), "y") == 10.0
        scalar = request_of(x=2.0)
        assert values(batched.stub.Predict(scalar, timeout=20), "y") == 3.0


def test_a_warm_up_request_of_another_shape_than_declared(published_models, tmp_path, tools):
    directory = tmp_path / "123"
    shutil.copytree(published_models / "half_plus_two" / "00000123", directory)
    (directory / "assets.extra").mkdir()
    log = prediction_log_pb2.PredictionLog()
    log.predict_log.request.CopyFrom(request_of(x=[2.0, 3.0, 4.0]))
    path = directory / "assets.extra" / "tf_serving_warmup_requests"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(log.SerializeToString())
    with tools.serve(tmp_path, enable_batching=True) as server:
        assert [each.number for each in server.repository.status("tiny")] == [123]
        assert server.repository.ready


def test_repeated_values_of_an_undeclared_shape_are_limited(published, refusal):
    """A list that is shorter than the shape repeats its last value."""
    for size, is_refused in ((1000, False), (4000, True)):
        proto = floats(2.0)
        for _ in range(2):
            proto.tensor_shape.dim.add(size=size)
        if is_refused:
            code, details = refusal(published.stub.Predict, request_of(x=proto))
            assert code == "INVALID_ARGUMENT" and "holds 1 of 16000000 values" in details
        else:
            response = published.stub.Predict(request_of(x=proto), timeout=20)
            assert set(response.outputs["y"].float_val) == {3.0}
