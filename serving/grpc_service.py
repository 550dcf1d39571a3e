"""The gRPC services of TensorFlow Serving."""

import functools
import logging
import time

import grpc
from google.protobuf import message_factory
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import (
    inference_pb2,
    model_service_pb2,
    predict_pb2,
    prediction_service_pb2,
)

from serving import tensors
from serving.errors import ServingError
from serving.inference import asked_model, fill_spec

_log = logging.getLogger("serving")
_LONGEST_DETAILS = 1024


def add_services(server, inference, as_content=False):
    """Adds PredictionService and ModelService to a `grpc.aio` server.

    Args:
        server: The server, not yet started.
        inference: `Inference` over the loaded models.
        as_content: Whether output tensors go out as `tensor_content`.
    """
    services = {
        PredictionService(inference, as_content): prediction_service_pb2.DESCRIPTOR,
        ModelService(inference): model_service_pb2.DESCRIPTOR,
    }
    for servicer, file in services.items():
        described = file.services_by_name[type(servicer).__name__]
        handlers = {
            method.name: _handler(inference, servicer, method) for method in described.methods
        }
        generic = grpc.method_handlers_generic_handler(described.full_name, handlers)
        server.add_generic_rpc_handlers((generic,))


def _handler(inference, servicer, described):
    """Returns the RPC handler of a described method.

    The request is parsed here and not by gRPC, which would answer bytes that are no message with
    UNKNOWN and a traceback in the log.
    """
    method = getattr(servicer, described.name)
    request_class = message_factory.GetMessageClass(described.input_type)

    async def rpc(data, context):
        try:
            if inference.draining:
                raise ServingError("UNAVAILABLE", "the server is shutting down")
            return await method(request_class.FromString(data))
        except ServingError as error:
            code, details = grpc.StatusCode[error.code], error.message
        except DecodeError as error:
            code, details = grpc.StatusCode.INVALID_ARGUMENT, str(error)
        except Exception as error:
            _log.exception("unexpected error in %s", described.name)
            code, details = grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}"
        if len(details) > _LONGEST_DETAILS:
            details = details[:_LONGEST_DETAILS] + "...TRUNCATED"
        await context.abort(code, details)

    response_class = message_factory.GetMessageClass(described.output_type)
    return grpc.unary_unary_rpc_method_handler(
        rpc, response_serializer=response_class.SerializeToString
    )


def _counted(api):
    """Counts the calls of an inference method, and times those that succeed."""

    def decorate(method):
        @functools.wraps(method)
        async def counted(self, request):
            metrics = self._inference.metrics
            name = self._inference.repository.known_name(_model_name(request))
            start = time.perf_counter()
            try:
                response = await method(self, request)
            except ServingError as error:
                metrics.request_count.labels(name, error.code).inc()
                raise
            metrics.request_count.labels(name, "OK").inc()
            latency = (time.perf_counter() - start) * 1e6
            metrics.request_latency.labels(name, api, "GRPC").observe(latency)
            return response

        return counted

    return decorate


def _model_name(request):
    if isinstance(request, inference_pb2.MultiInferenceRequest):
        return request.tasks[0].model_spec.name if request.tasks else ""
    return request.model_spec.name


class PredictionService:
    """Inference."""

    def __init__(self, inference, as_content=False):
        self._inference = inference
        self._as_content = as_content

    @_counted("Predict")
    async def Predict(self, request):
        def read(_):
            return {key: tensors.from_proto(proto) for key, proto in request.inputs.items()}

        servable, signature, outputs = await self._inference.predict(
            asked_model(request), request.model_spec.signature_name, read, request.output_filter
        )
        response = predict_pb2.PredictResponse()
        fill_spec(response.model_spec, servable, signature.name)
        for name, array in outputs.items():
            spec = signature.outputs[name]
            response.outputs[name].CopyFrom(tensors.to_proto(array, spec, self._as_content))
        return response

    @_counted("Classify")
    async def Classify(self, request):
        return await self._inference.classify(request)

    @_counted("Regress")
    async def Regress(self, request):
        return await self._inference.regress(request)

    @_counted("MultiInference")
    async def MultiInference(self, request):
        return await self._inference.multi(request)

    async def GetModelMetadata(self, request):
        return self._inference.metadata(request)


class ModelService:
    """What is served, and how it is."""

    def __init__(self, inference):
        self._inference = inference

    async def GetModelStatus(self, request):
        return await self._inference.status(request)

    async def HandleReloadConfigRequest(self, request):
        return await self._inference.reload(request)
