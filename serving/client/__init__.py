"""Query a served policy over gRPC or REST: `connect(address, model).act(observation)`.

The client works with `serving.server` and with TensorFlow Serving. The REST client needs only NumPy
and the standard library. The gRPC client also needs tensorflow-serving-api, and the asynchronous
REST client needs aiohttp.

    client    defines `Client` and `AsyncClient`, with signatures, timeouts and retries
    address   defines `ModelAddress` and parses addresses
    arrays    converts observations and inputs to arrays, and the outputs of `act` to actions
    rest      writes requests and reads replies as JSON, over HTTP connections
    grpc      writes requests and reads replies as protobuf messages, over gRPC channels
"""

from serving.client.client import AsyncClient, Client, connect, connect_async
from serving.errors import ServingError

__all__ = ["AsyncClient", "Client", "ServingError", "connect", "connect_async"]
