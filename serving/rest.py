"""The REST API of TensorFlow Serving."""

import asyncio
import json
import logging
import re
import time
import urllib.parse

from aiohttp import web
from google.protobuf import json_format
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    regression_pb2,
)

from serving import json_values, tf_examples
from serving.errors import HTTP_STATUS, ServingError, invalid

_log = logging.getLogger("serving")
_MODEL = r"/v1/models/(?P<name>[^/:?]+)(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:?]+))?"
_POST = re.compile(_MODEL + r":(?P<verb>predict|classify|regress)", re.ASCII)
_GET = re.compile(_MODEL + r"(?P<metadata>/metadata)?", re.ASCII)


class RestApi:
    """Answers HTTP requests, as the handler of an `aiohttp.web.Server`.

    Beside the protocol's paths, `/readyz` says whether every model answers: 200 or 503.

    Args:
        inference: `Inference` over the loaded models.
        timeout: Seconds after which a request is given up.
        cors: Whether any web page may ask.
        monitoring_path: Where Prometheus reads metrics, if it may.
    """

    def __init__(self, inference, timeout=30.0, cors=False, monitoring_path=None):
        self._inference = inference
        self._timeout = timeout
        self._cors = {"Access-Control-Allow-Origin": "*"} if cors else {}
        self._monitoring_path = monitoring_path

    async def __call__(self, request):
        """Answers one request; every failure is a JSON body `{"error": ...}`."""
        path = request.raw_path
        if path == self._monitoring_path and request.method == "GET":
            page = await self._inference.metrics_page()
            return web.Response(body=page, content_type="text/plain")
        if path == "/readyz" and request.method == "GET":
            return self._readiness()
        start = time.perf_counter()
        match = {"POST": _POST, "GET": _GET}.get(request.method, _NOTHING).fullmatch(path)
        code = "OK"
        try:
            body, status = await self._answer(request, match), 200
        except ServingError as error:
            code, status = error.code, HTTP_STATUS.get(error.code, 500)
            body = _error_body(error.message)
        except UnicodeEncodeError as error:  # half a surrogate pair, in a path or a JSON string
            code, status, body = "INVALID_ARGUMENT", 400, _error_body(f"not Unicode: {error}")
        except web.HTTPException as error:
            code, status, body = "INVALID_ARGUMENT", error.status, _error_body(error.text)
        except Exception as error:
            _log.exception("unexpected error in %s %s", request.method, path)
            code, status, body = "INTERNAL", 500, _error_body(f"{type(error).__name__}: {error}")
        if path.startswith("/v1/"):
            self._count(match, code, time.perf_counter() - start)
        return web.Response(
            body=body, status=status, content_type="application/json", headers=self._cors
        )

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
        path = request.raw_path
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
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        try:
            async with asyncio.timeout(self._timeout):
                document = json_values.parse(await request.read())
                name = document.get("signature_name", "")
                if not isinstance(name, str):
                    raise invalid(f"'signature_name' must be a string; received {name!r}")
                if verb == "predict":
                    return await self._predict(document, name, model)
                return await self._examples(document, name, model, verb)
        except TimeoutError as error:
            raise ServingError(
                "DEADLINE_EXCEEDED", f"no answer within {self._timeout:g} seconds"
            ) from error

    async def _predict(self, document, signature_name, model):
        form = {}

        def read(signature):
            inputs, form["rows"] = json_values.predict_inputs(document, signature.inputs)
            return inputs

        _, _, outputs = await self._inference.predict(model, signature_name, read)
        return json_values.predictions(outputs, form["rows"])

    async def _examples(self, document, signature_name, model, verb):
        message, ask = {
            "classify": (classification_pb2.ClassificationRequest, self._inference.classify),
            "regress": (regression_pb2.RegressionRequest, self._inference.regress),
        }[verb]
        request = message(input=tf_examples.input_from_json(document))
        _fill_spec(request.model_spec, *model)
        request.model_spec.signature_name = signature_name
        return tf_examples.result_to_json((await ask(request)).result)

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


_NOTHING = re.compile(r"(?!)")


def _asked_model(match):
    """Returns (name, version or None, label or None) of a matched path."""
    version = match["version"] and int(match["version"])
    if version is not None and version >= 1 << 63:
        raise invalid(f"Malformed request: version {version} is out of range")
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
