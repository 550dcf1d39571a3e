"""Implement the Open Inference Protocol, version 2, of KServe and Triton, for both transports."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping
from typing import Any

import numpy as np

import rrl_tf
from serving.errors import ServingError, invalid
from serving.server.inference import Inference, ModelChoice, num_bytes
from serving.server.open_inference_codec import (
    InferRequest,
    datatype_of,
    fill_message,
    read_message,
    read_only_input,
)
from serving.server.open_inference_messages import message_class
from serving.server.workers import in_thread

_MODEL = r"/v2/models/(?P<name>[^/]+)(?:/versions/(?P<version>[^/]+))?"
#: HTTP method -> pattern of the paths.
PATHS = {
    "POST": re.compile(_MODEL + r"/(?P<verb>infer)"),
    "GET": re.compile(rf"/v2/?|/v2/health/(?P<health>live|ready)|{_MODEL}(?P<ready>/ready)?"),
}


def read_version(digits: str) -> int:
    """Return the version number in a request; raise INVALID_ARGUMENT beyond 64 bits."""
    stripped = digits.lstrip("0") or "0"
    if len(stripped) > 19 or int(stripped) >= 1 << 63:
        raise invalid(f"Malformed request: version {stripped[:40]} is out of range")
    return int(stripped)


def model_choice(name: str, version: str = "") -> ModelChoice:
    """Return a model as (name, version or None, label or None).

    Args:
        name: The name of the model.
        version: The number of a version, a version label, or "" for the newest version.

    Raises:
        ServingError: INVALID_ARGUMENT if the name is "", or the number is beyond 64 bits.
    """
    if not name:
        raise invalid("the request must contain the name of a model")
    if version.isascii() and version.isdecimal():
        return name, read_version(version), None
    return name, None, version or None


def requested_model(match: re.Match) -> ModelChoice:
    """Return the model in a path that matches one of `PATHS`."""
    return model_choice(*_names(match))


def _names(match):
    return map(urllib.parse.unquote, (match["name"], match["version"] or ""))


def describe(inference: Inference, match: re.Match) -> dict[str, Any]:
    """Return the reply to a GET request whose path matches `PATHS`."""
    if match["name"] is None:
        if match["health"] == "ready" and not inference.is_ready:
            raise ServingError("UNAVAILABLE", "the server is not ready")
        return {match["health"]: True} if match["health"] else server_metadata()
    if match["ready"]:
        return model_ready(inference, *_names(match))
    return model_metadata(inference, requested_model(match))


def model_ready(inference: Inference, name: str, version: str) -> dict[str, Any]:
    """Return the name of a model, if its version is available; otherwise raise NOT_FOUND.

    Args:
        inference: The `Inference` of the server.
        name: The name of the model.
        version: As in `model_choice`.
    """
    try:
        model = model_choice(name, version)
        with inference.accepted(), inference.repository.use(*model) as servable:
            return {"name": servable.name, "ready": True}
    except ServingError as error:
        if error.code == "INVALID_ARGUMENT":  # for example, no version has the label
            raise ServingError("NOT_FOUND", error.message) from error
        raise


def server_metadata() -> dict[str, Any]:
    """Return the name, version and protocol extensions of the server."""
    extensions = ["binary_tensor_data", "parameters", "sequence", "sequence(string_id)"]
    return {"name": "rrl_tf", "version": rrl_tf.__version__, "extensions": extensions}


def model_metadata(inference: Inference, model: ModelChoice) -> dict[str, Any]:
    """Return the versions of a model, and the inputs and outputs of its default signature."""
    with inference.repository.use(*model) as servable:
        signature = servable.signature("")
        versions = inference.repository.models[servable.name].available
        return {
            "name": servable.name,
            "versions": list(map(str, versions)),
            "platform": "tensorflow_savedmodel",
            "inputs": list(map(_tensor_metadata, signature.inputs.values())),
            "outputs": list(map(_tensor_metadata, signature.outputs.values())),
        }


def _tensor_metadata(spec):
    shape = [None] if spec.shape is None else spec.shape
    return {
        "name": spec.name,
        "datatype": datatype_of(spec.numpy_dtype) or "",
        "shape": [-1 if size is None else size for size in shape],
    }


async def infer(
    inference: Inference, model: ModelChoice, request: InferRequest
) -> tuple[Any, Mapping[str, np.ndarray]]:
    """Run an inference request and return (servable, output name -> array)."""

    async def read(servable):
        inputs = request.inputs
        if request.only_input is not None:
            inputs = read_only_input(servable.signature(""), request.only_input)
        signature = servable.signature(request.signature_name, request.sequence is not None)
        for name in inputs.keys() & signature.inputs.keys():
            sent, declared = inputs[name].dtype, signature.inputs[name].numpy_dtype
            if sent != declared:
                datatype = datatype_of(declared) or declared
                raise invalid(f"input {name!r} is {datatype_of(sent)}; expected {datatype}")
        return request.signature_name, inputs, request.sequence

    servable, _, outputs = await inference.predict(model, read, list(request.outputs))
    return servable, outputs


class OpenInferenceService:
    """The methods of GRPCInferenceService, under their names in the protocol.

    Args:
        inference: The `Inference` that runs the requests.
    """

    def __init__(self, inference: Inference) -> None:
        self._inference = inference

    async def ServerLive(self, request: Any, size: int) -> Any:
        return message_class("ServerLiveResponse")(live=True)

    async def ServerReady(self, request: Any, size: int) -> Any:
        return message_class("ServerReadyResponse")(ready=self._inference.is_ready)

    async def ServerMetadata(self, request: Any, size: int) -> Any:
        return message_class("ServerMetadataResponse")(**server_metadata())

    async def ModelReady(self, request: Any, size: int) -> Any:
        try:
            model_ready(self._inference, request.name, request.version)
            return message_class("ModelReadyResponse")(ready=True)
        except ServingError as error:
            if error.code != "NOT_FOUND":
                raise
            return message_class("ModelReadyResponse")(ready=False)

    async def ModelMetadata(self, request: Any, size: int) -> Any:
        model = model_choice(request.name, request.version)
        return message_class("ModelMetadataResponse")(**model_metadata(self._inference, model))

    async def ModelInfer(self, request: Any, size: int) -> bytes:
        model = model_choice(request.model_name, request.model_version)
        with self._inference.repository.use(*model):  # before an unknown model costs any work
            asked = await in_thread(size, read_message, request)
        servable, outputs = await infer(self._inference, model, asked)
        values = sum(map(num_bytes, outputs.values()))
        return await in_thread(values, _infer_reply, servable, asked, outputs)


def _infer_reply(servable, asked, outputs):
    version = str(servable.version)
    response = message_class("ModelInferResponse")(
        model_name=servable.name, model_version=version, id=asked.id
    )
    fill_message(response, outputs, asked.is_raw)
    return response.SerializeToString()
