"""Actions a second that the server answers, and how long one takes, against what is possible.

    python -m benchmarks speed/serving

Policies with new weights, the relational `fast` and a small dense one, are exported, served by
`python -m serving.server --enable_batching` in a process of its own, and asked for the action of
one observation at a time by `serving.bench`. Beside it, taking turns with it:

- `signature in process`: one thread calls the loaded SavedModel's signature, NumPy in and out;
- `session in process`: the same through `rrl_tf.export`, which is what the server runs;
- `gRPC echo`: a server of the same gRPC stack that answers every request with the same bytes, and
  so the most that any gRPC server in Python can do here.

The load comes from the same machine and takes its share of it.
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

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from benchmarks import untrained
from benchmarks.report import Report
from rrl_tf.export import SavedModelSession, export_policy
from serving import bench
from train_scripts import train_doorkey

COLUMNS = (
    "policy",
    "what",
    "clients",
    "requests/s",
    "10 to 90 % of turns",
    "p50 ms",
    "p99 ms",
    "p99 / p50",
    "µs of server CPU",
    "of signature in process",
    "of gRPC echo",
)
SIGNATURE, SESSION = "signature in process", "session in process"
DENSE_SHAPE, DENSE_UNITS, DENSE_ACTIONS = (49, 3), 256, 5


@dataclasses.dataclass(frozen=True)
class Config:
    """What is asked, and how long."""

    clients: int = 32
    """Concurrent clients."""
    rounds: int = 8
    """Turns of each way."""
    seconds: float = 2.0
    """Length of a turn."""
    processes: tuple[int, ...] = (1, 2)
    """Servers of so many processes are measured."""
    policies: tuple[str, ...] = ("fast", "dense")
    """`fast` is the relational network of train_doorkey."""


def main(config):
    """Measures the server at one client and at many, against what is possible in this process."""
    rows = []
    for policy in config.policies:
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as servers:
            contestants = make_contestants(policy, folder, config, servers)
            rows += rows_of(policy, take_turns(contestants, config))
    notes = (
        "Aims at 32 clients: gRPC at least 80 % and REST 100 % of the signature in process, gRPC "
        "70 % of the echo, p99 at most 4 times p50; one client of the dense policy 0.6 ms.",
        "Rates are medians over turns, latencies are of all requests of all turns.",
        "Load and server share the machine and its cores.",
    )
    return Report("Actions from the server", rows, notes)


def make_contestants(policy, folder, config, servers):
    """Returns (what, clients) -> function of seconds that returns a `bench.Result`."""
    version = export(policy, folder)
    contestants = {
        (SIGNATURE, 1): in_process(signature_of(version), version),
        (SESSION, 1): in_process(SavedModelSession(version).run, version),
    }
    for processes in config.processes:
        ports, pid = servers.enter_context(serve(folder, processes))
        suffix = "" if processes == 1 else f", {processes} processes"
        for scheme, port in zip(("grpc", "http"), ports):
            address = f"{scheme}://127.0.0.1:{port}"
            what = {"grpc": "gRPC", "http": "REST"}[scheme] + suffix
            for clients in (1, config.clients) if processes == 1 else (config.clients,):
                contestants[what, clients] = load(address, address, clients, pid)
            if scheme == "grpc" and processes == 1:
                echo, echo_pid = servers.enter_context(serve_echo(address))
                for clients in (1, config.clients):
                    turn = load(address, echo, clients, echo_pid)
                    contestants["gRPC echo", clients] = turn
    return contestants


def export(policy, folder):
    """Exports a policy with new weights and returns its version folder."""
    if policy == "fast":
        task, agent = untrained.double_dqn(train_doorkey.PRESETS["fast"])
        return export_policy(folder, agent.policy, agent.prepare, task.observation_space.shape)
    if policy != "dense":
        raise ValueError(f"unknown policy {policy!r}, expected one of fast, dense")
    inputs = keras.Input(DENSE_SHAPE)
    x = keras.layers.Flatten()(inputs)
    for _ in range(2):
        x = keras.layers.Dense(DENSE_UNITS, activation="relu")(x)
    model = keras.Model(inputs, keras.layers.Dense(DENSE_ACTIONS)(x))
    return export_policy(folder, model, lambda o: ops.cast(o, "float32"), DENSE_SHAPE, "uint8")


def signature_of(version):
    """The SavedModel as a user loads it: function of (name, inputs) -> NumPy outputs."""
    loaded = tf.saved_model.load(str(version))

    def run(name, inputs):
        tensors = {key: tf.constant(value) for key, value in inputs.items()}
        return {key: value.numpy() for key, value in loaded.signatures[name](**tensors).items()}

    run.keep_alive = loaded
    return run


def in_process(run, version):
    """A contestant that asks without a server, one after the other."""
    spec = SavedModelSession(version).signatures["act"].inputs["observation"]
    shape = [1, *(dim.size for dim in spec.tensor_shape.dim[1:])]
    observation = np.random.default_rng(0).integers(0, 3, shape).astype("uint8")

    def take_turn(seconds):
        result = bench.Result(1, 1, seconds, [])
        run("act", {"observation": observation})
        begun, cpu = time.perf_counter(), time.process_time()
        before = begun
        while before - begun < seconds:
            run("act", {"observation": observation})
            now = time.perf_counter()
            result.latencies.append(now - before)
            before = now
        result.seconds = before - begun
        result.server_cpu = time.process_time() - cpu
        return result

    return take_turn


def load(described, address, clients, pid):
    """A contestant that is asked by `serving.bench`; the server at `described` says how.

    Args:
        described: address of the server whose metadata says what a request looks like.
        address: of the server that is asked.
        clients: how many ask at once.
        pid: the process whose CPU time is taken, or None.
    """
    body = bench.make_body(described, "policy", "act", batch=1)

    def take_turn(seconds):
        return asyncio.run(bench.load(address, "policy", body, clients, 1, seconds, None, pid))

    return take_turn


def free_ports(count):
    """Port numbers that nothing listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextlib.contextmanager
def serve(folder, processes, *flags):
    """A server in processes of its own; yields its ports, and its process if it is one."""
    ports = free_ports(2)
    command = [sys.executable, "-m", "serving.server", "--model_name=policy", "--enable_batching"]
    command += [f"--model_base_path={folder}", f"--num_processes={processes}"]
    command += [f"--port={ports[0]}", f"--rest_api_port={ports[1]}", *flags]
    with tempfile.TemporaryFile() as log, running(command, log) as process:
        wait_for(process, lambda: b"serving gRPC on" in written(log), "the server")
        yield ports, process.pid if processes == 1 else None


def written(log):
    """What a process has written so far."""
    return os.pread(log.fileno(), 1 << 20, 0)


@contextlib.contextmanager
def serve_echo(address):
    """A server that answers each request with what the real one answered; address and process."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "benchmarks.grpc_echo", address, str(port)]
    with running(command, subprocess.DEVNULL) as process:
        wait_for(process, lambda: listens(port), "the echo")
        yield f"grpc://127.0.0.1:{port}", process.pid


def listens(port):
    """Whether something listens on a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def running(command, log):
    """A process that is ended at the end."""
    process = subprocess.Popen(command, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def wait_for(process, true, what, patience=600.0):
    """Returns when something has become true; a process that ends before is an error."""
    end = time.monotonic() + patience
    while not true():
        if process.poll() is not None or time.monotonic() > end:
            raise OSError(f"{what} did not start: exit code {process.poll()}")
        time.sleep(0.1)


def take_turns(contestants, config):
    """Returns (what, clients) -> list of Results, one a turn."""
    results = {key: [] for key in contestants}
    for turn in contestants.values():
        turn(min(config.seconds, 0.5))  # warms caches up, and isn't counted
    for _ in range(config.rounds):
        for key, turn in contestants.items():
            results[key].append(turn(config.seconds))
    return results


def rows_of(policy, results):
    """The lines of the table for one policy."""
    rates = {key: [len(r.latencies) / r.seconds for r in each] for key, each in results.items()}
    medians = {what: np.median(rates[what, clients]) for what, clients in sorted(rates)}
    rows = []
    for (what, clients), each in results.items():
        failed = sum(result.failed for result in each)
        if failed:
            raise ValueError(f"{failed} requests failed: {policy}, {what}, {clients} clients")
        latencies = 1e3 * np.concatenate([result.latencies for result in each])
        p50, p99 = np.quantile(latencies, (0.5, 0.99))
        rate = float(np.median(rates[what, clients]))
        low, high = np.quantile(rates[what, clients], (0.1, 0.9))
        of_echo = rate / medians["gRPC echo"] if what.startswith("gRPC") and clients > 1 else None
        values = (policy, what, clients, rate, f"{low:,.0f} to {high:,.0f}", p50, p99, p99 / p50)
        values += (cpu_of(each), rate / medians[SIGNATURE], of_echo)
        rows.append(dict(zip(COLUMNS, (plain(value) for value in values))))
    return rows


def cpu_of(results):
    """Microseconds of CPU time that the server spent on a request; None if it is not known."""
    if any(result.server_cpu is None for result in results):
        return None
    seconds = sum(result.server_cpu for result in results)
    return 1e6 * seconds / sum(len(result.latencies) for result in results)


def plain(value):
    """A NumPy number as Python's, for JSON."""
    return value.item() if isinstance(value, np.generic) else value
