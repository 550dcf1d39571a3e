"""The Open Inference Protocol with tritonclient, and malformed requests, over REST and gRPC."""

import contextlib
import gzip
import http.client
import json
import shutil
import struct
import time
import types
from concurrent.futures import ThreadPoolExecutor

import grpc
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
import tritonclient.grpc
import tritonclient.http
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException, np_to_triton_dtype, triton_to_np_dtype

import rrl_tf
from rrl_tf.pretrained import POLICY, pretrained_folder
from serving.client import connect
from serving.errors import HTTP_STATUS, ServingError
from serving.server import Flags, open_inference_messages, running
from serving.server.open_inference_codec import read_body, read_message

pytestmark = pytest.mark.tf_only
PRESETS = [each.name for each in pretrained_folder("doorkey-5x5").parent.iterdir() if each.is_dir()]
PRESETS = sorted(name for name in PRESETS if not name.startswith("_"))
DTYPES = [
    *(np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
    *(np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.object_),
]
DTYPES = list(map(np.dtype, DTYPES))
NAMES = [np_to_triton_dtype(dtype) for dtype in DTYPES]


def save_echo(path, tools):
    """Save a model that returns its input, with a signature for each datatype.

    The default signature has rows of three numbers.
    """

    def same(shape, dtype):
        spec = tf.TensorSpec(shape, tf.string if dtype == "O" else dtype, name="x")
        return lambda x: {"y": tf.identity(x)}, [spec]

    signatures = {name: same(None, dtype) for name, dtype in zip(NAMES, DTYPES)}
    signatures["serving_default"] = same([None, 3], tf.float32)
    signatures["text"] = same([None, 1], np.dtype("O"))
    both = [tf.TensorSpec([None], tf.float32, name=name) for name in ("a", "b")]
    signatures["two"] = lambda a, b: {"sum": a + b, "difference": a - b}, both
    scalar = [tf.TensorSpec([None], tf.float32, name="x")]
    signatures["complex"] = lambda x: {"y": tf.complex(x, x)}, scalar
    tools.save_module(path, signatures)


@pytest.fixture(scope="module")
def served(tmp_path_factory, recurrent, tools):
    """A server of all presets, of a policy with a memory, and of two versions of `save_echo`."""
    base = tmp_path_factory.mktemp("open_inference")
    save_echo(base / "echo" / "1", tools)
    shutil.copytree(base / "echo" / "1", base / "echo" / "2")
    places = {name: pretrained_folder(name) / POLICY for name in PRESETS}
    places |= {"tiny": recurrent, "echo": base / "echo"}
    more = 'model_version_policy { all {} } version_labels { key: "stable" value: 1 }'
    entries = "\n".join(
        f'config {{ name: "{name}" base_path: "{place.absolute()}" model_platform: "tensorflow" '
        f"{more if name == 'echo' else ''} }}"
        for name, place in places.items()
    )
    config = base / "models.config"
    config.write_text(f"model_config_list {{ {entries} }}")
    flags = Flags(
        model_config_file=str(config),
        port=0,
        rest_api_port=tools.free_port(),
        rest_api_max_request_bytes=1 << 21,
        max_request_bytes=1 << 21,
        enable_batching=True,
        enable_model_warmup=False,  # faster
        allow_version_labels_for_unavailable_models=True,
    )
    with running(flags) as server:
        yield server


def open_client(server, transport):
    module = {"http": tritonclient.http, "grpc": tritonclient.grpc}[transport]
    port = server.grpc_port if transport == "grpc" else server.rest_port
    return module, module.InferenceServerClient(f"127.0.0.1:{port}")


@pytest.fixture(scope="module", params=["http", "grpc"])
def triton(request, served):
    """tritonclient's module and client, and a function that returns the result of a request."""
    module, client = open_client(served, request.param)

    def infer(model, arrays, signature="", in_json=False, outputs=None, **options):
        inputs = []
        for name, array in arrays.items():
            datatype = np_to_triton_dtype(array.dtype)
            inputs.append(module.InferInput(name, list(array.shape), datatype))
            form = {"binary_data": not in_json} if request.param == "http" else {}
            inputs[-1].set_data_from_numpy(array, **form)
        if signature:
            options["parameters"] = {"signature_name": signature}
        if outputs is not None:
            outputs = [module.InferRequestedOutput(name) for name in outputs]
        elif in_json:
            names = [each["name"] for each in client.get_model_metadata(model)["outputs"]]
            outputs = [module.InferRequestedOutput(name, binary_data=False) for name in names]
        return client.infer(model, inputs, outputs=outputs, **options)

    with contextlib.closing(client):
        yield types.SimpleNamespace(
            module=module, client=client, infer=infer, transport=request.param, server=served
        )


def refused(call, *arguments, **options):
    """Return (code, message) of a call that must fail; over REST, the HTTP status is the code."""
    with pytest.raises(InferenceServerException) as error:
        call(*arguments, **options)
    return error.value.status().removeprefix("StatusCode."), error.value.message()


def is_code(triton, found, code):
    statuses = {str(HTTP_STATUS[code]), *(["413"] if code == "RESOURCE_EXHAUSTED" else [])}
    return found in statuses if triton.transport == "http" else found == code


def as_dict(metadata):
    """Return metadata in the form of REST."""
    if isinstance(metadata, dict):
        return metadata
    tensors = {
        name: [
            {"name": each.name, "datatype": each.datatype, "shape": list(each.shape)}
            for each in getattr(metadata, name)
        ]
        for name in ("inputs", "outputs")
    }
    return {
        "name": metadata.name,
        "versions": list(metadata.versions),
        "platform": metadata.platform,
        **tensors,
    }


def state_of(server):
    """Return the numbers of idle sequences and of sequences with a request in progress."""
    store = server._inference._sequences
    return len(store._idle), len(store._busy)


def test_messages_are_those_of_the_protocol():
    """tritonclient's generated messages have the same fields, except `properties` of a model."""
    for name, found in open_inference_messages.DESCRIPTOR.message_types_by_name.items():
        assert fields(found) - fields(service_pb2.DESCRIPTOR.message_types_by_name[name]) == (
            {("properties", 6, 11, True)} if name == "ModelMetadataResponse" else set()
        )
    service = open_inference_messages.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    theirs = service_pb2.DESCRIPTOR.services_by_name[service.name].methods_by_name
    for method in service.methods:
        assert method.full_name == theirs[method.name].full_name
        assert method.input_type.full_name == theirs[method.name].input_type.full_name


def fields(message):
    """Return all fields of a message and of its nested messages."""
    found = {(each.name, each.number, each.type, each.is_repeated) for each in message.fields}
    nested = (fields(each) for each in message.nested_types if each.name != "PropertiesEntry")
    return found.union(*nested)


def test_health(triton):
    client = triton.client
    assert client.is_server_live() and client.is_server_ready()
    for version in ("", "1", "2", "002", "stable"):
        assert client.is_model_ready("echo", version)
    for version in ("3", "x", str(1 << 63)):
        assert not client.is_model_ready("echo", version)
    assert not client.is_model_ready("unknown")


def test_a_server_that_shuts_down_is_not_ready(served):
    served._inference.is_draining = True
    try:
        for path in ("health/ready", "models/echo/ready"):
            status, _, reply = ask(served, "GET", f"/v2/{path}")
            assert status == 503 and json.loads(reply).keys() == {"error"}
        assert ask(served, "GET", "/v2/health/live")[0] == 200
        assert ask(served, "POST", "/v2/models/echo/infer", body())[0] == 503
    finally:
        served._inference.is_draining = False


def test_server_metadata(triton):
    found = triton.client.get_server_metadata()
    if triton.transport == "grpc":
        found = {name: getattr(found, name) for name in ("name", "version", "extensions")}
    assert found["name"] == "rrl_tf" and found["version"] == rrl_tf.__version__
    assert {"binary_tensor_data", "sequence"} <= set(found["extensions"])


def test_model_metadata(triton):
    expected = {
        "name": "echo",
        "versions": ["1", "2"],
        "platform": "tensorflow_savedmodel",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}],
    }
    for version in ("", "1", "stable"):
        assert as_dict(triton.client.get_model_metadata("echo", version)) == expected
    for arguments in (("unknown",), ("echo", "3")):
        assert is_code(triton, refused(triton.client.get_model_metadata, *arguments)[0], NOT_FOUND)


NOT_FOUND = "NOT_FOUND"


def inputs_of(metadata, rows=2):
    """Return small numbers for every input, but zeros for a memory, which start an episode."""
    rng = np.random.default_rng(0)
    return {
        each["name"]: rng.integers(0, 1 if each["name"] == "memory" else 2, shape).astype(dtype)
        for each in metadata["inputs"]
        for dtype in (triton_to_np_dtype(each["datatype"]),)
        for shape in ([rows if size == -1 else size for size in each["shape"]],)
    }


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_equals_the_other_protocol(triton, preset):
    metadata = as_dict(triton.client.get_model_metadata(preset))
    arrays = inputs_of(metadata)
    with connect(f"grpc://127.0.0.1:{triton.server.grpc_port}", preset) as client:
        expected = client.predict(arrays, "serving_default")
    assert {each["name"] for each in metadata["outputs"]} == expected.keys()
    for in_json in (False, triton.transport == "http"):
        result = triton.infer(preset, arrays, in_json=in_json)
        for name, array in expected.items():
            found = result.as_numpy(name)
            assert found.dtype == array.dtype
            np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("preset", ["doorkey-8x8", "dt-doorkey"])
def test_sequences_equal_those_of_the_other_protocol(triton, preset):
    """Requests omit the memory or the window, because the server stores it."""
    before, rng = state_of(triton.server), np.random.default_rng(0)
    with connect(f"grpc://127.0.0.1:{triton.server.grpc_port}", preset) as client:
        for index in range(4):
            arrays = {
                "observation": rng.integers(0, 3, (1, 7, 7, 4), np.uint8),
                "reward": np.zeros(1, np.float32),
            }
            flags = {"sequence_start": index == 0, "sequence_end": index == 3}
            expected = client.predict(arrays, "act", sequence={"sequence_id": "other", **flags})
            found = triton.infer(preset, arrays, sequence_id=7, **flags)
            assert found.get_output("next_memory") is None
            for name, array in expected.items():
                np.testing.assert_array_equal(found.as_numpy(name), array)
    assert state_of(triton.server) == before


def examples(dtype, count):
    """Return values of a dtype, with its extremes."""
    rng = np.random.default_rng(0)
    if dtype == "O":
        values = np.array([b"", "é".encode(), b"a" * 300, b'"\\\n'], object)
    elif dtype == "b1":
        values = np.array([True, False, True, True])
    elif dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = np.array([limits.min, limits.max, 0, 1], dtype)
    else:
        values = rng.normal(size=4).astype(dtype)
    return np.resize(values, count)


@pytest.mark.parametrize("shape", [(2, 2), (), (1,), (0, 3), (3, 0), (150, 200)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=NAMES)
def test_every_datatype(triton, dtype, shape):
    """The largest shape is read and written by a worker or another thread."""
    if dtype == "O":
        shape = (30, 40) if shape == (150, 200) else shape
    array = examples(dtype, int(np.prod(shape))).reshape(shape)
    datatype = np_to_triton_dtype(array.dtype)
    for in_json in (False, triton.transport == "http"):
        if in_json and datatype == "BF16":
            continue  # tritonclient has no JSON for it
        if in_json and datatype == "FP16":
            found, message = refused(triton.infer, "echo", {"x": array}, datatype, in_json=True)
            assert found == "400" and "JSON cannot represent float16" in message
            continue
        result = triton.infer("echo", {"x": array}, datatype, in_json=in_json, request_id="é7")
        entry = result.get_output("y")
        if triton.transport == "http":
            entry = types.SimpleNamespace(**entry)
            assert result.get_response()["id"] == "é7"
        else:
            assert result.get_response().id == "é7"
        assert entry.datatype == datatype and list(entry.shape) == list(shape)
        found = result.as_numpy("y")
        if in_json and dtype == "O" and array.size:  # tritonclient does not encode text
            found = np.vectorize(str.encode, otypes="O")(found)
        np.testing.assert_array_equal(found, array)
        assert found.dtype == array.dtype


def test_outputs_of_every_datatype_in_json(served):
    """JSON has the shortest decimal number that identifies a 16-bit number."""
    for datatype, number in (("FP16", 0.5), ("BF16", 1.5)):
        raw = np.array([number], triton_to_np_dtype(datatype)).tobytes()
        tensor = {"name": "x", "datatype": datatype, "shape": [1]}
        text = json.dumps(
            {
                "inputs": [{**tensor, "parameters": {"binary_data_size": 2}}],
                "parameters": {"signature_name": datatype},
            }
        ).encode()
        status, headers, reply = infer_http(served, text + raw, length=len(text))
        assert status == 200 and headers["Content-Type"] == "application/json"
        assert json.loads(reply)["outputs"] == [{**tensor, "name": "y", "data": [number]}]


def test_requested_outputs_and_their_forms(triton):
    arrays = {"a": np.ones(2, np.float32), "b": np.zeros(2, np.float32)}
    result = triton.infer("echo", arrays, "two", outputs=["difference"])
    assert result.as_numpy("sum") is None
    np.testing.assert_array_equal(result.as_numpy("difference"), [1, 1])
    for names in (["nothing"], ["sum", "sum"]):
        code, message = refused(triton.infer, "echo", arrays, "two", outputs=names)
        assert is_code(triton, code, "INVALID_ARGUMENT") and names[0] in message
        assert "output_filter" not in message


def test_versions_and_signatures(triton):
    array = np.ones((1, 3), np.float32)
    for version, number in (("", "2"), ("1", "1"), ("2", "2"), ("stable", "1")):
        reply = triton.infer("echo", {"x": array}, model_version=version).get_response()
        found = reply["model_version"] if triton.transport == "http" else reply.model_version
        assert found == number
    for options, code, words in (
        ({"model_version": "3"}, "NOT_FOUND", "Specific(echo, 3)"),
        ({"model_version": "v1"}, "INVALID_ARGUMENT", "label: v1"),
        ({"model_version": str(1 << 63)}, "INVALID_ARGUMENT", "out of range"),
        ({"signature": "no_such"}, "FAILED_PRECONDITION", "no_such"),
        ({"signature": "complex"}, "UNIMPLEMENTED", "complex64"),
    ):
        found, message = refused(triton.infer, "echo", {"x": array}, **options)
        assert is_code(triton, found, code) and words in message
    assert is_code(triton, refused(triton.infer, "unknown", {"x": array})[0], "NOT_FOUND")


def test_compression(served):
    array = np.arange(3000, dtype=np.float32).reshape(-1, 3)
    for transport in ("http", "grpc"):
        module, client = open_client(served, transport)
        tensor = module.InferInput("x", array.shape, "FP32")
        tensor.set_data_from_numpy(array)
        options = [{"compression_algorithm": "gzip"}, {"compression_algorithm": "deflate"}]
        if transport == "http":
            algorithms = ("request_compression_algorithm", "response_compression_algorithm")
            options = [dict.fromkeys(algorithms, name) for name in ("gzip", "deflate")]
        with contextlib.closing(client):
            for each in options:
                result = client.infer("echo", [tensor], **each)
                np.testing.assert_array_equal(result.as_numpy("y"), array)


def test_limits(triton):
    for rows, words in ((5000, "at most 4096 rows"), (1 << 18, "larger")):
        arrays = {"x": np.zeros((rows, 3), np.float32)}
        code, message = refused(triton.infer, "echo", arrays)
        assert is_code(triton, code, "RESOURCE_EXHAUSTED")
        assert words in message.lower()


def test_inputs_that_do_not_match_the_signature(triton):
    row = np.ones((1, 3), np.float32)
    for arrays, words in (
        ({}, "missing but required: ['x']"),
        ({"x": row, "z": row}, "sent extra: ['z']"),
        ({"x": row.astype(np.float64)}, "is FP64; expected FP32"),
    ):
        code, message = refused(triton.infer, "echo", arrays)
        assert is_code(triton, code, "INVALID_ARGUMENT") and words in message
    state = {"observation": row.astype(np.uint8)}
    code, message = refused(triton.infer, "tiny", state, "act", sequence_id=1)
    assert is_code(triton, code, "NOT_FOUND")


@pytest.fixture
def step(triton, tools):
    """Function that sends a step of a sequence, and returns its Q values."""

    def step(name, seed=0, rows=1, signature="act", more=(), **flags):
        flags = {f"sequence_{flag}": True for flag in flags}
        arrays = {"observation": tools.observations(rows, seed), **dict(more)}
        result = triton.infer("tiny", arrays, signature, sequence_id=name, **flags)
        return result.as_numpy("q_values")

    return step


def test_bad_steps_change_nothing(triton, step):
    expected = [step("good", seed, **{"start": 1} if seed == 0 else {}) for seed in range(3)]
    step("good", end=1)
    before = state_of(triton.server)
    assert is_code(triton, refused(step, "mine")[0], "NOT_FOUND")  # a step before its start
    np.testing.assert_array_equal(step("mine", 0, start=1), expected[0])
    for changes, code, words in (
        ({"start": 1}, "ALREADY_EXISTS", "has already started"),
        ({"rows": 2}, "INVALID_ARGUMENT", "rows of the first one"),
        ({"signature": "initial_memory"}, "INVALID_ARGUMENT", "no state"),
        ({"signature": "no_such"}, "FAILED_PRECONDITION", "no_such"),
        ({"more": {"observation": np.zeros((1, 2), np.uint8)}}, "INVALID_ARGUMENT", "shape"),
        ({"more": {"memory": np.zeros((1, 24), np.float32)}}, "INVALID_ARGUMENT", "first step"),
    ):
        found, message = refused(step, "mine", 1, **changes)
        assert is_code(triton, found, code) and words in message
        assert state_of(triton.server) == (before[0] + 1, 0)
    for name in ("unknown", "a" * 129, "é"):
        assert refused(step, name)[0] and state_of(triton.server) == (before[0] + 1, 0)
    np.testing.assert_array_equal(step("mine", 1), expected[1])
    np.testing.assert_array_equal(step("mine", 2, end=1), expected[2])
    assert state_of(triton.server) == before


def test_a_state_can_be_exported(triton, step):
    step(9, 0, start=1)
    result = triton.infer("tiny", {}, "sequence_state", sequence_id=9)
    expected, memory = step(9, 1, end=1), {"memory": result.as_numpy("memory")}
    np.testing.assert_array_equal(step("new", 1, more=memory, start=1, end=1), expected)


def test_two_steps_at_once(served, tools):
    """Only requests that arrive during a step of their sequence are refused."""
    for transport in ("http", "grpc"):
        codes = []

        def play(index, transport=transport, codes=codes):
            module, client = open_client(served, transport)
            tensor = module.InferInput("observation", [1, 3, 3, 2], "UINT8")
            tensor.set_data_from_numpy(tools.observations(1))
            name = "shared" if index % 2 else f"own {index}"
            with contextlib.closing(client):
                for turn in range(6):
                    flags = {"sequence_start": turn == 0 and name != "shared"}
                    try:
                        client.infer("tiny", [tensor], sequence_id=name, **flags)
                        codes.append((name, "OK"))
                    except InferenceServerException as error:
                        codes.append((name, error.status()))

        before = state_of(served)[0]
        module, client = open_client(served, transport)
        tensor = module.InferInput("observation", [1, 3, 3, 2], "UINT8")
        tensor.set_data_from_numpy(tools.observations(1))
        client.infer("tiny", [tensor], sequence_id="shared", sequence_start=True)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(play, range(8)))
        assert {code for name, code in codes if name != "shared"} == {"OK"}
        assert {code for _, code in codes} <= {"OK", "409", "StatusCode.ABORTED"}
        assert state_of(served) == (before + 5, 0)
        for name in ("shared", *(f"own {index}" for index in range(0, 8, 2))):
            client.infer("tiny", [tensor], sequence_id=name, sequence_end=True)
        client.close()
        assert state_of(served) == (before, 0)


def ask(server, method, path, data=None, **headers):
    """Return (status, headers, body) of a reply."""
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=60)
    with contextlib.closing(connection):
        headers = {name.replace("_", "-"): text for name, text in headers.items()}
        connection.request(method, path, data, headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read()


def infer_http(server, data, length=None, model="echo", **headers):
    if length is not None:
        headers["Inference_Header_Content_Length"] = str(length)
    return ask(server, "POST", f"/v2/models/{model}/infer", data, **headers)


def body(data=(1, 2, 3), shape=(1, 3), datatype="FP32", name="x", **members):
    """Return the JSON of a request with one input."""
    tensor = {"name": name, "shape": shape, "datatype": datatype, "data": data}
    return json.dumps({"inputs": [tensor], **members})


@pytest.mark.parametrize("data", [[1, 2, 3, 4, 5, 6], [[1, 2, 3], [4, 5, 6]]], ids=["flat", "deep"])
def test_json_is_flat_or_nested(served, data):
    status, headers, reply = infer_http(served, body(data, [2, 3]))
    assert status == 200 and headers["Content-Type"] == "application/json"
    assert json.loads(reply) == {
        "model_name": "echo",
        "model_version": "2",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [2, 3], "data": [1, 2, 3, 4, 5, 6]}],
    }


def test_json_holds_what_only_python_parses(served):
    status, _, reply = infer_http(served, body([1e999, float("nan"), -0.5]))
    assert status == 200
    np.testing.assert_array_equal(json.loads(reply)["outputs"][0]["data"], [np.inf, np.nan, -0.5])


def test_a_body_of_raw_bytes_only(served):
    row = np.array([1, 2, 3], np.float32)
    status, headers, reply = infer_http(served, row.tobytes(), length=0)
    length = int(headers["Inference-Header-Content-Length"])
    assert status == 200 and reply[length:] == row.tobytes()
    assert json.loads(reply[:length])["outputs"][0]["shape"] == [1, 3]
    assert infer_http(served, row.tobytes()[1:], length=0)[0] == 400
    status, _, reply = infer_http(served, b"x", length=0, model="doorkey-8x8")
    assert status == 400 and b"one input" in reply


def test_each_output_has_its_own_form(served):
    tensors = [
        {"name": name, "shape": [1], "datatype": "FP32", "data": [float(value)]}
        for value, name in enumerate("ab")
    ]
    document = {"inputs": tensors, "parameters": {"signature_name": "two"}}
    document["parameters"]["binary_data_output"] = True
    document["outputs"] = [
        {"name": "difference", "parameters": {"binary_data": False}},
        {"name": "sum"},
    ]
    status, headers, reply = infer_http(served, json.dumps(document))
    length = int(headers["Inference-Header-Content-Length"])
    assert status == 200 and headers["Content-Type"] == "application/octet-stream"
    outputs = {each["name"]: each for each in json.loads(reply[:length])["outputs"]}
    assert outputs["difference"]["data"] == [-1.0]
    assert outputs["sum"]["parameters"] == {"binary_data_size": 4} and "data" not in outputs["sum"]
    assert struct.unpack("<f", reply[length:]) == (1.0,)


def test_numbers_over_rest_are_parsed_without_python_objects(served, monkeypatch):
    from serving.server import json_codec

    def fail(text):
        raise AssertionError

    monkeypatch.setattr(json_codec, "parse", fail)
    members = {"parameters": {"sequence_id": 1, "sequence_start": True}, "outputs": [{"name": "y"}]}
    request = read_body(body([[1, 2, 3]], id="a", **members).encode(), "", 10_000, None)
    assert request.id == "a" and request.sequence.start and request.outputs == {"y": False}
    np.testing.assert_array_equal(request.inputs["x"], [[1, 2, 3]])


def with_raw(document, raw=b"\0" * 12, size=12, **more):
    """Return a body with one binary input, and the length of its JSON."""
    tensor = {"name": "x", "shape": [1, 3], "datatype": "FP32", **more}
    tensor["parameters"] = {"binary_data_size": size}
    text = json.dumps({"inputs": [tensor], **document}).encode()
    return text + raw, len(text)


def strings(data, shape=(1,)):
    more = {"datatype": "BYTES", "shape": shape}
    return with_raw({"parameters": {"signature_name": "BYTES"}}, data, len(data), **more)


REFUSED_BODIES = {
    "no JSON": (b"{", None, "JSON Parse error"),
    "a list": (b"[]", None, "expected an object"),
    "inputs are no list": (json.dumps({"inputs": {"x": 1}}), None, "list of objects"),
    "an input without a name": (json.dumps({"inputs": [{}]}), None, "with a name"),
    "an input that is no object": (json.dumps({"inputs": [3]}), None, "with a name"),
    "an unknown datatype": (body(datatype="FP8"), None, "'FP8'"),
    "no datatype": (body(datatype=None), None, "received None"),
    "no shape": (body(shape=None), None, "sizes from 0; received None"),
    "a negative size": (body(shape=[-1, 3]), None, "must have a shape"),
    "a size that is no number": (body(shape=[True, 3]), None, "must have a shape"),
    "a huge size": (body(shape=[1 << 64, 3]), None, "must have a shape"),
    "a huge shape": (body(shape=[1 << 62] * 60), None, "received 3"),
    "too many axes": (body(shape=[1] * 65), None, "at most 64 sizes"),
    "an impossible empty shape": (body([], [0, 1 << 62, 1 << 62]), None, "array is too big"),
    "too few values": (body([1, 2]), None, "received 2"),
    "other nesting": (body([[1], [2], [3]]), None, "received 3 in the shape [3, 1]"),
    "ragged lists": (body([[1, 2], [3]]), None, "differ in length"),
    "no data": (body(None), None, "received null"),
    "text for numbers": (body(["1", "2", "3"]), None, "must be numbers"),
    "a repeated input": (json.dumps({"inputs": json.loads(body())["inputs"] * 2}), None, "repeats"),
    "an id that is no text": (body(id=7), None, "must be text"),
    "a long id": (body(id="a" * 1025), None, "id must be text of at most 1024 characters"),
    "a long name": (body(name="a" * 100_000), None, "received 'aaa"),
    "a long integer": (f"[{'1' * 5000}]", None, "value has 5000 digits"),
    "an id that UTF-8 cannot represent": (body(id="\ud800"), None, "must be text"),
    "parameters that are no object": (body(parameters=[1]), None, "must be an object"),
    "a signature name that is no text": (
        body(parameters={"signature_name": 1}), None, "must be text"
    ),
    "a flag that is no bool": (
        body(parameters={"binary_data_output": 1}), None, "true or false; received 1"
    ),
    "a flag of a sequence that is no bool": (
        body(parameters={"sequence_id": 1, "sequence_end": 1}), None, "true or false; received 1"
    ),
    "a sequence without an id": (
        body(parameters={"sequence_start": True}), None, "characters; received None"
    ),
    "a fractional id of a sequence": (
        body(parameters={"sequence_id": 1.5}), None, "sequence_id must be"
    ),
    "a zero with a point as an id": (
        body(parameters={"sequence_id": 0.0}), None, "sequence_id must be"
    ),
    "a size beyond the body": (*with_raw({}, size=13), "have 13 bytes of binary data; received 12"),
    "a size before the end": (*with_raw({}, size=11), "received 12"),
    "a negative size of data": (*with_raw({}, size=-1), "received binary_data_size -1"),
    "a size of data that is no number": (*with_raw({}, size="12"), "binary_data_size from 0"),
    "data twice": (*with_raw({}, data=[1, 2, 3]), "either data or"),
    "too few bytes": (*with_raw({}, b"\0" * 8, 8), "must have 12 bytes; received 8"),
    "a binary input without its header": (with_raw({})[0], None, "JSON Parse error"),
    "a header beyond the body": (body(), 10_000, "must be a number from 0"),
    "a negative header": (body(), -1, "must be a number from 0"),
    "a header that is no number": (body(), "twelve", "must be a number from 0"),
    "a header with a sign": (body(), f"+{len(body())}", "must be a number from 0"),
    "a header with a negative zero": (body(), "-0", "must be a number from 0"),
    "a header with an underscore": (body(), "1_0", "must be a number from 0"),
    "a header in the JSON": (body(), 5, "JSON Parse error"),
    "a string beyond the data": (*strings(b"\x05\0\0\0abcd"), "do not hold 1 strings"),
    "a string of 4 GiB": (*strings(b"\xff\xff\xff\xff"), "do not hold 1 strings"),
    "a string before the end": (*strings(b"\x01\0\0\0abcd"), "do not hold 1 strings"),
    "half a length": (*strings(b"\x01\0"), "do not hold 1 strings"),
    "too many strings": (*strings(b"", [1 << 20]), "do not hold 1048576 strings"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED_BODIES)
def test_malformed_bodies(served, case):
    data, length, words = REFUSED_BODIES[case]
    before, start = state_of(served), time.monotonic()
    status, headers, reply = infer_http(served, data, length)
    assert status == 400 and headers["Content-Type"] == "application/json"
    document = json.loads(reply)
    assert document.keys() == {"error"} and words in document["error"]
    assert len(document["error"]) < 1000 and "sys." not in document["error"]
    assert state_of(served) == before and time.monotonic() - start < 5


@pytest.mark.parametrize(
    ("data", "status", "words"),
    [
        (body(shape=[1 << 40, 3]), 400, "received 3"),
        (strings(b"", [1 << 21]), 413, "at most 1048576 strings"),
        (body(b"x".hex(), name="x", parameters={"shared_memory_region": "a"}), 400, ""),
        (json.dumps({"inputs": [], "outputs": [{"name": "y", **{}}]}), 400, "missing"),
    ],
)
def test_other_refused_bodies(served, data, status, words):
    data, length = data if isinstance(data, tuple) else (data, None)
    found, _, reply = infer_http(served, data, length)
    assert found == status and words in json.loads(reply)["error"]


@pytest.mark.parametrize("name", ["shared_memory_region", "classification"])
def test_extensions_that_are_missing(served, name):
    more = {"outputs": [{"name": "y", "parameters": {name: 1}}]}
    status, _, reply = infer_http(served, body(**more))
    assert status == 501 and name in json.loads(reply)["error"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/", 200),
        ("GET", "/v2/models/echo/config", 404),
        ("GET", "/v2/models/echo/infer", 404),
        ("POST", "/v2/models/echo", 404),
        ("POST", "/v2/models//infer", 404),
        ("PUT", "/v2/health/live", 404),
        ("GET", "/v2/models/echo/versions/99999999999999999999", 400),
        ("GET", "/v2/models/%65cho/versions/1/ready", 200),
        ("POST", "/v2/models/unknown/infer", 404),
    ],
)
def test_paths(served, method, path, status):
    found, headers, reply = ask(served, method, path, "{}" if method == "POST" else None)
    assert found == status and headers["Content-Type"] == "application/json"
    assert ("error" in json.loads(reply)) == (status != 200)


def test_gzip_of_a_body_with_raw_bytes(served):
    """The header counts the bytes of JSON before the compression, as Triton's clients do."""
    data, length = with_raw({"parameters": {"binary_data_output": True}})
    packed = gzip.compress(data)
    status, headers, reply = infer_http(served, packed, length, Content_Encoding="gzip")
    assert status == 200 and reply[int(headers["Inference-Header-Content-Length"]) :] == b"\0" * 12
    assert infer_http(served, packed[:-1], length, Content_Encoding="gzip")[0] == 400
    too_large = gzip.compress(b" " * (1 << 22))
    assert infer_http(served, too_large, Content_Encoding="gzip")[0] == 413


@pytest.fixture(scope="module")
def infer_grpc(served):
    """Function that sends a ModelInferRequest for a signature of `save_echo`."""
    request_class = open_inference_messages.message_class("ModelInferRequest")
    response_class = open_inference_messages.message_class("ModelInferResponse")
    with grpc.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")

        def infer(*inputs, signature="", parameters=(), **fields):
            request = request_class(inputs=inputs, **{"model_name": "echo", **fields})
            request.parameters["signature_name"].string_param = signature
            for name, value in dict(parameters).items():
                request.parameters[name].MergeFrom(value)
            return response_class.FromString(call(request.SerializeToString(), timeout=30))

        yield infer


def contents(datatype, values, shape=None):
    """Return an input with typed contents."""
    fields = {"BOOL": "bool", "UINT64": "uint64", "INT64": "int64", "BYTES": "bytes"}
    fields |= {"FP32": "fp32", "FP64": "fp64"}
    field = fields.get(datatype, "uint" if datatype.startswith("U") else "int")
    shape = [len(values)] if shape is None else shape
    typed = {"contents": {f"{field}_contents": values}}
    return {"name": "x", "datatype": datatype, "shape": shape, **typed}


@pytest.mark.parametrize(
    "dtype", [each for each in DTYPES if each.itemsize != 2 or each.kind in "iu"], ids=str
)
def test_typed_contents(infer_grpc, dtype):
    array = examples(dtype, 4).reshape(2, 2)
    datatype = np_to_triton_dtype(array.dtype)
    sent = contents(datatype, array.ravel().tolist(), array.shape)
    reply = infer_grpc(sent, signature=datatype, id="7")
    assert reply.id == "7" and not reply.raw_output_contents
    (output,) = reply.outputs
    assert (output.name, output.datatype, list(output.shape)) == ("y", datatype, [2, 2])
    ((_, values),) = output.contents.ListFields()
    assert list(values) == sent["contents"][next(iter(sent["contents"]))]


def raw(*data, **changes):
    """Return a request with raw contents."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 3], **changes}
    return {"inputs": (tensor,), "raw_input_contents": data}


REFUSED_MESSAGES = {
    "too few raw contents": (raw(), "needs as many values"),
    "too many raw contents": (raw(b"\0" * 12, b""), "received 2 for 1 inputs"),
    "raw contents that are too short": (raw(b"\0" * 11), "must have 12 bytes; received 11"),
    "raw contents and typed ones": (
        raw(b"\0" * 12, contents={"fp32_contents": [1, 2, 3]}), "no input may have contents"
    ),
    "an unknown datatype": (raw(b"\0" * 12, datatype="fp32"), "'fp32'"),
    "no datatype": (raw(b"\0" * 12, datatype=""), "received ''"),
    "a negative size": (raw(b"\0" * 12, shape=[-1, -3]), "must have a shape"),
    "a shape that overflows": (raw(b"\0" * 12, shape=[1 << 62] * 9), "of shape [46116"),
    "a shape that overflows to zero": (raw(b"", shape=[1 << 62, 4]), "of shape [46116"),
    "other contents": (
        {"inputs": (contents("INT32", [1, 2, 3], [1, 3]) | {"datatype": "FP32"},)},
        "FP32 must be in fp32_contents alone; received ['int_contents']",
    ),
    "two contents": (
        raw(contents={"fp32_contents": [1, 2, 3], "fp64_contents": [1, 2, 3]}),
        "alone; received ['fp32_contents', 'fp64_contents']",
    ),
    "a number beyond its datatype": (
        {"inputs": (contents("INT8", [300]),), "signature": "INT8"},
        "INT8, -128 to 127; received 300 to 300",
    ),
    "contents of a half": (
        {"inputs": (contents("FP16", [1]),), "signature": "FP16"},
        "FP16 must be in raw_input_contents",
    ),
    "a long id": (raw(b"\0" * 12) | {"id": "a" * 1025}, "id must be text of at most 1024"),
    "no name of a model": (raw(b"\0" * 12) | {"model_name": ""}, "the name of a model"),
    "a repeated input": (
        {"inputs": (contents("FP32", [1, 2, 3], [1, 3]),) * 2}, "'inputs' repeats 'x'"
    ),
    "a string that lies": (
        raw(b"\x09\0\0\0a", datatype="BYTES", shape=[1]) | {"signature": "BYTES"}, "do not hold 1"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED_MESSAGES)
def test_malformed_messages(served, infer_grpc, case):
    fields, words = REFUSED_MESSAGES[case]
    fields, before = dict(fields), state_of(served)
    with pytest.raises(grpc.RpcError) as error:
        infer_grpc(*fields.pop("inputs"), **fields)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert words in error.value.details() and state_of(served) == before


def test_the_longest_id(served, infer_grpc):
    name = "é" * 1024
    assert infer_grpc(contents("FP32", [1, 2, 3], [1, 3]), id=name).id == name
    assert json.loads(infer_http(served, body(id=name))[2])["id"] == name


def test_a_long_shape_is_refused_without_a_copy():
    """A copy or text of a long list would block other threads, such as the event loop's."""
    request = open_inference_messages.message_class("ModelInferRequest")(inputs=[{"name": "x"}])
    request.inputs[0].datatype = "FP32"
    request.inputs[0].shape.extend([1] * 4_000_000)
    start = time.thread_time()
    with pytest.raises(ServingError, match=r"received \[1, 1, 1, 1, 1, 1, \.\.\.\]"):
        read_message(request)
    assert time.thread_time() - start < 0.02


def test_a_parameter_without_a_value(infer_grpc):
    """An entry of the map may set no field of the `oneof`."""
    empty = open_inference_messages.message_class("InferParameter")()
    row = contents("FP32", [1, 2, 3], [1, 3])
    assert infer_grpc(row, parameters={"other": empty}).outputs[0].contents.fp32_contents
    with pytest.raises(grpc.RpcError, match="sequence_id must be"):
        infer_grpc(row, parameters={"sequence_id": empty})


def test_requests_without_a_sequence_may_have_its_parameters(infer_grpc):
    """Triton's clients in other languages send `sequence_id` 0 and false flags."""
    parameter = open_inference_messages.message_class("InferParameter")
    parameters = {"sequence_id": parameter(uint64_param=0)}
    parameters["sequence_start"] = parameters["sequence_end"] = parameter(bool_param=False)
    row = contents("FP32", [1, 2, 3], [1, 3])
    assert list(infer_grpc(row, parameters=parameters).outputs[0].contents.fp32_contents) == [
        1,
        2,
        3,
    ]


def test_strings_that_are_no_text(triton):
    array = np.array([[b"\xff"]], object)
    result = triton.infer("echo", {"x": array}, "text")
    assert result.as_numpy("y") == array
    if triton.transport == "http":
        outputs = [triton.module.InferRequestedOutput("y", binary_data=False)]
        tensor = triton.module.InferInput("x", [1, 1], "BYTES").set_data_from_numpy(array)
        parameters = {"signature_name": "text"}
        code, message = refused(
            triton.client.infer, "echo", [tensor], outputs=outputs, parameters=parameters
        )
        assert code == "400" and "not UTF-8" in message


def test_requests_are_counted_and_merged(triton):
    metrics = triton.server._inference.metrics

    def samples(name):
        name = f":tensorflow:serving:{name}"
        return metrics.collect()[name]["samples"]

    count = 'request_count{model_name="echo",status="OK"}'
    before = samples("request_count")[f":tensorflow:serving:{count}"]
    triton.infer("echo", {"x": np.ones((2, 3), np.float32)})
    assert samples("request_count")[f":tensorflow:serving:{count}"] == before + 1
    api, point = ("infer", "REST") if triton.transport == "http" else ("ModelInfer", "GRPC")
    label = f'model_name="echo",API="{api}",entrypoint="{point}"'
    assert samples("request_latency")[f":tensorflow:serving:request_latency_count{{{label}}}"] > 0
