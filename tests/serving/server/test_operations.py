"""Reload, labels, metrics, readiness, health, configuration files and TLS."""

import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import time

import grpc
import pytest
from google.protobuf import text_format
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow_serving.apis import model_management_pb2, model_service_pb2_grpc

from serving.client import ServingError, connect
from serving.server import config_files, rest
from serving.server.batching import BatchingParameters
from serving.server.config_files import StartError

pytestmark = pytest.mark.tf_only


def get(server, path):
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=10)
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def reload_request(text):
    return text_format.Parse(
        "config { model_config_list { " + text + " } }", model_management_pb2.ReloadConfigRequest()
    )


def model_text(name, base, more=""):
    return f'config {{ name: "{name}" base_path: "{base}" model_platform: "tensorflow" {more} }}'


def test_reload_replaces_models_and_moves_labels(exported, tmp_path, tools):
    raw = tools.observations(1)
    label = 'version_labels { key: "stable" value: 1 }'
    (tmp_path / "broken" / "1").mkdir(parents=True)
    with tools.serve(exported) as server:
        address = f"grpc://127.0.0.1:{server.grpc_port}"
        with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
            call = model_service_pb2_grpc.ModelServiceStub(channel).HandleReloadConfigRequest
            both = model_text("tiny", exported, label) + model_text("second", exported)
            assert call(reload_request(both), timeout=20).status.error_code == 0
            for options in ({"model": "tiny", "label": "stable"}, {"model": "second"}):
                with connect(address, **options) as client:
                    client.act(raw)
            refusals = [
                (model_management_pb2.ReloadConfigRequest(), "INVALID_ARGUMENT"),
                (reload_request(model_text("tiny", "relative")), "INVALID_ARGUMENT"),
                (reload_request(both + model_text("x", tmp_path / "broken")), "UNKNOWN"),
                (reload_request(both + model_text("x", tmp_path / "missing")), "NOT_FOUND"),
                (
                    reload_request(model_text("tiny", exported, label.replace("1", "2"))),
                    "FAILED_PRECONDITION",
                ),
            ]
            for request, code in refusals:
                with pytest.raises(grpc.RpcError) as refusal:
                    call(request, timeout=20)
                assert refusal.value.code().name == code
            call(reload_request(model_text("tiny", exported)), timeout=20)
            with connect(address, "second") as client, pytest.raises(ServingError) as refusal:
                client.act(raw)
            assert refusal.value.code == "NOT_FOUND"


def test_models_outside_of_model_root_are_refused(exported, tmp_path, tools):
    root = tmp_path / "root"
    (root / "linked").mkdir(parents=True)
    shutil.copytree(exported, root / "own")
    (root / "linked" / "1").symlink_to(exported / "1")
    with (
        tools.serve(root / "own", model_root=str(root)) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel,
    ):
        call = model_service_pb2_grpc.ModelServiceStub(channel).HandleReloadConfigRequest
        own = model_text("tiny", root / "own")
        for base, code in ((exported, "PERMISSION_DENIED"), (root / "linked", "UNKNOWN")):
            with pytest.raises(grpc.RpcError, match="not in --model_root") as refusal:
                call(reload_request(own + model_text("other", base)), timeout=20)
            assert refusal.value.code().name == code
        assert call(reload_request(own), timeout=20).status.error_code == 0
    outside = pytest.raises(StartError, match="not in --model_root")
    with outside, tools.serve(exported, model_root=str(root)):
        pass


def test_reload_is_refused_without_allow_reload_requests(exported, tools):
    with tools.serve(exported, allow_reload_requests=False) as server:
        with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
            call = model_service_pb2_grpc.ModelServiceStub(channel).HandleReloadConfigRequest
            with pytest.raises(grpc.RpcError) as refusal:
                call(reload_request(""), timeout=20)
            assert refusal.value.code().name == "PERMISSION_DENIED"
        assert list(server.repository.models) == ["tiny"]


def test_model_config_file_is_polled(exported, tmp_path, tools):
    path = tmp_path / "models.config"
    path.write_text(f"model_config_list {{ {model_text('a', exported)} }}")
    changes = {"model_config_file": str(path), "model_config_file_poll_wait_seconds": 0.05}
    with tools.serve("", **changes) as server:
        path.write_text("model_config_list { half")
        time.sleep(0.15)
        assert list(server.repository.models) == ["a"]
        path.write_text(f"model_config_list {{ {model_text('b', exported)} }}")
        deadline = time.monotonic() + 20
        while list(server.repository.models) != ["b"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_metrics_count_requests_and_health_reports_serving(exported, tmp_path, tools):
    path = tmp_path / "monitoring.config"
    path.write_text('prometheus_config { enable: true path: "/metrics" }')
    batching = tmp_path / "batching.config"
    batching.write_text("max_batch_size { value: 8 } allowed_batch_sizes: [4, 8]")
    with tools.serve(
        exported,
        monitoring_config_file=str(path),
        enable_batching=True,
        batching_parameters_file=str(batching),
        enable_grpc_healthcheck_service=True,
    ) as server:
        addresses = [f"grpc://127.0.0.1:{server.grpc_port}", f"http://127.0.0.1:{server.rest_port}"]
        for address in addresses:
            with connect(address, "tiny") as client:
                client.act(tools.observations(3))
                with pytest.raises(ServingError):
                    client.act(tools.observations(3)[:, 1:])
            with connect(address, "other") as client, pytest.raises(ServingError):
                client.act(tools.observations(3))
        response, page = get(server, "/metrics")
        assert response.headers["Content-Type"].startswith("text/plain")
        check_metrics(page.decode())
        response, body = get(server, "/readyz")
        assert response.status == 200 and json.loads(body) == {"ready": True}
        with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
            check = health_pb2_grpc.HealthStub(channel).Check
            for service in ("", "PredictionService", "ModelService"):
                request = health_pb2.HealthCheckRequest(service=service)
                assert check(request).status == health_pb2.HealthCheckResponse.SERVING


def check_metrics(page):
    samples = dict(
        re.fullmatch(r"(\S+\{.*\}) (\S+)", line).groups()
        for line in page.splitlines()
        if not line.startswith("#")
    )
    name = ":tensorflow:serving:"

    def value(text):
        return float(samples[name + text])

    # gRPC and REST predictions, and REST's metadata.
    assert value('request_count{model_name="tiny",status="OK"}') == 3
    assert value('request_count{model_name="tiny",status="INVALID_ARGUMENT"}') == 2
    for api, entrypoint in (("Predict", "GRPC"), ("predict", "REST")):
        labels = f'model_name="tiny",API="{api}",entrypoint="{entrypoint}"'
        assert value(f"request_latency_count{{{labels}}}") == 1
        assert value(f'request_latency_bucket{{{labels},le="+Inf"}}') == 1
    assert value('runtime_latency_count{model_name="tiny",API="Predict",runtime="TF1"}') == 2
    assert value("batching_session:wrapped_run_count{}") == 2
    assert value("batching_session:queue_depth{}") == 0
    assert value("batching_session:padding_size_sum{}") == 2  # 3 rows padded to 4, twice
    assert f"# TYPE {name}request_count counter" in page
    assert f"# TYPE {name}request_latency histogram" in page


def test_monitoring_is_off_by_default(server):
    assert get(server, "/monitoring/prometheus/metrics")[0].status == 404


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        (
            "max_batch_size { value: 128 } num_batch_threads { value: 3 }",
            {"max_batch_size": 128, "num_batch_threads": 3},
        ),
        (
            "batch_timeout_micros { value: 5 } allowed_batch_sizes: 1000",
            {"batch_timeout_micros": 5, "allowed_batch_sizes": (1000,)},
        ),
        (
            "enable_large_batch_splitting { value: true } thread_pool_name { value: 'p' }",
            {"enable_large_batch_splitting": True, "thread_pool_name": "p"},
        ),
    ],
)
def test_batching_file_sets_batching_parameters(tmp_path, text, expected):
    path = tmp_path / "batching.config"
    path.write_text(text)
    assert config_files.read_batching(path) == BatchingParameters(**expected)


@pytest.mark.parametrize(
    ("read", "text", "words"),
    [
        (config_files.read_batching, "max_batch_size: 3", "max_batch_size"),
        (config_files.read_batching, "max_batch_size { value: 0 }", "at least 1"),
        (config_files.read_batching, "allowed_batch_sizes: [1, 2]", "1000"),
        (config_files.read_batching, "no_such_field: 3", "no_such_field"),
        (config_files.read_monitoring, "prometheus_config { enable: 7 }", "enable"),
        (config_files.read_credentials, 'server_key: "k"', "server_cert"),
        (
            config_files.read_credentials,
            'server_key: "k" server_cert: "c" client_verify: true',
            "custom_ca",
        ),
        (config_files.read_model_list, "", "model_config_list"),
        (config_files.read_model_list, None, "No such file"),
    ],
)
def test_invalid_configuration_files_raise_with_their_path(tmp_path, read, text, words):
    path = tmp_path / "file.config"
    if text is not None:
        path.write_text(text)
    with pytest.raises(StartError, match=words) as refusal:
        read(path)
    assert str(path) in str(refusal.value)


def self_signed(folder):
    """Return (key, certificate) files for localhost."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, capture_output=True)
    return key, certificate


def test_tls_connects_only_with_the_trusted_certificate(exported, tmp_path, tools):
    key, certificate = self_signed(tmp_path)
    (tmp_path / "other").mkdir()
    _, other = self_signed(tmp_path / "other")
    path = tmp_path / "ssl.config"
    key, text = (json.dumps(file.read_text()) for file in (key, certificate))
    path.write_text(f"server_key: {key} server_cert: {text}")
    with tools.serve(exported, host="localhost", ssl_config_file=str(path)) as server:
        raw = tools.observations(1)
        address = f"grpcs://localhost:{server.grpc_port}"
        with connect(address, "tiny", certificates=certificate) as client:
            client.act(raw)
        for options in ({"certificates": other}, {}):
            with connect(address, "tiny", retries=0, timeout=2, **options) as client:
                with pytest.raises(ServingError) as refusal:
                    client.act(raw)
                assert refusal.value.code == "UNAVAILABLE"
        plain = connect(address.replace("grpcs", "grpc"), "tiny", retries=0, timeout=2)
        with plain as client, pytest.raises(ServingError):
            client.act(raw)
    with pytest.raises(ValueError, match="need an address with grpcs"):
        connect("http://localhost:1", "tiny", certificates=certificate)


def write_ssl(path, key, certificate, more=""):
    key, certificate = (json.dumps(file.read_text()) for file in (key, certificate))
    path.write_text(f"server_key: {key} server_cert: {certificate} {more}")
    path.chmod(0o600)


def test_invalid_keys_are_refused_at_the_start(tmp_path, caplog):
    path = tmp_path / "ssl.config"
    key, certificate = self_signed(tmp_path)
    (tmp_path / "other").mkdir()
    _, other = self_signed(tmp_path / "other")
    garbage = tmp_path / "garbage"
    garbage.write_text("no PEM")
    for pair in ((key, other), (garbage, certificate), (key, garbage)):
        write_ssl(path, *pair)
        with pytest.raises(StartError, match="must be a matching pair in PEM"):
            config_files.read_credentials(path)
    write_ssl(path, key, certificate, 'custom_ca: "no PEM" client_verify: true')
    with pytest.raises(StartError, match="custom_ca must be a certificate"):
        config_files.read_credentials(path)
    write_ssl(path, key, certificate)
    caplog.clear()
    config_files.read_credentials(path)
    assert "other users can read" not in caplog.text
    path.chmod(0o644)
    config_files.read_credentials(path)
    assert "other users can read" in caplog.text


def test_client_verify_requires_a_client_certificate(exported, tmp_path, tools):
    key, certificate = self_signed(tmp_path)
    (tmp_path / "client").mkdir()
    client_key, client_certificate = self_signed(tmp_path / "client")
    path = tmp_path / "ssl.config"
    texts = [json.dumps(file.read_text()) for file in (key, certificate, client_certificate)]
    fields = ("server_key", "server_cert", "custom_ca")
    lines = [f"{field}: {text}" for field, text in zip(fields, texts)]
    path.write_text("\n".join([*lines, "client_verify: true"]))
    with tools.serve(exported, host="localhost", ssl_config_file=str(path)) as server:
        raw = tools.observations(1)
        address, trust = f"grpcs://localhost:{server.grpc_port}", {"certificates": certificate}
        identity = (client_certificate, client_key)
        with connect(address, "tiny", identity=identity, **trust) as client:
            client.act(raw)
        for options in (trust, {**trust, "identity": (certificate, key)}):
            with connect(address, "tiny", retries=0, timeout=2, **options) as client:
                with pytest.raises(ServingError) as refusal:
                    client.act(raw)
                assert refusal.value.code == "UNAVAILABLE"
    with pytest.raises(ValueError, match="`identity` need"):
        connect("grpc://localhost:1", "tiny", identity=identity)


def test_unix_socket_answers_within_the_channel_arguments(exported, tmp_path, tools):
    """gRPC refuses a message that exceeds the limit in the arguments."""
    sessions = tmp_path / "session.config"
    sessions.write_text("intra_op_parallelism_threads: 2")
    changes = {"grpc_socket_path": str(tmp_path / "s.sock"), "rest_api_port": 0}
    changes["grpc_channel_arguments"] = "grpc.max_receive_message_length=200"
    changes["tensorflow_session_config_file"] = str(sessions)
    with tools.serve(exported, **changes) as server:
        assert server.grpc_port is None
        with grpc.insecure_channel(f"unix:{tmp_path}/s.sock") as channel:
            call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
            for length, code in ((100, "INVALID_ARGUMENT"), (300, "RESOURCE_EXHAUSTED")):
                with pytest.raises(grpc.RpcError) as refusal:
                    call(b"x" * length, timeout=20)
                assert refusal.value.code().name == code
    os.mkfifo(tmp_path / "other")
    changes["grpc_socket_path"] = str(tmp_path / "other")
    with pytest.raises(StartError, match="cannot listen"), tools.serve(exported, **changes):
        pass


def test_a_server_without_worker_processes_stops_with_its_own_error(exported, tools, monkeypatch):
    def fail(_):
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(rest, "Workers", fail)
    with pytest.raises(BlockingIOError, match="no more processes"), tools.serve(exported):
        pass


@pytest.mark.parametrize(("flag", "protocol"), [("port", "gRPC"), ("rest_api_port", "REST")])
def test_a_port_in_use_is_an_error_before_models_are_loaded(flag, protocol, tmp_path):
    from serving.server import Flags, running

    (tmp_path / "1").mkdir()  # loading this version fails
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = {"port": 0, flag: taken.getsockname()[1]}
        flags = Flags(host="127.0.0.1", model_base_path=str(tmp_path), **ports)
        message = f"cannot listen on .* for {protocol}: Address already in use"
        with pytest.raises(StartError, match=message), running(flags):
            pass


def test_per_model_batching_parameters_apply_to_their_model(exported, tmp_path, tools):
    for name, text in (("own", "max_batch_size { value: 2 }"), ("none", None), ("broken", "x: 1")):
        shutil.copytree(exported, tmp_path / name)
        if text is not None:
            (tmp_path / name / "1" / "batching_params.pbtxt").write_text(text)
    path = tmp_path / "models.config"
    models = [model_text(name, tmp_path / name) for name in ("own", "none")]
    path.write_text("model_config_list {" + " ".join(models) + "}")
    changes = {"enable_batching": True, "enable_per_model_batching_parameters": True}
    with tools.serve("", model_config_file=str(path), **changes) as server:
        address = f"grpc://127.0.0.1:{server.grpc_port}"
        with connect(address, "none") as client:
            client.act(tools.observations(3))
        with connect(address, "own") as client:
            client.act(tools.observations(2))
            with pytest.raises(ServingError, match="larger than the maximum batch size 2"):
                client.act(tools.observations(3))
        both = model_text("own", tmp_path / "own") + model_text("b", tmp_path / "broken")
        with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
            stub = model_service_pb2_grpc.ModelServiceStub(channel)
            with pytest.raises(grpc.RpcError, match=r"batching_params\.pbtxt"):
                stub.HandleReloadConfigRequest(reload_request(both), timeout=20)


def test_requests_refused_while_draining_count_for_their_model(exported, tools):
    name = ":tensorflow:serving:request_count"
    with tools.serve(exported) as server, contextlib.ExitStack() as stack:
        addresses = [f"grpc://127.0.0.1:{server.grpc_port}", f"http://127.0.0.1:{server.rest_port}"]
        clients = [
            stack.enter_context(connect(address, "tiny", retries=0)) for address in addresses
        ]
        for client in clients:
            client.act(tools.observations(1))
        server._inference.is_draining = True
        for client in clients:
            with pytest.raises(ServingError, match="UNAVAILABLE"):
                client.act(tools.observations(1))
        counts = server._inference.metrics.collect()[name]["samples"]
    assert counts[f'{name}{{model_name="tiny",status="UNAVAILABLE"}}'] == 2
    assert not any('model_name=""' in sample for sample in counts)
