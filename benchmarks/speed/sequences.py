"""Compare sequences, whose state the server keeps, with requests that contain the state.

`serving.server --enable_batching` serves a pretrained recurrent policy in a separate process.
Clients send the steps of their episodes, one observation at a time. In turns, every client sends
the memory with each step, or plays a sequence. The clients share the cores with the server.
"""

import asyncio
import dataclasses
import json
import urllib.request

import numpy as np

from benchmarks.measure import Report, median
from benchmarks.speed import serving
from rrl_tf.pretrained import pretrained_folder
from serving import bench


@dataclasses.dataclass(frozen=True)
class Config:
    """Select the policy, and set the number and length of measurements."""

    clients: int = 256
    """Concurrent clients, and therefore sequences."""
    rounds: int = 8
    """Number of turns of each method."""
    seconds: float = 4.0
    """Length of a turn in seconds."""
    preset: str = "doorkey-8x8"
    """Pretrained recurrent policy."""


def main(config):
    """Measure steps with and without sequences over both protocols."""
    with serving.serve(pretrained_folder(config.preset) / "policy", 1) as (addresses, _):
        methods = {
            (address, in_sequence): _load(address, in_sequence, config)
            for address in addresses
            for in_sequence in (False, True)
        }
        turns = serving.take_turns(methods, config)
        sizes = {each: _rest_bytes(addresses[1], each) for each in (False, True)}
    rows = [_row(config, *key, turns, sizes) for key in methods]
    notes = (
        "Target: with sequences, p99 at most 3 times that of requests with the memory.",
        "The rate is the median of the turns; latencies are of all requests of all turns.",
        "Bytes are those of the JSON bodies of one step, without headers.",
    )
    return Report("Sequences on the server", rows, notes)


def _load(address, in_sequence, config):
    body = bench.make_body(address, "policy", "act", 1, in_sequence)

    def take_turn(seconds):
        arguments = (address, "policy", body, config.clients, 1, seconds, None, None)
        return asyncio.run(bench.load(*arguments, in_sequence))

    return take_turn


def _rest_bytes(address, in_sequence):
    """Return (bytes of the request, bytes of the reply) of a step over REST."""
    request = json.loads(bench.make_body(address, "policy", "act", 1, in_sequence))
    start = {"sequence_start": True} if in_sequence else {}
    for _ in range(2):  # the second step has no `sequence_start`
        if in_sequence:
            request["sequence_id"] = "0123456789abcdef"
        body = json.dumps({**request, **start}, separators=(",", ":")).encode()
        with urllib.request.urlopen(f"{address}/v1/models/policy:predict", body) as reply:
            received = len(reply.read())
        start = {}
    return len(body), received


def _row(config, address, in_sequence, turns, sizes):
    results = turns[address, in_sequence]
    if failures := [turn.first_failure for turn in results if turn.failed]:
        raise ValueError(f"all requests must succeed; the first failure is {failures[0]}")
    p50, p99 = _quantiles(results)
    sent, received = sizes[in_sequence] if address.startswith("http") else (None, None)
    return {
        "protocol": "REST" if address.startswith("http") else "gRPC",
        "memory": "on the server" if in_sequence else "in each request",
        "clients": config.clients,
        "requests/s": median([turn.rate for turn in results]),
        "p50 ms": p50,
        "p99 ms": p99,
        "p99, relative": p99 / _quantiles(turns[address, False])[1],
        "bytes sent": sent,
        "bytes received": received,
    }


def _quantiles(results):
    latencies = np.concatenate([turn.latencies for turn in results])
    return [float(each) for each in 1e3 * np.quantile(latencies, (0.5, 0.99))]
