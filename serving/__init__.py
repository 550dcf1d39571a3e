"""Answers action queries from exported policies, in the TensorFlow Serving protocol.

    server      `python -m serving.server`, with the flags of tensorflow_model_server
    client      `connect(address, model).act(observation)` over gRPC or REST, also in asyncio
    local       `served(export_folder, name)`: a server for the duration of a program
    sessions    episodes of policies with a memory or a window, on the client's side
    bench       `python -m serving.bench`, the load tool
    playground  the web page where policies act, served or as files
    deploy      the same models on TensorFlow Serving: Docker Compose, Kubernetes, Grafana

Behind the server, from the wire inwards:

    flags, config_files, options, tls    what the server is told, and what follows from it
    grpc_service, rest                   the two transports
    addresses                            where they listen
    http_connections, bodies             how slow and how large a REST client may be
    turns                                fairness among clients
    tensors, wire                        TensorProto to and from NumPy
    json_values, json_numbers, json_examples, json_replies    JSON to and from NumPy
    workers                              processes that read and write what is large
    inference, tf_examples               what both transports ask for, and within which limits
    batching                             merges concurrent requests, runs them off the event loop
    repository, versions                 which versions are loaded: discovery, swap, labels, status
    loading, model                       one loaded version; warmup replays its requests
    metrics, logs, errors                Prometheus metrics, log lines, canonical codes
    peers                                several processes on the same ports
"""

import os
import sys

if sys.argv[:1] == ["-m"]:  # a command of this package; the client alone needs no rrl_tf
    from rrl_tf._tf_logging import interrupt_quietly

    interrupt_quietly()
# gRPC's core logs to stderr what it also raises.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
