"""Client of a served policy: `connect(address, model).act(observation)`, over gRPC or REST.

Works with `serving.server` and with TensorFlow Serving. The REST client needs NumPy and the
standard library, the gRPC client tensorflow-serving-api, the asynchronous REST client aiohttp.

    client    `Client` and `AsyncClient`: signatures, time limits, retries
    arrays    observations and outputs of `act`, inputs as arrays
    rest      requests and replies as JSON, and the connections that carry them
    grpc      requests and replies as messages, and the channels that carry them
"""

from serving.client.client import AsyncClient, Client, connect, connect_async
from serving.errors import ServingError

__all__ = ["AsyncClient", "Client", "ServingError", "connect", "connect_async"]
