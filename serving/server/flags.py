"""The server's flags: those of tensorflow_model_server, with the same names and defaults."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import sys
from collections.abc import Sequence
from typing import Any


def _flag(default, text):
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True)
class Flags:
    """What the server is told on its command line."""

    port: int = _flag(8500, "TCP port of gRPC; 0 lets the system choose, or goes without one")
    grpc_socket_path: str = _flag("", "path of a Unix socket to answer gRPC on, with --port=0 only")
    rest_api_port: int = _flag(0, "TCP port of REST; 0 for none")
    host: str = _flag("127.0.0.1", "address to listen on; 0.0.0.0 to be reached from elsewhere")
    model_name: str = _flag(
        "default", "name of the model in --model_base_path; that of --preset, where it is given"
    )
    model_base_path: str = _flag("", "folder of the model's integer version folders")
    preset: str = _flag(
        "", "trained preset in place of --model_base_path: its name, its folder, hf://OWNER/NAME"
    )
    model_root: str = _flag(
        "",
        "folder that every model must lie in, links resolved; '' for any place",
    )
    allow_reload_requests: bool = _flag(
        True, "answer HandleReloadConfigRequest, with which clients choose what is served"
    )
    model_config_file: str = _flag(
        "", "text file of a ModelServerConfig: several models; --model_base_path is not looked at"
    )
    model_config_file_poll_wait_seconds: float = _flag(
        0.0, "seconds between looks at --model_config_file; 0 reads it only once"
    )
    allow_version_labels_for_unavailable_models: bool = _flag(
        False, "let a new label point at a version that is not loaded yet"
    )
    file_system_poll_wait_seconds: float = _flag(
        1.0, "seconds between looks for new versions; 0 looks only once"
    )
    rest_api_timeout_in_ms: int = _flag(30000, "longest that a REST request may take")
    rest_api_enable_cors_support: bool = _flag(False, "let web pages of any origin ask")
    playground: bool = _flag(
        False, "answer /playground/ on the REST port: a page where DoorKey policies act"
    )
    enable_batching: bool = _flag(False, "merge requests that wait at the same time")
    batching_parameters_file: str = _flag("", "text file of BatchingParameters")
    enable_per_model_batching_parameters: bool = _flag(
        False,
        "batch only versions that hold a batching_params.pbtxt, as it says; of "
        "--batching_parameters_file, only the threads count",
    )
    monitoring_config_file: str = _flag("", "text file of a MonitoringConfig: Prometheus metrics")
    ssl_config_file: str = _flag("", "text file of an SSLConfig: TLS for gRPC")
    grpc_channel_arguments: str = _flag(
        "", "arguments of gRPC's core, commas between: grpc.max_connection_age_ms=2000,..."
    )
    enable_grpc_healthcheck_service: bool = _flag(False, "answer grpc.health.v1")
    max_num_load_retries: int = _flag(5, "attempts after a version's first failed load")
    load_retry_interval_micros: int = _flag(60_000_000, "microseconds between the attempts")
    enable_model_warmup: bool = _flag(True, "replay a version's warm-up requests before it answers")
    num_request_iterations_for_warmup: int = _flag(1, "times that each of them is replayed")
    saved_model_tags: str = _flag("serve", "tags of the meta graph to load, with commas between")
    enable_signature_method_name_check: bool = _flag(
        False, "classify and regress only with signatures whose method_name says so"
    )
    tensorflow_session_config_file: str = _flag(
        "", "text file of a ConfigProto; the next three flags overrule it"
    )
    tensorflow_session_parallelism: int = _flag(0, "both of the next two, where they are 0")
    tensorflow_intra_op_parallelism: int = _flag(
        0, "threads inside an operation; 0 for one, as requests run beside each other"
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
        "longest that a client may take to send a request's headers, 16 KiB more of its body, or "
        "to take an answer",
    )
    rest_api_num_readers: int = _flag(2, "processes that read and write what is large over REST")
    drain_seconds: float = _flag(10.0, "longest that requests in flight may take after SIGTERM")
    process_of: str = _flag("", "set by process 0 for the others: their folder and number")

    @property
    def channel_arguments(self) -> dict[str, int | str]:
        """--grpc_channel_arguments by name; a whole number is an int, as gRPC tells them apart."""
        pairs = [text.partition("=") for text in self.grpc_channel_arguments.split(",") if text]
        return {
            name: int(value) if value.removeprefix("-").isdecimal() else value
            for name, _, value in pairs
        }


# Theirs, about threads that this server does not have, hardware that it leaves to TensorFlow, and
# ways to run a model that are not TensorFlow's.
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


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        print(f"serving.server: {message} (--help lists the flags)", file=sys.stderr)
        raise SystemExit(2)


def parse(arguments: Sequence[str] | None = None) -> tuple[Flags, list[str]]:
    """Returns (Flags, names of flags given that have no effect here) of a command line."""
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
    parser.add_argument("--version", action="store_true", help="print TensorFlow's version")
    parser.add_argument("--use_alts_credentials", action="store_true", help=argparse.SUPPRESS)
    for name in _WITHOUT_EFFECT:
        parser.add_argument(f"--{name}", nargs="?", const="", help=argparse.SUPPRESS)
    values = vars(parser.parse_args(arguments))
    if values.pop("version"):
        print(f"TensorFlow Library: {importlib.import_module('tensorflow').__version__}")
        raise SystemExit(0)
    if values.pop("use_alts_credentials"):
        parser.error("there is no ALTS here: --ssl_config_file secures gRPC")
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
    """Returns what is wrong with flags that each parse, or None."""
    places = [flags.preset, flags.model_base_path, flags.model_config_file]
    if not any(places):
        return "give --model_base_path, --model_config_file or --preset"
    if flags.preset and any(places[1:]):
        return "--preset goes without --model_base_path and --model_config_file"
    if not flags.model_name:
        return "--model_name must not be empty"
    for name in ("port", "rest_api_port"):
        if not 0 <= getattr(flags, name) < 1 << 16:
            return f"--{name} must be 0 to 65535; received {getattr(flags, name)}"
    if flags.port and flags.port == flags.rest_api_port:
        return f"--port and --rest_api_port are both {flags.port}"
    if flags.playground and not flags.rest_api_port:
        return "--playground needs --rest_api_port"
    if flags.num_processes < 1:
        return f"--num_processes must be at least 1; received {flags.num_processes}"
    for name in ("rest_api_max_connections", "rest_api_num_readers"):
        if getattr(flags, name) < 1:
            return f"--{name} must be at least 1; received {getattr(flags, name)}"
    for argument in flags.grpc_channel_arguments.split(","):
        if argument and not argument.partition("=")[2]:
            return f"--grpc_channel_arguments are name=value,...; received {argument!r}"
    for field in dataclasses.fields(flags):
        value = getattr(flags, field.name)
        if isinstance(value, (int, float)) and not value >= 0:  # nor NaN
            return f"--{field.name} must not be negative; received {value}"
    return None
