"""The server: `python -m serving.server --model_base_path=... --rest_api_port=8501`.

It answers in the TensorFlow Serving protocol on one machine, without Docker: a client moves between
this server and tensorflow_model_server without a change. `--help` lists the flags.

    command                   the command line: signals, exit code, log, several processes
    flags, config_files       flags and configuration files of tensorflow_model_server
    server                    `Server` and `running`: one server in an event loop

A request passes through these, from the socket to the reply:

    rest, grpc_service        the two transports
    admission                 the bytes of requests that the server holds
    json_codec                JSON to and from NumPy
    workers                   processes that read and write large JSON bodies
    inference                 requests of both transports, within their limits
    examples                  Classify and Regress
    repository                the loaded versions of all models: swap, labels, status
    model                     one loaded version and its signatures
    batching                  merges concurrent requests and runs them in threads

And these work next to them:

    versions, loading         versions on disk; loads and warms up one
    process_group             several processes that share the ports
    metrics                   Prometheus metrics
"""

from rrl_tf._lazy import lazy_attributes

_MODULES = {"command": "main", "flags": "Flags", "server": "Server running"}

__all__ = sorted(" ".join(_MODULES.values()).split())

__getattr__ = lazy_attributes(__name__, _MODULES)
