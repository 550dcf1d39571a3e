"""The gRPC services of TensorFlow Serving."""

import functools
import logging

import grpc
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from serving import tensors
from serving.errors import ServingError, invalid
from serving.model import DEFAULT_SIGNATURE

_log = logging.getLogger("serving")
_LONGEST_DETAILS = 1024


def add_services(server, repository, scheduler, as_content=False):
    """Adds PredictionService and ModelService to a `grpc.aio` server.

    Args:
        server: The server, not yet started.
        repository: `Repository` of the loaded models.
        scheduler: `Scheduler` that runs them.
        as_content: Whether output tensors go out as `tensor_content`.
    """
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        PredictionService(repository, scheduler, as_content), server
    )
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(ModelService(repository), server)


def _answering(method):
    """Turns ServingError into the RPC's status, and anything unforeseen into INTERNAL."""

    @functools.wraps(method)
    async def rpc(self, request, context):
        try:
            return await method(self, request)
        except ServingError as error:
            code, details = grpc.StatusCode[error.code], error.message
        except Exception as error:
            _log.exception("unexpected error in %s", method.__name__)
            code, details = grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}"
        if len(details) > _LONGEST_DETAILS:
            details = details[:_LONGEST_DETAILS] + "...TRUNCATED"
        await context.abort(code, details)

    return rpc


def asked_model(request):
    """Returns (name, version or None, label or None) of a request's ModelSpec."""
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    spec = request.model_spec
    choice = spec.WhichOneof("version_choice")
    version = spec.version.value if choice == "version" else None
    return spec.name, version, spec.version_label if choice == "version_label" else None


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Inference."""

    def __init__(self, repository, scheduler, as_content=False):
        self._repository = repository
        self._scheduler = scheduler
        self._as_content = as_content

    @_answering
    async def Predict(self, request):
        with self._repository.lease(*asked_model(request)) as servable:
            signature = servable.signature(request.model_spec.signature_name)
            names = signature.choose_outputs(request.output_filter)
            inputs = {key: tensors.from_proto(proto) for key, proto in request.inputs.items()}
            inputs = signature.check(inputs)
            outputs = await self._scheduler.run(servable, signature, inputs, names)
            response = predict_pb2.PredictResponse()
            _fill_spec(response.model_spec, servable, signature.name)
            for name, array in outputs.items():
                spec = signature.outputs[name]
                response.outputs[name].CopyFrom(tensors.to_proto(array, spec, self._as_content))
            return response

    @_answering
    async def GetModelMetadata(self, request):
        return metadata(self._repository, request)


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """What is served, and how it is."""

    def __init__(self, repository):
        self._repository = repository

    @_answering
    async def GetModelStatus(self, request):
        return status(self._repository, request)


def _fill_spec(spec, servable, signature_name):
    spec.name = servable.name
    spec.version.value = servable.version
    spec.signature_name = signature_name or DEFAULT_SIGNATURE


def metadata(repository, request):
    """Answers a GetModelMetadataRequest, which REST makes too."""
    with repository.lease(*asked_model(request)) as servable:
        unknown = [field for field in request.metadata_field if field != "signature_def"]
        if unknown or not request.metadata_field:
            raise invalid(
                f'metadata_field must be ["signature_def"]; received {list(request.metadata_field)}'
            )
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.name = servable.name
        response.model_spec.version.value = servable.version
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, definition in servable.signature_defs.items():
            signatures.signature_def[name].CopyFrom(definition)
        response.metadata["signature_def"].Pack(signatures)
        return response


def status(repository, request):
    """Answers a GetModelStatusRequest, which REST makes too."""
    name, version, _ = asked_model(request)  # like the stock server, a label is not looked at
    response = get_model_status_pb2.GetModelStatusResponse()
    for seen in repository.status(name, version):
        entry = response.model_version_status.add(version=seen.number, state=int(seen.state))
        entry.status.SetInParent()  # JSON shows it for OK too
        if seen.error is not None:
            entry.status.error_code = grpc.StatusCode[seen.error.code].value[0]
            entry.status.error_message = seen.error.message
    return response
