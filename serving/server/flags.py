"""The server's flags: those of tensorflow_model_server, with the same names and defaults."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import math
import sys
from collections.abc import Sequence
from typing import Any


def _flag(default, text):
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True)
class Flags:
    """The flags of the command line."""

    port: int = _flag(8500, "TCP port of gRPC; 0 lets the system choose, or goes without one")
    grpc_socket_path: str = _flag("", "path of a Unix socket to answer gRPC on, with --port=0 only")
    rest_api_port: int = _flag(0, "TCP port of REST; 0 for none")
    host: str = _flag("127.0.0.1", "address to listen on; 0.0.0.0 to be reached from elsewhere")
    model_name: str = _flag(
        "default", "name of the model in --model_base_path; with --preset, its name by default"
    )
    model_base_path: str = _flag("", "directory of the model's version directories")
    preset: str = _flag(
        "", "trained preset instead of --model_base_path: its name, directory, or hf://OWNER/NAME"
    )
    model_root: str = _flag(
        "",
        "directory that holds every model, links resolved; '' for any",
    )
    allow_reload_requests: bool = _flag(
        True, "answer HandleReloadConfigRequest, with which clients replace the list of models"
    )
    model_config_file: str = _flag(
        "", "text file of a ModelServerConfig: several models; overrides --model_base_path"
    )
    model_config_file_poll_wait_seconds: float = _flag(
        0.0, "seconds between reads of --model_config_file; 0 reads it once"
    )
    allow_version_labels_for_unavailable_models: bool = _flag(
        False, "allow a new label on a version that is not loaded yet"
    )
    file_system_poll_wait_seconds: float = _flag(
        1.0, "seconds between polls for new versions; 0 polls once"
    )
    rest_api_timeout_in_ms: int = _flag(30000, "deadline of a REST request")
    rest_api_enable_cors_support: bool = _flag(False, "allow requests of web pages of any origin")
    playground: bool = _flag(
        False, "answer /playground/ on the REST port: a page where DoorKey policies act"
    )
    enable_batching: bool = _flag(False, "merge requests that wait at the same time")
    batching_parameters_file: str = _flag("", "text file of BatchingParameters")
    enable_per_model_batching_parameters: bool = _flag(
        False,
        "batch only versions with a batching_params.pbtxt, by that file; of "
        "--batching_parameters_file, only the threads apply",
    )
    monitoring_config_file: str = _flag("", "text file of a MonitoringConfig: Prometheus metrics")
    ssl_config_file: str = _flag("", "text file of an SSLConfig: TLS for gRPC")
    grpc_channel_arguments: str = _flag(
        "", "arguments of gRPC, separated by commas: grpc.max_connection_age_ms=2000,..."
    )
    enable_grpc_healthcheck_service: bool = _flag(False, "answer grpc.health.v1")
    max_num_load_retries: int = _flag(5, "attempts after a version's first failed load")
    load_retry_interval_micros: int = _flag(60_000_000, "microseconds between the attempts")
    enable_model_warmup: bool = _flag(True, "replay a version's warm-up requests before it answers")
    num_request_iterations_for_warmup: int = _flag(1, "number of replays of each request")
    saved_model_tags: str = _flag("serve", "tags of the meta graph to load, separated by commas")
    enable_signature_method_name_check: bool = _flag(
        False, "classify and regress only with signatures of that method_name"
    )
    tensorflow_session_config_file: str = _flag(
        "", "text file of a ConfigProto; the next three flags override it"
    )
    tensorflow_session_parallelism: int = _flag(0, "both of the next two, where they are 0")
    tensorflow_intra_op_parallelism: int = _flag(
        0, "threads inside an operation; 0 for one, because requests run in parallel"
    )
    tensorflow_inter_op_parallelism: int = _flag(0, "operations at once; 0 for all cores")
    enable_serialization_as_tensor_content: bool = _flag(False, "answer in tensor_content")
    num_processes: int = _flag(1, "processes that share the ports, for machines of many cores")
    max_request_bytes: int = _flag(1 << 28, "largest request over gRPC; 0 for any size")
    rest_api_max_request_bytes: int = _flag(
        1 << 24, "largest body over REST, unpacked; 0 for that of gRPC"
    )
    max_request_rows: int = _flag(4096, "most rows of a request; 0 for any number")
    max_reply_bytes: int = _flag(1 << 26, "most bytes of a reply's values; 0 for any number")
    rest_api_max_connections: int = _flag(4096, "REST connections at once")
    rest_api_header_timeout_in_ms: int = _flag(
        10000,
        "deadline for a client to send a request's headers, 16 KiB more of its body, or to take "
        "a reply",
    )
    rest_api_num_readers: int = _flag(2, "processes that read and write large bodies of REST")
    drain_seconds: float = _flag(10.0, "deadline of the requests in progress at SIGTERM")
    process_of: str = _flag("", "set by process 0 for the others: their directory and number")

    @property
    def channel_arguments(self) -> dict[str, int | str]:
        """--grpc_channel_arguments by name; whole numbers are ints, which gRPC distinguishes."""
        pairs = [text.partition("=") for text in self.grpc_channel_arguments.split(",") if text]
        return {
            name: int(value) if value.removeprefix("-").isdecimal() else value
            for name, _, value in pairs
        }


# Flags of tensorflow_model_server about threads that this server does not have, hardware that it
# leaves to TensorFlow, and formats other than SavedModel.
_WITHOUT_EFFECT = (
    "rest_api_num_threads",
    "grpc_max_threads",
    "num_load_threads",
    "num_unload_threads",
    "flush_filesystem_caches",
    "platform_config_file",
    "per_process_gpu_memory_fraction",
    "xla_cpu_compilation_enabled",
    "mixed_precision",
    "remove_unused_fields_from_bundle_metagraph",
    "enable_profiler",
    "thread_pool_factory_config_file",
    "prefer_tflite_model",
    "num_tflite_pools",
    "num_tflite_interpreters_per_pool",
    "skip_initialize_tpu",
)

_RANGES = {
    "port": (0, 65535),
    "rest_api_port": (0, 65535),
    "num_processes": (1, math.inf),
    "rest_api_max_connections": (1, math.inf),
    "rest_api_num_readers": (1, math.inf),
}


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        print(f"serving.server: {message} (--help lists the flags)", file=sys.stderr)
        raise SystemExit(2)


def parse(arguments: Sequence[str] | None = None) -> tuple[Flags, list[str]]:
    """Return the Flags of a command line, and the names of its flags without effect."""
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
    version = f"TensorFlow Library: {importlib.metadata.version('tensorflow')}"
    parser.add_argument("--version", action="version", version=version)
    parser.add_argument("--use_alts_credentials", action="store_true", help=argparse.SUPPRESS)
    for name in _WITHOUT_EFFECT:
        parser.add_argument(f"--{name}", nargs="?", const="", help=argparse.SUPPRESS)
    values = vars(parser.parse_args(arguments))
    if values.pop("use_alts_credentials"):
        parser.error("ALTS is not supported: --ssl_config_file secures gRPC")
    ignored = [name for name in _WITHOUT_EFFECT if values.pop(name) is not None]
    flags = Flags(**values)
    problem = _problem(flags)
    if problem:
        parser.error(problem)
    return flags, ignored


def _boolean(text):
    if text.lower() in ("true", "1"):
        return True
    if text.lower() in ("false", "0"):
        return False
    raise argparse.ArgumentTypeError(f"expected true or false; received {text!r}")


def _problem(flags):
    """Return an error message for flags that do not fit together, or None."""
    places = [flags.preset, flags.model_base_path, flags.model_config_file]
    if not any(places):
        return "give --model_base_path, --model_config_file or --preset"
    if flags.preset and any(places[1:]):
        return "--preset goes without --model_base_path and --model_config_file"
    if not flags.model_name:
        return "--model_name must not be empty"
    if flags.port and flags.port == flags.rest_api_port:
        return f"--port and --rest_api_port are both {flags.port}"
    if flags.playground and not flags.rest_api_port:
        return "--playground needs --rest_api_port"
    for argument in flags.grpc_channel_arguments.split(","):
        if argument and not argument.partition("=")[2]:
            return f"--grpc_channel_arguments are name=value,...; received {argument!r}"
    for field in dataclasses.fields(flags):
        value = getattr(flags, field.name)
        least, most = _RANGES.get(field.name, (0, math.inf))
        if isinstance(value, (int, float)) and not least <= value <= most:
            return f"--{field.name} must be {least} to {most}; received {value}"
    return None
