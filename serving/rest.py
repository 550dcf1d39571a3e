"""The REST API of TensorFlow Serving."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import math
import pickle
import re
import time
import urllib.parse
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web
from google.protobuf import json_format
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    regression_pb2,
)

from serving import bodies, json_replies, tf_examples
from serving.errors import ServingError, TooLarge, TooSlow, invalid
from serving.inference import aside
from serving.tensors import num_bytes
from serving.turns import SMALL, Budget

if TYPE_CHECKING:
    from serving.inference import Inference
    from serving.playground.page import Page
    from serving.workers import Workers

_log = logging.getLogger("serving")
_MODEL = r"/v1/models/(?P<name>[^/:?]+)(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:?]+))?"
_POST = re.compile(_MODEL + r":(?P<verb>predict|classify|regress)", re.ASCII)
_ORIGIN = re.compile(r"https?://[^/?]*", re.IGNORECASE)  # of a URI that names the host as well
_LARGE_REPLY = 1 << 12  # values, which take longer than the hand-over to a worker
_BYTES_OF_A_NUMBER = 16  # of a text, which take as long to write
_GET = re.compile(_MODEL + r"(?P<metadata>/metadata)?", re.ASCII)


@dataclasses.dataclass(frozen=True)
class _Body:
    data: bytearray
    encoding: str
    peer: str


class RestApi:
    """Answers HTTP requests, as the handler of an `aiohttp.web.Server`.

    Beside the protocol's paths, `/readyz` says whether every model answers: 200 or 503.

    Args:
        inference: `Inference` over the loaded models.
        workers: `Workers` that read what is large, and write it.
        timeout: Seconds after which a request is given up.
        cors: Whether any web page may ask.
        monitoring_path: Where Prometheus reads metrics, if it may.
        most_bytes: Of a body, unpacked; four times as much may wait to be read.
        patience: Seconds in which more of a body must come.
        page: `Page` that answers what is no path of the protocol, if there is one.
    """

    def __init__(
        self,
        inference: Inference,
        workers: Workers,
        timeout: float = 30.0,
        cors: bool = False,
        monitoring_path: str | None = None,
        most_bytes: int = 1 << 24,
        patience: float = 10.0,
        page: Page | None = None,
    ) -> None:
        self._inference, self._workers, self._page = inference, workers, page
        self._timeout = timeout
        self._cors = {"Access-Control-Allow-Origin": "*"} if cors else {}
        self._monitoring_path = monitoring_path
        self._most_bytes, self._budget = most_bytes, Budget(4 * most_bytes, patience)

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        """Answers one request; every failure is a JSON body `{"error": ...}`."""
        path = _path(request)
        if path == self._monitoring_path and request.method == "GET":
            page = await self._inference.metrics_page()
            return web.Response(body=page, content_type="text/plain")
        if path == "/readyz" and request.method in ("GET", "HEAD"):
            return self._readiness()
        if self._page is not None:
            found = await self._page.answer(request.method, path, request.headers)
            if found is not None:
                return found
        start = time.perf_counter()
        match = {"POST": _POST, "GET": _GET}.get(request.method, _NOTHING).fullmatch(path)
        body, status, code = await self._outcome(request, match)
        if path.startswith("/v1/"):
            self._count(match, code, time.perf_counter() - start)
        response = web.Response(
            body=body, status=status, content_type="application/json", headers=self._cors
        )
        if self._inference.draining or status == TooSlow.http_status:
            response.force_close()
        return response

    async def _outcome(self, request, match):
        """Returns (body, HTTP status, canonical code)."""
        try:
            return await self._answer(request, match), 200, "OK"
        except ServingError as error:
            return _error_body(error.message), error.http_status, error.code
        except UnicodeEncodeError as error:  # half a surrogate pair, in a path or a JSON string
            return _error_body(f"not Unicode: {error}"), 400, "INVALID_ARGUMENT"
        except web.HTTPException as error:
            return _error_body(error.text), error.status, "INVALID_ARGUMENT"
        except (ConnectionError, aiohttp.ClientPayloadError, web.RequestPayloadError) as error:
            return _error_body(f"the body did not come: {error}"), 400, "CANCELLED"
        except Exception as error:
            _log.exception("unexpected error in %s %s", request.method, request.raw_path)
            return _error_body(f"{type(error).__name__}: {error}"), 500, "INTERNAL"

    def _count(self, match, code, seconds):
        metrics = self._inference.metrics
        name = match and urllib.parse.unquote(match["name"])
        name = self._inference.repository.known_name(name)
        metrics.request_count.labels(name, code).inc()
        if code == "OK" and match and match.re is _POST:
            metrics.request_latency.labels(name, match["verb"], "REST").observe(seconds * 1e6)

    def _readiness(self):
        ready = self._inference.repository.ready and not self._inference.draining
        body = json.dumps({"ready": ready}).encode()
        status = 200 if ready else 503
        return web.Response(body=body, status=status, content_type="application/json")

    async def _answer(self, request, match):
        path = _path(request)
        if not path.startswith("/v1/"):
            raise web.HTTPNotFound(text=f"Not Found: {path}")
        if request.method == "OPTIONS" and self._cors:
            return _preflight(request)
        if match is None:
            raise invalid(f"Malformed request: {request.method} {path}")
        model = _asked_model(match)
        if request.method == "POST":
            return await self._post(request, match["verb"], model)
        return self._metadata(model) if match["metadata"] else await self._status(model)

    async def _post(self, request, verb, model):
        answer = self._predict if verb == "predict" else self._examples
        try:
            with self._inference.accepted():
                async with asyncio.timeout(self._timeout), self._body(request) as body:
                    return await answer(body, model, verb)
        except TimeoutError as error:
            raise ServingError(
                "DEADLINE_EXCEEDED", f"no answer within {self._timeout:g} seconds"
            ) from error

    @contextlib.asynccontextmanager
    async def _body(self, request):
        """Gives a `_Body`, and counts its bytes as held meanwhile."""
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        limit = self._most_bytes
        if (request.content_length or 0) > limit:
            raise TooLarge(f"the body is larger than {limit} bytes")
        data, peer = bytearray(), request.remote or ""
        async with self._budget.share(peer) as share:
            while chunk := await request.content.readany():
                data += chunk
                if len(data) > limit:
                    raise TooLarge(f"the body is larger than {limit} bytes")
                share.grow(len(chunk))
            share.complete()
            yield _Body(data, request.headers.get("Content-Encoding", "").lower(), peer)

    async def _read(self, function, body, *arguments):
        """Reads a body here, or in a worker if that may take long."""
        arguments = (body.encoding, self._most_bytes, *arguments)
        if not body.encoding and len(body.data) <= SMALL:
            return function(bytes(body.data), *arguments)
        whole = pickle.PickleBuffer(body.data)
        return await self._workers.call(function, whole, *arguments, peer=body.peer)

    async def _predict(self, body, model, _):
        form = {}

        async def read(servable):
            most = servable.most_values(self._inference.limits.max_request_rows)
            name, inputs, form["rows"] = await self._read(
                bodies.read_predict, body, most, servable.json_dtypes
            )
            signature = servable.signature(name)
            if form["rows"]:
                _check_in_rows(signature)
            specs = signature.inputs
            return name, {key: specs[key].from_json(array) for key, array in inputs.items()}

        _, _, outputs = await self._inference.predict(model, read)
        if _weight(outputs) <= _LARGE_REPLY:
            return json_replies.predictions(outputs, form["rows"])
        write = json_replies.predictions
        return await self._workers.call(write, outputs, form["rows"], peer=body.peer)

    async def _examples(self, body, model, verb):
        message, ask = {
            "classify": (classification_pb2.ClassificationRequest, self._inference.classify),
            "regress": (regression_pb2.RegressionRequest, self._inference.regress),
        }[verb]
        request = message()
        name, examples = await self._read(bodies.read_examples, body, None)
        request.input.ParseFromString(examples)
        _fill_spec(request.model_spec, *model)
        request.model_spec.signature_name = name
        result = (await ask(request, len(examples))).result
        return await aside(result.ByteSize(), tf_examples.result_to_json, result)

    async def _status(self, model):
        request = get_model_status_pb2.GetModelStatusRequest()
        _fill_spec(request.model_spec, *model)
        return json.dumps(_as_dict(await self._inference.status(request))).encode()

    def _metadata(self, model):
        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        _fill_spec(request.model_spec, *model)
        response = self._inference.metadata(request)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        response.metadata["signature_def"].Unpack(signatures)
        spec = response.model_spec
        version = str(spec.version.value)
        document = {
            "model_spec": {"name": spec.name, "signature_name": "", "version": version},
            "metadata": {"signature_def": _as_dict(signatures)},
        }
        return json.dumps(document).encode()


def _path(request):
    """Returns the path that a request asks for; as in TensorFlow Serving, without its query."""
    path = request.raw_path
    origin = _ORIGIN.match(path)
    return (path[origin.end() :] if origin else path).partition("?")[0]


def _check_in_rows(signature):
    """Refuses 'instances' where they would make rows of what is one value."""
    for name, spec in signature.inputs.items():
        if spec.shape == ():
            raise invalid(
                f"input {name!r} of {signature.name!r} has no batch dimension; "
                "send 'inputs' instead of 'instances'"
            )


def _weight(outputs):
    """Returns about how many numbers would take as long to write."""
    # The lists of an empty array are written too: [[], [], ...].
    count = sum(math.prod(max(size, 1) for size in array.shape) for array in outputs.values())
    return max(count, sum(map(num_bytes, outputs.values())) // _BYTES_OF_A_NUMBER)


_NOTHING = re.compile(r"(?!)")


def _asked_model(match):
    """Returns (name, version or None, label or None) of a matched path."""
    version = None
    if match["version"]:
        digits = match["version"].lstrip("0") or "0"
        if len(digits) > 19 or int(digits) >= 1 << 63:
            raise invalid(f"Malformed request: version {digits[:40]} is out of range")
        version = int(digits)
    label = match["label"] and urllib.parse.unquote(match["label"])
    return urllib.parse.unquote(match["name"]), version, label


def _fill_spec(spec, name, version, label):
    spec.name = name
    if version is not None:
        spec.version.value = version
    elif label is not None:
        spec.version_label = label


def _preflight(request):
    if not request.headers.get("Origin", "").startswith(("http://", "https://")):
        raise invalid("OPTIONS needs an Origin that starts with http:// or https://")
    return b""


def _as_dict(message):
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def _error_body(message):
    return json.dumps({"error": message}, ensure_ascii=False).encode("utf-8", "replace")
