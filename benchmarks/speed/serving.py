"""Measure the server's throughput and latency, and compare them with upper limits.

Policies with new weights, the relational `fast` and a small dense one, are exported and served by
`python -m serving.server --enable_batching` in a separate process. `serving.bench` requests the
action of one observation at a time. It takes turns with:

- `signature in process`: one thread calls the signature of the loaded SavedModel, NumPy in and out;
- `session in process`: the same through `rrl_tf.export`, which the server runs;
- `gRPC echo`: a server on the same gRPC stack that answers every request with the same bytes, which
  is the upper limit of any gRPC server in Python.

The clients run on the same machine as the server and share its cores.
"""

import asyncio
import contextlib
import dataclasses
import os
import socket
import subprocess
import sys
import tempfile
import time
from typing import Literal

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from benchmarks.measure import Report, median, middle
from benchmarks.untrained import double_dqn
from rrl_tf.export import SavedModelSession, export_policy
from serving import bench
from serving.local import free_ports, server_command
from train_scripts import train_doorkey

SIGNATURE, SESSION, ECHO = "signature in process", "session in process", "gRPC echo"
DENSE_SHAPE, DENSE_UNITS, DENSE_ACTIONS = (49, 3), 256, 5


@dataclasses.dataclass(frozen=True)
class Config:
    """Select the policies and the servers, and set the number and length of measurements."""

    clients: int = 32
    """Concurrent clients."""
    rounds: int = 8
    """Number of turns of each method."""
    seconds: float = 2.0
    """Length of a turn in seconds."""
    processes: tuple[int, ...] = (1, 2)
    """Numbers of server processes."""
    policies: tuple[Literal["fast", "dense"], ...] = ("fast", "dense")
    """`fast` is the relational network of train_doorkey."""


def main(config):
    """Measure the server with one client and with many."""
    rows = []
    for policy in config.policies:
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as servers:
            methods = make_methods(policy, folder, config, servers)
            rows += make_rows(policy, take_turns(methods, config))
    notes = (
        "Targets with 32 clients: gRPC at least 80 % and REST 100 % of the signature in process, "
        "gRPC 70 % of the echo, p99 at most 4 times p50; one client of the dense policy 0.6 ms.",
        "Rates are medians over turns; latencies are of all requests of all turns.",
        "Load and server share the machine and its cores.",
    )
    return Report("Actions from the server", rows, notes)


def make_methods(policy, folder, config, servers):
    """Return the function that measures each (method, clients).

    Each function takes the seconds of a turn and returns a `bench.Result`.
    """
    version = export(policy, folder)
    methods = {
        (SIGNATURE, 1): in_process(signature_of(version), version),
        (SESSION, 1): in_process(SavedModelSession(version).run, version),
    }
    for processes in config.processes:
        (grpc, rest), pid = servers.enter_context(serve(folder, processes))
        suffix, clients = (f", {processes} processes", ()) if processes > 1 else ("", (1,))
        for count in (*clients, config.clients):
            methods[f"gRPC{suffix}", count] = load(grpc, grpc, count, pid)
            methods[f"REST{suffix}", count] = load(rest, rest, count, pid)
        if processes == 1:
            echo, echo_pid = servers.enter_context(serve_echo(grpc))
            for count in (1, config.clients):
                methods[ECHO, count] = load(grpc, echo, count, echo_pid)
    return methods


def export(policy, folder):
    """Export a policy with new weights and return its version folder."""
    if policy == "fast":
        task, agent = double_dqn(train_doorkey.PRESETS["fast"])
        return export_policy(folder, agent.policy, agent.preprocess, task.observation_space.shape)
    hidden = [keras.layers.Dense(DENSE_UNITS, activation="relu") for _ in range(2)]
    layers = [keras.layers.Flatten(), *hidden, keras.layers.Dense(DENSE_ACTIONS)]
    model = keras.Sequential([keras.Input(DENSE_SHAPE), *layers])
    return export_policy(folder, model, lambda o: ops.cast(o, "float32"), DENSE_SHAPE, "uint8")


def signature_of(version):
    """Return a function of (name, NumPy inputs) that calls a signature of the SavedModel."""
    loaded = tf.saved_model.load(str(version))

    def run(name, inputs):
        tensors = {key: tf.constant(value) for key, value in inputs.items()}
        return {key: value.numpy() for key, value in loaded.signatures[name](**tensors).items()}

    return run


def in_process(run, version):
    """Return a function that calls `run` in this process for some seconds."""
    spec = SavedModelSession(version).signatures["act"].inputs["observation"]
    shape = [1, *(dim.size for dim in spec.tensor_shape.dim[1:])]
    observation = np.random.default_rng(0).integers(0, 3, shape).astype("uint8")

    def take_turn(seconds):
        result = bench.Result(1, 1, seconds, [])
        run("act", {"observation": observation})
        begun, cpu = time.perf_counter(), time.process_time()
        while (before := time.perf_counter()) - begun < seconds:
            run("act", {"observation": observation})
            result.latencies.append(time.perf_counter() - before)
        result.seconds = before - begun
        result.server_cpu = time.process_time() - cpu
        return result

    return take_turn


def load(described, address, clients, pid):
    """Return a function that sends the requests of `serving.bench` for some seconds.

    Args:
        described: address of the server whose metadata describe the request.
        address: address of the server that receives the requests.
        clients: number of concurrent clients.
        pid: process whose CPU time is measured, or `None`.
    """
    body = bench.make_body(described, "policy", "act", batch=1)

    def take_turn(seconds):
        return asyncio.run(bench.load(address, "policy", body, clients, 1, seconds, None, pid))

    return take_turn


@contextlib.contextmanager
def serve(folder, processes):
    """Start a server; yield its two addresses, and its process ID if there is only one process."""
    grpc, rest = free_ports(2)
    flags = ("--enable_batching", f"--num_processes={processes}")
    command = server_command(folder, "policy", grpc, rest, *flags)
    with tempfile.TemporaryFile() as log:

        def is_ready():
            return b"serving gRPC on" in os.pread(log.fileno(), 1 << 20, 0)

        with started(command, log, is_ready) as pid:
            addresses = f"grpc://127.0.0.1:{grpc}", f"http://127.0.0.1:{rest}"
            yield addresses, pid if processes == 1 else None


@contextlib.contextmanager
def serve_echo(address):
    """Start a server that repeats a reply of the server; yield its address and process ID."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "benchmarks.grpc_echo", address, str(port)]

    def is_ready():
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    with started(command, subprocess.DEVNULL, is_ready) as pid:
        yield f"grpc://127.0.0.1:{port}", pid


@contextlib.contextmanager
def started(command, log, is_ready, patience=600.0):
    """Run a process until the block ends; yield its process ID once it is ready."""
    process, end = subprocess.Popen(command, stderr=log), time.monotonic() + patience
    try:
        while not is_ready():
            if process.poll() is not None or time.monotonic() > end:
                raise OSError(f"{' '.join(command[1:3])} must start; exit code {process.poll()}")
            time.sleep(0.1)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def take_turns(methods, config):
    """Return a list of `bench.Result`, one for each turn, for each (method, clients)."""
    for turn in methods.values():
        turn(min(config.seconds, 0.5))  # fills caches
    results = {key: [] for key in methods}
    for _ in range(config.rounds):
        for key, turn in methods.items():
            results[key].append(turn(config.seconds))
    return results


def make_rows(policy, results):
    """Return the rows of one policy."""
    rates = {
        key: [len(turn.latencies) / turn.seconds for turn in turns]
        for key, turns in results.items()
    }
    rows = []
    for (method, clients), turns in results.items():
        if failed := sum(turn.failed for turn in turns):
            raise ValueError(f"all requests must succeed; {failed} failed: {policy}, {method}")
        latencies = 1e3 * np.concatenate([turn.latencies for turn in turns])
        p50, p99 = (float(each) for each in np.quantile(latencies, (0.5, 0.99)))
        rate = median(rates[method, clients])
        times = [turn.server_cpu for turn in turns if turn.server_cpu is not None]
        has_echo = method.startswith("gRPC") and clients > 1
        rows.append(
            {
                "policy": policy,
                "method": method,
                "clients": clients,
                "requests/s": rate,
                "10 to 90 % of rounds": middle(rates[method, clients], ",.0f"),
                "p50 ms": p50,
                "p99 ms": p99,
                "p99 / p50": p99 / p50,
                "server CPU µs/request": 1e6 * sum(times) / len(latencies) if times else None,
                "relative to signature": rate / median(rates[SIGNATURE, 1]),
                "relative to echo": rate / median(rates[ECHO, clients]) if has_echo else None,
            }
        )
    return rows
