"""Define the server's flags, which have the names and meanings of tensorflow_model_server's."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import math
import sys
from collections.abc import Sequence
from typing import Any

import rrl_tf


def _flag(default, text):
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True)
class Flags:
    """The flags of the command line; `python -m serving.server --help` describes each field."""

    port: int = _flag(
        8500,
        "TCP port for gRPC; 0 lets the system choose a free port or, with --grpc_socket_path, "
        "turns TCP off",
    )
    grpc_socket_path: str = _flag(
        "", "path of a Unix socket on which gRPC listens in addition to --port; '' for none"
    )
    rest_api_port: int = _flag(0, "TCP port for REST; 0 turns REST off")
    host: str = _flag(
        "127.0.0.1", "IP address to listen on; 0.0.0.0 accepts connections from other machines"
    )
    model_name: str = _flag(
        "default",
        "name of the model in --model_base_path; with --preset, 'default' stands for the name of "
        "the pretrained model",
    )
    model_base_path: str = _flag("", "directory that contains the version directories of the model")
    preset: str = _flag(
        "",
        "pretrained model of the package, instead of --model_base_path: its name, its directory, "
        "or hf://OWNER/NAME",
    )
    model_root: str = _flag(
        "",
        "directory in which all models must lie after symbolic links are resolved; '' allows any "
        "directory",
    )
    allow_reload_requests: bool = _flag(
        True, "allow HandleReloadConfigRequest, with which a client replaces the list of models"
    )
    model_config_file: str = _flag(
        "",
        "path of a ModelServerConfig in protobuf text format, to serve several models; overrides "
        "--model_base_path",
    )
    model_config_file_poll_wait_seconds: float = _flag(
        0.0,
        "seconds between reads of --model_config_file; 0 reads it only when the server starts",
    )
    allow_version_labels_for_unavailable_models: bool = _flag(
        False, "allow a new label to name a version that is not loaded yet"
    )
    file_system_poll_wait_seconds: float = _flag(
        1.0, "seconds between searches for new versions; 0 searches only when the server starts"
    )
    rest_api_timeout_in_ms: int = _flag(
        30000,
        "milliseconds after which a REST request fails with DEADLINE_EXCEEDED; 0 for no limit",
    )
    rest_api_enable_cors_support: bool = _flag(
        False, "send CORS headers, so that web pages of any origin can query the server"
    )
    playground: bool = _flag(
        False,
        "serve /playground/ on the REST port: a web page on which DoorKey policies act and "
        "classifiers recognise drawn digits",
    )
    enable_batching: bool = _flag(False, "merge concurrent requests into batches")
    batching_parameters_file: str = _flag(
        "",
        "path of BatchingParameters in protobuf text format, for --enable_batching; '' for the "
        "defaults",
    )
    enable_per_model_batching_parameters: bool = _flag(
        False,
        "batch only the versions whose directory contains a batching_params.pbtxt, with the "
        "parameters in it; only the thread settings of --batching_parameters_file still apply",
    )
    monitoring_config_file: str = _flag(
        "",
        "path of a MonitoringConfig in protobuf text format, which turns Prometheus metrics on",
    )
    enable_tracing: bool = _flag(
        False,
        "send a trace of each request to the OpenTelemetry collector that the OTEL_* environment "
        "variables name, by default http://localhost:4318",
    )
    log_format: str = _flag(
        "text",
        "'text', or 'json' for one JSON object per line, and a line for each request with its ID",
    )
    ssl_config_file: str = _flag(
        "", "path of an SSLConfig in protobuf text format, which turns on TLS for gRPC"
    )
    grpc_channel_arguments: str = _flag(
        "",
        "gRPC channel arguments as name=value, separated by commas, such as "
        "grpc.max_connection_age_ms=2000",
    )
    enable_grpc_healthcheck_service: bool = _flag(
        False, "provide the health service grpc.health.v1"
    )
    max_num_load_retries: int = _flag(5, "retries after a version fails to load")
    load_retry_interval_micros: int = _flag(
        60_000_000, "microseconds between these retries; negative for no pause"
    )
    enable_model_warmup: bool = _flag(
        True, "replay the warm-up requests of a version before it becomes available"
    )
    num_request_iterations_for_warmup: int = _flag(
        1, "number of times that each warm-up request is replayed; 0 stands for 1"
    )
    saved_model_tags: str = _flag(
        "serve", "tags of the SavedModel's meta graph to load, separated by commas"
    )
    enable_signature_method_name_check: bool = _flag(
        False,
        "reject a classify or regress request if its signature has the method_name of another API",
    )
    tensorflow_session_config_file: str = _flag(
        "",
        "path of a ConfigProto in protobuf text format; the following three flags override its "
        "numbers of threads",
    )
    tensorflow_session_parallelism: int = _flag(
        0,
        "value of --tensorflow_intra_op_parallelism and --tensorflow_inter_op_parallelism where "
        "these are 0",
    )
    tensorflow_intra_op_parallelism: int = _flag(
        0, "threads within one operation; 0 stands for 1, because requests run in parallel"
    )
    tensorflow_inter_op_parallelism: int = _flag(
        0, "operations that run in parallel; 0 stands for 1, because requests run in parallel"
    )
    enable_serialization_as_tensor_content: bool = _flag(
        False, "write gRPC replies into tensor_content instead of the typed fields"
    )
    num_processes: int = _flag(
        1, "server processes that share the ports, for machines with many cores"
    )
    max_request_bytes: int = _flag(1 << 28, "largest gRPC request in bytes; 0 for no limit")
    rest_api_max_request_bytes: int = _flag(
        1 << 24, "largest decompressed REST body in bytes; 0 for the value of --max_request_bytes"
    )
    max_request_rows: int = _flag(4096, "maximum number of rows in a request; 0 for no limit")
    max_reply_bytes: int = _flag(
        1 << 26, "maximum size of the values in a reply, in bytes; 0 for no limit"
    )
    max_sequences: int = _flag(
        1024, "maximum number of sequences whose state the server keeps; 0 for none"
    )
    max_sequence_bytes: int = _flag(
        1 << 28, "maximum size of the states of all sequences, in bytes; 0 for no limit"
    )
    sequence_idle_seconds: float = _flag(
        60.0, "seconds after its last request in which a sequence is kept; 0 for no limit"
    )
    sequence_overflow: str = _flag(
        "refuse",
        "what to do with a new sequence beyond a limit: 'refuse' it, or 'evict_oldest' to end the "
        "sequence whose last request is the oldest",
    )
    rest_api_max_connections: int = _flag(4096, "maximum number of open REST connections")
    rest_api_header_timeout_in_ms: int = _flag(
        10000,
        "milliseconds in which a REST client must send the headers of a request, each 16 KiB of "
        "its body, and accept the reply",
    )
    rest_api_num_readers: int = _flag(
        2, "worker processes that read and write large REST bodies, per server process"
    )
    drain_seconds: float = _flag(
        10.0, "seconds that requests in progress have left after SIGTERM or SIGINT"
    )
    process_of: str = _flag(
        "", "set by process 0 for the processes that it starts: DIRECTORY:NUMBER"
    )

    @property
    def channel_arguments(self) -> dict[str, int | str]:
        """name -> value of --grpc_channel_arguments; integers are ints, as gRPC requires."""
        pairs = [text.partition("=") for text in self.grpc_channel_arguments.split(",") if text]
        return {
            name: int(value) if value.removeprefix("-").isdecimal() else value
            for name, _, value in pairs
        }


# Flags of tensorflow_model_server that are accepted but have no effect. They concern threads that
# this server does not have, hardware settings that it leaves to TensorFlow, and formats other than
# SavedModel.
_IGNORED = (
    "rest_api_num_threads",
    "grpc_max_threads",
    "num_load_threads",
    "num_unload_threads",
    "flush_filesystem_caches",
    "platform_config_file",
    "per_process_gpu_memory_fraction",
    "xla_cpu_compilation_enabled",
    "xla_gpu_compilation_enabled",
    "mixed_precision",
    "remove_unused_fields_from_bundle_metagraph",
    "enable_profiler",
    "thread_pool_factory_config_file",
    "prefer_tflite_model",
    "num_tflite_pools",
    "num_tflite_interpreters_per_pool",
    "skip_initialize_tpu",
)

_INT32 = 1 << 31

# Flag -> flag without which it has no effect, so that the server warns.
_NEEDS = {
    "rest_api_timeout_in_ms": "rest_api_port",
    "rest_api_enable_cors_support": "rest_api_port",
    "rest_api_max_request_bytes": "rest_api_port",
    "rest_api_max_connections": "rest_api_port",
    "rest_api_header_timeout_in_ms": "rest_api_port",
    "rest_api_num_readers": "rest_api_port",
    "monitoring_config_file": "rest_api_port",
    "model_config_file_poll_wait_seconds": "model_config_file",
    "enable_per_model_batching_parameters": "enable_batching",
    "num_request_iterations_for_warmup": "enable_model_warmup",
    "load_retry_interval_micros": "max_num_load_retries",
}

_RANGES = {
    "port": (0, 65535),
    "rest_api_port": (0, 65535),
    "num_processes": (1, math.inf),
    "num_request_iterations_for_warmup": (-math.inf, math.inf),
    "load_retry_interval_micros": (-math.inf, math.inf),
    "rest_api_max_connections": (1, math.inf),
    "rest_api_num_readers": (1, math.inf),
}


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        print(f"serving.server: {message} (--help lists the flags)", file=sys.stderr)
        raise SystemExit(2)


def parse(arguments: Sequence[str] | None = None) -> tuple[Flags, list[str]]:
    """Return (flags of a command line, warnings about given flags that have no effect)."""
    parser = _Parser(
        prog="python -m serving.server",
        description="Serves SavedModels over gRPC and REST, as tensorflow_model_server does.",
        allow_abbrev=False,
    )
    for field in dataclasses.fields(Flags):
        kind = type(field.default)
        options: dict[str, Any] = {"type": kind, "metavar": kind.__name__.upper()}
        if kind is bool:
            options = {"type": _boolean, "nargs": "?", "const": True, "metavar": "true|false"}
        text = f"{field.metadata['help']} (default: {field.default!r})"
        if field.name == "process_of":
            text = argparse.SUPPRESS
        parser.add_argument(f"--{field.name}", default=field.default, help=text, **options)
    library = importlib.metadata.version("tensorflow")
    version = f"TensorFlow Library: {library} (rrl_tf {rrl_tf.__version__})"
    parser.add_argument("--version", action="version", version=version)
    parser.add_argument(
        "--use_alts_credentials", type=_boolean, nargs="?", const=True, help=argparse.SUPPRESS
    )
    for name in _IGNORED:
        parser.add_argument(f"--{name}", nargs="?", const="", help=argparse.SUPPRESS)
    values = vars(parser.parse_args(arguments))
    if values.pop("use_alts_credentials"):
        parser.error("--use_alts_credentials is not supported; use --ssl_config_file for TLS")
    ignored = [name for name in _IGNORED if values.pop(name) is not None]
    flags = Flags(**values)
    problem = _problem(flags)
    if problem:
        parser.error(problem)
    warnings = [f"--{name} has no effect in this server" for name in ignored]
    for name, needed in _NEEDS.items():
        if getattr(flags, name) != getattr(Flags, name) and not getattr(flags, needed):
            warnings.append(f"--{name} has no effect without --{needed}")
    return flags, warnings


def _boolean(text):
    if text.lower() in ("true", "1"):
        return True
    if text.lower() in ("false", "0"):
        return False
    raise argparse.ArgumentTypeError(f"expected true or false; received {text!r}")


def _problem(flags):
    """Return an error message if flags contradict each other or are out of range, or None."""
    sources = [flags.preset, flags.model_base_path, flags.model_config_file]
    if not any(sources):
        return "one of --model_base_path, --model_config_file and --preset is required"
    if flags.preset and any(sources[1:]):
        return "--preset cannot be combined with --model_base_path or --model_config_file"
    if not flags.model_name:
        return "--model_name must not be empty"
    if flags.port and flags.port == flags.rest_api_port:
        return f"--port and --rest_api_port must differ; received {flags.port} for both"
    if flags.playground and not flags.rest_api_port:
        return "--playground needs --rest_api_port"
    if flags.sequence_overflow not in ("refuse", "evict_oldest"):
        received = flags.sequence_overflow
        return f"--sequence_overflow must be refuse or evict_oldest; received {received!r}"
    if flags.log_format not in ("text", "json"):
        return f"--log_format must be text or json; received {flags.log_format!r}"
    if flags.batching_parameters_file and not flags.enable_batching:
        return "--batching_parameters_file needs --enable_batching"
    names = [f"tensorflow_{kind}_parallelism" for kind in ("session", "intra_op", "inter_op")]
    if all(getattr(flags, name) for name in names):
        return f"--{names[0]} cannot be combined with both --{names[1]} and --{names[2]}"
    for argument in flags.grpc_channel_arguments.split(","):
        if argument and not argument.partition("=")[2]:
            return f"--grpc_channel_arguments must be name=value,...; received {argument!r}"
    for name, value in flags.channel_arguments.items():
        if isinstance(value, int) and not -_INT32 <= value < _INT32:
            return f"--grpc_channel_arguments: {name} must fit into 32 bits; received {value}"
    for field in dataclasses.fields(flags):
        value = getattr(flags, field.name)
        least, most = _RANGES.get(field.name, (0, math.inf))
        if isinstance(value, (int, float)) and not least <= value <= most:
            upper = "" if most == math.inf else f" and at most {most}"
            return f"--{field.name} must be at least {least}{upper}; received {value}"
    return None
