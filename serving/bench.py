"""Loads a server and measures it: `python -m serving.bench --address=grpc://localhost:8500`.

Asks any TensorFlow Serving address for one signature, with random observations of the shape that
the server's metadata tells, and prints a table. Closed loop (the default): each client asks again
as soon as it is answered. Open loop (`--rate`): requests leave at fixed times however slow the
answers are, and waiting for a free client counts as latency.

`--mix=8x1@grpc://localhost:8500,16x300@http://localhost:8501` is several kinds of clients at once,
so many clients by rows a request: each kind alone, then all together, so that it shows if one
starves another.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import sys
import time
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from serving.client import ServingError, connect
from serving.client.address import split_address

LOADED_SCHEMES = ("grpc", "http")  # TLS would be most of the load

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
    """What one run measured; latencies in seconds."""

    clients: int
    batch: int
    seconds: float
    latencies: list
    failed: int = 0
    first_failure: str | None = None
    server_cpu: float | None = None

    def row(self) -> tuple:
        """Returns the numbers of `COLUMNS`."""
        count = len(self.latencies)
        p50, p99 = np.quantile(self.latencies, (0.5, 0.99)) * 1e3 if count else (np.nan,) * 2
        cpu = "" if self.server_cpu is None else f"{self.server_cpu / max(count, 1) * 1e6:.0f}"
        rate = count / self.seconds
        rates = f"{rate:.0f}", f"{rate * self.batch:.0f}"
        return (self.clients, self.batch, *rates, f"{p50:.2f}", f"{p99:.2f}", self.failed, cpu)


def make_body(address: str, model: str, signature: Any, batch: int, seed: int = 0) -> bytes:
    """Returns the bytes of a predict request with `batch` random rows."""
    with connect(address, model) as client:
        if signature not in client.signatures:
            raise ValueError(f"no signature {signature!r}; there are {sorted(client.signatures)}")
        specs = client.signatures[signature]["inputs"]
    inputs = {
        name: _random(name, dtype, shape, batch, seed) for name, (dtype, shape) in specs.items()
    }
    if address.startswith("http"):
        columns = {name: value.tolist() for name, value in inputs.items()}
        return json.dumps({"signature_name": signature, "inputs": columns}).encode()
    from tensorflow_serving.apis import predict_pb2

    from serving import tensors

    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = model, signature
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tensors.pack(value))
    return request.SerializeToString()


def _random(name, dtype, shape, batch, seed):
    known = dtype is not None and shape is not None and min(shape[1:], default=0) >= 0
    if not known or dtype.kind not in "iufb":
        raise ValueError(f"cannot make up input {name!r} of dtype {dtype}, shape {shape}")
    sizes = [batch if size < 0 else size for size in shape]
    return np.random.default_rng(seed).integers(0, 10, sizes).astype(dtype)


class _Grpc:
    """Sends ready-made bytes, so that the load costs little beside the server."""

    def __init__(self, parts, model, body):
        self._target, self._body = parts.netloc, body

    async def open(self):
        import grpc

        # Channels to one address share a connection unless their options differ.
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.aio.insecure_channel(self._target, options=options)
        self._call = self._channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        return self

    async def ask(self):
        """Returns None, or why it failed."""
        import grpc

        try:
            await self._call(self._body)
            return None
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"

    async def close(self):
        await self._channel.close()


class _Rest:
    def __init__(self, parts, model, body):
        self._host, self._port = parts.hostname, parts.port
        path = f"/v1/models/{urllib.parse.quote(model, safe='')}:predict"
        head = f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        self._request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    async def open(self):
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def ask(self):
        """Returns None, or why it failed."""
        try:
            if self._writer.is_closing():
                await self.open()
            self._writer.write(self._request)
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
) -> Result:
    """Runs one load and returns its `Result`; `rate` in requests a second makes it open loop."""
    parts = urllib.parse.urlsplit(address)
    kind = _Rest if parts.scheme == "http" else _Grpc
    made = (kind(parts, model, body) for _ in range(clients))
    connections = await asyncio.gather(*(connection.open() for connection in made))
    await asyncio.gather(*(connection.ask() for connection in connections))
    result = Result(clients, batch, seconds, [])
    cpu = cpu_seconds(server_pid)
    start = time.perf_counter()
    slots = iter(range(sys.maxsize))

    async def one_client(connection):
        while True:
            asked = time.perf_counter()
            if rate is not None:
                asked = start + next(slots) / rate
                await asyncio.sleep(max(asked - time.perf_counter(), 0))
            if asked - start >= seconds:
                return
            failure = await connection.ask()
            if failure is None:
                result.latencies.append(time.perf_counter() - asked)
            else:
                result.failed += 1
                result.first_failure = result.first_failure or failure

    await asyncio.gather(*(one_client(connection) for connection in connections))
    result.seconds = time.perf_counter() - start
    if cpu is not None:
        result.server_cpu = (cpu_seconds(server_pid) or cpu) - cpu
    await asyncio.gather(*(connection.close() for connection in connections))
    return result


@dataclasses.dataclass(frozen=True)
class Kind:
    """Clients of one kind: how many, with how many rows a request, at which address."""

    clients: int
    batch: int
    address: str

    @classmethod
    def parse(cls, text: str) -> Kind:
        """Reads "8x1@grpc://localhost:8500"."""
        sizes, _, address = text.partition("@")
        clients, _, batch = sizes.partition("x")
        if not (clients.isdecimal() and batch.isdecimal() and int(clients) and int(batch)):
            raise ValueError(f"a kind of clients is like 8x1@grpc://host:port; received {text!r}")
        split_address(address, LOADED_SCHEMES)
        return cls(int(clients), int(batch), address)

    def __str__(self) -> str:
        return f"{self.clients} {urllib.parse.urlsplit(self.address).scheme} x {self.batch} rows"


async def mix(kinds: Sequence[Kind], model: str, signature: str, seconds: float) -> list[Result]:
    """Runs several kinds of clients at once and returns a `Result` of each."""
    loads = []
    for kind in kinds:
        body = make_body(kind.address, model, signature, kind.batch)
        loads.append(load(kind.address, model, body, kind.clients, kind.batch, seconds))
    return await asyncio.gather(*loads)


def mix_table(kinds: Sequence[Kind], model: str, signature: str, seconds: float) -> str:
    """Returns a Markdown table: what each kind of clients gets beside the others, and alone."""
    alone = [asyncio.run(mix([kind], model, signature, seconds))[0] for kind in kinds]
    together = asyncio.run(mix(kinds, model, signature, seconds))
    rows = [MIX_COLUMNS, ["---"] * len(MIX_COLUMNS)]
    for kind, one, among in zip(kinds, alone, together):
        rates = [len(result.latencies) / result.seconds for result in (among, one)]
        p99s = [np.quantile(r.latencies or [np.nan], 0.99) * 1e3 for r in (among, one)]
        share = f"{rates[0] / max(rates[1], 1e-9):.0%}"
        failed = one.failed + among.failed
        _say_failures([one, among])
        numbers = (f"{rates[0]:.0f}", f"{rates[1]:.0f}", share)
        rows.append((str(kind), *numbers, *(f"{p99:.1f}" for p99 in p99s), str(failed)))
    return _markdown(rows)


def cpu_seconds(pid: int | None) -> float | None:
    """Returns the processor time that a process has used so far, None without one."""
    if pid is None:
        return None
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def table(results: list[Result]) -> str:
    """Returns a Markdown table of results."""
    return _markdown([COLUMNS, ["---"] * len(COLUMNS), *(result.row() for result in results)])


def _say_failures(results):
    for result in results:
        if result.failed:
            print(
                f"serving.bench: {result.failed} requests of {result.batch} rows from "
                f"{result.clients} clients failed, the first with {result.first_failure}",
                file=sys.stderr,
            )


def _markdown(rows):
    return "\n".join("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows)


def _plot(results, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (rate, latency) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    for batch in sorted({result.batch for result in results}):
        chosen = [result for result in results if result.batch == batch]
        clients = [result.clients for result in chosen]
        rate.plot(
            clients, [len(r.latencies) * batch / r.seconds for r in chosen], "o-", label=batch
        )
        for quantile, style in ((0.5, "o-"), (0.99, "o:")):
            values = [
                np.quantile(result.latencies or [np.nan], quantile) * 1e3 for result in chosen
            ]
            latency.plot(clients, values, style, label=f"{batch}, p{quantile * 100:.0f}")
    for axes, title in ((rate, "rows / s"), (latency, "latency, ms")):
        axes.set(xlabel="clients", title=title, ylim=(0, None))
        axes.legend(title="batch", frameon=False)
    figure.savefig(path, dpi=120)


def _integers(text):
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(
            f"expected positive integers with commas between; received {text!r}"
        )
    return [int(part) for part in parts]


def _positive(text):
    with contextlib.suppress(ValueError):
        if 0 < float(text) < float("inf"):
            return float(text)
    raise argparse.ArgumentTypeError(f"expected a positive number; received {text!r}")


def _combinations(options):
    """Returns a `Result` for each number of clients and of rows."""
    address, results = options.address, []
    split_address(address, LOADED_SCHEMES)
    for batch in options.batch:
        body = make_body(address, options.model, options.signature, batch)
        for clients in options.clients:
            how = (options.seconds, options.rate, options.server_pid)
            results.append(asyncio.run(load(address, options.model, body, clients, batch, *how)))
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table of all combinations of clients and batch; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m serving.bench", description=__doc__)
    parser.add_argument("--address", default="grpc://127.0.0.1:8500", help="grpc:// or http://")
    parser.add_argument("--model", default="default", help="its name on the server")
    parser.add_argument("--signature", default="serving_default", help="what is asked")
    parser.add_argument("--clients", type=_integers, default=[1, 8, 32], help="e.g. 1,8,32")
    parser.add_argument("--batch", type=_integers, default=[1], help="rows a request, e.g. 1,16")
    parser.add_argument("--seconds", type=_positive, default=5.0, help="length of each run")
    parser.add_argument("--rate", type=_positive, help="open loop: requests a second, all clients")
    parser.add_argument("--server_pid", type=int, help="measure this process's CPU a request")
    parser.add_argument(
        "--mix", help="kinds of clients at once, e.g. 8x1@grpc://...,16x300@http://..."
    )
    parser.add_argument("--plot", help="picture to write")
    options = parser.parse_args(arguments)
    try:
        if options.mix:
            if options.rate or options.plot or options.server_pid:
                raise ValueError("--mix goes without --rate, --plot and --server_pid")
            kinds = [Kind.parse(text) for text in options.mix.split(",")]
            print(mix_table(kinds, options.model, options.signature, options.seconds))
            return 0
        results = _combinations(options)
        print(table(results))
        _say_failures(results)
        if options.plot:
            _plot(results, options.plot)
    except (ServingError, ValueError, OSError) as error:
        print(f"serving.bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
