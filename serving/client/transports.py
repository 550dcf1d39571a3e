"""How a client's questions travel: as JSON over HTTP, or as messages over gRPC.

What a request holds and how a reply is read is the same for a client in an event loop and one
without; `RestForm` and `GrpcForm` are that, the transports here carry it for `serving.client`.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import reprlib
import ssl
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from serving.errors import HTTP_STATUS, ServingError

_PIECE = 1 << 20
_DTYPES = {
    "DT_FLOAT": "float32",
    "DT_DOUBLE": "float64",
    "DT_HALF": "float16",
    "DT_STRING": "object",
}
_STRINGS = np.dtype(object)


def _dtype(name):
    """Returns the NumPy dtype of a DataType's name, None for those that NumPy has not."""
    with contextlib.suppress(TypeError):
        return np.dtype(_DTYPES.get(name) or name.removeprefix("DT_").lower())
    return None


def _arrays(inputs, known):
    """Returns name -> array of what is sent; strings are objects, and each of them bytes."""
    dtypes = {name: dtype for name, (dtype, _) in known["inputs"].items()}
    return {name: _array(name, value, dtypes.get(name)) for name, value in inputs.items()}


def _array(name, value, dtype):
    # Strings of NumPy's own lose the zero bytes that they end with.
    objects = dtype == _STRINGS and not isinstance(value, np.ndarray)
    array = np.asarray(value, object if objects else None)
    if array.dtype.kind not in "OSU":
        return array
    raw = np.empty(array.size, object)
    raw[:] = [_raw(name, entry) for entry in array.ravel().tolist()]
    return raw.reshape(array.shape)


def _raw(name, entry):
    if not isinstance(entry, str | bytes):
        raise ServingError(
            "INVALID_ARGUMENT",
            f"objects in input {name!r} must be strings or bytes; received {reprlib.repr(entry)}",
        )
    return entry.encode() if isinstance(entry, str) else entry


class RestForm:
    """Requests and replies as JSON, whoever carries them."""

    def __init__(
        self,
        host: str,
        port: int,
        secure: bool,
        certificates: str | None,
        identity: tuple[str, str] | None,
    ) -> None:
        self.host, self.port, self.tls = host, port, None
        if secure:
            self.tls = ssl.create_default_context(cafile=certificates)
            if identity is not None:
                self.tls.load_cert_chain(*identity)

    def address_model(self, model: str, version: int | None, label: str | None) -> None:
        self.path = f"/v1/models/{urllib.parse.quote(model, safe='')}"
        if version is not None:
            self.path += f"/versions/{version}"
        if label is not None:
            self.path += f"/labels/{urllib.parse.quote(label, safe='')}"

    def predict_request(
        self, inputs: Mapping[str, Any], signature: str, known: Mapping[str, Any]
    ) -> Any:
        columns = {name: _jsonable(array) for name, array in _arrays(inputs, known).items()}
        body = json.dumps({"signature_name": signature, "inputs": columns}).encode()
        return "POST", f"{self.path}:predict", body

    def read_outputs(self, reply: Any, known: Any) -> dict[str, np.ndarray]:
        specs = known["outputs"]
        told = f"the outputs {sorted(specs)}; after a change of versions, ask again"
        with _expected(told, reply):
            found = reply["outputs"]
            if len(specs) == 1:
                found = {next(iter(specs)): found}
            return {name: _from_json(found[name], *spec) for name, spec in specs.items()}

    def metadata_request(self) -> Any:
        return "GET", f"{self.path}/metadata", None

    def read_signatures(self, reply: Any) -> dict[str, Any]:
        def spec(info):
            shape = info["tensor_shape"]
            sizes = [int(dim["size"]) for dim in shape.get("dim", ())]
            return _dtype(info["dtype"]), None if shape["unknown_rank"] else sizes

        with _expected("the signatures of a model", reply):
            return {
                name: {
                    side: {key: spec(info) for key, info in definition[side].items()}
                    for side in ("inputs", "outputs")
                }
                for name, definition in reply["metadata"]["signature_def"]["signature_def"].items()
                if name != "__saved_model_init_op"
            }

    def read_reply(self, status: int, text: bytes) -> Any:
        try:
            reply = json.loads(text)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):  # of whatever stands before the server, or in its place
            reply = {"error": text.decode("utf-8", "replace")}
        if status == 200:
            return reply
        # Several codes share a status; the first in the table is the most likely.
        codes = {known: code for code, known in reversed(HTTP_STATUS.items())}
        code = codes.get(status, "INTERNAL" if status != 413 else "RESOURCE_EXHAUSTED")
        raise ServingError(code, reply.get("error") or f"HTTP status {status}")

    def unreachable(self, error: Any) -> ServingError:
        scheme = "https" if self.tls else "http"
        if type(error) is http.client.BadStatusLine:  # its text is whatever bytes came
            error = "what answers there does not speak HTTP; is it the port of gRPC?"
        return ServingError(
            "UNAVAILABLE", f"cannot reach {scheme}://{self.host}:{self.port}: {error}"
        )


@contextlib.contextmanager
def _expected(what: str, reply: Any) -> Iterator[None]:
    """Raises INTERNAL if a reply cannot be read, whatever is wrong with it."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ServingError(
            "INTERNAL",
            f"expected a reply of TensorFlow Serving with {what}; received {reprlib.repr(reply)}",
        ) from error


class RestTransport(RestForm):
    """Connections of the standard library, kept open."""

    def __init__(self, *address: Any) -> None:
        super().__init__(*address)
        self._idle: list[Any] = []

    def predict(
        self, inputs: dict[str, Any], signature: Any, known: Any, timeout: float
    ) -> dict[str, np.ndarray]:
        method, path, body = self.predict_request(inputs, signature, known)
        return self.read_outputs(self._ask(method, path, body, timeout), known)

    def signatures(self, timeout: float) -> dict[str, Any]:
        method, path, body = self.metadata_request()
        return self.read_signatures(self._ask(method, path, body, timeout))

    def _connection(self):
        if self.tls is None:
            return http.client.HTTPConnection(self.host, self.port)
        return http.client.HTTPSConnection(self.host, self.port, context=self.tls)

    def _ask(self, method, path, body, timeout):
        deadline = time.monotonic() + timeout
        connection, reused = self._connection(), False
        with contextlib.suppress(IndexError):  # another thread may take the last one meanwhile
            connection, reused = self._idle.pop(), True
        while True:
            try:
                status, text = _exchange(connection, method, path, body, deadline)
                break
            except TimeoutError as error:
                raise ServingError("DEADLINE_EXCEEDED", f"no answer in {timeout:.3g} s") from error
            except (OSError, http.client.HTTPException) as error:
                if not reused:
                    raise self.unreachable(error) from error
            # The server closed it while it was idle, and the other idle ones perhaps as well.
            connection, reused = self._connection(), False
        self._idle.append(connection)
        return self.read_reply(status, text)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


def _exchange(connection, method, path, body, deadline):
    """Returns (status, body) of an answer; closes the connection if there is none."""
    try:
        connection.timeout = _left(deadline)
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        connection.request(method, path, body, {"Content-Type": "application/json"})
        sock = connection.sock
        sock.settimeout(_left(deadline))
        with connection.getresponse() as response:
            return response.status, _read_all(response, sock, deadline)
    except (OSError, http.client.HTTPException):
        connection.close()
        raise


def _left(deadline):
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _read_all(response, sock, deadline):
    """Returns the body of a response; a socket's own timeout begins again with each byte."""
    body, size = bytearray(), response.length
    while size is None or len(body) < size:
        part = response.read1(_PIECE if size is None else size - len(body))
        if not part:
            break
        body += part
        sock.settimeout(_left(deadline))
    if size is not None and len(body) < size:
        raise http.client.IncompleteRead(bytes(body), size - len(body))
    return bytes(body)


def _jsonable(array):
    return _encoded(array.tolist()) if array.dtype == _STRINGS else array.tolist()


def _encoded(value):
    if isinstance(value, list):
        return [_encoded(entry) for entry in value]
    return {"b64": base64.b64encode(value).decode()}


def _from_json(value, dtype, shape):
    array = np.array(_decoded(value) if dtype == _STRINGS else value, dtype)
    # An empty batch is just [], whatever the shape below it.
    if array.size == 0 and shape and array.ndim < len(shape):
        array = array.reshape([0, *(max(size, 0) for size in shape[1:])])
    return array


def _decoded(value):
    if isinstance(value, list):
        return [_decoded(entry) for entry in value]
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else value.encode()


class GrpcForm:
    """Requests and replies as messages, whoever carries them."""

    def __init__(
        self,
        host: str,
        port: int,
        secure: bool,
        certificates: str | None,
        identity: tuple[str, str] | None,
    ) -> None:
        # Imported here: the stubs bring TensorFlow, which the REST client does without.
        from rrl_tf._tf_logging import load_tensorflow

        load_tensorflow()
        import grpc
        from tensorflow_serving.apis import (
            get_model_metadata_pb2,
            predict_pb2,
            prediction_service_pb2_grpc,
        )

        from serving import tensors

        self._grpc, self._tensors = grpc, tensors
        self._predict_pb2, self._metadata_pb2 = predict_pb2, get_model_metadata_pb2
        self._make_stub = prediction_service_pb2_grpc.PredictionServiceStub
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._credentials = None
        if secure:
            files = (certificates, *(reversed(identity) if identity else (None, None)))
            read = [Path(file).read_bytes() if file else None for file in files]
            self._credentials = grpc.ssl_channel_credentials(*read)

    def channel(self, module: Any) -> Any:
        """Returns a channel of `grpc` or of `grpc.aio`."""
        sizes = ("grpc.max_receive_message_length", "grpc.max_send_message_length")
        options: list[tuple[str, Any]] = [(name, -1) for name in sizes]
        # Where a name stands for several servers, each gets its turn.
        options.append(("grpc.lb_policy_name", "round_robin"))
        if self._credentials is None:
            return module.insecure_channel(self._address, options=options)
        return module.secure_channel(self._address, self._credentials, options=options)

    def address_model(self, model: str, version: int | None, label: str | None) -> None:
        self._model, self._version, self._label = model, version, label

    def predict_request(
        self, inputs: Mapping[str, Any], signature: str, known: Mapping[str, Any]
    ) -> Any:
        request = self._predict_pb2.PredictRequest()
        self._fill_spec(request.model_spec)
        request.model_spec.signature_name = signature
        for name, array in _arrays(inputs, known).items():
            request.inputs[name].CopyFrom(self._tensors.pack(array))
        return request

    def read_outputs(self, reply: Any) -> dict[str, np.ndarray]:
        return {name: self._tensors.from_proto(proto) for name, proto in reply.outputs.items()}

    def metadata_request(self) -> Any:
        request = self._metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        self._fill_spec(request.model_spec)
        return request

    def read_signatures(self, reply: Any) -> dict[str, Any]:
        definitions = self._metadata_pb2.SignatureDefMap()
        reply.metadata["signature_def"].Unpack(definitions)

        def specs(infos):
            read = {key: self._tensors.TensorSpec.from_info(key, infos[key]) for key in infos}
            return {
                key: (spec.numpy_dtype, spec.shape and [-1 if s is None else s for s in spec.shape])
                for key, spec in read.items()
            }

        return {
            name: {"inputs": specs(definition.inputs), "outputs": specs(definition.outputs)}
            for name, definition in definitions.signature_def.items()
            if name != "__saved_model_init_op"
        }

    def _fill_spec(self, spec):
        spec.name = self._model
        if self._version is not None:
            spec.version.value = self._version
        elif self._label is not None:
            spec.version_label = self._label

    def error(self, error: Any) -> ServingError:
        """Returns the ServingError of a RpcError."""
        code = error.code().name
        # Nobody cancels here: it is what a server that is just stopping answers.
        return ServingError("UNAVAILABLE" if code == "CANCELLED" else code, error.details())


class GrpcTransport(GrpcForm):
    """One channel, for all threads."""

    def __init__(self, *address: Any) -> None:
        super().__init__(*address)
        self._channel = self.channel(self._grpc)
        self._stub = self._make_stub(self._channel)

    def predict(
        self, inputs: dict[str, Any], signature: Any, known: Any, timeout: float
    ) -> dict[str, np.ndarray]:
        request = self.predict_request(inputs, signature, known)
        return self.read_outputs(self._call(self._stub.Predict, request, timeout))

    def signatures(self, timeout: float) -> dict[str, Any]:
        request = self.metadata_request()
        return self.read_signatures(self._call(self._stub.GetModelMetadata, request, timeout))

    def _call(self, method, request, timeout):
        try:
            return method(request, timeout=timeout)
        except self._grpc.RpcError as error:
            raise self.error(error) from error

    def close(self) -> None:
        self._channel.close()
