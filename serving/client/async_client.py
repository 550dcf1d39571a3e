"""`serving.client` for programs that run in an event loop: the same methods, awaited.

>>> from rrl_tf.envs import doorkey_task
>>> from serving.server import Flags, running
>>> async def ask(address, observations):
...     async with connect_async(address, "doorkey-5x5") as client:
...         return await asyncio.gather(*(client.act(o) for o in observations))
>>> observations = [doorkey_task().make_env().reset(seed=seed)[0] for seed in range(4)]
>>> with running(Flags(preset="doorkey-5x5", port=0)) as server:
...     asyncio.run(ask(f"grpc://localhost:{server.grpc_port}", observations))
[1, 3, 1, 0]

gRPC needs tensorflow-serving-api, REST needs aiohttp.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from serving.client.client import (
    STALE,
    Attempts,
    as_batch,
    find_signature,
    make_transport,
    require_names,
    split_answer,
)
from serving.client.transports import GrpcForm, RestForm
from serving.errors import ServingError

__all__ = ["AsyncClient", "ServingError", "connect_async"]


def connect_async(
    address: str,
    model: str,
    version: int | None = None,
    label: str | None = None,
    timeout: float = 10.0,
    retries: int | None = None,
    certificates: str | None = None,
    identity: tuple[str, str] | None = None,
) -> AsyncClient:
    """Returns an `AsyncClient` of a served model; arguments and errors are those of `connect`."""
    transports = {"grpc": _GrpcTransport, "http": _RestTransport}
    transport = make_transport(transports, address, model, version, label, certificates, identity)
    return AsyncClient(transport, timeout, retries)


class AsyncClient:
    """A served policy; made by `connect_async`, for the tasks of one event loop.

    Every method raises `ServingError`, as those of `serving.client.Client` do.
    """

    def __init__(self, transport: Any, timeout: float, retries: int | None) -> None:
        self._transport = transport
        self._timeout = timeout
        self._retries = retries
        self._signatures: dict[str, Any] | None = None

    async def act(
        self,
        observation: Any,
        return_attention_scores: bool = False,
        *,
        timeout: float | None = None,
    ) -> Any:
        """Returns the greedy action of one observation or of a batch, as `Client.act` does."""
        signature = "act_with_attention" if return_attention_scores else "act"
        deadline = self._deadline(timeout)
        known = find_signature(await self._known(deadline), signature)
        batch, single = as_batch(observation, known)
        left = deadline - time.monotonic()
        outputs = await self.predict({"observation": batch}, signature, left)
        return split_answer(outputs, single, return_attention_scores)

    async def predict(
        self,
        inputs: Mapping[str, Any],
        signature: str = "serving_default",
        timeout: float | None = None,
    ) -> dict[str, np.ndarray]:
        """Returns name -> array of any signature, for name -> array of its inputs."""
        deadline = self._deadline(timeout)
        known = find_signature(await self._known(deadline), signature)
        require_names(inputs, known)
        try:
            return await self._retrying(
                deadline, lambda left: self._transport.predict(inputs, signature, known, left)
            )
        except ServingError as error:
            if error.code in STALE:
                self._signatures = None
            raise

    async def signatures(self) -> dict[str, Any]:
        """Returns name -> {"inputs", "outputs"} of name -> (dtype, shape), as of `Client`."""
        return await self._known(self._deadline(None))

    def _deadline(self, timeout):
        return time.monotonic() + (self._timeout if timeout is None else timeout)

    async def _known(self, deadline):
        known = self._signatures  # another task may forget them meanwhile
        if known is None:
            known = self._signatures = await self._retrying(deadline, self._transport.signatures)
        return known

    async def _retrying(self, deadline, ask):
        attempts = Attempts(deadline - time.monotonic(), self._retries)
        while True:
            try:
                return await ask(attempts.seconds_left())
            except ServingError as error:
                await asyncio.sleep(attempts.pause_after(error))

    async def close(self) -> None:
        """Closes the connections."""
        await self._transport.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _RestTransport(RestForm):
    """Connections of aiohttp, kept open."""

    def __init__(self, *address):
        super().__init__(*address)
        self._session = None

    async def predict(self, inputs, signature, known, timeout):
        reply = await self._ask(*self.predict_request(inputs, signature, known), timeout)
        return self.read_outputs(reply, known)

    async def signatures(self, timeout):
        return self.read_signatures(await self._ask(*self.metadata_request(), timeout))

    async def _ask(self, method, path, body, timeout):
        # Imported here: whoever asks over gRPC does without. Opened here: it belongs to a loop.
        import aiohttp
        import yarl

        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, ssl=self.tls or True)
            self._session = aiohttp.ClientSession(connector=connector)
        scheme = "https" if self.tls else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        url = yarl.URL(f"{scheme}://{host}:{self.port}{path}", encoded=True)
        limit = aiohttp.ClientTimeout(total=timeout)
        headers = {"Content-Type": "application/json"}
        try:
            options = {"data": body, "headers": headers, "timeout": limit}
            async with self._session.request(method, url, **options) as response:
                return self.read_reply(response.status, await response.read())
        except TimeoutError as error:
            raise ServingError("DEADLINE_EXCEEDED", f"no answer in {timeout:.3g} s") from error
        except aiohttp.ClientError as error:
            raise self.unreachable(error) from error

    async def close(self):
        if self._session is not None:
            await self._session.close()


class _GrpcTransport(GrpcForm):
    """One channel, for all tasks."""

    def __init__(self, *address):
        super().__init__(*address)
        self._channel = self._stub = None

    async def predict(self, inputs, signature, known, timeout):
        request = self.predict_request(inputs, signature, known)
        return self.read_outputs(await self._call("Predict", request, timeout))

    async def signatures(self, timeout):
        reply = await self._call("GetModelMetadata", self.metadata_request(), timeout)
        return self.read_signatures(reply)

    async def _call(self, method, request, timeout):
        if self._channel is None:  # opened here: it belongs to a loop
            self._channel = self.channel(self._grpc.aio)
            self._stub = self._make_stub(self._channel)
        try:
            return await getattr(self._stub, method)(request, timeout=timeout)
        except self._grpc.RpcError as error:
            raise self.error(error) from error

    async def close(self):
        if self._channel is not None:
            await self._channel.close()
