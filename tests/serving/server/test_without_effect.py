"""Fields and signatures that the server does not support: a warning or one clear error."""

import asyncio
import http.client
import json
import logging

import grpc
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis import (
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)
from tensorflow_serving.config import model_server_config_pb2

from serving.client import ServingError, connect
from serving.server import config_files
from serving.server.config_files import StartError
from serving.server.flags import Flags
from serving.server.loading import Loader
from serving.server.repository import Repository

pytestmark = pytest.mark.tf_only
LOGGING = "logging_config { sampling_config { sampling_rate: 0.1 } }"


@pytest.fixture(autouse=True)
def warnings_only(caplog):
    caplog.set_level(logging.WARNING, "serving")


def model_config(base, more=""):
    text = f'name: "tiny" base_path: "{base}" model_platform: "tensorflow" {more}'
    return text_format.Parse(text, model_server_config_pb2.ModelConfig())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (LOGGING, "model tiny: logging_config has no effect"),
        (
            "model_version_policy { specific { versions: 1 versions: 5 } }",
            "no directory for the versions [5] of model_version_policy",
        ),
    ],
)
def test_fields_of_a_model_without_effect_are_warned_of_once(exported, caplog, more, words):
    async def configure():
        repository = Repository(Flags(max_num_load_retries=0))
        for _ in range(3):  # as --model_config_file_poll_wait_seconds does
            await repository.configure([model_config(exported, more)])
        before = caplog.messages.copy()
        await repository.configure([model_config(exported)])
        await repository.close()
        return before

    [said] = asyncio.run(configure())
    assert words in said and len(caplog.messages) == 1


def test_model_type_is_refused(exported):
    async def configure():
        repository = Repository(Flags())
        try:
            await repository.configure([model_config(exported, "model_type: TENSORFLOW")])
        finally:
            await repository.close()

    with pytest.raises(ServingError, match="'tiny': model_type is not supported; use model_platf"):
        asyncio.run(configure())


def test_metric_names_of_a_reload_request_are_refused(server, exported):
    request = model_management_pb2.ReloadConfigRequest(metric_names=["a"])
    request.config.model_config_list.config.append(model_config(exported))
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        with pytest.raises(grpc.RpcError) as refusal:
            stub.HandleReloadConfigRequest(request, timeout=20)
    assert refusal.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert "ReloadConfigRequest.metric_names" in refusal.value.details()


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        (config_files.read_batching, "max_batch_size { value: 3 }", []),
        (
            config_files.read_batching,
            "max_execution_batch_size { value: 3 }",
            ["max_execution_batch_size"],
        ),
        (
            config_files.read_batching,
            "max_execution_batch_size { value: 3 } enable_large_batch_splitting { value: true }",
            [],
        ),
        (config_files.read_monitoring, 'prometheus_config { path: "/m" }', ["prometheus_config"]),
        (config_files.read_monitoring, 'prometheus_config { path: "/m" enable: true }', []),
    ],
)
def test_fields_of_a_file_without_effect_are_warned_of(tmp_path, caplog, read, text, expected):
    path = tmp_path / "file.config"
    path.write_text(text)
    read(path)
    assert len(caplog.messages) == len(expected)
    assert all(f"{path}: {name}" in said for name, said in zip(expected, caplog.messages))


def test_a_metrics_path_without_a_slash_is_refused(tmp_path):
    (tmp_path / "m").write_text('prometheus_config { path: "metrics" enable: true }')
    with pytest.raises(StartError, match="must start with '/'; received 'metrics'"):
        config_files.read_monitoring(tmp_path / "m")


def test_the_other_file_of_batching_parameters_is_named(exported, tmp_path, tools, caplog):
    """The server's file sets the number of threads; a model's file sets all other parameters."""
    text = "max_batch_size { value: 3 } num_batch_threads { value: 2 } "
    (tmp_path / "all").write_text(text + "pad_variable_length_inputs: true")
    changes = {"enable_batching": True, "enable_per_model_batching_parameters": True}
    flags = tools.make_flags(exported, batching_parameters_file=str(tmp_path / "all"), **changes)
    loader = Loader(flags)
    assert [said.split(": ")[1] for said in caplog.messages] == [
        "max_batch_size has no effect",
        "pad_variable_length_inputs has no effect",
    ]
    caplog.clear()
    (tmp_path / "batching_params.pbtxt").write_text(text)
    assert loader._batching_of(tmp_path).max_batch_size == 3
    assert [said.split(": ")[1] for said in caplog.messages] == ["num_batch_threads has no effect"]


def export_graph(directory, build):
    """Write version 1 of a model; `build` returns name -> (inputs, outputs) in a graph."""
    with tf.Graph().as_default():
        signatures = build()
        config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
        with tf.compat.v1.Session(config=config) as session:
            session.run(tf.compat.v1.global_variables_initializer())
            builder = tf.compat.v1.saved_model.Builder(str(directory / "1"))
            make = tf.compat.v1.saved_model.predict_signature_def
            definitions = {name: make(*pair) for name, pair in signatures.items()}
            builder.add_meta_graph_and_variables(session, ["serve"], definitions)
            builder.save()


def sparse_and_dense():
    """Return signatures with a sparse input, a sparse output and neither."""
    sparse = tf.compat.v1.sparse_placeholder(tf.float32, [None, 4])
    x = tf.compat.v1.placeholder(tf.float32, [None], "x")
    return {
        "serving_default": ({"x": x}, {"y": x * 2}),
        "sparse": ({"x": x, "words": sparse}, {"y": tf.sparse.reduce_sum(sparse)}),
        "sparse_output": ({"x": x}, {"y": x * 3, "z": tf.sparse.from_dense(x[:, None])}),
    }


def test_sparse_tensors_are_named_and_other_signatures_work(tmp_path, tools):
    """TensorFlow's error is "Tensor :0 ... not found in the Graph"."""
    export_graph(tmp_path, sparse_and_dense)
    with tools.serve(tmp_path) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=20)

        def ask(name):
            document = {"inputs": {"x": [1.0], "words": [[1.0] * 4]}, "signature_name": name}
            if name != "sparse":
                del document["inputs"]["words"]
            connection.request("POST", "/v1/models/tiny:predict", json.dumps(document))
            response = connection.getresponse()
            return response.status, json.loads(response.read())

        assert ask("serving_default") == (200, {"outputs": [2.0]})
        refusals = {
            "sparse": "input 'words' of signature 'sparse' is not a dense tensor but coo_sparse",
            "sparse_output": "output 'z' of signature 'sparse_output' is not a dense tensor",
        }
        for name, words in refusals.items():
            status, reply = ask(name)
            assert status == 501 and words in reply["error"]
        connection.close()
        with connect(f"grpc://127.0.0.1:{server.grpc_port}", "tiny") as client:
            one = {"x": np.ones(1, "float32")}
            for name, words in refusals.items():
                with pytest.raises(ServingError, match=words) as refusal:
                    client.predict(one, name)
                assert refusal.value.code == "UNIMPLEMENTED"
            assert client.predict(one)["y"] == [2.0]
        request = predict_pb2.PredictRequest(output_filter=["y"])
        request.model_spec.name, request.model_spec.signature_name = "tiny", "sparse_output"
        request.inputs["x"].CopyFrom(tf.make_tensor_proto([1.0]))
        with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            assert stub.Predict(request, timeout=20).outputs["y"].float_val == [3.0]


def on_a_gpu():
    """Return a signature with a variable that is pinned to a device."""
    x = tf.compat.v1.placeholder(tf.float32, [None], "x")
    with tf.device("/device:GPU:7"):
        weight = tf.compat.v1.get_variable("weight", initializer=[2.0], use_resource=True)
        return {"serving_default": ({"x": x}, {"y": x * weight})}


def test_the_cause_of_a_missing_device_comes_first(tmp_path, tools):
    """TensorFlow's message starts with a mismatch of checkpoint and graph."""
    export_graph(tmp_path, on_a_gpu)
    flags = tools.make_flags(tmp_path)
    with pytest.raises(ServingError) as refusal:
        Loader(flags).load("tiny", 1, tmp_path / "1")
    message = refusal.value.message
    assert message.startswith("Cannot assign a device for operation")
    assert "/device:GPU:7" in message and "checkpoint" not in message and "\n" not in message
    assert "allow_soft_placement: true" in message
    (tmp_path / "session").write_text("allow_soft_placement: true")
    flags = tools.make_flags(tmp_path, tensorflow_session_config_file=str(tmp_path / "session"))
    servable = Loader(flags).load("tiny", 1, tmp_path / "1")
    signature = servable.signature("")
    outputs = servable.run(signature, {"x": np.ones(1, "float32")}, ("y",))
    assert outputs["y"] == [2.0]
    servable.close()
