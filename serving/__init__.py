"""Answers action queries from exported policies, in the TensorFlow Serving protocol.

    server      `python -m serving.server`, with the flags of tensorflow_model_server
    client      `connect(address, model).act(observation)`, over gRPC or REST; async_client
    local       `served(export_folder, name)`: a server for as long as a program needs one
    sessions    episodes of policies with a memory or a window, on the client's side
    bench       `python -m serving.bench`, the load tool
    static_page the playground as files, which needs no server of ours
    page_networks   what networks such a page computes
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
