"""gRPC replies and canonical error codes."""

import time

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from rrl_tf.export import load_policy

pytestmark = pytest.mark.tf_only


@pytest.fixture(scope="module")
def channel(server):
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        yield channel


@pytest.fixture(scope="module")
def stub(channel):
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


def request_for(observation, model="tiny", signature="", **version):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    if "version" in version:
        request.model_spec.version.value = version["version"]
    if "label" in version:
        request.model_spec.version_label = version["label"]
    request.inputs["observation"].CopyFrom(tf.make_tensor_proto(observation))
    return request


def code_of(call, request):
    with pytest.raises(grpc.RpcError) as refusal:
        call(request, timeout=10)
    return refusal.value.code().name, refusal.value.details()


def test_predict_equals_the_policy(stub, exported, tools):
    raw = tools.observations(6)
    policy = load_policy(exported / "1")
    response = stub.Predict(request_for(raw))
    action = tf.make_ndarray(response.outputs["action"])
    np.testing.assert_array_equal(action, policy.act(raw))
    assert sorted(response.outputs) == ["action", "q_values"]
    assert response.model_spec.name == "tiny" and response.model_spec.version.value == 1
    assert response.model_spec.signature_name == "serving_default"
    # Many clients read the typed fields directly.
    assert len(response.outputs["q_values"].float_val) == 6 * tools.ACTIONS
    assert not response.outputs["q_values"].tensor_content


def test_output_filter_chooses_the_outputs(stub, tools):
    request = request_for(tools.observations(2), signature="act_with_attention", version=1)
    request.output_filter.append("attention_round_1")
    response = stub.Predict(request)
    assert list(response.outputs) == ["attention_round_1"]
    assert response.model_spec.signature_name == "act_with_attention"
    for names in (["nothing"], ["action", "action"]):
        del request.output_filter[:]
        request.output_filter.extend(names)
        assert code_of(stub.Predict, request)[0] == "INVALID_ARGUMENT"


def test_outputs_have_one_order_for_any_filter(server):
    """A TensorFlow session stores a callable for each order of outputs."""
    with server.repository.use("tiny") as servable:
        signature = servable.signature("act")
    for names in ([], ["action", "q_values"], ["q_values", "action"]):
        assert signature.choose_outputs(names) == ("action", "q_values")


def test_invalid_predict_requests_have_canonical_codes(stub, tools):
    raw = tools.observations(2)
    cases = [
        (predict_pb2.PredictRequest(), "INVALID_ARGUMENT", "ModelSpec"),
        (request_for(raw, model=""), "INVALID_ARGUMENT", "ModelSpec.name"),
        (request_for(raw, model="other"), "NOT_FOUND", "(other); served models: ['tiny']"),
        (request_for(raw, version=7), "NOT_FOUND", r"Specific(tiny, 7)"),
        (request_for(raw, version=-1), "NOT_FOUND", "Specific"),
        (request_for(raw, label="stable"), "INVALID_ARGUMENT", "stable"),
        (request_for(raw, signature="none"), "FAILED_PRECONDITION", "none"),
        (request_for(raw[:, 1:]), "INVALID_ARGUMENT", "[2,2,3,2]; expected [?,3,3,2]"),
        (request_for(raw[0]), "INVALID_ARGUMENT", "[3,3,2]; expected [?,3,3,2]"),
        (request_for(raw.astype("float32")), "INVALID_ARGUMENT", "DT_FLOAT; expected DT_UINT8"),
    ]
    for request, code, words in cases:
        received, details = code_of(stub.Predict, request)
        assert received == code and words in details
    request = request_for(raw)
    request.inputs["extra"].CopyFrom(request.inputs["observation"])
    assert "sent extra: ['extra']" in code_of(stub.Predict, request)[1]
    del request.inputs["observation"]
    assert "missing but required: ['observation']" in code_of(stub.Predict, request)[1]
    request = request_for(raw)
    request.inputs["observation"].tensor_content += b"1"
    assert code_of(stub.Predict, request)[0] == "INVALID_ARGUMENT"


def test_long_error_details_are_cut(stub, tools):
    request = request_for(tools.observations(1), signature="x" * 5000)
    details = code_of(stub.Predict, request)[1]
    assert details.endswith("TRUNCATED") and len(details) < 1100


def test_metadata_lists_all_signatures(stub):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "tiny"
    response = stub.GetModelMetadata(request)
    assert response.model_spec.version.value == 1
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    assert {"act", "act_with_attention", "serving_default", "__saved_model_init_op"} == set(
        signatures.signature_def
    )
    for fields in ([], ["other"], ["signature_def", "other"]):
        del request.metadata_field[:]
        request.metadata_field.extend(fields)
        assert code_of(stub.GetModelMetadata, request)[0] == "INVALID_ARGUMENT"
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    assert code_of(stub.GetModelMetadata, request)[0] == "INVALID_ARGUMENT"
    request.model_spec.name = "other"
    assert code_of(stub.GetModelMetadata, request)[0] == "NOT_FOUND"


def test_status_lists_the_states_of_versions(channel):
    stub = model_service_pb2_grpc.ModelServiceStub(channel)
    request = get_model_status_pb2.GetModelStatusRequest()
    assert code_of(stub.GetModelStatus, request)[0] == "INVALID_ARGUMENT"
    request.model_spec.name = "tiny"
    (entry,) = stub.GetModelStatus(request).model_version_status
    assert (entry.version, entry.state, entry.status.error_code) == (1, 30, 0)
    request.model_spec.version.value = 2
    assert code_of(stub.GetModelStatus, request)[0] == "NOT_FOUND"
    request.model_spec.name = "other"
    assert code_of(stub.GetModelStatus, request)[0] == "NOT_FOUND"


def test_deadline_ends_a_request(tmp_path, tools):
    def slow(x):
        return {"y": tf.while_loop(lambda i: i < 300_000, lambda i: i + 1, [x[0]])[0][None] + x}

    tools.save_module(
        tmp_path / "1", {"serving_default": (slow, [tf.TensorSpec([None], tf.int32, name="x")])}
    )
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "tiny"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto([0]))
    with (
        tools.serve(tmp_path) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel,
    ):
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        with pytest.raises(grpc.RpcError) as refusal:
            stub.Predict(request, timeout=0.05)
        assert refusal.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        call = stub.Predict.future(request)
        time.sleep(0.3)
        assert call.cancel()
        deadline = time.monotonic() + 20
        counts = server._inference.metrics.request_count
        for code in ("DEADLINE_EXCEEDED", "CANCELLED"):
            while counts.labels("tiny", code)._value.get() < 1:
                assert time.monotonic() < deadline, code
                time.sleep(0.01)
        # The event loop still replies while TensorFlow computes the abandoned request.
        status = get_model_status_pb2.GetModelStatusRequest()
        status.model_spec.name = "tiny"
        model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(status, timeout=1)
