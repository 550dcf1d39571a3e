"""Measure a server under load: `python -m serving.bench --address=grpc://localhost:8500`.

The tool sends predict requests with random inputs to any server that has the TensorFlow Serving
protocol, and prints a Markdown table of throughput and latency. It reads the shapes of the inputs
from the server's metadata.

- Closed loop (the default): each client sends its next request as soon as it has the reply to its
  last one.
- Open loop (`--rate`): requests start at fixed times, however slow the replies are. If all clients
  are busy at that time, the wait for a client counts as latency.
- Mixed load (`--mix=8x1@grpc://localhost:8500,16x300@http://localhost:8501`): several kinds of
  clients run at once. Each kind is written as CLIENTSxROWS@ADDRESS, where ROWS is the number of
  rows per request. Each kind first runs alone, then all run together, so the table shows whether
  one kind starves another.
- Sequences (`--sequences`): each client plays a sequence, whose state the server keeps, instead of
  sending a `memory`. This needs `serving.server` and a recurrent policy.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import secrets
import sys
import time
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from serving.client import ServingError, connect
from serving.client.address import split_address

_SCHEMES = ("grpc", "http")  # no TLS: the measurement would mostly show the cost of encryption
COLUMNS = (
    "clients",
    "batch",
    "requests/s",
    "rows/s",
    "p50 ms",
    "p99 ms",
    "failed",
    "server CPU us",
)
MIX_COLUMNS = ("clients", "requests/s", "alone", "of alone", "p99 ms", "alone", "failed")


@dataclasses.dataclass
class Result:
    """The measurements of one run.

    Attributes:
        clients: The number of clients.
        batch: The number of rows per request.
        seconds: The duration of the run.
        latencies: The latency of each successful request, in seconds.
        failed: The number of failed requests.
        first_failure: The error message of the first failed request, or None.
        server_cpu: Seconds of CPU time that the server used, or None if that was not measured.
    """

    clients: int
    batch: int
    seconds: float
    latencies: list
    failed: int = 0
    first_failure: str | None = None
    server_cpu: float | None = None

    @property
    def rate(self) -> float:
        """The number of successful requests per second."""
        return len(self.latencies) / self.seconds

    def milliseconds(self, quantile: float) -> float:
        """Return a quantile of the latencies in milliseconds, or NaN if no request succeeded."""
        return float(np.quantile(self.latencies or [np.nan], quantile)) * 1e3

    def row(self) -> tuple:
        """Return the cells of a table row, in the order of `COLUMNS`."""
        cpu = ""
        if self.server_cpu is not None:
            cpu = f"{self.server_cpu / max(len(self.latencies), 1) * 1e6:.0f}"
        rates = f"{self.rate:.0f}", f"{self.rate * self.batch:.0f}"
        times = f"{self.milliseconds(0.5):.2f}", f"{self.milliseconds(0.99):.2f}"
        return (self.clients, self.batch, *rates, *times, self.failed, cpu)


def make_body(
    address: str, model: str, signature: str, batch: int, in_sequence: bool = False
) -> bytes:
    """Return a serialized predict request with `batch` random rows.

    A recurrent policy gets its memory after one step; in a sequence, the server keeps it.
    """
    with connect(address, model) as client:
        if signature not in client.signatures:
            raise ValueError(
                f"`signature` must be one of {sorted(client.signatures)}; received {signature!r}."
            )
        specs = client.signatures[signature]
        inputs = {
            name: _random(name, spec, batch)
            for name, spec in specs["inputs"].items()
            if name != "memory"
        }
        if "memory" in specs["inputs"] and not in_sequence:
            # A recurrent policy rejects random numbers.
            start = client.predict({"batch_size": np.array(batch, np.int32)}, "initial_memory")
            inputs["memory"] = client.predict({**inputs, **start}, signature)["next_memory"]
        *_, message = client.transport.predict_request(inputs, signature, specs, {})
    return message if isinstance(message, bytes) else message.SerializeToString()


def _random(name, spec, batch):
    dtype, shape = spec
    known = dtype is not None and shape is not None and min(shape[1:], default=0) >= 0
    if not known or dtype.kind not in "iufb":
        raise ValueError(
            f"the input {name!r} must have a numeric dtype and a known shape; "
            f"received dtype {dtype}, shape {shape}."
        )
    sizes = [batch if size < 0 else size for size in shape]
    return np.random.default_rng(0).integers(0, 10, sizes).astype(dtype)


class _GrpcConnection:
    """A gRPC connection that sends the same bytes in every request.

    Because nothing is serialized per request, the client uses little CPU time next to the server.
    """

    def __init__(self, address, model, body):
        self._target, self._body = address.netloc, body
        self.parameters = {}  # of its sequence

    async def open(self):
        import grpc

        # Channels to one address share a connection unless their options differ.
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.aio.insecure_channel(self._target, options=options)
        self._call = self._channel.unary_unary("/tensorflow.serving.PredictionService/Predict")

    async def send(self):
        """Send the request; return None if it succeeds, or the error message."""
        import grpc

        try:
            await self._call(self._body, metadata=tuple(self.parameters.items()))
            return None
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"

    async def close(self):
        await self._channel.close()


class _RestConnection:
    """An HTTP connection that sends the same bytes in every request, like `_GrpcConnection`."""

    def __init__(self, address, model, body):
        self._host, self._port = address.hostname, address.port
        path = f"/v1/models/{urllib.parse.quote(model, safe='')}:predict"
        self._head = f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\n"
        self._body, self.parameters = body, {}

    async def open(self):
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)

    async def send(self):
        try:
            if self._writer.is_closing():
                await self.open()
            body = self._body
            if self.parameters:
                body = body[:-1] + b"," + json.dumps(self.parameters).encode()[1:]
            head = f"{self._head}Content-Length: {len(body)}\r\n\r\n"
            self._writer.write(head.encode() + body)
            head = await self._reader.readuntil(b"\r\n\r\n")
            start = head.lower().index(b"content-length:") + 15
            text = await self._reader.readexactly(int(head[start : head.index(b"\r\n", start)]))
        except (OSError, EOFError) as error:
            self._writer.close()
            return str(error) or type(error).__name__
        status = head.split(b" ", 2)[1].decode()
        return None if status == "200" else f"HTTP {status}: {text[:200].decode(errors='replace')}"

    async def close(self):
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


async def load(
    address: str,
    model: str,
    body: bytes,
    clients: int,
    batch: int,
    seconds: float,
    rate: float | None = None,
    server_pid: int | None = None,
    in_sequences: bool = False,
) -> Result:
    """Run clients against a server and return the `Result`.

    Args:
        address: `grpc://host:port` or `http://host:port`.
        model: The name of the model on the server.
        body: The serialized request from `make_body`.
        clients: The number of clients.
        batch: The number of rows in `body`.
        seconds: The duration of the run.
        rate: Requests per second of all clients together, in an open loop; `None` for a closed
            loop.
        server_pid: The process whose CPU time is measured; `None` for no measurement.
        in_sequences: Whether each client plays a sequence.
    """
    parts = urllib.parse.urlsplit(address)
    kind = _RestConnection if parts.scheme == "http" else _GrpcConnection
    connections: list[Any] = [kind(parts, model, body) for _ in range(clients)]
    if in_sequences:
        for connection in connections:
            connection.parameters = {"sequence_id": secrets.token_hex(8), "sequence_start": "true"}
    await asyncio.gather(*(connection.open() for connection in connections))
    await asyncio.gather(*(connection.send() for connection in connections))  # warm-up
    for connection in connections:
        connection.parameters.pop("sequence_start", None)
    result = Result(clients, batch, seconds, [])
    cpu_before = server_pid and _cpu_seconds(server_pid)
    start = time.perf_counter()
    slots = iter(range(sys.maxsize))

    async def run_client(connection):
        while True:
            sent = time.perf_counter()
            if rate is not None:
                sent = start + next(slots) / rate
                await asyncio.sleep(max(sent - time.perf_counter(), 0))
            if sent - start >= seconds:
                return
            failure = await connection.send()
            if failure is None:
                result.latencies.append(time.perf_counter() - sent)
            else:
                result.failed += 1
                result.first_failure = result.first_failure or failure

    await asyncio.gather(*(run_client(connection) for connection in connections))
    result.seconds = time.perf_counter() - start
    if server_pid:
        result.server_cpu = _cpu_seconds(server_pid) - cpu_before
    if in_sequences:
        for connection in connections:
            connection.parameters["sequence_end"] = "true"
        await asyncio.gather(*(connection.send() for connection in connections))
    await asyncio.gather(*(connection.close() for connection in connections))
    return result


def _cpu_seconds(pid):
    """Return the seconds of CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of client in a mixed load.

    Attributes:
        clients: The number of clients.
        batch: The number of rows per request.
        address: `grpc://host:port` or `http://host:port`.
    """

    clients: int
    batch: int
    address: str

    @classmethod
    def parse(cls, text: str) -> Kind:
        """Parse text such as "8x1@grpc://localhost:8500", which is CLIENTSxROWS@ADDRESS."""
        sizes, _, address = text.partition("@")
        clients, _, batch = sizes.partition("x")
        if not (clients.isdecimal() and batch.isdecimal() and int(clients) and int(batch)):
            raise ValueError(
                "each part of `mix` must be CLIENTSxROWS@ADDRESS, such as 8x1@grpc://host:port; "
                f"received {text!r}."
            )
        split_address(address, _SCHEMES)
        return cls(int(clients), int(batch), address)

    def __str__(self) -> str:
        return f"{self.clients} {urllib.parse.urlsplit(self.address).scheme} x {self.batch} rows"


async def mix(kinds: Sequence[Kind], model: str, signature: str, seconds: float) -> list[Result]:
    """Run several kinds of clients at once and return the `Result` of each."""
    loads = []
    for kind in kinds:
        body = make_body(kind.address, model, signature, kind.batch)
        loads.append(load(kind.address, model, body, kind.clients, kind.batch, seconds))
    return await asyncio.gather(*loads)


def mix_table(kinds: Sequence[Kind], model: str, signature: str, seconds: float) -> str:
    """Return a Markdown table that compares each kind of client in the mix and alone."""
    alone = [asyncio.run(mix([kind], model, signature, seconds))[0] for kind in kinds]
    together = asyncio.run(mix(kinds, model, signature, seconds))
    _log_failures([*alone, *together])
    rows = [
        (
            kind,
            f"{among.rate:.0f}",
            f"{one.rate:.0f}",
            f"{among.rate / max(one.rate, 1e-9):.0%}",
            f"{among.milliseconds(0.99):.1f}",
            f"{one.milliseconds(0.99):.1f}",
            one.failed + among.failed,
        )
        for kind, one, among in zip(kinds, alone, together)
    ]
    return _markdown(MIX_COLUMNS, rows)


def load_table(options: argparse.Namespace) -> str:
    """Return a Markdown table with a row for each pair of batch size and number of clients."""
    split_address(options.address, _SCHEMES)
    results = []
    for batch in options.batch:
        body = make_body(
            options.address, options.model, options.signature, batch, options.sequences
        )
        for clients in options.clients:
            run = load(
                *(options.address, options.model, body, clients, batch),
                *(options.seconds, options.rate, options.server_pid, options.sequences),
            )
            results.append(asyncio.run(run))
    _log_failures(results)
    return _markdown(COLUMNS, [result.row() for result in results])


def _log_failures(results):
    for result in results:
        if result.failed:
            print(
                f"serving.bench: {result.failed} requests failed "
                f"({result.clients} clients, {result.batch} rows per request); "
                f"first failure: {result.first_failure}",
                file=sys.stderr,
            )


def _markdown(columns, rows):
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _positive_integers(text):
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(
            f"must be positive integers, separated by commas; received {text!r}."
        )
    return [int(part) for part in parts]


def _positive(text):
    with contextlib.suppress(ValueError):
        if 0 < float(text) < float("inf"):
            return float(text)
    raise argparse.ArgumentTypeError(f"must be a positive number; received {text!r}.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of a uniform or a mixed load; return the exit code."""
    options = _parse(arguments)
    try:
        if options.mix:
            if options.rate or options.server_pid or options.sequences:
                raise ValueError(
                    "`--mix` cannot be combined with `--rate`, `--server_pid` or `--sequences`."
                )
            kinds = [Kind.parse(text) for text in options.mix.split(",")]
            print(mix_table(kinds, options.model, options.signature, options.seconds))
        else:
            print(load_table(options))
    except (ServingError, ValueError, OSError) as error:
        print(f"serving.bench: {error}", file=sys.stderr)
        return 1
    return 0


def _parse(arguments):
    parser = argparse.ArgumentParser(
        prog="python -m serving.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--address",
        default="grpc://127.0.0.1:8500",
        help="grpc://host:port or http://host:port (default: %(default)s)",
    )
    add("--model", default="default", help="name of the model on the server (default: %(default)s)")
    add(
        "--signature",
        default="serving_default",
        help="signature to request (default: %(default)s)",
    )
    add(
        "--clients",
        type=_positive_integers,
        default=[1, 8, 32],
        help="numbers of concurrent clients, each measured in its own run (default: 1,8,32)",
    )
    add(
        "--batch",
        type=_positive_integers,
        default=[1],
        help="numbers of rows per request, each measured in its own runs (default: 1)",
    )
    add(
        "--seconds",
        type=_positive,
        default=5.0,
        help="duration of each run (default: %(default)s)",
    )
    add(
        "--rate",
        type=_positive,
        help="requests per second of all clients together, in an open loop (default: closed loop)",
    )
    add(
        "--server_pid",
        type=int,
        help="process ID of the server, to measure its CPU time per request (default: not "
        "measured)",
    )
    add(
        "--mix",
        help="kinds of clients that run at once, e.g. 8x1@grpc://...,16x300@http://...; used "
        "instead of --address, --clients and --batch",
    )
    add("--sequences", action="store_true", help="each client plays a sequence")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
