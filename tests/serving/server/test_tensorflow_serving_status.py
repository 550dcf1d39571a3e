"""TensorFlow Serving's published cases of the status and the metadata of models."""

import pytest
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2

pytestmark = pytest.mark.tf_only
AVAILABLE = {
    "version": "123",
    "state": "AVAILABLE",
    "status": {"error_code": "OK", "error_message": ""},
}


def status_of(name=None, version=None):
    request = get_model_status_pb2.GetModelStatusRequest()
    if name is not None:
        request.model_spec.name = name
    if version is not None:
        request.model_spec.version.value = version
    return request


def metadata_of(name=None, version=None, fields=("signature_def",)):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=fields)
    if name is not None:
        request.model_spec.name = name
    if version is not None:
        request.model_spec.version.value = version
    return request


@pytest.mark.parametrize(
    ("name", "version", "code"),
    [
        (None, None, "INVALID_ARGUMENT"),
        ("", None, "INVALID_ARGUMENT"),
        ("no_such_model", None, "NOT_FOUND"),
        ("half_plus_two_2_versions", 125, "NOT_FOUND"),
    ],
)
def test_refused_status(published, refusal, name, version, code):
    assert refusal(published.models.GetModelStatus, status_of(name, version))[0] == code


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("half_plus_two", None, {123}),
        ("half_plus_two_2_versions", None, {123, 124}),
        ("half_plus_two_2_versions", 123, {123}),
    ],
)
def test_status(published, name, version, expected):
    entries = published.models.GetModelStatus(status_of(name, version)).model_version_status
    assert {entry.version for entry in entries} == expected and len(entries) == len(expected)
    for entry in entries:
        assert (entry.status.error_code, entry.status.error_message) == (0, "")


@pytest.mark.parametrize("place", ["", "/versions/123", "/labels/stable"])
def test_status_over_rest(published, place):
    reply = published.ask("GET", f"/v1/models/half_plus_two{place}")
    assert reply == (200, {"model_version_status": [AVAILABLE]})


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"name": "half_plus_two", "fields": []}, "INVALID_ARGUMENT"),
        ({"name": "half_plus_two", "fields": ["some_stuff"]}, "INVALID_ARGUMENT"),
        ({}, "INVALID_ARGUMENT"),
        ({"name": ""}, "INVALID_ARGUMENT"),
        ({"name": "test"}, "NOT_FOUND"),
    ],
)
def test_refused_metadata(published, refusal, arguments, code):
    assert refusal(published.stub.GetModelMetadata, metadata_of(**arguments))[0] == code


@pytest.mark.parametrize("version", [None, 123])
def test_metadata(published, version):
    response = published.stub.GetModelMetadata(metadata_of("half_plus_two", version))
    assert (response.model_spec.name, response.model_spec.version.value) == ("half_plus_two", 123)
    assert list(response.metadata) == ["signature_def"]
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    assert len(signatures.signature_def) == 6
    regress = signatures.signature_def["regress_x_to_y"]
    assert regress.inputs["inputs"].name == "tf_example:0"
    assert regress.method_name == "tensorflow/serving/regress"
    assert signatures.signature_def["serving_default"].outputs["y"].name == "y:0"


def test_metadata_over_rest(published):
    """The complete document, with the values of the published one."""

    def column(name):
        dims = [{"size": size, "name": ""} for size in ("-1", "1")]
        shape = {"dim": dims, "unknown_rank": False}
        return {"dtype": "DT_FLOAT", "tensor_shape": shape, "name": f"{name}:0"}

    def signature(method, inputs, outputs):
        method = f"tensorflow/serving/{method}"
        return {"inputs": inputs, "outputs": outputs, "method_name": method, "defaults": {}}

    examples = {
        "dtype": "DT_STRING",
        "tensor_shape": {"dim": [], "unknown_rank": True},
        "name": "tf_example:0",
    }
    signatures = {
        "serving_default": signature("predict", {"x": column("x")}, {"y": column("y")}),
    }
    for name, source, output in (
        ("regress_x_to_y", examples, "y"),
        ("regress_x_to_y2", examples, "y2"),
        ("regress_x2_to_y3", column("x2"), "y3"),
    ):
        signatures[name] = signature("regress", {"inputs": source}, {"outputs": column(output)})
    for name, source, output in (
        ("classify_x_to_y", examples, "y"),
        ("classify_x2_to_y3", column("x2"), "y3"),
    ):
        signatures[name] = signature("classify", {"inputs": source}, {"scores": column(output)})
    spec = {"name": "half_plus_two", "signature_name": "", "version": "123"}
    document = {
        "model_spec": spec,
        "metadata": {"signature_def": {"signature_def": signatures}},
    }
    assert published.ask("GET", "/v1/models/half_plus_two/metadata") == (200, document)
