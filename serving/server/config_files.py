"""Read the configuration files of tensorflow_model_server, which are in protobuf text format.

The package tensorflow-serving-api contains the message type of the model list, but not those for
batching, monitoring and TLS. This module builds these from descriptors.
"""

from __future__ import annotations

import functools
import logging
import os
import ssl
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    json_format,
    message_factory,
    text_format,
    wrappers_pb2,
)
from tensorflow.core.protobuf import config_pb2
from tensorflow_serving.config import model_server_config_pb2

from serving.server.batching import BatchingParameters

_log = logging.getLogger("serving")
# message -> field -> (number, type). A type that begins with a dot is a message type.
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
    """An error in the flags, files or ports that keeps the server from starting.

    The command prints its message in one line.
    """


def read_model_list(path: str | os.PathLike[str]) -> list[Any]:
    """Return the ModelConfig messages in a ModelServerConfig file."""
    config = _read(path, model_server_config_pb2.ModelServerConfig())
    if config.WhichOneof("config") != "model_config_list":
        raise StartError(f"{path} must contain a model_config_list")
    return list(config.model_config_list.config)


def read_batching(
    path: str | os.PathLike[str], without_effect: Collection[str] = ()
) -> BatchingParameters:
    """Return the `BatchingParameters` in a file.

    Args:
        path: The file.
        without_effect: The names of fields that have no effect in this file; the log warns of them.
    """
    message = _read(path, _message("BatchingParameters"))
    values = {
        field.name: value.value
        for field, value in message.ListFields()
        if field.message_type is not None
    }
    if message.allowed_batch_sizes:
        values["allowed_batch_sizes"] = tuple(message.allowed_batch_sizes)
    if message.pad_variable_length_inputs:
        values["pad_variable_length_inputs"] = True
    ignored = values.keys() & set(without_effect)
    if not values.get("enable_large_batch_splitting"):
        ignored |= values.keys() & {"max_execution_batch_size"}
    _warn(path, ignored)
    try:
        return BatchingParameters(**values)
    except ValueError as error:
        raise StartError(f"{path}: {error}") from error


def read_session(path: str | os.PathLike[str]) -> Any:
    """Return the TensorFlow ConfigProto in a file."""
    return _read(path, config_pb2.ConfigProto())


def read_monitoring(path: str | os.PathLike[str]) -> str | None:
    """Return the URL path of the Prometheus metrics from a MonitoringConfig file.

    None means that the file turns the metrics off.
    """
    config = _read(path, _message("MonitoringConfig")).prometheus_config
    if config.path and not config.path.startswith("/"):
        raise StartError(
            f"{path}: the path of prometheus_config must start with '/'; received {config.path!r}"
        )
    if not config.enable:
        _warn(path, ["prometheus_config.path"] if config.path else [])
        return None
    return config.path or "/monitoring/prometheus/metrics"


def read_credentials(path: str | os.PathLike[str]) -> Any:
    """Return the `grpc.ServerCredentials` of an SSLConfig file.

    Raises:
        StartError: If the file cannot be read, or the key does not belong to the certificate.
    """
    config = _read(path, _message("SSLConfig"))
    if not config.server_key or not config.server_cert:
        raise StartError(f"{path} must contain server_key and server_cert")
    if config.client_verify and not config.custom_ca:
        raise StartError(
            f"{path} must contain the custom_ca with which client_verify verifies clients"
        )
    if config.custom_ca and not config.client_verify:
        _warn(path, ["custom_ca"])
    if os.stat(path).st_mode & 0o077:
        _log.warning("%s contains a private key that other users can read; use chmod 600", path)
    with tempfile.TemporaryDirectory() as folder:  # its permissions exclude other users
        files = Path(folder, "certificate.pem"), Path(folder, "key.pem")
        for file, text in zip(files, (config.server_cert, config.server_key)):
            file.write_text(text)
        try:
            # Without the password argument, OpenSSL would ask for the password of an encrypted key
            # at the terminal.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*files, password="")
            if config.custom_ca:
                ssl.create_default_context(cadata=config.custom_ca)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise StartError(
                f"{path}: server_key and server_cert must be a matching pair in PEM format, and "
                f"custom_ca must be a certificate: {error}"
            ) from error
    return grpc.ssl_server_credentials(
        [(config.server_key.encode(), config.server_cert.encode())],
        root_certificates=config.custom_ca.encode() or None,
        require_client_auth=config.client_verify,
    )


def _warn(path, fields):
    """Log a warning for each of these fields, which have no effect in the file at `path`."""
    for field in sorted(fields):
        _log.warning("%s: %s has no effect", path, field)


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
    messages = [
        {"name": name, "field": [_field(*each) for each in fields.items()]}
        for name, fields in _MESSAGES.items()
    ]
    file = {
        "name": "serving/config_files.proto",
        "package": "tensorflow.serving",
        "syntax": "proto3",
        "dependency": ["google/protobuf/wrappers.proto"],
        "messageType": messages,
    }
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(json_format.ParseDict(file, descriptor_pb2.FileDescriptorProto()))
    return pool


def _field(name, described):
    number, kind = described
    label = "LABEL_REPEATED" if kind.startswith("repeated ") else "LABEL_OPTIONAL"
    kind = kind.removeprefix("repeated ")
    if kind.startswith("."):
        typed = {"type": "TYPE_MESSAGE", "typeName": kind}
    else:
        typed = {"type": f"TYPE_{kind.upper()}"}
    return {"name": name, "number": number, "label": label, **typed}
