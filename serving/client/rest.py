"""Write requests and read replies of the REST API, and send them over HTTP connections."""

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
from typing import Any

import numpy as np

from serving.client.address import ModelAddress
from serving.client.arrays import STRINGS, as_arrays, as_bytes
from serving.errors import HTTP_STATUS, ServingError

_MAX_PIECE = 1 << 20
_DTYPES = {
    "DT_FLOAT": "float32",
    "DT_DOUBLE": "float64",
    "DT_HALF": "float16",
    "DT_STRING": "object",
}


class RestMessages:
    """Build REST requests, which are (method, path, body), and read the JSON replies."""

    def __init__(self, address: ModelAddress) -> None:
        self.address = address
        self.tls = None
        if address.secure:
            self.tls = ssl.create_default_context(cafile=address.certificates)
            if address.identity is not None:
                self.tls.load_cert_chain(*address.identity)
        self._path = f"/v1/models/{urllib.parse.quote(address.model, safe='')}"
        if address.version is not None:
            self._path += f"/versions/{address.version}"
        if address.label is not None:
            self._path += f"/labels/{urllib.parse.quote(address.label, safe='')}"

    def predict_request(
        self,
        inputs: Mapping[str, Any],
        name: str,
        signature: Mapping[str, Any],
        parameters: Mapping[str, Any],
    ) -> tuple[str, str, bytes | None]:
        columns = {key: array.tolist() for key, array in as_arrays(inputs, signature).items()}
        document = {"signature_name": name, "inputs": columns, **parameters}
        body = json.dumps(document, default=_encode_base64, separators=(",", ":"))
        return "POST", f"{self._path}:predict", body.encode()

    def read_outputs(self, reply: Any, signature: Mapping[str, Any]) -> dict[str, np.ndarray]:
        specs = signature["outputs"]
        expected = f"the outputs {sorted(specs)} (if the served version has changed, try again)"
        with _internal_error_unless_read(expected, reply):
            outputs = reply["outputs"]
            if len(specs) == 1:
                outputs = {next(iter(specs)): outputs}
            return {name: _from_json(name, outputs[name], *spec) for name, spec in specs.items()}

    def metadata_request(self) -> tuple[str, str, bytes | None]:
        return "GET", f"{self._path}/metadata", None

    def read_signatures(self, reply: Any) -> dict[str, Any]:
        with _internal_error_unless_read("the signatures of a model", reply):
            return {
                name: {
                    side: {key: _read_spec(info) for key, info in definition[side].items()}
                    for side in ("inputs", "outputs")
                }
                for name, definition in reply["metadata"]["signature_def"]["signature_def"].items()
                if name != "__saved_model_init_op"
            }

    def read_reply(self, status: int, body: bytes) -> Any:
        """Return the JSON object of a response, or raise the `ServingError` for its HTTP status."""
        try:
            reply = json.loads(body, object_hook=_decode_base64)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):  # the reply comes from a proxy or another kind of server
            reply = {"error": body.decode("utf-8", "replace")}
        if status == 200:
            return reply
        # Several codes share a status. The first one in the table is the most likely.
        codes = {known: code for code, known in reversed(HTTP_STATUS.items())}
        code = codes.get(status, "INTERNAL" if status != 413 else "RESOURCE_EXHAUSTED")
        raise ServingError(code, reply.get("error") or f"HTTP status {status}")

    def unreachable(self, error: Any) -> ServingError:
        """Return the error of a connection that failed."""
        if type(error) is http.client.BadStatusLine:  # its message is the raw bytes of the reply
            error = "the reply is not HTTP; is this the gRPC port?"
        return ServingError("UNAVAILABLE", f"cannot reach {self.address.server.geturl()}: {error}")


def _read_spec(info):
    """Return (dtype, shape) of an input or output; the dtype is None if NumPy does not have it."""
    dtype = None
    with contextlib.suppress(TypeError):
        name = info["dtype"]
        dtype = np.dtype(_DTYPES.get(name) or name.removeprefix("DT_").lower())
    shape = info["tensor_shape"]
    sizes = [int(dim["size"]) for dim in shape.get("dim", ())]
    return dtype, None if shape["unknown_rank"] else sizes


@contextlib.contextmanager
def _internal_error_unless_read(expected: str, reply: Any) -> Iterator[None]:
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ServingError(
            "INTERNAL",
            f"expected a TensorFlow Serving reply with {expected}; received {reprlib.repr(reply)}",
        ) from error


def _from_json(name, value, dtype, shape):
    array = np.array(value, dtype)
    if dtype == STRINGS:
        array = as_bytes(name, array)
    # In JSON an empty batch is [], which does not contain the shape of a row.
    if array.size == 0 and shape and array.ndim < len(shape):
        array = array.reshape([0, *(max(size, 0) for size in shape[1:])])
    return array


def _encode_base64(raw):
    return {"b64": base64.b64encode(raw).decode()}


def _decode_base64(members):
    return base64.b64decode(members["b64"]) if members.keys() == {"b64"} else members


class RestTransport(RestMessages):
    """Send requests over `http.client` connections, which stay open for later requests.

    The coroutines block the calling thread and never await anything, so that `Client` can run them
    without an event loop.
    """

    def __init__(self, address: ModelAddress) -> None:
        super().__init__(address)
        self._idle: list[http.client.HTTPConnection] = []

    async def send(self, request: tuple[str, str, bytes | None], timeout: float) -> Any:
        deadline = time.monotonic() + timeout
        connections = [self._new_connection()]
        # IndexError: no connection is idle. A check beforehand would race with other threads.
        with contextlib.suppress(IndexError):
            connections.append(self._idle.pop())
        while True:
            connection = connections.pop()
            try:
                status, body = _exchange(connection, request, deadline)
                break
            except TimeoutError as error:
                raise ServingError("DEADLINE_EXCEEDED", f"no answer in {timeout:.3g} s") from error
            except (OSError, http.client.HTTPException) as error:
                # The server may have closed the idle connection: try the new one.
                if not connections:
                    raise self.unreachable(error) from error
        self._idle.append(connection)
        return self.read_reply(status, body)

    def _new_connection(self):
        place = self.address.server.hostname, self.address.server.port
        if self.tls is None:
            return http.client.HTTPConnection(*place)
        return http.client.HTTPSConnection(*place, context=self.tls)

    async def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


def _exchange(connection, request, deadline):
    """Send a request and return (status, body); close the connection if that fails."""
    try:
        connection.timeout = _seconds_left(deadline)
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        connection.request(*request, {"Content-Type": "application/json"})
        sock = connection.sock
        sock.settimeout(_seconds_left(deadline))
        with connection.getresponse() as response:
            return response.status, _read_body(response, sock, deadline)
    except (OSError, http.client.HTTPException):
        connection.close()
        raise


def _read_body(response, sock, deadline):
    """Return the body of a response, or raise TimeoutError after the deadline.

    The timeout of a socket limits each read alone, so it is set again before every read.
    """
    pieces = []
    while piece := response.read1(_MAX_PIECE):
        pieces.append(piece)
        sock.settimeout(_seconds_left(deadline))
    body = b"".join(pieces)
    if response.length:
        raise http.client.IncompleteRead(body, response.length)
    return body


def _seconds_left(deadline):
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class AsyncRestTransport(RestMessages):
    """Send requests over aiohttp connections, which stay open for later requests."""

    def __init__(self, address: ModelAddress) -> None:
        super().__init__(address)
        self._session: Any = None

    async def send(self, request: tuple[str, str, bytes | None], timeout: float) -> Any:
        import aiohttp  # imported here, because only this client needs it
        import yarl

        if self._session is None:  # created here, because a session belongs to the running loop
            connector = aiohttp.TCPConnector(limit=0, ssl=self.tls or True)
            self._session = aiohttp.ClientSession(connector=connector)
        method, path, body = request
        url = yarl.URL(self.address.server._replace(path=path).geturl(), encoded=True)
        try:
            async with self._session.request(
                method,
                url,
                data=body,
                # No compression, as in http.client; aiohttp accepts gzip by default.
                headers={"Content-Type": "application/json", "Accept-Encoding": "identity"},
                timeout=aiohttp.ClientTimeout(total=timeout),
            ) as response:
                return self.read_reply(response.status, await response.read())
        except TimeoutError as error:
            raise ServingError("DEADLINE_EXCEEDED", f"no answer in {timeout:.3g} s") from error
        except aiohttp.ClientError as error:
            raise self.unreachable(error) from error

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
