"""A server under mixed load for a long time; `make test-slow`.

SOAK_SECONDS=1800 .venv/bin/python -m pytest -n 0 -m slow -s tests/serving/server/test_soak.py
"""

import collections
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from rrl_tf.export import load_policy
from serving.client import ServingError, connect
from serving.local import free_ports, server_command

pytestmark = [pytest.mark.tf_only, pytest.mark.slow]
ROOT = Path(__file__).parents[3]
ROWS = {"single": 1, "batch": 300}


class Process:
    """A server process that can be killed and restarted on the same ports."""

    def __init__(self, base, *flags):
        self.ports = free_ports(2)
        self._command = server_command(
            base, "tiny", *self.ports, "--file_system_poll_wait_seconds=0.05", *flags
        )
        self.addresses = f"grpc://127.0.0.1:{self.ports[0]}", f"http://127.0.0.1:{self.ports[1]}"
        self.start()

    def start(self):
        self.popen = subprocess.Popen(self._command, cwd=ROOT, stderr=subprocess.DEVNULL)

    def wait_until_ready(self):
        with connect(self.addresses[1], "tiny", timeout=300) as client:
            client.signatures

    def status(self):
        """Return version -> state."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[1], timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", "/v1/models/tiny")
            entries = json.loads(connection.getresponse().read())["model_version_status"]
        return {int(entry["version"]): entry["state"] for entry in entries}

    def figures(self):
        """Return memory in MB, descriptors and threads of the process and its children."""
        process = psutil.Process(self.popen.pid)
        family = [process, *process.children()]
        memory = sum(each.memory_info().rss for each in family) / 1e6
        return memory, process.num_fds(), process.num_threads()

    def end(self):
        self.popen.terminate()
        return self.popen.wait(120)

    def __enter__(self):
        self.wait_until_ready()
        return self

    def __exit__(self, *_):
        self.popen.kill()
        self.popen.wait()


class Load:
    """Clients of both transports that send requests until the end; `outcomes` counts the results.

    Args:
        addresses: The addresses of gRPC and REST.
        policies: A reply is right if it equals the actions of one of these.
        options: Arguments of the clients.
    """

    def __init__(self, addresses, policies, tools, each=2, **options):
        self.outcomes, self._stop = collections.Counter(), threading.Event()
        self._options = {"timeout": 120.0} | options
        self._threads = [
            threading.Thread(target=self._ask, args=(address, self._known(policies, tools, rows)))
            for address in addresses
            for rows in ROWS.values()
            for _ in range(each)
        ]

    def _known(self, policies, tools, rows):
        raw = tools.observations(rows, seed=rows)
        return raw, {tuple(policy.act(raw).tolist()) for policy in policies}

    def _ask(self, address, known):
        raw, expected = known
        kind = f"{address.partition(':')[0]} x {len(raw)}"
        with connect(address, "tiny", **self._options) as client:
            while not self._stop.is_set():
                try:
                    right = tuple(client.act(raw).tolist()) in expected
                    self.outcomes[kind, "right" if right else "wrong"] += 1
                except ServingError as error:
                    self.outcomes[kind, error.code] += 1
                    if error.code != "UNAVAILABLE":
                        print(kind, error)
                    time.sleep(0.01)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    @property
    def kinds(self):
        return {outcome for _, outcome in self.outcomes}


@pytest.fixture
def base(tmp_path, tools):
    """(base folder with version 1, folders of two versions, policies of both)."""
    tools.export_tiny(tmp_path / "base", seed=0)
    tools.export_tiny(tmp_path / "other", seed=2)
    versions = [tmp_path / "versions" / str(index) for index in (1, 2)]
    shutil.copytree(tmp_path / "base" / "1", versions[0])
    shutil.copytree(tmp_path / "other" / "1", versions[1])
    return tmp_path / "base", versions, [load_policy(version) for version in versions]


def swap(base, version, number):
    shutil.copytree(version, base / ".aside")
    os.rename(base / ".aside", base / str(number))


def test_two_hundred_hot_swaps_under_mixed_load(base, tools):
    folder, versions, policies = base
    swaps, pause = 200, 0.0
    if os.environ.get("SOAK_SECONDS"):
        pause, swaps = 10.0, int(os.environ["SOAK_SECONDS"]) // 10
    figures = []
    with Process(folder, "--enable_batching") as server:
        with Load(server.addresses, policies, tools) as load:
            for number in range(2, 2 + swaps):
                swap(folder, versions[number % 2], number)
                while server.status().get(number) != "AVAILABLE":
                    time.sleep(0.01)
                shutil.rmtree(folder / str(number - 1))
                time.sleep(pause)
                figures.append(server.figures())
        assert len(server.status()) < 50
        assert server.end() == 0
    settled, last = (np.median(part, axis=0) for part in np.array_split(figures, 4)[1::2])
    drift = last / settled - 1
    print(f"\n{swaps} swaps, {sum(load.outcomes.values())} answers: {dict(load.outcomes)}")
    for name, before, after, change in zip(("MB", "descriptors", "threads"), settled, last, drift):
        print(f"{name}: {before:.0f} → {after:.0f} ({change:+.1%})")
    assert load.kinds == {"right"}
    assert drift[0] < (0.02 if pause else 0.05) and drift[1] < 0.1 and drift[2] < 0.1


def test_shutdown_under_load_loses_no_request(base, tools):
    folder, _, policies = base
    for _ in range(20):
        with Process(folder, "--enable_batching", "--drain_seconds=60") as server:
            with Load(server.addresses, policies, tools, retries=0) as load:
                time.sleep(0.5)
                assert server.end() == 0
            assert load.kinds <= {"right", "UNAVAILABLE"}, load.outcomes
            assert sum(n for (_, kind), n in load.outcomes.items() if kind == "right") > 0


def test_clients_wait_for_a_restarted_server(base, tools):
    folder, _, policies = base
    with Process(folder) as server, Load(server.addresses, policies, tools) as load:
        for _ in range(3):
            time.sleep(1.0)
            server.popen.kill()
            server.popen.wait()
            server.start()
            server.wait_until_ready()
    assert load.kinds == {"right"}, load.outcomes


def test_killed_workers_lose_no_request(base, tools):
    folder, _, policies = base
    with Process(folder) as server, Load(server.addresses, policies, tools) as load:
        for _ in range(20):
            time.sleep(0.1)
            for reader in psutil.Process(server.popen.pid).children():
                reader.kill()
        time.sleep(2.0)
    assert load.kinds == {"right"}, load.outcomes


def test_model_answers_without_its_directory(base, tools):
    folder, _, policies = base
    with Process(folder) as server, Load(server.addresses, policies, tools) as load:
        os.rename(folder, folder.with_name("gone"))
        time.sleep(1.0)
        os.rename(folder.with_name("gone"), folder)
        time.sleep(1.0)
    assert load.kinds == {"right"}, load.outcomes


def test_server_continues_after_a_stop_signal(base, tools):
    folder, _, policies = base
    with Process(folder) as server:
        with connect(server.addresses[0], "tiny", timeout=1.0) as client:
            client.act(tools.observations(1))
            server.popen.send_signal(signal.SIGSTOP)
            begun = time.monotonic()
            with pytest.raises(ServingError) as refusal:
                client.act(tools.observations(1))
            assert refusal.value.code == "DEADLINE_EXCEEDED" and time.monotonic() - begun < 3.0
        with Load(server.addresses, policies, tools) as load:
            time.sleep(2.0)
            server.popen.send_signal(signal.SIGCONT)
            time.sleep(2.0)
    assert load.kinds == {"right"}, load.outcomes


def test_deadlines_ignore_the_wall_clock(exported, tools, monkeypatch):
    jump = {"by": 0.0}
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + jump["by"])
    # Over REST, because gRPC clients in Python use the wall clock.
    with (
        tools.serve(exported) as server,
        connect(f"http://127.0.0.1:{server.rest_port}", "tiny", retries=0) as client,
    ):
        expected = client.act(tools.observations(300)).tolist()
        for jump["by"] in (1e7, -1e7, 0.0):
            assert client.act(tools.observations(300)).tolist() == expected


def test_slow_readers_do_not_stall_others(base, tools):
    folder, _, policies = base
    body = json.dumps(
        {"signature_name": "act_with_attention", "instances": tools.observations(4000).tolist()}
    ).encode()
    head = (
        f"POST /v1/models/tiny:predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    flags = "--rest_api_header_timeout_in_ms=2000"
    with Process(folder, flags) as server, contextlib.ExitStack() as stack:
        before = server.figures()
        for _ in range(8):
            slow = stack.enter_context(socket.socket())
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", server.ports[1]))
            slow.sendall(head.encode() + body)
        with Load(server.addresses, policies, tools) as load:
            time.sleep(10.0)
        assert load.kinds == {"right"}, load.outcomes
        assert server.figures()[1] <= before[1] + 4  # their connections were closed
