"""Define `Client` and `AsyncClient`, which query a served policy.

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

from serving import windows
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
    """Return a `Client` for a served model. The first call of a method connects to the server.

    Args:
        address: `"grpc://host:port"` or `"http://host:port"`; with TLS, `grpcs://` or `https://`.
        model: The name of the model on the server.
        version: The number of the version to query; `None` for the newest one at each request.
        label: The label of the version to query, instead of its number; `None` for no label.
        timeout: Seconds that a call may take, including retries.
        retries: Maximum number of retries, with exponential backoff, while the server is
            UNAVAILABLE. `None` retries until the timeout, which lets a server restart. Other errors
            are not retried.
        certificates: PEM file with the trusted CA certificates for TLS; by default the system's CA
            certificates.
        identity: PEM files (certificate, private key) with which the client identifies itself over
            TLS; `None` for no client certificate.

    Raises:
        ValueError: If the address has a different form, if `version` and `label` are both given, or
            if `certificates` or `identity` are given without TLS.
    """
    model_address = ModelAddress(
        split_address(address, _SCHEMES), model, version, label, certificates, identity
    )
    kind = GrpcTransport if address.startswith("grpc") else RestTransport
    return Client(AsyncClient(kind(model_address), timeout, retries, _block))


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
    """Return an `AsyncClient` for a served model; arguments and errors are those of `connect`."""
    model_address = ModelAddress(
        split_address(address, _SCHEMES), model, version, label, certificates, identity
    )
    kind = AsyncGrpcTransport if address.startswith("grpc") else AsyncRestTransport
    return AsyncClient(kind(model_address), timeout, retries)


def _pauses(deadline, retries):
    """Yield the seconds to wait before each retry; stop when no retry or no time is left."""
    pause = _FIRST_PAUSE
    for _ in itertools.count() if retries is None else range(retries):
        # The random factor keeps all clients of a failed server from retrying at the same moment.
        wait = pause * random.uniform(0.75, 1.25)
        if time.monotonic() + wait > deadline:
            return
        yield wait
        pause = min(2 * pause, _LONGEST_PAUSE)


async def _block(seconds):
    time.sleep(seconds)


def _finish(coroutine):
    """Run a coroutine that never waits for an event loop, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("the transport of a `Client` must block instead of awaiting an event loop")


class Client:
    """A blocking client of a served policy, from `connect`. Several threads may share it.

    If a request fails, every method raises `ServingError` with the server's message and its
    canonical code (INVALID_ARGUMENT, NOT_FOUND, UNAVAILABLE, DEADLINE_EXCEEDED, ...) as `code`.

    Args:
        client: An `AsyncClient` whose transport blocks instead of awaiting an event loop.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        #: Builds and sends requests, and reads replies; from `serving.client.rest` or `.grpc`.
        self.transport = client.transport

    def act(
        self,
        observation: Any,
        return_attention_scores: bool = False,
        *,
        timeout: float | None = None,
    ) -> Any:
        """Return the greedy action for one observation (an int) or for a batch (an array (B,)).

        A `MultiDiscrete` action with D numbers is an array (D,), or (B, D) for a batch.

        Args:
            observation: An observation of the environment, or a batch (B, ...) of observations. If
                the environment observes a `Dict` or `Tuple`, a dict or tuple of these.
            return_attention_scores: Whether to return (action, dict of scores) instead. The dict
                maps the name of each attention round to its scores: (H, N, S) for one observation,
                (B, H, N, S) for a batch.
            timeout: Seconds that the call may take; `None` for the client's timeout.

        Raises:
            ValueError: If the policy needs more than the newest observation. Use a session from
                `serving.sessions` for such a policy.
        """
        return _finish(self._client.act(observation, return_attention_scores, timeout=timeout))

    def predict(
        self,
        inputs: Mapping[str, Any],
        signature: str = "serving_default",
        timeout: float | None = None,
        *,
        sequence: Mapping[str, Any] | None = None,
    ) -> dict[str, np.ndarray]:
        """Return name -> array of the outputs of a signature.

        Args:
            inputs: name -> array of the inputs of the signature.
            signature: The name of the signature.
            timeout: Seconds that the call may take; `None` for the client's timeout.
            sequence: The parameters of a request in a sequence, whose state the server keeps:
                `{"sequence_id": "mine", "sequence_start": True}` for the first one. Sessions from
                `serving.sessions` set them. `None` for a request without a sequence.
        """
        return _finish(self._client.predict(inputs, signature, timeout, sequence=sequence))

    @property
    def signatures(self) -> dict[str, Any]:
        """The signatures of the model, from the server's metadata.

        A dict maps the name of each signature to `{"inputs": ..., "outputs": ...}`, which map the
        names of tensors to (dtype, shape). The client requests the metadata once, and again after
        an error that a new version of the model may have caused.
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
    """An asyncio client of a served policy, from `connect_async`.

    All tasks of one event loop may share it. The methods raise the same errors as those of
    `Client`.
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
        """Return the greedy action for one observation or for a batch, as `Client.act` does."""
        name = "act_with_attention" if return_attention_scores else "act"
        deadline = self._deadline(timeout)
        inputs, single = as_batch(observation, _find(await self._load_signatures(deadline), name))
        outputs = await self.predict(inputs, name, deadline - time.monotonic())
        return split_outputs(outputs, single, return_attention_scores)

    async def predict(
        self,
        inputs: Mapping[str, Any],
        signature: str = "serving_default",
        timeout: float | None = None,
        *,
        sequence: Mapping[str, Any] | None = None,
    ) -> dict[str, np.ndarray]:
        """Return name -> array of the outputs of a signature, as `Client.predict` does."""
        deadline = self._deadline(timeout)
        find = _find if sequence is None else _find_step
        specs = find(await self._load_signatures(deadline), signature)
        request = self.transport.predict_request(inputs, signature, specs, sequence or {})
        try:
            return self.transport.read_outputs(await self._send(request, deadline), specs)
        except ServingError as error:
            # A new version of the model may have different signatures.
            if error.code in ("INTERNAL", "INVALID_ARGUMENT"):
                self._signatures = None
            raise

    async def signatures(self) -> dict[str, Any]:
        """Return the signatures of the model, in the form of `Client.signatures`."""
        return await self._load_signatures(self._deadline(None))

    async def _load_signatures(self, deadline):
        signatures = self._signatures  # read once: another thread or task may reset the attribute
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


def _find_step(signatures, name):
    """Return the inputs and outputs of a request in a sequence."""
    if name == "sequence_state":
        inputs, outputs = {}, _find(signatures, "serving_default")["inputs"]
        outputs = {key: outputs[key] for key in outputs if key in windows.INPUTS | {"memory"}}
    else:
        inputs, outputs = _find(signatures, name)["inputs"], _find(signatures, name)["outputs"]
        outputs = {key: outputs[key] for key in outputs if key != "next_memory"}
    return {"inputs": inputs, "outputs": outputs}
