"""Clients of a served policy, with or without an event loop.

>>> from rrl_tf.envs import doorkey_task
>>> from serving.server import Flags, running
>>> observations = [doorkey_task().make_env().reset(seed=seed)[0] for seed in range(4)]
>>> async def act_concurrently(address):
...     async with connect_async(address, "doorkey-5x5") as client:
...         return await asyncio.gather(*(client.act(o) for o in observations))
>>> with running(Flags(preset="doorkey-5x5", port=0)) as server:
...     address = f"grpc://localhost:{server.grpc_port}"
...     with connect(address, "doorkey-5x5") as client:
...         client.act(observations[0])
...     asyncio.run(act_concurrently(address))
1
[1, 3, 1, 0]
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import numpy as np

from serving.client.address import ModelAddress, split_address
from serving.client.arrays import as_batch, split_outputs
from serving.client.grpc import AsyncGrpcTransport, GrpcTransport
from serving.client.rest import AsyncRestTransport, RestTransport
from serving.errors import ServingError

_SCHEMES = ("grpc", "grpcs", "http", "https")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 2.0


def connect(
    address: str,
    model: str,
    version: int | None = None,
    label: str | None = None,
    timeout: float = 10.0,
    retries: int | None = None,
    certificates: str | None = None,
    identity: tuple[str, str] | None = None,
) -> Client:
    """Return a `Client` of a served model.

    Args:
        address: `"grpc://host:port"` or `"http://host:port"`; `grpcs` and `https` for TLS.
        model: Its name on the server.
        version: The number of a version; by default the newest one at each request.
        label: The label of a version, instead of its number.
        timeout: Seconds that a call may take, retries included.
        retries: Maximum number of retries, with growing pauses, while the server is UNAVAILABLE; by
            default until the timeout, so that a server may restart. Other failures are final.
        certificates: With TLS, a PEM file of the trusted authorities instead of the system's.
        identity: With TLS, the PEM files (certificate, key) that identify the client.

    Raises:
        ValueError: If the address has another form. The first call connects to the server.
    """
    place = ModelAddress(
        split_address(address, _SCHEMES), model, version, label, certificates, identity
    )
    kind = GrpcTransport if address.startswith("grpc") else RestTransport
    return Client(AsyncClient(kind(place), timeout, retries, _block))


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
    """Return an `AsyncClient` of a served model; arguments and errors are those of `connect`."""
    place = ModelAddress(
        split_address(address, _SCHEMES), model, version, label, certificates, identity
    )
    kind = AsyncGrpcTransport if address.startswith("grpc") else AsyncRestTransport
    return AsyncClient(kind(place), timeout, retries)


def _pauses(deadline, retries):
    """Yield how long to wait before each retry, as long as retries and time are left."""
    pause = _FIRST_PAUSE
    for _ in itertools.count() if retries is None else range(retries):
        # Clients that lost the same server must not all retry at the same moment.
        wait = pause * random.uniform(0.75, 1.25)
        if time.monotonic() + wait > deadline:
            return
        yield wait
        pause = min(2 * pause, _LONGEST_PAUSE)


async def _block(seconds):
    time.sleep(seconds)


def _finish(coroutine):
    """Return the result of a coroutine that never waits for an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a blocking transport must not wait for an event loop")


class Client:
    """A served policy; made by `connect`. Several threads may share a client.

    Every method raises `ServingError`, with the server's canonical code (INVALID_ARGUMENT,
    NOT_FOUND, UNAVAILABLE, DEADLINE_EXCEEDED, ...) as `code`, and the server's message.

    Args:
        client: An `AsyncClient` whose transport blocks instead of waiting for an event loop.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        #: Builds, sends and reads requests; of `serving.client.rest` or `serving.client.grpc`.
        self.transport = client.transport

    def act(
        self,
        observation: Any,
        return_attention_scores: bool = False,
        *,
        timeout: float | None = None,
    ) -> Any:
        """Return the greedy action of one observation (an int) or of a batch (an array (B,)).

        Args:
            observation: An observation of the environment, or a batch of them.
            return_attention_scores: Whether to return (action, dict of scores) instead; the scores
                are (H, N, S) for one observation and (B, H, N, S) for a batch, by the name of
                their round.
            timeout: Seconds that the call may take, instead of the client's.

        Raises:
            ValueError: If the policy needs more than an observation; see `serving.sessions`.
        """
        return _finish(self._client.act(observation, return_attention_scores, timeout=timeout))

    def predict(
        self,
        inputs: Mapping[str, Any],
        signature: str = "serving_default",
        timeout: float | None = None,
    ) -> dict[str, np.ndarray]:
        """Return name -> array of the outputs of a signature for name -> array of its inputs."""
        return _finish(self._client.predict(inputs, signature, timeout))

    @property
    def signatures(self) -> dict[str, Any]:
        """name -> {"inputs", "outputs"} of name -> (dtype, shape), from the server's metadata.

        Requested once, and again after a failure that another version may have caused.
        """
        return _finish(self._client.signatures())

    def close(self) -> None:
        """Close the connections."""
        _finish(self._client.close())

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient:
    """A served policy for the tasks of one event loop; made by `connect_async`.

    Every method raises `ServingError`, as those of `Client` do.
    """

    def __init__(
        self,
        transport: Any,
        timeout: float,
        retries: int | None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.transport = transport
        self._timeout, self._retries, self._sleep = timeout, retries, sleep
        self._signatures: dict[str, Any] | None = None

    def _deadline(self, timeout):
        return time.monotonic() + (self._timeout if timeout is None else timeout)

    async def act(
        self,
        observation: Any,
        return_attention_scores: bool = False,
        *,
        timeout: float | None = None,
    ) -> Any:
        """Return the greedy action of one observation or of a batch, as `Client.act` does."""
        name = "act_with_attention" if return_attention_scores else "act"
        deadline = self._deadline(timeout)
        batch, single = as_batch(observation, _find(await self._load_signatures(deadline), name))
        outputs = await self.predict({"observation": batch}, name, deadline - time.monotonic())
        return split_outputs(outputs, single, return_attention_scores)

    async def predict(
        self,
        inputs: Mapping[str, Any],
        signature: str = "serving_default",
        timeout: float | None = None,
    ) -> dict[str, np.ndarray]:
        """Return name -> array of the outputs of a signature for name -> array of its inputs."""
        deadline = self._deadline(timeout)
        specs = _find(await self._load_signatures(deadline), signature)
        request = self.transport.predict_request(inputs, signature, specs)
        try:
            return self.transport.read_outputs(await self._send(request, deadline), specs)
        except ServingError as error:
            if error.code in ("INTERNAL", "INVALID_ARGUMENT"):  # perhaps of another version
                self._signatures = None
            raise

    async def signatures(self) -> dict[str, Any]:
        """Return name -> {"inputs", "outputs"} of name -> (dtype, shape), as of `Client`."""
        return await self._load_signatures(self._deadline(None))

    async def _load_signatures(self, deadline):
        signatures = self._signatures  # another thread or task may reset the attribute
        if signatures is None:
            reply = await self._send(self.transport.metadata_request(), deadline)
            signatures = self._signatures = self.transport.read_signatures(reply)
        return signatures

    async def _send(self, request, deadline):
        pauses = _pauses(deadline, self._retries)
        while True:
            try:
                return await self.transport.send(request, max(deadline - time.monotonic(), 1e-3))
            except ServingError as error:
                pause = next(pauses, None) if error.code == "UNAVAILABLE" else None
                if pause is None:
                    raise
            await self._sleep(pause)

    async def close(self) -> None:
        """Close the connections."""
        await self.transport.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _find(signatures, name):
    if name not in signatures:
        raise ServingError(
            "FAILED_PRECONDITION",
            f"the model has no signature {name!r}; its signatures are {sorted(signatures)}",
        )
    return signatures[name]
