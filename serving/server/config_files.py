"""Reads the configuration files of tensorflow_model_server: protobuf text.

tensorflow-serving-api carries the message of the model list, but not those of batching, monitoring
and TLS; theirs are built here, so that protobuf itself reads the files.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)
from tensorflow.core.protobuf import config_pb2
from tensorflow_serving.config import model_server_config_pb2

from serving.server.batching import BatchingParameters

# message -> field -> (number, type); a type that is a message begins with a dot.
_MESSAGES = {
    "BatchingParameters": {
        "max_batch_size": (1, ".google.protobuf.Int64Value"),
        "batch_timeout_micros": (2, ".google.protobuf.Int64Value"),
        "max_enqueued_batches": (3, ".google.protobuf.Int64Value"),
        "num_batch_threads": (4, ".google.protobuf.Int64Value"),
        "thread_pool_name": (5, ".google.protobuf.StringValue"),
        "allowed_batch_sizes": (6, "repeated int64"),
        "pad_variable_length_inputs": (7, "bool"),
        "enable_large_batch_splitting": (8, ".google.protobuf.BoolValue"),
        "max_execution_batch_size": (9, ".google.protobuf.Int64Value"),
    },
    "PrometheusConfig": {"enable": (1, "bool"), "path": (2, "string")},
    "MonitoringConfig": {"prometheus_config": (1, ".tensorflow.serving.PrometheusConfig")},
    "SSLConfig": {
        "server_key": (1, "string"),
        "server_cert": (2, "string"),
        "custom_ca": (3, "string"),
        "client_verify": (4, "bool"),
    },
}


class StartError(ValueError):
    """A configuration file that cannot be used, in one line."""


def read_model_list(path: str | os.PathLike[str]) -> list[Any]:
    """Returns the ModelConfig messages of a model list."""
    config = _read(path, model_server_config_pb2.ModelServerConfig())
    if config.WhichOneof("config") != "model_config_list":
        raise StartError(f"{path} holds no model_config_list")
    return list(config.model_config_list.config)


def read_batching(path: str | os.PathLike[str]) -> BatchingParameters:
    """Returns the `BatchingParameters` of a batching file."""
    message = _read(path, _message("BatchingParameters"))
    values = {
        field.name: value.value
        for field, value in message.ListFields()
        if field.message_type is not None
    }
    if message.allowed_batch_sizes:
        values["allowed_batch_sizes"] = tuple(message.allowed_batch_sizes)
    values["pad_variable_length_inputs"] = message.pad_variable_length_inputs
    try:
        return BatchingParameters(**values)
    except ValueError as error:
        raise StartError(f"{path}: {error}") from error


def read_session(path: str | os.PathLike[str]) -> Any:
    """Returns the ConfigProto of a TensorFlow session file."""
    return _read(path, config_pb2.ConfigProto())


def read_monitoring(path: str | os.PathLike[str]) -> str | None:
    """Returns the path at which a monitoring file wants Prometheus' metrics, or None."""
    config = _read(path, _message("MonitoringConfig")).prometheus_config
    return (config.path or "/monitoring/prometheus/metrics") if config.enable else None


def read_ssl(path: str | os.PathLike[str]) -> Any:
    """Returns the SSLConfig of a TLS file: server_key, server_cert, custom_ca, client_verify."""
    config = _read(path, _message("SSLConfig"))
    if not config.server_key or not config.server_cert:
        raise StartError(f"{path} must hold server_key and server_cert")
    if config.client_verify and not config.custom_ca:
        raise StartError(f"{path} asks for client_verify without a custom_ca to verify with")
    return config


def _read(path, message):
    try:
        return text_format.Parse(Path(path).read_text(encoding="utf-8"), message)
    except OSError as error:
        raise StartError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, text_format.ParseError) as error:
        raise StartError(f"cannot read {path}: {error}") from error


def _message(name):
    descriptor = _pool().FindMessageTypeByName(f"tensorflow.serving.{name}")
    return message_factory.GetMessageClass(descriptor)()


@functools.cache
def _pool():
    field_type = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="serving/config_files.proto", package="tensorflow.serving", syntax="proto3"
    )
    file.dependency.append("google/protobuf/wrappers.proto")
    for message, fields in _MESSAGES.items():
        described = file.message_type.add(name=message)
        for name, (number, kind) in fields.items():
            field = described.field.add(name=name, number=number, label=field_type.LABEL_OPTIONAL)
            if kind.startswith("repeated "):
                field.label, kind = field_type.LABEL_REPEATED, kind.removeprefix("repeated ")
            if kind.startswith("."):
                field.type, field.type_name = field_type.TYPE_MESSAGE, kind
            else:
                field.type = getattr(field_type, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return pool
