"""Where the time of one client's request goes, part by part, over gRPC and over REST.

One client asks for one action at a time. What it waits is parted by the server's own metrics:

- the model: the signature's session, called in this process;
- to the model and back: what the server takes from a request that is read to its result, less the
  model: the queue, the batch's thread, and the way back to the event loop;
- reading and writing: what it takes from the bytes of a request to those of its answer, less that;
- the rest: the client, and the transport on both sides. Of gRPC, the echo, a server of the same
  stack that does nothing, is what can be had at best; what is beyond it is wake-ups between them.

Times are means, so that they add up; the share is of what the client waits.
"""

import contextlib
import dataclasses
import pathlib
import re
import tempfile
import urllib.request

import numpy as np

from benchmarks.report import Report
from benchmarks.speed import serving

_METRIC = re.compile(r"^(:tensorflow:serving:\w+_latency_(?:sum|count)){([^}]*)} (\S+)$", re.M)


@dataclasses.dataclass(frozen=True)
class Config:
    """What is asked, and how long."""

    policies: tuple[str, ...] = ("fast", "dense")
    """As in `speed/serving`."""
    rounds: int = 10
    """Turns of each way."""
    seconds: float = 2.0
    """Length of a turn."""


def main(config):
    """Parts the time that a lone client waits for an action."""
    rows = [row for policy in config.policies for row in parts_of(policy, config)]
    return Report("A lone request, part by part", rows, ("Load and server share the machine.",))


def parts_of(policy, config):
    """The lines of one policy."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as servers:
        version = serving.export(policy, folder)
        monitoring = pathlib.Path(folder) / "monitoring.config"
        monitoring.write_text("prometheus_config { enable: true }")
        flag = f"--monitoring_config_file={monitoring}"
        (grpc, rest), _ = servers.enter_context(serving.serve(folder, 1, flag))
        grpc, rest = f"grpc://127.0.0.1:{grpc}", f"http://127.0.0.1:{rest}"
        echo, _ = servers.enter_context(serving.serve_echo(grpc))
        session = serving.in_process(serving.SavedModelSession(version).run, version)
        ways = {
            "model": session,
            "GRPC": metered(serving.load(grpc, grpc, 1, None), rest, "GRPC"),
            "REST": metered(serving.load(rest, rest, 1, None), rest, "REST"),
            "echo": serving.load(grpc, echo, 1, None),
        }
        results = serving.take_turns(ways, config)
    model, echo = waited(results["model"]), waited(results["echo"])
    return [row for way in ("GRPC", "REST") for row in rows_of(policy, way, results, model, echo)]


def metered(turn, rest, entrypoint):
    """A contestant whose results also have what the server's metrics say of that turn."""

    def take_turn(seconds):
        before = read_metrics(rest, entrypoint)
        result = turn(seconds)
        after = read_metrics(rest, entrypoint)
        result.parts = {name: after[name] - before.get(name, 0.0) for name in after}
        return result

    return take_turn


def read_metrics(rest, entrypoint):
    """Sums and counts of what the server took for requests, and for running the model."""
    with urllib.request.urlopen(f"{rest}/monitoring/prometheus/metrics") as page:
        text = page.read().decode()
    totals = {}
    for name, labels, value in _METRIC.findall(text):
        short = name.removeprefix(":tensorflow:serving:")
        if short.startswith("request_latency") and f'entrypoint="{entrypoint}"' not in labels:
            continue
        totals[short] = totals.get(short, 0.0) + float(value)
    return totals


def waited(results):
    """Mean µs that a client waited."""
    return 1e6 * float(np.mean(np.concatenate([result.latencies for result in results])))


def rows_of(policy, way, results, model, echo):
    """The parts of one transport."""

    def mean(name):
        parts = [result.parts for result in results[way]]
        return sum(p[f"{name}_sum"] for p in parts) / sum(p[f"{name}_count"] for p in parts)

    total, handled, ran = waited(results[way]), mean("request_latency"), mean("runtime_latency")
    parts = {
        "the model": model,
        "to the model and back": ran - model,
        "reading and writing": handled - ran,
        "the rest: client and transport": total - handled,
        "in all": total,
    }
    if way == "GRPC":
        parts["gRPC echo, in all"] = echo
    name = {"GRPC": "gRPC", "REST": "REST"}[way]
    return [
        {"policy": policy, "over": name, "part": part, "µs": value, "share": f"{value / total:.0%}"}
        for part, value in parts.items()
    ]
