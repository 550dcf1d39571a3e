"""Client of a served policy: `connect(address, model).act(observation)`, over gRPC or REST.

Works with `serving.server` and with TensorFlow Serving. The REST client needs NumPy and the
standard library, the gRPC client tensorflow-serving-api, the asynchronous REST client aiohttp.
"""

from serving.client.async_client import AsyncClient, connect_async
from serving.client.client import Client, connect
from serving.errors import ServingError

__all__ = ["AsyncClient", "Client", "ServingError", "connect", "connect_async"]
