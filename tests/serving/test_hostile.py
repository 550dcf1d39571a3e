"""Requests made to hold up, starve or fill the server: each did before."""

import http.client
import json
import threading
import time

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    inference_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from serving import wire

pytestmark = pytest.mark.tf_only


class Readiness:
    """Asks again and again whether the server is ready; `longest` is how long it ever took."""

    def __init__(self, server):
        self._port, self.longest = server.rest_port, 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def _ask(self):
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        while not self._stop.wait(0.002):
            begun = time.perf_counter()
            connection.request("GET", "/readyz")
            assert connection.getresponse().read() == b'{"ready": true}'
            self.longest = max(self.longest, time.perf_counter() - begun)
        connection.close()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


@pytest.fixture(scope="module")
def texts(tmp_path_factory, tools):
    """A server of a model that classifies examples by their length."""
    import tensorflow as tf

    def classify(inputs):
        return {"scores": tf.cast(tf.strings.length(inputs), "float32")[:, None]}

    def echo(text):
        return {"text": tf.identity(text)}

    def anything(x):
        return {"x": tf.identity(x)}

    base = tmp_path_factory.mktemp("texts")
    functions = {
        "serving_default": (classify, [tf.TensorSpec([None], "string", name="inputs")]),
        "echo": (echo, [tf.TensorSpec([None], "string", name="text")]),
        "anything": (anything, [tf.TensorSpec(None, "float32", name="x")]),
    }
    tools.save_module(base / "1", functions)
    with tools.serve(base) as server:
        yield server


@pytest.fixture(scope="module")
def stub(texts):
    with grpc.insecure_channel(f"127.0.0.1:{texts.grpc_port}") as channel:
        yield prediction_service_pb2_grpc.PredictionServiceStub(channel)


def refusal_of(call, request):
    with pytest.raises(grpc.RpcError) as refusal:
        call(request, timeout=60)
    return refusal.value.code().name, refusal.value.details()


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 300), st.integers(1, 400))
def test_fields_are_counted(num_inputs, num_texts, num_bytes, most):
    request = predict_pb2.PredictRequest()
    request.model_spec.version.value = 3  # three fields: spec, version, value
    for index in range(num_inputs):
        tensor = request.inputs[str(index)]  # three: entry, key, value
        tensor.string_val.extend([b"text"] * num_texts)
        if num_bytes:
            tensor.int_val.extend([1] * num_bytes)  # one that is packed
    packed = bool(num_bytes) + num_bytes // wire._PACKED_PER_FIELD
    expected = 3 + num_inputs * (3 + num_texts + packed)
    data, described = request.SerializeToString(), predict_pb2.PredictRequest.DESCRIPTOR
    assert wire.count_fields(data, described, 1 << 20) == expected
    assert (wire.count_fields(data, described, most) > most) == (expected > most)


@given(st.binary(max_size=60))
def test_what_is_no_message_is_counted_as_well(data):
    assert wire.count_fields(data, predict_pb2.PredictRequest.DESCRIPTOR, 1 << 20) <= len(data)


def test_messages_of_many_small_parts_hold_nobody_up(texts, stub):
    """300 kB of tasks stopped the server for 22 seconds, 40 MB of empty names for four."""
    tasks = inference_pb2.MultiInferenceRequest()
    for index in range(40_000):
        tasks.tasks.add().model_spec.signature_name = f"{index}"
    names = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=[""] * 4_000_000)
    outputs = predict_pb2.PredictRequest(output_filter=[""] * 900_000)
    outputs.model_spec.name = "tiny"
    outputs.inputs["inputs"].dtype = 7
    outputs.inputs["inputs"].tensor_shape.dim.add(size=0)
    with Readiness(texts) as readiness:
        assert refusal_of(stub.MultiInference, tasks)[0] == "RESOURCE_EXHAUSTED"
        assert refusal_of(stub.GetModelMetadata, names)[0] == "RESOURCE_EXHAUSTED"
        code, details = refusal_of(stub.Predict, outputs)
        assert code == "INVALID_ARGUMENT" and "repeats an output" in details
    assert readiness.longest < 1.5  # the machine may be busy


def test_a_context_is_not_copied_without_end(texts, stub):
    """Half a megabyte of context, copied into 4,000 examples, took gigabytes."""
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name = "tiny"
    examples = request.input.example_list_with_context
    examples.context.features.feature["c"].bytes_list.value.append(b"x" * 500_000)
    for _ in range(50):
        examples.examples.add()
    with Readiness(texts) as readiness:
        assert len(stub.Classify(request, timeout=60).result.classifications) == 50
        for _ in range(1000):
            examples.examples.add()
        code, details = refusal_of(stub.Classify, request)
    assert code == "RESOURCE_EXHAUSTED" and "copies of the context" in details
    assert readiness.longest < 1.0
    body = {"context": {"c": "x" * 500_000}, "examples": [{}] * 1000}
    connection = http.client.HTTPConnection("127.0.0.1", texts.rest_port, timeout=60)
    connection.request("POST", "/v1/models/tiny:classify", json.dumps(body))
    response = connection.getresponse()
    assert response.status == 413 and "copies of the context" in response.read().decode()
    connection.close()
