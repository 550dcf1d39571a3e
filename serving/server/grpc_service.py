"""Implement the gRPC services of TensorFlow Serving, and add those of the other protocol.

PredictionService and ModelService are TensorFlow Serving's; the handlers, with their limits and
errors, are also those of GRPCInferenceService in `open_inference`.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import logging
import sys
import time
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import (
    classification_pb2,
    inference_pb2,
    model_service_pb2,
    predict_pb2,
    prediction_service_pb2,
    regression_pb2,
)

from serving import tensors
from serving.errors import ServingError, invalid, too_large
from serving.server import open_inference_messages
from serving.server.admission import ByteBudget
from serving.server.examples import (
    CLASSIFY,
    REGRESS,
    count_examples,
    fill_result,
    serialize_examples,
)
from serving.server.inference import Inference, ModelChoice, fill_spec, num_bytes
from serving.server.model import DEFAULT_SIGNATURE
from serving.server.open_inference import OpenInferenceService
from serving.server.sequences import read_metadata
from serving.server.workers import LARGE, in_thread

_log = logging.getLogger("serving")
_MAX_DETAILS = 1024  # characters of an error message, as in tensorflow_model_server
# Maximum number of values in a tensor of an undeclared shape that repeats its last value. A few
# bytes can declare a shape of any size, and TensorFlow parses strings one at a time.
_MAX_FILLED = 1 << 20
_COUNTED = {"Predict", "Classify", "Regress", "MultiInference", "ModelInfer"}
# Limit for a request with tf.Examples. Protobuf copies each of them several times, and no other
# thread runs meanwhile.
_MAX_EXAMPLE_BYTES = 1 << 25
# Larger replies are not compressed, even if --grpc_channel_arguments enables compression, because
# gRPC compresses in the event loop's thread, at 14 MB/s.
_MAX_COMPRESSED = 1 << 14
#: Maximum number of fields in a message. No other thread runs while protobuf parses them.
MAX_FIELDS = 1 << 20
#: Maximum number of bytes of a name or another text in a message. The event loop handles texts.
MAX_TEXT = 1 << 16
_FIXED_SIZES = {1: 8, 5: 4}  # wire type -> bytes
_PACKED_PER_FIELD = 16  # this many packed varints take as long to parse as one field
# Types of packed fields that protobuf copies as a whole instead of parsing each value.
_BYTEWISE = {
    FieldDescriptor.CPPTYPE_DOUBLE,
    FieldDescriptor.CPPTYPE_FLOAT,
    FieldDescriptor.CPPTYPE_STRING,
}


def add_services(
    server: Any, inference: Inference, as_content: bool = False, max_bytes: int = sys.maxsize
) -> list[str]:
    """Add the services of both protocols to a `grpc.aio` server, and return their full names.

    Args:
        server: The server, not yet started.
        inference: The `Inference` that runs the requests.
        as_content: Whether replies fill `tensor_content` instead of the typed fields.
        max_bytes: The maximum number of bytes of all large requests in progress together.
    """
    budget = ByteBudget(max_bytes, code="RESOURCE_EXHAUSTED")
    services = Services(inference, as_content)
    handler = functools.partial(_handler, inference, budget)
    names = []
    for file, owner in (
        (prediction_service_pb2, services),
        (model_service_pb2, services),
        (open_inference_messages, OpenInferenceService(inference)),
    ):
        for service in file.DESCRIPTOR.services_by_name.values():
            handlers = {method.name: handler(owner, method) for method in service.methods}
            generic = grpc.method_handlers_generic_handler(service.full_name, handlers)
            server.add_generic_rpc_handlers((generic,))
            names.append(service.full_name)
    return names


def _handler(inference, budget, owner, described):
    """Return the RPC handler of the method of `owner` that a descriptor describes.

    The handler parses the request itself. If gRPC did so, it would parse large messages in the
    event loop, and it would answer an invalid message with UNKNOWN and log a traceback.
    """
    method = getattr(owner, described.name)
    request_class = message_factory.GetMessageClass(described.input_type)
    has_metadata = described.name == "Predict"
    names_model = "model_name" in described.input_type.fields_by_name

    async def rpc(data, context):
        start, request, response = time.perf_counter(), request_class(), b""
        code, details = "OK", ""
        try:
            async with _within_budget(budget, context, data):
                if len(data) <= LARGE:
                    request = request_class.FromString(data)
                else:
                    request = await asyncio.to_thread(_parse, request_class, data)
                with inference.accepted():
                    extra = [context.invocation_metadata()] if has_metadata else []
                    response = await method(request, len(data), *extra)
        except ServingError as error:
            code, details = error.code, error.message
        except DecodeError as error:
            code, details = "INVALID_ARGUMENT", str(error)
        except asyncio.CancelledError:
            left = context.time_remaining()
            # The client gives up a little earlier than the server would, because gRPC rounds the
            # time that it sends, by up to a hundredth.
            slack = 0.01 + 0.01 * (time.perf_counter() - start)
            code = "CANCELLED" if left is None or left > slack else "DEADLINE_EXCEEDED"
            context.set_code(grpc.StatusCode[code])  # for the interceptor
            raise
        except Exception as error:
            _log.exception("unexpected error in %s", described.name)
            code, details = "INTERNAL", f"{type(error).__name__}: {error}"
        finally:
            if described.name in _COUNTED:
                name = request.model_name if names_model else _model_name(request)
                inference.count_request(name, code, described.name, "GRPC", start)
        if code == "OK":
            if not isinstance(response, bytes):
                response = response.SerializeToString()
            if len(response) > _MAX_COMPRESSED:
                context.disable_next_message_compression()
            return response
        if len(details) > _MAX_DETAILS:
            details = details[:_MAX_DETAILS] + "...TRUNCATED"
        await context.abort(grpc.StatusCode[code], details)

    return grpc.unary_unary_rpc_method_handler(rpc)


def _within_budget(budget, context, data):
    """Charge the bytes of a large request to the budget until the `with` block ends."""
    return contextlib.nullcontext() if len(data) <= LARGE else _charged(budget, context, data)


@contextlib.asynccontextmanager
async def _charged(budget, context, data):
    peer = context.peer()  # ipv4:127.0.0.1:1234, or unix:
    async with budget.lease(peer.rpartition(":")[0] or peer) as lease:
        lease.complete()
        lease.grow(len(data))
        yield


def _model_name(request):
    """Return the name of the model in the ModelSpec of an inference request, or ""."""
    first = next(iter(getattr(request, "tasks", [request])), None)
    return first.model_spec.name if first else ""


class Services:
    """The methods of both services of TensorFlow Serving, under their names in the protocol.

    Args:
        inference: The `Inference` that runs the requests.
        as_content: Whether replies fill `tensor_content` instead of the typed fields.
    """

    def __init__(self, inference: Inference, as_content: bool) -> None:
        self._inference, self._as_content = inference, as_content

    async def Predict(self, request: Any, size: int, metadata: Any) -> bytes:
        parameters = read_metadata(metadata or ())

        async def read(servable):
            name = request.model_spec.signature_name
            signature = servable.signature(name, parameters is not None)
            arrays = await in_thread(size, self._arrays, request.inputs, signature)
            return name, arrays, parameters

        servable, signature, outputs = await self._inference.predict(
            model_choice(request), read, request.output_filter
        )
        values = sum(map(num_bytes, outputs.values()))
        return await in_thread(values, self._reply, servable, signature, outputs)

    def _arrays(self, protos, signature):
        signature.check_names(protos.keys())
        fits = {}
        for name, proto in protos.items():
            # The shape is checked before an array is created, because a few bytes in a request can
            # declare a shape of any size.
            spec, shape = signature.inputs[name], tuple(dim.size for dim in proto.tensor_shape.dim)
            fits[name] = spec.fits(shape)
            if signature.checks_shapes and not fits[name]:
                spec.check_shape(shape)
            if spec.has_rows and shape:
                self._inference.check_rows(shape[0])
        return {
            name: tensors.from_proto(proto)
            if fits[name]
            else tensors.from_proto(proto, _MAX_FILLED)
            for name, proto in protos.items()
        }

    def _reply(self, servable, signature, outputs):
        response = predict_pb2.PredictResponse()
        fill_spec(response.model_spec, servable, signature.name)
        for name, array in outputs.items():
            dtype = signature.outputs[name].dtype
            tensors.fill_proto(response.outputs[name], array, dtype, self._as_content)
        return response.SerializeToString()

    async def Classify(self, request: Any, size: int) -> Any:
        response = classification_pb2.ClassificationResponse()
        return await self._run_head("Classify", CLASSIFY, request, size, response)

    async def Regress(self, request: Any, size: int) -> Any:
        response = regression_pb2.RegressionResponse()
        return await self._run_head("Regress", REGRESS, request, size, response)

    async def _run_head(self, api, method, request, size, response):
        heads = [(method, request.model_spec.signature_name)]
        servable, ((head, arrays),) = await self._run_heads(api, request, heads, request, size)
        fill_spec(response.model_spec, servable, head.signature.name)
        await in_thread(_result_size(arrays), fill_result, response.result, arrays)
        return response

    async def MultiInference(self, request: Any, size: int) -> Any:
        self._inference.check_rows(len(request.tasks))
        if not request.tasks:
            raise invalid("Inference request needs at least one task")
        if len({task.model_spec.name for task in request.tasks}) > 1:
            raise invalid("All ModelSpecs of a MultiInferenceRequest must name the same model")
        heads = [
            (task.method_name, task.model_spec.signature_name or DEFAULT_SIGNATURE)
            for task in request.tasks
        ]
        ((name, times),) = collections.Counter(name for _, name in heads).most_common(1)
        if times > 1:
            raise invalid(f"Duplicate evaluation of signature: {name}")
        response = inference_pb2.MultiInferenceResponse()
        servable, results = await self._run_heads(
            "MultiInference", request, heads, request.tasks[0], size
        )
        for head, arrays in results:
            entry = response.results.add()
            fill_spec(entry.model_spec, servable, head.signature.name)
            classifies = head.method == CLASSIFY
            result = entry.classification_result if classifies else entry.regression_result
            await in_thread(_result_size(arrays), fill_result, result, arrays)
        return response

    async def _run_heads(self, api, request, heads, spec_owner, size):
        model = model_choice(spec_owner)
        count = count_examples(request.input)
        self._inference.check_rows(count)
        size += count * request.input.example_list_with_context.context.ByteSize()
        examples = await in_thread(size, serialize_examples, request.input)
        return await self._inference.run_heads(api, model, heads, examples)

    async def GetModelMetadata(self, request: Any, size: int) -> Any:
        if not request.metadata_field or set(request.metadata_field) != {"signature_def"}:
            received = list(request.metadata_field[:8])
            raise invalid(f'metadata_field must be ["signature_def"]; received {received}')
        return self._inference.metadata(model_choice(request))

    async def GetModelStatus(self, request: Any, size: int) -> Any:
        return await self._inference.status(model_choice(request))

    async def HandleReloadConfigRequest(self, request: Any, size: int) -> Any:
        return await self._inference.reload(request)


def model_choice(request: Any) -> ModelChoice:
    """Return the ModelSpec of a request as (name, version or None, label or None)."""
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    spec = request.model_spec
    choice = spec.WhichOneof("version_choice")
    version = spec.version.value if choice == "version" else None
    return spec.name, version, spec.version_label if choice == "version_label" else None


def _result_size(arrays):
    """Return a size for `in_thread`: each value of a result is a message, which counts 16 bytes."""
    return 16 * sum(array.size for array in arrays)


def _parse(message_class, data):
    if "input" in message_class.DESCRIPTOR.fields_by_name and len(data) > _MAX_EXAMPLE_BYTES:
        raise too_large(
            f"a request with Examples may have at most {_MAX_EXAMPLE_BYTES} bytes; "
            f"received {len(data)}"
        )
    if count_fields(data, message_class.DESCRIPTOR) > MAX_FIELDS:
        raise too_large(f"a message may have at most {MAX_FIELDS} fields; received more")
    return message_class.FromString(data)


def count_fields(data: bytes, descriptor: Any) -> int:
    """Return the number of fields in a message, including nested ones; stop beyond `MAX_FIELDS`.

    The time to parse a message grows with its number of fields rather than its bytes, and protobuf
    lets no other thread run while it parses. Other threads can run while this function counts.

    Args:
        data: The serialized message.
        descriptor: The descriptor of the message type.

    Raises:
        ServingError: RESOURCE_EXHAUSTED if a text is longer than `MAX_TEXT`.
    """
    count, parts = 0, [(0, len(data), descriptor)]
    with contextlib.suppress(IndexError):  # the message is damaged; protobuf will reject it
        while parts and count <= MAX_FIELDS:
            position, end, descriptor = parts.pop()
            while position < end and count <= MAX_FIELDS:
                tag, position = _read_varint(data, position)
                count += 1
                if tag & 7 == 0:
                    _, position = _read_varint(data, position)
                elif tag & 7 != 2:
                    position += _FIXED_SIZES.get(tag & 7, 0)
                else:
                    size, position = _read_varint(data, position)
                    field = descriptor.fields_by_number.get(tag >> 3)
                    if field is not None and field.message_type is not None:
                        parts.append((position, position + size, field.message_type))
                    elif field is not None and field.type == field.TYPE_STRING and size > MAX_TEXT:
                        raise too_large(
                            f"{field.name} may have at most {MAX_TEXT} bytes; received {size}"
                        )
                    elif field is not None and field.cpp_type not in _BYTEWISE:
                        count += size // _PACKED_PER_FIELD
                    position += size
    return count


def _read_varint(data, position):
    """Return (value of the varint at `position`, position after it)."""
    value = shift = 0
    while data[position] >= 128 and shift < 64:
        value |= (data[position] & 127) << shift
        position, shift = position + 1, shift + 7
    return value | data[position] << shift, position + 1
