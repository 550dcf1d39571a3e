"""The gRPC services of TensorFlow Serving."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import (
    inference_pb2,
    model_service_pb2,
    predict_pb2,
    prediction_service_pb2,
)

from serving import packed_fields, tensors
from serving.errors import ServingError, TooLarge
from serving.server.admission import Budget
from serving.server.inference import LARGE, aside, asked_model, fill_spec

_log = logging.getLogger("serving")
_LONGEST_DETAILS = 1024
_COUNTED = {"Predict", "Classify", "Regress", "MultiInference"}
# Of a request with Examples: protobuf copies each again and again, while all others wait.
_MOST_EXAMPLE_BYTES = 1 << 25


def add_services(
    server: Any, inference: Any, as_content: bool = False, most_bytes: int = sys.maxsize
) -> None:
    """Adds PredictionService and ModelService to a `grpc.aio` server.

    Args:
        server: The server, not yet started.
        inference: `Inference` over the loaded models.
        as_content: Whether output tensors go out as `tensor_content`.
        most_bytes: Of all requests that are being answered.
    """
    budget = Budget(most_bytes, code="RESOURCE_EXHAUSTED")
    services = {
        PredictionService(inference, as_content): prediction_service_pb2.DESCRIPTOR,
        ModelService(inference): model_service_pb2.DESCRIPTOR,
    }
    for servicer, file in services.items():
        described = file.services_by_name[type(servicer).__name__]
        handlers = {
            method.name: _handler(inference, servicer, method, budget)
            for method in described.methods
        }
        generic = grpc.method_handlers_generic_handler(described.full_name, handlers)
        server.add_generic_rpc_handlers((generic,))


def _handler(inference, servicer, described, budget):
    """Returns the RPC handler of a described method.

    The request is parsed here and not by gRPC, which would answer bytes that are no message with
    UNKNOWN and a traceback in the log; and what is large is parsed in a thread.
    """
    method = getattr(servicer, described.name)
    request_class = message_factory.GetMessageClass(described.input_type)

    async def rpc(data, context):
        start, request, response = time.perf_counter(), request_class(), b""
        code, details = "OK", ""
        try:
            async with _held(inference, budget, context, data):
                request = await aside(len(data), _read, request_class, data)
                response = await method(request, len(data))
                if not isinstance(response, bytes):
                    response = response.SerializeToString()
        except ServingError as error:
            code, details = error.code, error.message
        except DecodeError as error:
            code, details = "INVALID_ARGUMENT", str(error)
        except asyncio.CancelledError:
            left = context.time_remaining()
            code = "CANCELLED" if left is None or left > 0 else "DEADLINE_EXCEEDED"
            raise
        except Exception as error:
            _log.exception("unexpected error in %s", described.name)
            code, details = "INTERNAL", f"{type(error).__name__}: {error}"
        finally:
            _count(inference, described.name, request, code, start)
        if code == "OK":
            return response
        if len(details) > _LONGEST_DETAILS:
            details = details[:_LONGEST_DETAILS] + "...TRUNCATED"
        await context.abort(grpc.StatusCode[code], details)

    return grpc.unary_unary_rpc_method_handler(rpc)


@contextlib.asynccontextmanager
async def _held(inference, budget, context, data):
    """Counts a request as begun, and what it holds if it is a large one."""
    with inference.accepted():
        if len(data) <= LARGE:
            yield
            return
        peer = context.peer()  # ipv4:127.0.0.1:1234, or unix:
        async with budget.share(peer.rpartition(":")[0] or peer) as share:
            share.complete()
            share.grow(len(data))
            yield


def _read(message_class, data):
    if "input" in message_class.DESCRIPTOR.fields_by_name and len(data) > _MOST_EXAMPLE_BYTES:
        raise TooLarge(
            f"a request with Examples may have {_MOST_EXAMPLE_BYTES} bytes; received {len(data)}"
        )
    if len(data) > LARGE:
        packed_fields.check_fields(data, message_class.DESCRIPTOR)
    return message_class.FromString(data)


def _count(inference, api, request, code, start):
    """Counts a call of an inference method, and times one that succeeded."""
    if api not in _COUNTED:
        return
    metrics = inference.metrics
    name = inference.repository.known_name(_model_name(request))
    metrics.request_count.labels(name, code).inc()
    if code == "OK":
        latency = (time.perf_counter() - start) * 1e6
        metrics.request_latency.labels(name, api, "GRPC").observe(latency)


def _model_name(request):
    if isinstance(request, inference_pb2.MultiInferenceRequest):
        return request.tasks[0].model_spec.name if request.tasks else ""
    return request.model_spec.name


class PredictionService:
    """Inference."""

    def __init__(self, inference: Any, as_content: bool = False) -> None:
        self._inference = inference
        self._as_content = as_content

    async def Predict(self, request: Any, size: int) -> bytes:
        async def read(servable):
            name = request.model_spec.signature_name
            signature = servable.signature(name)
            return name, await aside(size, self._arrays, request.inputs, signature)

        servable, signature, outputs = await self._inference.predict(
            asked_model(request), read, request.output_filter
        )
        values = sum(map(tensors.num_bytes, outputs.values()))
        return await aside(values, self._reply, servable, signature, outputs)

    def _arrays(self, protos, signature):
        signature.check_names(protos.keys())
        for name, proto in protos.items():
            # Before anything is made of it: a few bytes may ask for any shape.
            shape = [dim.size for dim in proto.tensor_shape.dim]
            signature.inputs[name].check_shape(shape)
            if signature.inputs[name].rows:
                self._inference.check_rows(shape[0])
        return {name: tensors.from_proto(proto) for name, proto in protos.items()}

    def _reply(self, servable, signature, outputs):
        response = predict_pb2.PredictResponse()
        fill_spec(response.model_spec, servable, signature.name)
        for name, array in outputs.items():
            spec = signature.outputs[name]
            tensors.fill_proto(response.outputs[name], array, spec, self._as_content)
        return response.SerializeToString()

    async def Classify(self, request: Any, size: int) -> Any:
        return await self._inference.classify(request, size)

    async def Regress(self, request: Any, size: int) -> Any:
        return await self._inference.regress(request, size)

    async def MultiInference(self, request: Any, size: int) -> Any:
        return await self._inference.multi(request, size)

    async def GetModelMetadata(self, request: Any, _: int) -> Any:
        return self._inference.metadata(request)


class ModelService:
    """What is served, and how it is."""

    def __init__(self, inference: Any) -> None:
        self._inference = inference

    async def GetModelStatus(self, request: Any, _: int) -> Any:
        return await self._inference.status(request)

    async def HandleReloadConfigRequest(self, request: Any, _: int) -> Any:
        return await self._inference.reload(request)
