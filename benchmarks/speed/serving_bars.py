"""Whether one request holds up another: every bar of the server, measured, in one table.

    python -m benchmarks speed/serving_bars
    python -m benchmarks speed/serving_bars --before ../older-checkout

A server of the relational policy `fast` runs in a process of its own. What others get is measured
alone and while something large is asked, in turns; a bar is a ratio of the two, so the machine's
speed cancels out. `--before` names a checkout of an earlier version, for the ratio to it.
"""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import gzip
import http.client
import multiprocessing
import os
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil

from benchmarks.measure import use_one_thread
from benchmarks.report import Report
from benchmarks.speed import serving as speed
from rrl_tf.export import SavedModelSession
from serving import bench
from serving.client import connect

COLUMNS = ("bar", "asked for", "measured", "met", "numbers")
LIMIT = 1 << 24  # of a REST body, the server's default


@dataclasses.dataclass(frozen=True)
class Config:
    """How long is measured, and against what."""

    seconds: float = 4.0
    """Length of a turn."""
    rounds: int = 3
    """Turns of each kind."""
    before: str = ""
    """Folder of an earlier version's checkout."""


def main(config):
    """Measures the bars and writes the table."""
    use_one_thread()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        speed.export("fast", folder)
        with served(folder) as (ports, pid):
            rows += under_huge_bodies(ports, pid, config)
            rows += singles_beside_batches(ports, config)
            large = rate_of_batches(ports, config)
        if config.before:
            model = rate_of_model(folder, config)
            with served(folder, config.before) as (ports, _):
                rows.append(ratio_row("300-row REST batches", 3.0, large, ports, config, model))
        rows += throughput(config)
    notes = (
        "Load and server share the machine and its cores.",
        "SIGTERM under load and hot swaps for half an hour: `SOAK_SECONDS=1800 make test-slow`.",
    )
    title = "No request holds up another"
    return Report(title, rows, notes)


@contextlib.contextmanager
def served(folder, tree="."):
    """A server of a checkout; yields its ports and its process."""
    here = Path.cwd()
    os.chdir(tree)
    try:
        with speed.serve(folder, 1) as found:
            os.chdir(here)
            yield found
    finally:
        os.chdir(here)


def row(bar, asked, measured, met, numbers=""):
    """One line of the table."""
    return dict(zip(COLUMNS, (bar, asked, measured, "yes" if met else "no", numbers)))


# Huge bodies.


def huge_bodies():
    """name -> (body, headers), of which the first two are small on the wire."""
    zipped = {"Content-Encoding": "gzip"}
    return {
        "20 KB of gzip": (gzip.compress(zeros(20)), zipped),
        "199 KB of gzip": (gzip.compress(zeros(200)), zipped),
        "60 MB": (zeros(60), {}),
        "15 MB with NaN": (zeros(15).replace(b"[0", b"[NaN", 1), {}),
    }


def zeros(megabytes):
    """A request of so many bytes."""
    return b'{"instances":[' + b"0," * (megabytes << 19) + b"0]}"


def attack(port, name, seconds):
    """Posts a huge body again and again, in a process of its own; returns how often."""
    body, headers = huge_bodies()[name]
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("POST", "/v1/models/policy:predict", body, headers)
            connection.getresponse().read()
            count += 1
        connection.close()
    return count


def under_huge_bodies(ports, pid, config):
    """What others wait while somebody sends huge bodies, and what memory that takes."""
    rows = []
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as attackers:
        for name in huge_bodies():
            attackers.submit(attack, ports[1], name, 1.0).result()
            alone, among, memory = [], [], []
            for _ in range(config.rounds):
                alone.append(probe(ports, config.seconds))
                memory.append(resident(pid))
                attacking = attackers.submit(attack, ports[1], name, config.seconds + 0.5)
                with Peak(pid) as peak:
                    among.append(probe(ports, config.seconds))
                    attacking.result()
                memory[-1] = peak.most - memory[-1]
            for what in alone[0]:
                before, during = (
                    np.concatenate([r[what] for r in each]) for each in (alone, among)
                )
                p99s = [float(np.quantile(values, 0.99)) for values in (before, during)]
                ratio, worst = p99s[1] / p99s[0], 1e3 * float(during.max())
                numbers = f"p99 {1e3 * p99s[0]:.1f} → {1e3 * p99s[1]:.1f} ms"
                bar = f"{what} beside {name}"
                rows.append(
                    row(f"{bar}: p99", "at most 3 times", f"{ratio:.1f}", ratio <= 3, numbers)
                )
                rows.append(row(f"{bar}: worst", "at most 100 ms", f"{worst:.0f}", worst <= 100))
            grown = max(memory) / LIMIT
            bar = f"memory beside {name}"
            rows.append(row(bar, "at most + 4 limits", f"{grown:.1f}", grown <= 4))
    return rows


def probe(ports, seconds):
    """Returns what -> seconds of each answer, asked one after another every few milliseconds."""
    taken = {"readiness": [], "prediction": []}
    observation = np.zeros((7, 7, 4), np.uint8)
    ready = http.client.HTTPConnection("127.0.0.1", ports[1], timeout=120)
    with connect(f"grpc://127.0.0.1:{ports[0]}", "policy", timeout=120) as client:
        client.act(observation)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            begun = time.perf_counter()
            ready.request("GET", "/readyz")
            ready.getresponse().read()
            between = time.perf_counter()
            client.act(observation)
            taken["readiness"].append(between - begun)
            taken["prediction"].append(time.perf_counter() - between)
            time.sleep(0.002)
    ready.close()
    return taken


def resident(pid):
    """Bytes of memory of a process and of those it has started."""
    process, total = psutil.Process(pid), 0
    for each in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += each.memory_info().rss
    return total


class Peak:
    """The most memory that a server took meanwhile, as `most`."""

    def __init__(self, pid):
        self._pid, self.most = pid, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self):
        while not self._stop.wait(0.02):
            self.most = max(self.most, resident(self._pid))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


# Small requests beside large ones.


def kinds(ports):
    """Eight gRPC clients with single rows, sixteen REST clients with 300."""
    addresses = [f"grpc://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}"]
    return bench.Kind(8, 1, addresses[0]), bench.Kind(16, 300, addresses[1])


def rates(ports, which, seconds):
    """Requests a second of each kind of clients, at the same time."""
    results = asyncio.run(bench.mix(which, "policy", "act", seconds))
    if any(result.failed for result in results):
        raise ValueError(f"requests failed: {[result.failed for result in results]}")
    return [len(result.latencies) / result.seconds for result in results]


def singles_beside_batches(ports, config):
    """What both kinds keep of the rate they have alone."""
    small, large = kinds(ports)
    alone, together = [], []
    for _ in range(config.rounds):
        alone.append([rates(ports, [kind], config.seconds)[0] for kind in (small, large)])
        together.append(rates(ports, [small, large], config.seconds))
    before, during = np.median(alone, axis=0), np.median(together, axis=0)
    rows = []
    for name, one, among in zip(("gRPC singles", "REST batches"), before, during):
        share = among / one
        numbers = f"{one:.0f} → {among:.0f} requests/s"
        rows.append(
            row(f"{name} beside the other", "at least 0.4", f"{share:.2f}", share >= 0.4, numbers)
        )
    return rows


def rate_of_batches(ports, config):
    """REST requests of 300 rows a second."""
    _, large = kinds(ports)
    each = [rates(ports, [large], config.seconds)[0] for _ in range(config.rounds)]
    return float(np.median(each))


def rate_of_model(folder, config):
    """How often a second one thread runs the model on 300 rows, without any server."""
    session = SavedModelSession(next(Path(folder).glob("*/saved_model.pb")).parent)
    inputs, times = {"observation": np.zeros((300, 7, 7, 4), np.uint8)}, []
    end = time.perf_counter() + config.seconds
    while time.perf_counter() < end:
        begun = time.perf_counter()
        session.run("act", inputs)
        times.append(time.perf_counter() - begun)
    return 1 / float(np.median(times))


def ratio_row(bar, asked, now, ports, config, model):
    """What the earlier version does of the same."""
    before = rate_of_batches(ports, config)
    numbers = (
        f"{300 * before:,.0f} → {300 * now:,.0f} rows/s; "
        f"the model alone, one thread, {300 * model:,.0f}"
    )
    return row(
        bar, f"{asked:g} times before", f"{now / before:.1f}", now >= asked * before, numbers
    )


# How fast it is.


def throughput(config):
    """Requests a second with 32 clients, against the model in process and the stack's own echo."""
    settings = speed.Config(
        rounds=config.rounds, seconds=config.seconds, processes=(1,), policies=("fast",)
    )
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as servers:
        contestants = speed.make_contestants("fast", folder, settings, servers)
        results = speed.take_turns(contestants, settings)
    medians = {
        key: float(np.median([len(r.latencies) / r.seconds for r in each]))
        for key, each in results.items()
    }
    signature, echo = medians[speed.SIGNATURE, 1], medians["gRPC echo", 32]
    rows = []
    for what, base, name, asked in (
        ("REST", signature, "the signature in process", 2.0),
        ("gRPC", signature, "the signature in process", 1.0),
        ("gRPC", echo, "its echo", 0.7),
    ):
        ratio = medians[what, 32] / base
        numbers = f"{medians[what, 32]:,.0f} of {base:,.0f} requests/s"
        bar = f"{what}, 32 clients, of {name}"
        rows.append(row(bar, f"at least {asked:g}", f"{ratio:.2f}", ratio >= asked, numbers))
    lone, its_echo, model = (
        1e3 * float(np.median(np.concatenate([r.latencies for r in results[key]])))
        for key in (("gRPC", 1), ("gRPC echo", 1), (speed.SESSION, 1))
    )
    numbers = f"its echo {its_echo:.2f} ms, the model {model:.2f} ms"
    rows.append(row("gRPC, one client", "0.37 ms", f"{lone:.2f}", lone <= 0.37, numbers))
    return rows
