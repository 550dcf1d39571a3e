"""The server: `python -m serving.server --model_base_path=... --rest_api_port=8501`.

It answers in the TensorFlow Serving protocol on one machine, without Docker: a client moves between
this server and tensorflow_model_server without a change. `--help` lists the flags.

    command                      the command line: start, signals, exit code; several processes
    flags, config_files          flags and configuration files of tensorflow_model_server
    server                       `Server` and `running`: one server in an event loop
    rest, grpc_service           the two transports
    admission                    fair order among clients, bytes in flight
    inference                    requests of both transports, within their limits
    batching                     merges concurrent requests and runs them in threads
    repository, model            which versions are loaded; one loaded version
    metrics, logs                Prometheus metrics, log lines
"""

from rrl_tf._lazy import lazy_attributes

_MODULES = {"command": "main", "flags": "Flags", "server": "Server running"}

__all__ = sorted(" ".join(_MODULES.values()).split())

__getattr__ = lazy_attributes(__name__, _MODULES)
