"""Serve exported policies, which answer action queries in the TensorFlow Serving protocol.

    server      `python -m serving.server`, with the flags of tensorflow_model_server
    client      `connect(address, model).act(observation)` over gRPC or REST, also for asyncio
    local       `served(export_folder, name)` runs a server for as long as a `with` block
    sessions    play episodes with policies that need a recurrent memory or a window of past steps
    bench       `python -m serving.bench` measures a server under load
    playground  the web page on which policies act, from `serving.server` or as static files
    deploy      files that run TensorFlow Serving: Docker Compose, Kubernetes, Prometheus, Grafana

The docstring of `serving.server` lists the modules of the server. The server and the client share
three modules:

    errors      `ServingError` and the canonical error codes
    tensors     conversion between TensorProto and NumPy arrays
    windows     moves the window of a Decision Transformer from step to step
"""

import os
import sys

# `python -m serving...` runs a command. A program that imports only the client needs no rrl_tf.
if sys.argv[:1] == ["-m"]:
    from rrl_tf._tf_logging import interrupt_quietly

    interrupt_quietly()
# gRPC raises its errors as exceptions, so its log on stderr would only repeat them.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
