"""Asks a served policy for actions, over gRPC or REST.

>>> from rrl_tf.envs import doorkey_task
>>> from serving.server import Flags, running
>>> observation, _ = doorkey_task().make_env().reset(seed=0)
>>> with running(Flags(preset="doorkey-5x5", port=0)) as server:
...     with connect(f"grpc://localhost:{server.grpc_port}", "doorkey-5x5") as client:
...         client.act(observation)
1

Works against `serving.server` and against TensorFlow Serving itself. The REST client needs NumPy
and the standard library; the gRPC client needs tensorflow-serving-api.
"""

from __future__ import annotations

import random
import re
import reprlib
import time
import urllib.parse
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from serving.client.transports import GrpcTransport, RestTransport
from serving.errors import ServingError

__all__ = ["Client", "ServingError", "connect"]

_LONGEST_PAUSE = 2.0
#: Codes of a failure after which signatures are asked for anew: another version may answer by now.
STALE = ("INTERNAL", "INVALID_ARGUMENT")


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
    """Returns a `Client` of a served model.

    Args:
        address: `"grpc://host:port"` or `"http://host:port"`; `grpcs` and `https` for TLS.
        model: Its name on the server.
        version: A version's number; by default always the newest.
        label: A version's label, instead of its number.
        timeout: Seconds that a call may take, unless it says otherwise.
        retries: How often at most a request is repeated, with growing pauses, that the server was
            UNAVAILABLE for; by default until its time is up, so that a server may be started
            again meanwhile. No other failure is repeated.
        certificates: With TLS, a PEM file of the authorities to trust instead of the system's.
        identity: With TLS, the PEM files (certificate, key) by which the server knows the client.

    Raises:
        ValueError: If the address has another form. The server is first asked at the first call.
    """
    transports = {"grpc": GrpcTransport, "http": RestTransport}
    transport = make_transport(transports, address, model, version, label, certificates, identity)
    return Client(transport, timeout, retries)


def make_transport(
    transports: Mapping[str, Callable[..., Any]],
    address: str,
    model: str,
    version: int | None,
    label: str | None,
    certificates: str | None,
    identity: tuple[str, str] | None,
) -> Any:
    """Returns the transport for an address, pointed at the model; the rest as in `connect`."""
    parts = split_address(address, ("grpc", "grpcs", "http", "https"))
    make = transports[parts.scheme.removesuffix("s")]
    if version is not None and label is not None:
        raise ValueError(f"give a version or a label; received {version!r} and {label!r}")
    secure = parts.scheme.endswith("s")
    if (certificates or identity) is not None and not secure:
        raise ValueError(
            f"certificates and an identity need grpcs:// or https://; received {address!r}"
        )
    transport = make(parts.hostname, parts.port, secure, certificates, identity)
    transport.address_model(model, version, label)
    return transport


def split_address(address: str, schemes: Collection[str]) -> urllib.parse.SplitResult:
    """Returns the parts of an address; raises ValueError if it has another form."""
    try:
        parts = urllib.parse.urlsplit(address)
        fits = parts.scheme in schemes and parts.hostname and parts.port
        fits = fits and not parts.path.strip("/")
    except ValueError:  # a port that is none, brackets that do not close
        fits = False
    if not fits:
        raise ValueError(
            f"address must be grpc://host:port or http://host:port; received {address!r}"
        )
    return parts


class Client:
    """A served policy; made by `connect`. One client may be used by several threads.

    Every method raises `ServingError`, with the server's canonical code (INVALID_ARGUMENT,
    NOT_FOUND, UNAVAILABLE, DEADLINE_EXCEEDED, ...) as `code`, and the server's message.
    """

    def __init__(self, transport: Any, timeout: float, retries: int | None) -> None:
        self._transport = transport
        self._timeout = timeout
        self._retries = retries
        self._signatures: dict[str, Any] | None = None

    def act(
        self,
        observation: Any,
        return_attention_scores: bool = False,
        *,
        timeout: float | None = None,
    ) -> Any:
        """Returns the greedy action of one observation (an int) or of a batch (an array (B,)).

        Args:
            observation: As the environment gives it, or a batch of them.
            return_attention_scores: Whether to return (action, dict of scores) instead; the scores
                are (H, N, S) for one observation and (B, H, N, S) for a batch, by the name of
                their round.
            timeout: Seconds, instead of the client's.

        Raises:
            ValueError: If the policy needs more than an observation; `serving.sessions` has it.
        """
        signature = "act_with_attention" if return_attention_scores else "act"
        deadline = self._deadline(timeout)
        batch, single = as_batch(observation, find_signature(self._known(deadline), signature))
        outputs = self.predict({"observation": batch}, signature, deadline - time.monotonic())
        return split_answer(outputs, single, return_attention_scores)

    def predict(
        self,
        inputs: Mapping[str, Any],
        signature: str = "serving_default",
        timeout: float | None = None,
    ) -> dict[str, np.ndarray]:
        """Returns name -> array of any signature, for name -> array of its inputs."""
        deadline = self._deadline(timeout)
        known = find_signature(self._known(deadline), signature)
        require_names(inputs, known)
        try:
            return self._retrying(
                deadline, lambda left: self._transport.predict(inputs, signature, known, left)
            )
        except ServingError as error:
            if error.code in STALE:
                self._signatures = None
            raise

    @property
    def signatures(self) -> dict[str, Any]:
        """name -> {"inputs", "outputs"} of name -> (dtype, shape), as the server told them.

        Asked for once, and again after a failure that another version may be the reason of.
        """
        return self._known(self._deadline(None))

    def _deadline(self, timeout):
        return time.monotonic() + (self._timeout if timeout is None else timeout)

    def _known(self, deadline):
        known = self._signatures  # another thread may forget them meanwhile
        if known is None:
            known = self._signatures = self._retrying(deadline, self._transport.signatures)
        return known

    def _retrying(self, deadline, ask):
        """Calls `ask(seconds left)`, again while the server is UNAVAILABLE."""
        attempts = Attempts(deadline - time.monotonic(), self._retries)
        while True:
            try:
                return ask(attempts.seconds_left())
            except ServingError as error:
                time.sleep(attempts.pause_after(error))

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Attempts:
    """How often and how long a request is repeated that the server was UNAVAILABLE for."""

    def __init__(self, timeout: float, retries: int | None) -> None:
        self._deadline = time.monotonic() + timeout
        self._left, self._pause = retries, 0.02

    def seconds_left(self) -> float:
        """Returns how long the next attempt may take."""
        return max(self._deadline - time.monotonic(), 1e-3)

    def pause_after(self, error: ServingError) -> float:
        """Returns how long to wait after a failure; raises it if it is final."""
        # Not all at once: whoever waits for the same server began to wait at the same moment.
        pause = self._pause * random.uniform(0.75, 1.25)
        if error.code != "UNAVAILABLE" or self._left == 0:
            raise error
        if time.monotonic() + pause > self._deadline:
            raise error
        if self._left is not None:
            self._left -= 1
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return pause


def find_signature(signatures: Mapping[str, Any], name: str) -> Any:
    """Returns one of a server's signatures; raises FAILED_PRECONDITION if there is none."""
    if name not in signatures:
        raise ServingError(
            "FAILED_PRECONDITION", f"no signature {name!r}; there are {sorted(signatures)}"
        )
    return signatures[name]


def require_names(inputs: Any, signature: Mapping[str, Any]) -> None:
    """Raises ValueError unless the inputs are told by their names."""
    if not isinstance(inputs, Mapping):
        names = ", ".join(sorted(signature["inputs"]))
        raise ValueError(
            f"inputs must be a dict of name -> array (names: {names}); "
            f"received {reprlib.repr(inputs)}"
        )


def _array_of(observation, dtype, shape):
    """A list or the like as an array, if the dtype holds its numbers: 300 is no `uint8` of 44."""
    try:
        given = np.asarray(observation)
        with np.errstate(invalid="ignore"):  # NaN has no whole number
            array = given.astype(dtype)
        whole = given.dtype.kind in "biu" and np.array_equal(array, given)
        fits = whole or array.dtype.kind not in "iu"
    except (OverflowError, TypeError, ValueError):
        fits = False
    if not fits:
        raise ValueError(
            f"observation must be an array of {dtype} of shape {shape[1:]}, or a batch of them; "
            f"received {reprlib.repr(observation)}"
        )
    return array


def as_batch(observation: Any, signature: Mapping[str, Any]) -> tuple[np.ndarray, bool]:
    """Returns (batch of observations, whether it was a single one)."""
    inputs = signature["inputs"]
    if inputs.keys() != {"observation"}:
        session = "MemorySession" if "memory" in inputs else "WindowSession"
        raise ValueError(
            f"act is for policies that take an observation alone; ask this one through "
            f"serving.sessions.{session}, or by predict; received a policy of {sorted(inputs)}"
        )
    dtype, shape = inputs["observation"]
    if not isinstance(observation, np.ndarray):
        observation = _array_of(observation, dtype, shape)
    # Anything that fits neither goes out as it is: the server says what it expected.
    single = observation.ndim == len(shape) - 1
    return (observation[np.newaxis] if single else observation), single


def split_answer(
    outputs: Mapping[str, np.ndarray], single: bool, return_attention_scores: bool
) -> Any:
    """Returns what `act` does, from the outputs for a batch."""
    if single:
        outputs = {name: array[0] for name, array in outputs.items()}
    action = int(outputs["action"]) if single else outputs["action"]
    return (action, split_attention(outputs)) if return_attention_scores else action


def split_attention(outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns name of a round -> scores, from the outputs of `act_with_attention`, in order.

    Signatures and protocols keep no order of their outputs.
    """
    prefix = "attention_"
    names = [name.removeprefix(prefix) for name in outputs if name.startswith(prefix)]
    names.sort(key=lambda name: [part.zfill(9) for part in re.split(r"(\d+)", name)])
    return {name: outputs[prefix + name] for name in names}
