"""Classify, Regress and MultiInference over both transports."""

import http.client
import json

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    inference_pb2,
    prediction_log_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

pytestmark = pytest.mark.tf_only
CLASSIFY, REGRESS = "tensorflow/serving/classify", "tensorflow/serving/regress"


def signatures():
    """Return signatures of examples with a float "x" and an int "scale", a factor of x."""

    def x_of(inputs):
        features = {
            "x": tf.io.FixedLenFeature([], tf.float32),
            "scale": tf.io.FixedLenFeature([], tf.int64, 1),
        }
        parsed = tf.io.parse_example(inputs, features)
        return parsed["x"] * tf.cast(parsed["scale"], tf.float32)

    def regress(inputs):
        return {"outputs": x_of(inputs)[:, None]}

    def classify(inputs):
        x = x_of(inputs)
        classes = tf.tile([["low", "high"]], [tf.shape(x)[0], 1])
        return {"classes": classes, "scores": tf.stack([-x, x], axis=1)}

    def scores(inputs):
        return {"scores": x_of(inputs)[:, None]}

    def wide(inputs):
        return {"outputs": tf.zeros([tf.shape(inputs)[0], 3])}

    def numbers(inputs):
        return {"outputs": inputs}

    strings = [tf.TensorSpec([None], tf.string, name="inputs")]
    return {
        "serving_default": (regress, strings),
        "classify": (classify, strings),
        "scores": (scores, strings),
        "wide": (wide, strings),
        "numbers": (numbers, [tf.TensorSpec([None], tf.float32, name="inputs")]),
    }


def fill(input, values, scale=None):
    filled = input.example_list
    if scale is not None:
        filled = input.example_list_with_context
        filled.context.features.feature["scale"].int64_list.value.append(scale)
    for value in values:
        filled.examples.add().features.feature["x"].float_list.value.append(value)


def request_of(kind, values, signature="", scale=None):
    request = kind()
    request.model_spec.name, request.model_spec.signature_name = "tiny", signature
    fill(request.input, values, scale)
    return request


@pytest.fixture(scope="module")
def heads(tmp_path_factory, tools):
    base = tmp_path_factory.mktemp("heads")
    tools.save_module(base / "1", signatures())
    (base / "1" / "assets.extra").mkdir()
    with tf.io.TFRecordWriter(str(base / "1/assets.extra/tf_serving_warmup_requests")) as writer:
        log = prediction_log_pb2.PredictionLog()
        log.classify_log.request.CopyFrom(
            request_of(classification_pb2.ClassificationRequest, [1], "classify")
        )
        writer.write(log.SerializeToString())
        log.regress_log.request.CopyFrom(request_of(regression_pb2.RegressionRequest, [1]))
        writer.write(log.SerializeToString())
        log.multi_inference_log.request.CopyFrom(multi(("classify", CLASSIFY), ("", REGRESS)))
        writer.write(log.SerializeToString())
    with tools.serve(base, enable_batching=True) as server:
        yield server


@pytest.fixture(scope="module")
def stub(heads):
    with grpc.insecure_channel(f"127.0.0.1:{heads.grpc_port}") as channel:
        yield prediction_service_pb2_grpc.PredictionServiceStub(channel)


@pytest.fixture(scope="module")
def ask(heads):
    connection = http.client.HTTPConnection("127.0.0.1", heads.rest_port, timeout=10)

    def ask(verb, body):
        connection.request("POST", f"/v1/models/tiny:{verb}", json.dumps(body))
        response = connection.getresponse()
        return response.status, json.loads(response.read())

    yield ask
    connection.close()


def multi(*tasks, values=(1.5,)):
    request = inference_pb2.MultiInferenceRequest()
    for signature, method in tasks:
        task = request.tasks.add(method_name=method)
        task.model_spec.name, task.model_spec.signature_name = "tiny", signature
    fill(request.input, values)
    return request


def test_regress_returns_a_value_for_each_example(stub):
    response = stub.Regress(request_of(regression_pb2.RegressionRequest, [1, -2.5], scale=3))
    assert [entry.value for entry in response.result.regressions] == [3, -7.5]
    assert response.model_spec.version.value == 1
    assert response.model_spec.signature_name == "serving_default"


def test_classify_returns_classes_and_scores(stub):
    kind = classification_pb2.ClassificationRequest
    response = stub.Classify(request_of(kind, [1.5], "classify"))
    (entry,) = response.result.classifications
    assert [(c.label, c.score) for c in entry.classes] == [("low", -1.5), ("high", 1.5)]
    response = stub.Classify(request_of(kind, [1, 2], "scores"))
    pairs = [[(c.label, c.score) for c in e.classes] for e in response.result.classifications]
    assert pairs == [[("", 1.0)], [("", 2.0)]]


def test_multi_inference_returns_a_result_for_each_task(stub):
    response = stub.MultiInference(multi(("classify", CLASSIFY), ("", REGRESS)))
    first, second = response.results
    assert first.classification_result.classifications[0].classes[1].score == 1.5
    assert second.regression_result.regressions[0].value == 1.5
    assert second.model_spec.signature_name == "serving_default"


def test_grpc_refuses_invalid_requests_with_examples(stub):
    classify, regress = classification_pb2.ClassificationRequest, regression_pb2.RegressionRequest
    other = request_of(regress, [1])
    other.model_spec.name = "other"
    mixed = multi(("", REGRESS), ("", REGRESS))
    mixed.tasks[1].model_spec.name = "other"
    duplicate = "INVALID_ARGUMENT"  # as in tensorflow_model_server
    cases = [
        (stub.Regress, regress(), "INVALID_ARGUMENT"),
        (stub.Regress, other, "NOT_FOUND"),
        (stub.Regress, request_of(regress, []), "INVALID_ARGUMENT"),
        (stub.Regress, request_of(regress, [1], "none"), "INVALID_ARGUMENT"),
        (stub.Regress, request_of(regress, [1], "classify"), "INVALID_ARGUMENT"),
        (stub.Regress, request_of(regress, [1], "wide"), "INVALID_ARGUMENT"),
        (stub.Regress, request_of(regress, [1], "numbers"), "INVALID_ARGUMENT"),
        (stub.Classify, request_of(classify, [1]), "INVALID_ARGUMENT"),
        (stub.MultiInference, multi(), "INVALID_ARGUMENT"),
        (stub.MultiInference, multi(("", "tensorflow/serving/predict")), "UNIMPLEMENTED"),
        (stub.MultiInference, mixed, "INVALID_ARGUMENT"),
        (stub.MultiInference, multi(("classify", CLASSIFY), ("classify", CLASSIFY)), duplicate),
        (stub.MultiInference, multi(("", REGRESS), ("serving_default", REGRESS)), duplicate),
    ]
    for call, request, code in cases:
        with pytest.raises(grpc.RpcError) as refusal:
            call(request, timeout=10)
        assert refusal.value.code().name == code


def test_rest_replies_with_results(ask):
    examples = [{"x": 1.5}, {"x": [-2.0]}]
    assert ask("regress", {"examples": examples}) == (200, {"results": [1.5, -2.0]})
    body = {"examples": examples, "context": {"scale": 2}, "signature_name": "classify"}
    status, reply = ask("classify", body)
    assert (status, reply["results"][0]) == (200, [["low", -3.0], ["high", 3.0]])
    assert len(reply["results"]) == 2


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"examples": []},
        {"examples": {"x": 1.0}},
        {"examples": [1.0]},
        {"examples": [{"x": None}]},
        {"examples": [{"x": [1.0, 2]}]},
        {"examples": [{"x": [[1.0]]}]},
        {"examples": [{"x": {"b64": "%"}}]},
        {"examples": [{"x": 2}]},
        {"examples": [{"x": 1.0, "scale": 2**70}]},
        {"examples": [{"x": 1.0}], "context": 3},
        {"examples": [{"\ud800": 1.0}]},
        {"examples": [{"x": 1.0}], "signature_name": "\ud800"},
        {"examples": [{"x": 1.0}], "signature_name": "classify"},
    ],
)
def test_rest_refuses_invalid_examples(ask, body):
    status, reply = ask("regress", body)
    assert status == 400 and reply["error"]


def test_json_values_become_features():
    from serving.server.json_codec import examples_from_json

    values = {"f": [1.5, 2.0], "i": [1, 2**62], "b": True, "s": ["a", {"b64": "AA=="}], "none": []}
    (example,) = examples_from_json({"examples": [values]})
    feature = tf.train.Example.FromString(example).features.feature
    np.testing.assert_array_equal(feature["f"].float_list.value, [1.5, 2])
    assert list(feature["i"].int64_list.value) == [1, 2**62]
    assert list(feature["b"].int64_list.value) == [1]
    assert list(feature["s"].bytes_list.value) == [b"a", b"\x00"]
    assert feature["none"].WhichOneof("kind") is None


def test_method_name_check_refuses_predict_signatures(tmp_path, tools):
    """TensorFlow 2 exports every signature with the method name of predict."""
    tools.save_module(tmp_path / "1", {"serving_default": signatures()["serving_default"]})
    request = regression_pb2.RegressionRequest()
    request.model_spec.name = "tiny"
    fill(request.input, [1.0])
    for checks in (False, True):
        with (
            tools.serve(tmp_path, enable_signature_method_name_check=checks) as server,
            grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel,
        ):
            call = prediction_service_pb2_grpc.PredictionServiceStub(channel).Regress
            if not checks:
                call(request, timeout=20)
                continue
            with pytest.raises(grpc.RpcError, match="method_name") as refusal:
                call(request, timeout=20)
            assert refusal.value.code() == grpc.StatusCode.INVALID_ARGUMENT
