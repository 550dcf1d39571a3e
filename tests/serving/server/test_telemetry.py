"""Traces with the SDK's in-memory exporter, and log lines, of both transports."""

import concurrent.futures
import http.client
import io
import itertools
import json
import logging
import sys
import threading
import time

import grpc
import pytest
import structure
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from serving.server import Flags, command
from serving.server import server as server_module
from serving.server.config_files import StartError

pytestmark = pytest.mark.tf_only

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CALLER = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
PARTS = {"decoding", "queue", "batch", "model", "encoding"}


@pytest.fixture(scope="module")
def exporter():
    """The spans of this process; OpenTelemetry can be set up only once."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry import trace
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def lines():
    """Function that returns the parsed JSON of the log lines."""
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(command.JsonLines())
    log = logging.getLogger("serving")
    log.addHandler(handler)
    level = log.level
    log.setLevel(logging.INFO)
    yield lambda: [json.loads(line) for line in handler.stream.getvalue().splitlines()]
    log.setLevel(level)
    log.removeHandler(handler)


@pytest.fixture(scope="module")
def traced(exporter, exported, tools):
    with tools.serve(exported, enable_tracing=True, enable_batching=True) as server:
        yield server


@pytest.fixture(scope="module")
def logging_server(exported, tools):
    with tools.serve(exported, log_format="json") as server:
        yield server


def ask_rest(server, body, headers=(), path="/v1/models/tiny:predict"):
    """Return (status, x-request-id) of the reply."""
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=20)
    connection.request("POST" if body else "GET", path, body, dict(headers))
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status, response.headers["x-request-id"]


def ask_grpc(server, array, headers=()):
    """Return (code, x-request-id) of the reply."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "tiny"
    request.inputs["observation"].CopyFrom(tf.make_tensor_proto(array))
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        _, call = stub.Predict.with_call(request, timeout=20, metadata=list(dict(headers).items()))
        return call.code().name, dict(call.trailing_metadata())["x-request-id"]


def wait_for(read):
    """Return the first result of `read` that is not empty; an error is recorded after its reply."""
    deadline = time.monotonic() + 20
    while not (found := read()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def document(array):
    return json.dumps({"instances": array.tolist()})


def spans_of(exporter):
    """Return (the span of the only request, name -> span of its parts)."""

    def is_request(span):
        return span.kind.name == "SERVER"

    wait_for(lambda: [*filter(is_request, exporter.get_finished_spans())])
    spans = exporter.get_finished_spans()
    exporter.clear()
    (request,) = filter(is_request, spans)
    parts = {span.name: span for span in spans if span is not request}
    assert len(parts) == len(spans) - 1
    return request, parts


@pytest.mark.parametrize("protocol", ["rest", "grpc"])
def test_a_request_is_a_span_in_the_trace_of_the_caller(traced, exporter, tools, protocol):
    exporter.clear()
    array = tools.observations(3)
    if protocol == "rest":
        assert ask_rest(traced, document(array), CALLER) == (200, TRACE)
        name = "POST /v1/models/*:predict"
        attributes = {"http.response.status_code": 200, "url.path": "/v1/models/tiny:predict"}
    else:
        assert ask_grpc(traced, array, CALLER) == ("OK", TRACE)
        name = "tensorflow.serving.PredictionService/Predict"
        attributes = {
            "rpc.system.name": "grpc",
            "rpc.method": name,
            "rpc.response.status_code": "OK",
        }
    request, parts = spans_of(exporter)
    assert request.name == name
    assert f"{request.context.trace_id:032x}" == TRACE
    assert f"{request.parent.span_id:016x}" == SPAN
    assert attributes.items() <= request.attributes.items()
    assert parts.keys() == PARTS
    assert all(part.parent.span_id == request.context.span_id for part in parts.values())
    assert parts["model"].attributes["model.name"] == "tiny"
    assert parts["batch"].attributes["batch.rows"] == 3
    check_times(request, parts)


def check_times(request, parts):
    """The parts follow each other without gaps, and the model runs within the batch."""
    order = [parts[name] for name in ("decoding", "queue", "batch", "encoding")]
    for before, after in itertools.pairwise(order):
        assert abs(before.end_time - after.start_time) < 1e3  # ns; the same time, rounded
    slack = 1e5  # ns between the reading of the two clocks
    assert request.start_time < order[0].start_time + slack
    assert order[-1].end_time < request.end_time + slack
    batch, model = parts["batch"], parts["model"]
    assert batch.start_time < model.start_time < model.end_time < batch.end_time


def test_the_model_spans_of_a_batch_link_to_its_requests(traced, exporter, tools):
    exporter.clear()
    bodies = [document(tools.observations(1, seed)) for seed in range(8)]
    for _ in range(5):  # until at least one batch has merged two requests
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert [status for status, _ in pool.map(lambda b: ask_rest(traced, b), bodies)] == [
                200
            ] * 8
        spans = exporter.get_finished_spans()
        models = [span for span in spans if span.name == "model"]
        largest = max(models, key=lambda span: span.attributes["batch.requests"])
        if len(largest.links) > 1:
            break
    requests = {span.context.span_id for span in spans if span.kind.name == "SERVER"}
    linked = {link.context.span_id for link in largest.links}
    assert len(linked) == largest.attributes["batch.requests"] > 1
    assert linked <= requests
    assert largest.parent.span_id in linked


def test_errors_of_the_server_are_errors_of_the_span(traced, exporter, monkeypatch, tools):
    exporter.clear()
    assert ask_rest(traced, "{")[0] == 400
    request, parts = spans_of(exporter)
    assert not parts and request.status.status_code.name == "UNSET"
    monkeypatch.setattr("serving.server.model.Servable.run", lambda *_: 1 / 0)
    assert ask_rest(traced, document(tools.observations(1)))[0] == 500
    request, parts = spans_of(exporter)
    assert request.attributes["http.response.status_code"] == 500
    assert request.status.status_code.name == "ERROR" and parts.keys() == PARTS
    with pytest.raises(grpc.RpcError):
        ask_grpc(traced, tools.observations(1))
    request, _ = spans_of(exporter)
    assert request.attributes["rpc.response.status_code"] == "INTERNAL"
    assert request.status.status_code.name == "ERROR"


def test_probes_and_requests_that_are_not_sampled_make_no_spans(traced, exporter, tools):
    exporter.clear()
    not_sampled = {"traceparent": CALLER["traceparent"][:-2] + "00"}
    assert ask_rest(traced, document(tools.observations(1)), not_sampled) == (200, TRACE)
    assert ask_rest(traced, None, path="/readyz") == (200, None)
    assert not exporter.get_finished_spans()


@pytest.mark.parametrize("protocol", ["rest", "grpc"])
@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"x-request-id": "mine-7", **CALLER}, "mine-7"),
        (CALLER, TRACE),
        ({"x-request-id": "two words"}, None),
        ({"traceparent": "00-nonsense"}, None),
    ],
)
def test_a_log_line_has_the_id_of_the_reply(
    logging_server, lines, tools, protocol, headers, expected
):
    array = tools.observations(1)
    if protocol == "rest":
        _, found = ask_rest(logging_server, document(array), headers)
        fields = {"http.request.method": "POST", "http.response.status_code": 200}
    else:
        _, found = ask_grpc(logging_server, array, headers)
        fields = {"rpc.system.name": "grpc", "rpc.response.status_code": "OK"}
    assert found == expected if expected else len(found) == 32
    (line,) = lines()
    assert line["request_id"] == found and line["level"] == "INFO"
    assert line["duration_ms"] > 0
    assert fields.items() <= line.items()


def test_an_error_of_a_model_is_logged_with_the_id(logging_server, lines, monkeypatch, tools):
    monkeypatch.setattr("serving.server.model.Servable.run", lambda *_: 1 / 0)
    body = document(tools.observations(1))
    assert ask_rest(logging_server, body, {"x-request-id": "bad"}) == (500, "bad")
    error, request = lines()
    assert error["level"] == "ERROR" and "ZeroDivisionError" in error["exception"]
    assert error["request_id"] == request["request_id"] == "bad"
    assert request["http.response.status_code"] == 500


def test_requests_of_the_open_inference_protocol_are_logged(logging_server, lines):
    path = "/v2/models/tiny"
    assert ask_rest(logging_server, None, {"x-request-id": "v2"}, path) == (200, "v2")
    assert ask_rest(logging_server, None, path="/v2/health/live") == (200, None)
    assert ask_rest(logging_server, None, {"x-request-id": "root"}, "/v2") == (200, "root")
    with grpc.insecure_channel(f"127.0.0.1:{logging_server.grpc_port}") as channel:
        for name in ("ServerLive", "ServerReady", "ServerMetadata"):
            channel.unary_unary(f"/inference.GRPCInferenceService/{name}")(b"", timeout=20)
    model, root, metadata = lines()
    assert model["message"] == "GET /v2/models/*" and model["request_id"] == "v2"
    assert root["message"] == "GET /v2" and root["request_id"] == "root"
    assert metadata["message"] == "inference.GRPCInferenceService/ServerMetadata"


@pytest.mark.parametrize("code", ["DEADLINE_EXCEEDED", "CANCELLED"])
def test_the_reason_for_the_end_of_a_call_is_logged(
    logging_server, lines, monkeypatch, tools, code
):
    asked, ended = threading.Event(), threading.Event()
    monkeypatch.setattr(
        "serving.server.model.Servable.run", lambda *_: asked.set() or ended.wait(20)
    )
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "tiny"
    request.inputs["observation"].CopyFrom(tf.make_tensor_proto(tools.observations(1)))
    with grpc.insecure_channel(f"127.0.0.1:{logging_server.grpc_port}") as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        # gRPC rounds this to 1.01 s for the server, so the client gives up first.
        call = stub.Predict.future(request, timeout=1.001 if code == "DEADLINE_EXCEEDED" else 20)
        assert asked.wait(20)
        if code == "CANCELLED":
            call.cancel()
        key = "rpc.response.status_code"
        (found,) = wait_for(lambda: [line[key] for line in lines() if key in line])
        ended.set()
    assert found == code


def test_failed_calls_return_the_id(logging_server, lines):
    with grpc.insecure_channel(f"127.0.0.1:{logging_server.grpc_port}") as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        with pytest.raises(grpc.RpcError) as error:
            stub.Predict(predict_pb2.PredictRequest(), timeout=20, metadata=[("x-request-id", "1")])
    assert dict(error.value.trailing_metadata())["x-request-id"] == "1"
    (line,) = wait_for(lines)
    assert line["rpc.response.status_code"] == "INVALID_ARGUMENT" and line["request_id"] == "1"


def test_without_the_flags_there_is_no_record(server, tools, monkeypatch):
    seen = []
    monkeypatch.setattr("serving.server.batching._note_parts", lambda *_: seen.append(1))
    assert ask_rest(server, document(tools.observations(1)), CALLER) == (200, None)
    assert not seen


def test_opentelemetry_is_imported_only_inside_functions():
    for module in structure.read_modules(("serving",)).values():
        assert not [name for name in module.imports(True) if name.startswith("opentelemetry")]


def test_missing_opentelemetry_is_named_with_the_pip_command(exported, tools, monkeypatch):
    for name in [*sys.modules, "opentelemetry"]:
        if name.split(".")[0] == "opentelemetry":
            monkeypatch.setitem(sys.modules, name, None)
    missing = pytest.raises(StartError, match=r"opentelemetry.*pip install '\.\[otel\]'")
    with missing, tools.serve(exported, enable_tracing=True):
        pass


@pytest.mark.parametrize(
    ("variable", "value"), [("OTEL_PROPAGATORS", "nope"), ("OTEL_BSP_SCHEDULE_DELAY", "-5")]
)
def test_a_wrong_variable_of_opentelemetry_is_one_line(monkeypatch, variable, value):
    pytest.importorskip("opentelemetry.sdk.trace")
    import opentelemetry.propagate

    monkeypatch.setenv(variable, value)
    # As in a process that has not set up OpenTelemetry.
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", object)
    monkeypatch.delitem(sys.modules, "opentelemetry.propagate")
    monkeypatch.delattr(opentelemetry, "propagate")
    with pytest.raises(StartError, match=r"^--enable_tracing: an OTEL_\* variable .*\)$"):
        server_module.Server(Flags(enable_tracing=True, preset="doorkey-5x5"))
