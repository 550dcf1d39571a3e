"""Implement the HTTP server and the REST APIs of TensorFlow Serving and of `open_inference`."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import gzip
import json
import logging
import math
import re
import sys
import time
import urllib.parse
from typing import Any

import aiohttp
from aiohttp import web
from google.protobuf import json_format
from tensorflow_serving.apis import get_model_metadata_pb2

from serving.errors import ServingError, invalid, too_large
from serving.server import config_files, json_codec, open_inference, open_inference_codec
from serving.server.admission import REQUEST_TIMEOUT, SMALL, ByteBudget
from serving.server.examples import CLASSIFY, REGRESS
from serving.server.flags import Flags
from serving.server.inference import Inference, num_bytes
from serving.server.workers import Workers, in_thread

_log = logging.getLogger("serving")
_MODEL = r"/v1/models/(?P<name>[^/:?]+)(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:?]+))?"
_PATHS = {
    "POST": re.compile(_MODEL + r":(?P<verb>predict|classify|regress)", re.ASCII),
    "GET": re.compile(_MODEL + r"(?P<metadata>/metadata)?", re.ASCII),
}
_ORIGIN = re.compile(r"https?://[^/?]*", re.IGNORECASE)  # start of a request target with a host
_LARGE_REPLY = 1 << 12  # more numbers than this take longer to write than a call to a worker
_BYTES_PER_NUMBER = 16  # this many bytes of a string take as long to write as one number
_HEADER_LENGTH = "Inference-Header-Content-Length"
_COMPRESSED = 1 << 10  # bytes; a smaller reply fits into one packet anyway
_COMPRESSION_COST = 4  # a byte takes this many times as long to compress as to copy
_READ_SIZE = 1 << 14
_IDLE_SECONDS = 600.0
_LINGER_SECONDS = 1.0  # to receive the rest of a refused body before the connection closes
_HALF_CLOSED_SECONDS = 0.1  # after a client's end of stream, to begin the reply to its last request
_FULL = json.dumps({"error": "too many connections"})
# The headers of tensorflow_model_server with --rest_api_enable_cors_support. Before a page of
# another origin may send JSON, the browser requires all three in the reply to an OPTIONS request.
_CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "POST, GET",
    "Access-Control-Allow-Headers": "Content-Type",
}


class _Connection(asyncio.BufferedProtocol):
    """A wrapper of aiohttp's protocol that enforces time limits on a connection.

    The client must send the headers of a request in time, and read the reply in time. After a
    request, it may close its half of the connection, as `nc -N` does.
    """

    def __init__(self, server: RestServer, protocol: Any) -> None:
        self._server, self._protocol = server, protocol
        self._loop = asyncio.get_running_loop()
        self._header_timer: asyncio.TimerHandle | None = None
        self._reply_timer: asyncio.TimerHandle | None = None
        #: Whether a whole request has arrived and its reply is not complete.
        self.is_answering = False
        #: The time since when the connection is idle; None while a request is in progress.
        self.idle_since: float | None = self._loop.time()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if self._server.admit(self):
            self._protocol.connection_made(transport)
            self._expect_headers()
        else:
            transport.write(self._server.refusal)
            transport.close()

    def _expect_headers(self):
        abort = self.transport.abort
        self._header_timer = self._loop.call_later(self._server.patience, abort)

    def begin_request(self, is_whole: bool) -> None:
        """Record that the headers of a request have arrived, or a whole one without a body."""
        self.idle_since, self.is_answering = None, is_whole
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def end_request(self) -> None:
        """Record that the reply to a request is complete."""
        self.idle_since, self.is_answering = self._loop.time(), False

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._server.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.idle_since is not None and self._header_timer is None:
            self._expect_headers()
        self._protocol.data_received(bytes(self._server.buffer[:nbytes]))

    def eof_received(self) -> bool:
        self._protocol.close()  # aiohttp first finishes the request in progress
        self._loop.call_later(_HALF_CLOSED_SECONDS, self._close_unless_answering)
        return True

    def _close_unless_answering(self):
        if not self.is_answering:
            self.transport.close()

    def pause_writing(self) -> None:
        self._reply_timer = self._loop.call_later(self._server.patience, self.transport.abort)
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._reply_timer is not None:
            self._reply_timer.cancel()
        self._protocol.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        for timer in (self._header_timer, self._reply_timer):
            if timer is not None:
                timer.cancel()
        if self._server.connections.pop(self.transport, None) is not None:
            self._protocol.connection_lost(error)


@dataclasses.dataclass(frozen=True)
class _Body:
    data: bytearray
    encoding: str
    peer: str
    header_length: str | None


class RestServer:
    """An HTTP server with the REST APIs of both protocols, metrics and a readiness probe.

    The path `/readyz` has status 200 if every model has an available version, and 503 otherwise.

    Args:
        inference: The `Inference` that runs the requests.
        flags: The server's flags.
        page: The handler of all other paths, a `serving.playground.page.Page`; `None` for none.
        telemetry: The `Telemetry` that traces and logs requests; `None` for none.
    """

    def __init__(
        self, inference: Inference, flags: Flags, page: Any = None, telemetry: Any = None
    ) -> None:
        self._inference, self._flags = inference, flags
        self._page, self._telemetry = page, telemetry
        self._timeout = flags.rest_api_timeout_in_ms / 1000 or None  # None is no limit
        self.patience = flags.rest_api_header_timeout_in_ms / 1000
        self._headers = _CORS if flags.rest_api_enable_cors_support else {}
        self.refusal = _refusal(self._headers)
        monitoring = flags.monitoring_config_file
        self._metrics_path = config_files.read_monitoring(monitoring) if monitoring else None
        self._max_bytes = flags.rest_api_max_request_bytes or flags.max_request_bytes or sys.maxsize
        self._budget = ByteBudget(4 * self._max_bytes, self.patience)
        self._workers = Workers(flags.rest_api_num_readers)
        self._listener: asyncio.Server | None = None
        self.connections: dict[Any, _Connection] = {}
        # All connections share this buffer, because each read is passed on immediately.
        self.buffer = memoryview(bytearray(_READ_SIZE))

    async def start(self, max_connections: int, reuse_port: bool) -> None:
        """Open the port; raise OSError if that fails.

        Args:
            max_connections: The maximum number of connections that the file descriptors allow.
            reuse_port: Whether several processes share the port.
        """
        self._max_connections = min(self._flags.rest_api_max_connections, max_connections)
        self._http = web.Server(
            self._handle_request,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=_IDLE_SECONDS,
            lingering_time=_LINGER_SECONDS,
        )
        self._listener = await asyncio.get_running_loop().create_server(
            lambda: _Connection(self, self._http()),
            self._flags.host,
            self._flags.rest_api_port,
            reuse_port=reuse_port,
        )

    async def stop(self, seconds: float) -> None:
        """Close the port, and close the connections after at most `seconds` seconds."""
        if self._listener is not None:
            self._listener.close()
            await self._http.shutdown(seconds)
        self._workers.close()

    def admit(self, connection: _Connection) -> bool:
        """Return whether a new connection is allowed.

        If there are too many, the connection that has been idle for the longest time is closed.
        """
        if len(self.connections) >= self._max_connections:
            idle = [each for each in self.connections.values() if each.idle_since is not None]
            if not idle:
                _log.debug("refused a REST connection: %d are open", self._max_connections)
                return False
            oldest = min(idle, key=lambda each: each.idle_since or 0.0)
            oldest.idle_since = None
            oldest.transport.close()
        self.connections[connection.transport] = connection
        return True

    async def _handle_request(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the response to a request; aiohttp calls this."""
        connection = self.connections.get(request.transport)
        if connection is None:  # the client is gone
            return web.Response(status=499)
        connection.begin_request(is_whole=not request.body_exists)
        try:
            if self._telemetry is not None:
                return await self._telemetry.http(request, self._route)
            return await self._route(request)
        finally:
            connection.end_request()

    async def _route(self, request):
        path = request.raw_path
        if origin := _ORIGIN.match(path):
            path = path[origin.end() :]
        path = path.partition("?")[0]
        if path == self._metrics_path and request.method == "GET":
            page, headers = await _encoded(request, await self._inference.metrics_page())
            return web.Response(body=page, content_type="text/plain", headers=headers)
        if path == "/readyz" and request.method in ("GET", "HEAD"):
            ready = self._inference.is_ready
            status = 200 if ready else 503
            return web.json_response({"ready": ready}, status=status, headers=self._headers)
        if self._page is not None:
            found = await self._page.answer(request.method, path, request.headers)
            if found is not None:
                return found
        return await self._api_response(request, path)

    async def _api_response(self, request, path):
        """Return the response to an API request, which may be an error, and count the request."""
        paths = _PATHS if path.startswith("/v1/") else open_inference.PATHS
        start, known = time.perf_counter(), paths.get(request.method)
        match = known and known.fullmatch(path)
        status, code, message = 200, "OK", ""
        headers: dict[str, str] = {}
        try:
            body, headers = await self._call_api(request, path, match)
        except ServingError as error:
            status, code, message = error.http_status, error.code, error.message
        except (ConnectionError, aiohttp.ClientPayloadError, web.RequestPayloadError) as error:
            status, code, message = 400, "CANCELLED", f"the body is incomplete: {error}"
        except Exception as error:
            _log.exception("unexpected error in %s %s", request.method, request.raw_path)
            status, code, message = 500, "INTERNAL", f"{type(error).__name__}: {error}"
        if code != "OK":
            body = json.dumps({"error": message}, ensure_ascii=False).encode("utf-8", "replace")
        groups = match.groupdict() if match else {}
        if paths is _PATHS or "verb" in groups:
            name, verb = urllib.parse.unquote(groups.get("name", "")), groups.get("verb")
            self._inference.count_request(name, code, verb, "REST", start)
        response = web.Response(
            body=body,
            status=status,
            headers={"Content-Type": "application/json"} | self._headers | headers,
        )
        # A client that has not received "100 Continue" may send its next request instead of the
        # body, and the server could not distinguish them.
        is_bodiless = _expects_continue(request) and not request.content.is_eof() and code != "OK"
        if self._inference.is_draining or status == REQUEST_TIMEOUT or is_bodiless:
            response.force_close()
        return response

    async def _call_api(self, request, path, match):
        """Return (body, headers) of the reply to an API request, or raise ServingError."""
        is_open = not path.startswith("/v1/")
        is_preflight = request.method == "OPTIONS" and self._headers
        if is_open and match is None and not (is_preflight and path.startswith("/v2/")):
            raise ServingError("NOT_FOUND", f"Not Found: {path}")
        if is_preflight:
            if not request.headers.get("Origin", "").startswith(("http://", "https://")):
                raise invalid("OPTIONS needs an Origin that starts with http:// or https://")
            return b"", {}
        if match is None:
            raise invalid(f"Malformed request: {request.method} {path}")
        if is_open and request.method == "GET":
            document = open_inference.describe(self._inference, match)
            return await _encoded(request, json.dumps(document).encode())
        model = open_inference.requested_model(match) if is_open else _requested_model(match)
        if request.method == "GET":
            read = self._metadata if match["metadata"] else self._status
            return await _encoded(request, await read(model))
        method = {"predict": self._predict, "infer": self._infer}.get(match["verb"], self._examples)
        try:
            with self._inference.accepted():
                self._check_headers(request, model)
                async with asyncio.timeout(self._timeout), self._body(request) as body:
                    reply, headers = await method(body, model, match["verb"])
                    reply, more = await _encoded(request, reply)
                    return reply, headers | more
        except TimeoutError as error:
            raise ServingError(
                "DEADLINE_EXCEEDED", f"no answer within {self._timeout:g} seconds"
            ) from error

    def _check_headers(self, request, model):
        """Raise ServingError if the path and the headers show that the request must fail."""
        with self._inference.repository.use(*model):
            json_codec.check_encoding(_encoding(request))
        self._check_size(request.content_length or 0)

    @contextlib.asynccontextmanager
    async def _body(self, request):
        """Yield the body of a request; its bytes occupy the budget until the `with` block ends."""
        if _expects_continue(request):
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        data, peer = bytearray(), request.remote or ""
        async with self._budget.lease(peer) as lease:
            while chunk := await request.content.readany():
                data += chunk
                self._check_size(len(data))
                lease.grow(len(chunk))
            lease.complete()
            if connection := self.connections.get(request.transport):
                connection.is_answering = True
            yield _Body(data, _encoding(request), peer, request.headers.get(_HEADER_LENGTH))

    def _check_size(self, size):
        if size > self._max_bytes:
            raise too_large(f"the body is larger than {self._max_bytes} bytes")

    async def _read(self, function, body, *arguments):
        """Parse a body in this process if it is small, otherwise in a worker process."""
        arguments = (body.encoding, self._max_bytes, *arguments)
        if not body.encoding and len(body.data) <= SMALL:
            return function(bytes(body.data), *arguments)
        return await self._workers.call(function, bytes(body.data), *arguments, peer=body.peer)

    async def _write(self, function, arrays, *arguments, peer, num_raw=0):
        """Write a reply in this process if it is small, otherwise in a worker process.

        If only its `num_raw` raw bytes are large, it is written in another thread.
        """
        # An array without values can still be large in JSON: [[], [], ...].
        numbers = sum(math.prod(max(size, 1) for size in array.shape) for array in arrays)
        size = max(numbers, sum(map(num_bytes, arrays)) // _BYTES_PER_NUMBER)
        if size <= _LARGE_REPLY:
            return await in_thread(num_raw, function, *arguments)
        return await self._workers.call(function, *arguments, peer=peer)

    async def _predict(self, body, model, _):
        rows = False

        async def read(servable):
            nonlocal rows
            name, inputs, rows, parameters = await self._read(
                json_codec.read_predict, body, servable.json_dtypes, servable.sequence_dtypes
            )
            signature = servable.signature(name, parameters is not None)
            if rows and signature.checks_shapes:
                _check_has_rows(signature)
            specs = signature.inputs
            arrays = {key: specs[key].from_json(array) for key, array in inputs.items()}
            return name, arrays, parameters

        _, _, outputs = await self._inference.predict(model, read)
        write, arrays = json_codec.predict_reply, outputs.values()
        return await self._write(write, arrays, outputs, rows, peer=body.peer), {}

    async def _infer(self, body, model, _):
        request = await self._read(open_inference_codec.read_body, body, body.header_length)
        servable, outputs = await open_inference.infer(self._inference, model, request)
        raw = {name for name in outputs if request.outputs.get(name, request.is_raw)}
        written = servable.name, str(servable.version), request.id, outputs, raw
        # Strings take time to write in either form.
        slow = [array for name, array in outputs.items() if name not in raw or array.dtype == "O"]
        reply, length = await self._write(
            open_inference_codec.write_body,
            slow,
            *written,
            peer=body.peer,
            num_raw=sum(outputs[name].nbytes for name in raw),
        )
        headers = {_HEADER_LENGTH: str(length), "Content-Type": "application/octet-stream"}
        return reply, {} if length is None else headers

    async def _examples(self, body, model, verb):
        api, method, write = {
            "classify": ("Classify", CLASSIFY, json_codec.classify_reply),
            "regress": ("Regress", REGRESS, json_codec.regress_reply),
        }[verb]
        name, examples = await self._read(json_codec.read_examples, body)
        heads = [(method, name)]
        _, ((_, arrays),) = await self._inference.run_heads(api, model, heads, examples)
        return await self._write(write, arrays, *arrays, peer=body.peer), {}

    async def _status(self, model):
        return json.dumps(_to_dict(await self._inference.status(model))).encode()

    async def _metadata(self, model):
        response = self._inference.metadata(model)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        response.metadata["signature_def"].Unpack(signatures)
        spec = response.model_spec
        version = str(spec.version.value)
        document = {
            "model_spec": {"name": spec.name, "signature_name": "", "version": version},
            "metadata": {"signature_def": _to_dict(signatures)},
        }
        return json.dumps(document).encode()


_to_dict = functools.partial(
    json_format.MessageToDict,
    preserving_proto_field_name=True,
    always_print_fields_with_no_presence=True,
)


async def _encoded(request, body):
    """Return (body, headers) of a reply, compressed with gzip if it is large and the client can."""
    if len(body) < _COMPRESSED:
        return body, {}
    headers = {"Vary": "Accept-Encoding"}
    if accepts_gzip(request.headers.get("Accept-Encoding", "")):
        # zlib lets other threads run meanwhile. For numbers in JSON, level 1 is six times as fast
        # as level 6, whose result is only a tenth smaller.
        compress = functools.partial(gzip.compress, compresslevel=1, mtime=0)
        body = await in_thread(_COMPRESSION_COST * len(body), compress, body)
        headers["Content-Encoding"] = "gzip"
    return body, headers


def accepts_gzip(header: str) -> bool:
    """Return whether an Accept-Encoding header allows gzip."""
    weights = {}
    for part in header.lower().split(","):
        name, _, weight = part.replace(" ", "").partition(";")
        weights[name] = weight
    found = weights.get("gzip", weights.get("x-gzip", weights.get("*")))
    return found is not None and not re.fullmatch(r"q=0(\.0*)?", found)


def _refusal(headers):
    """Return the reply to a connection beyond the maximum number."""
    headers = {"Content-Type": "application/json", "Connection": "close"} | headers
    headers["Content-Length"] = str(len(_FULL))
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    return "".join(("HTTP/1.1 503 Service Unavailable\r\n", *lines, "\r\n", _FULL)).encode()


def _encoding(request):
    return request.headers.get("Content-Encoding", "").lower()


def _expects_continue(request):
    return request.headers.get("Expect", "").lower() == "100-continue"


def _check_has_rows(signature):
    """Raise INVALID_ARGUMENT for a request with 'instances' if an input has no batch dimension."""
    for name, spec in signature.inputs.items():
        if spec.shape == ():
            raise invalid(
                f"input {name!r} of {signature.name!r} has no batch dimension; "
                "send 'inputs' instead of 'instances'"
            )


def _requested_model(match):
    """Return the model in a matched path as (name, version or None, label or None)."""
    version = open_inference.read_version(match["version"]) if match["version"] else None
    label = match["label"] and urllib.parse.unquote(match["label"])
    return urllib.parse.unquote(match["name"]), version, label
