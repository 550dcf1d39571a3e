"""Answers action queries from exported policies, in the TensorFlow Serving protocol.

    server      `python -m serving.server`, with the flags of tensorflow_model_server
    client      `connect(address, model).act(observation)`, over gRPC or REST

Behind the server, from the wire inwards:

    grpc_service, rest     the two transports
    tensors, json_values   what they carry, to and from NumPy
    batching               merges concurrent requests, runs them off the event loop
    repository             which versions are loaded: discovery, swap, labels, status
    model                  one loaded version; warmup replays its requests
    errors                 canonical codes, the same for both transports
"""
