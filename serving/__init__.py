"""Answers action queries from exported policies, in the TensorFlow Serving protocol.

    server      `python -m serving.server`, with the flags of tensorflow_model_server
    client      `connect(address, model).act(observation)` over gRPC or REST, also in asyncio
    local       `served(export_folder, name)`: a server for the duration of a program
    sessions    episodes of policies with a memory or a window, on the client's side
    bench       `python -m serving.bench`, the load tool
    playground  the web page where policies act, served or as files
    deploy      the same models on TensorFlow Serving: Docker Compose, Kubernetes, Grafana

`serving.server` describes the modules of the server. The server and the client share two modules:

    errors      canonical error codes
    tensors     TensorProto to and from NumPy
"""

import os
import sys

if sys.argv[:1] == ["-m"]:  # a command of this package; the client alone needs no rrl_tf
    from rrl_tf._tf_logging import interrupt_quietly

    interrupt_quietly()
# gRPC logs to stderr what it also raises.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
