"""Serve SavedModels: `python -m serving.server --model_base_path=... --rest_api_port=8501`.

The server has the protocol of TensorFlow Serving, so a client works unchanged with this server and
with tensorflow_model_server. It also has the Open Inference Protocol of KServe and Triton. It runs
on one machine and needs no Docker. `--help` lists the flags.

    command                   runs the command line: exit code, logging
    service                   runs the server until a signal arrives, in one process or several
    flags, config_files       read the flags and configuration files of tensorflow_model_server
    server                    defines `Server` and `running`, which run one server

A request passes through these modules, from the socket to the reply:

    rest, grpc_service        accept requests over the two transports
    admission                 limits the bytes that all requests in progress hold in memory
    json_codec                converts JSON to NumPy arrays and back
    open_inference            implements the Open Inference Protocol for both transports
    open_inference_codec      converts its requests and replies to NumPy arrays and back
    open_inference_messages   defines its gRPC messages
    workers                   runs the processes that read and write large JSON bodies
    inference                 runs the requests of both transports and enforces their limits
    examples                  implements Classify and Regress
    repository                holds the loaded versions of all models, with their labels and status
    model                     defines one loaded version and its signatures
    batching                  merges concurrent requests and runs them in threads
    sequences                 keeps the state of sequences; other requests do not pass through it

These modules have other tasks:

    versions                  finds the versions on disk
    loading                   loads a version and replays its warm-up requests
    process_group             starts several processes that share the ports
    metrics                   defines the Prometheus metrics
    telemetry                 traces and logs requests, if a flag turns it on
"""

from rrl_tf._lazy import lazy_attributes

_MODULES = {"command": "main", "flags": "Flags", "server": "Server running"}

__all__ = sorted(" ".join(_MODULES.values()).split())

__getattr__ = lazy_attributes(__name__, _MODULES)
