"""One server of the models of TensorFlow Serving's tests, for all files with its test cases."""

import contextlib
import http.client
import json
import socket
import types

import grpc
import pytest
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

_MODELS = {  # name -> (directory below the base, version policy)
    "half_plus_two": ("half_plus_two", "specific { versions: 123 }"),
    "half_plus_two_2_versions": ("half_plus_two", "specific { versions: 123 versions: 124 }"),
    **{
        name: (name, "latest {}")
        for name in (
            "half_plus_three",
            "half_plus_two_tf2",
            "counter",
            "classifier",
            "regressor",
            "tensors",
            "times_six",
            "constants",
            "shapes",
        )
    },
}


@contextlib.contextmanager
def _serve(base, **changes):
    """Serve the models; yield the stubs of both services and a function for REST requests."""
    from serving.server import Flags, running

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        rest_port = probe.getsockname()[1]
    label = 'version_labels { key: "stable" value: 123 }'
    configs = "\n".join(
        f'config {{ name: "{name}" base_path: "{base / directory}" model_platform: "tensorflow" '
        f"model_version_policy {{ {policy} }} {label if name == 'half_plus_two' else ''} }}"
        for name, (directory, policy) in _MODELS.items()
    )
    path = base / "models.config"
    path.write_text(f"model_config_list {{ {configs} }}")
    flags = Flags(
        port=0,
        rest_api_port=rest_port,
        model_config_file=str(path),
        allow_version_labels_for_unavailable_models=True,
        **changes,
    )
    with (
        running(flags) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel,
        contextlib.closing(http.client.HTTPConnection("127.0.0.1", rest_port, timeout=20)) as rest,
    ):

        def ask(method, path, body=None):
            """Return (HTTP status, document of the reply)."""
            rest.request(method, path, json.dumps(body) if isinstance(body, dict) else body)
            response = rest.getresponse()
            assert response.headers["Content-Type"] == "application/json"
            return response.status, json.loads(response.read())

        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        models = model_service_pb2_grpc.ModelServiceStub(channel)
        yield types.SimpleNamespace(stub=stub, models=models, ask=ask, server=server)


@pytest.fixture(scope="session")
def published_models(tmp_path_factory):
    """A directory with the models of TensorFlow Serving's tests; read only."""
    from tensorflow_serving_models import write_models

    base = tmp_path_factory.mktemp("tensorflow_serving")
    write_models(base)
    return base


@pytest.fixture(scope="session")
def published(published_models):
    """A server of `published_models`, for tests that change nothing."""
    with _serve(published_models) as server:
        yield server


@pytest.fixture(scope="module")
def serve_published(published_models):
    """Function that serves `published_models` with other flags."""
    return lambda **changes: _serve(published_models, **changes)


@pytest.fixture(scope="session")
def refusal():
    """Function that returns (code, details) of a call that must fail."""

    def refusal(call, request):
        with pytest.raises(grpc.RpcError) as error:
            call(request, timeout=20)
        return error.value.code().name, error.value.details()

    return refusal
