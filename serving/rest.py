"""The REST API of TensorFlow Serving."""

import asyncio
import json
import logging
import re
import urllib.parse

from aiohttp import web
from google.protobuf import json_format
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2

from serving import grpc_service, json_values
from serving.errors import HTTP_STATUS, ServingError, invalid

_log = logging.getLogger("serving")
_MODEL = r"/v1/models/(?P<name>[^/:?]+)(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:?]+))?"
_POST = re.compile(_MODEL + r":(?P<verb>predict)", re.ASCII)
_GET = re.compile(_MODEL + r"(?P<metadata>/metadata)?", re.ASCII)


class RestApi:
    """Answers HTTP requests, as the handler of an `aiohttp.web.Server`.

    Args:
        repository: `Repository` of the loaded models.
        scheduler: `Scheduler` that runs them.
        timeout: Seconds after which a request is given up.
        cors: Whether any web page may ask.
    """

    def __init__(self, repository, scheduler, timeout=30.0, cors=False):
        self._repository = repository
        self._scheduler = scheduler
        self._timeout = timeout
        self._cors = {"Access-Control-Allow-Origin": "*"} if cors else {}

    async def __call__(self, request):
        """Answers one request; every failure is a JSON body `{"error": ...}`."""
        try:
            body = await self._answer(request)
            status = 200
        except ServingError as error:
            status = HTTP_STATUS.get(error.code, 500)
            body = _error_body(error.message)
        except web.HTTPException as error:
            status, body = error.status, _error_body(error.text)
        except Exception as error:
            _log.exception("unexpected error in %s %s", request.method, request.raw_path)
            status, body = 500, _error_body(f"{type(error).__name__}: {error}")
        return web.Response(
            body=body, status=status, content_type="application/json", headers=self._cors
        )

    async def _answer(self, request):
        path = request.raw_path
        if not path.startswith("/v1/"):
            raise web.HTTPNotFound(text=f"Not Found: {path}")
        if request.method == "OPTIONS" and self._cors:
            return _preflight(request)
        match = {"POST": _POST, "GET": _GET}.get(request.method, _NOTHING).fullmatch(path)
        if match is None:
            raise invalid(f"Malformed request: {request.method} {path}")
        model = _asked_model(match)
        if request.method == "POST":
            return await self._post(request, model)
        return self._metadata(model) if match["metadata"] else self._status(model)

    async def _post(self, request, model):
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        try:
            async with asyncio.timeout(self._timeout):
                return await self._predict(await request.read(), model)
        except TimeoutError as error:
            raise ServingError(
                "DEADLINE_EXCEEDED", f"no answer within {self._timeout:g} seconds"
            ) from error

    async def _predict(self, body, model):
        document = json_values.parse(body)
        name = document.get("signature_name", "")
        if not isinstance(name, str):
            raise invalid(f"'signature_name' must be a string; received {name!r}")
        with self._repository.lease(*model) as servable:
            signature = servable.signature(name)
            inputs, rows = json_values.predict_inputs(document, signature.inputs)
            inputs = signature.check(inputs)
            names = signature.choose_outputs(())
            outputs = await self._scheduler.run(servable, signature, inputs, names)
        return json_values.predictions(outputs, rows)

    def _status(self, model):
        request = get_model_status_pb2.GetModelStatusRequest()
        _fill_spec(request.model_spec, *model)
        return _proto_body(grpc_service.status(self._repository, request))

    def _metadata(self, model):
        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        _fill_spec(request.model_spec, *model)
        response = grpc_service.metadata(self._repository, request)
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


def _proto_body(message):
    return json.dumps(_as_dict(message)).encode()


def _error_body(message):
    return json.dumps({"error": message}, ensure_ascii=False).encode("utf-8", "replace")
