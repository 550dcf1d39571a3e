"""Define the gRPC messages and the service of the Open Inference Protocol, version 2.

The messages of TensorFlow Serving come from the package tensorflow-serving-api, but the server
needs no package that has these. The descriptors are in a private pool, because in the default pool
they would collide with those of a client in the same process, such as tritonclient.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto
_PACKAGE = "inference"
_METHODS = (
    *("ServerLive", "ServerReady", "ServerMetadata"),
    *("ModelReady", "ModelMetadata", "ModelInfer"),
)
# Message -> its fields, in the order of their numbers. A message in another one has a dotted name.
_MESSAGES = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "bool live",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "bool ready",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "string name; string version; repeated string extensions",
    "ModelReadyRequest": "string name; string version",
    "ModelReadyResponse": "bool ready",
    "ModelMetadataRequest": "string name; string version",
    "ModelMetadataResponse": (
        "string name; repeated string versions; string platform; "
        "repeated ModelMetadataResponse.TensorMetadata inputs; "
        "repeated ModelMetadataResponse.TensorMetadata outputs; map string properties"
    ),
    "ModelMetadataResponse.TensorMetadata": "string name; string datatype; repeated int64 shape",
    "ModelInferRequest": (
        "string model_name; string model_version; string id; map InferParameter parameters; "
        "repeated ModelInferRequest.InferInputTensor inputs; "
        "repeated ModelInferRequest.InferRequestedOutputTensor outputs; "
        "repeated bytes raw_input_contents"
    ),
    "ModelInferRequest.InferInputTensor": (
        "string name; string datatype; repeated int64 shape; map InferParameter parameters; "
        "InferTensorContents contents"
    ),
    "ModelInferRequest.InferRequestedOutputTensor": "string name; map InferParameter parameters",
    "ModelInferResponse": (
        "string model_name; string model_version; string id; map InferParameter parameters; "
        "repeated ModelInferResponse.InferOutputTensor outputs; repeated bytes raw_output_contents"
    ),
    "ModelInferResponse.InferOutputTensor": (
        "string name; string datatype; repeated int64 shape; map InferParameter parameters; "
        "InferTensorContents contents"
    ),
    "InferParameter": (
        "oneof bool bool_param; oneof int64 int64_param; oneof string string_param; "
        "oneof double double_param; oneof uint64 uint64_param"
    ),
    "InferTensorContents": (
        "repeated bool bool_contents; repeated int32 int_contents; repeated int64 int64_contents; "
        "repeated uint32 uint_contents; repeated uint64 uint64_contents; "
        "repeated float fp32_contents; repeated double fp64_contents; "
        "repeated bytes bytes_contents"
    ),
}


def _file():
    file = descriptor_pb2.FileDescriptorProto(
        name="open_inference_grpc.proto", package=_PACKAGE, syntax="proto3"
    )
    messages: dict[str, Any] = {}
    for path, fields in _MESSAGES.items():
        outer, _, name = path.rpartition(".")
        added = messages[outer].nested_type if outer else file.message_type
        messages[path] = added.add(name=name)
        _add_fields(messages[path], path, fields)
    messages["InferParameter"].oneof_decl.add(name="parameter_choice")
    service = file.service.add(name="GRPCInferenceService")
    for name in _METHODS:
        prefix = f".{_PACKAGE}.{name}"
        service.method.add(
            name=name, input_type=prefix + "Request", output_type=prefix + "Response"
        )
    return file


def _add_fields(message, path, fields):
    for number, field in enumerate(filter(None, fields.split("; ")), start=1):
        *labels, kind, name = field.split(" ")
        added = message.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
        if labels in (["repeated"], ["map"]):
            added.label = _Field.LABEL_REPEATED
        if labels == ["map"]:  # a list of entries, as protobuf describes it
            entry = message.nested_type.add(name=name.title() + "Entry")
            entry.options.map_entry = True
            _add_fields(entry, "", f"string key; {kind} value")
            kind = f"{path}.{entry.name}"
        if labels == ["oneof"]:
            added.oneof_index = 0
        added.type = getattr(_Field, "TYPE_" + kind.upper(), _Field.TYPE_MESSAGE)
        if added.type == _Field.TYPE_MESSAGE:
            added.type_name = f".{_PACKAGE}.{kind}"


_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_file())
#: The file descriptor with the service and its messages, like that of a generated module.
DESCRIPTOR = _POOL.FindFileByName("open_inference_grpc.proto")


def message_class(name: str) -> Any:
    """Return the class of the messages with a name.

    Example:

    >>> message_class("ModelReadyResponse")(ready=True).ready
    True
    """
    return message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name[name])


class ReflectionPool:
    """A descriptor pool for gRPC reflection, with the default pool and these messages."""

    def __getattr__(self, name: str) -> Any:
        return getattr(descriptor_pool.Default(), name)

    def FindFileByName(self, name: str) -> Any:
        """Return the descriptor of a file; raise KeyError if it is unknown."""
        if name == DESCRIPTOR.name:
            return DESCRIPTOR
        return descriptor_pool.Default().FindFileByName(name)

    def FindFileContainingSymbol(self, symbol: str) -> Any:
        """Return the descriptor of the file that defines a name; raise KeyError for none."""
        pool = _POOL if symbol.startswith(_PACKAGE + ".") else descriptor_pool.Default()
        return pool.FindFileContainingSymbol(symbol)
