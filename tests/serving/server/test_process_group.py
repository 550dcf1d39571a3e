"""Several processes behind one port act as one server."""

import asyncio
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import grpc
import numpy as np
import pytest
from google.protobuf import text_format
from tensorflow_serving.apis import model_management_pb2, model_service_pb2_grpc

from rrl_tf.export import load_policy
from serving.client import ServingError, connect
from serving.server.metrics import Metrics, render
from serving.server.process_group import Peers, reserved_port

pytestmark = pytest.mark.tf_only
ROOT = Path(__file__).parents[3]


def wait_until(true, seconds=300):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


@pytest.fixture
def together(exported, tmp_path, tools):
    """Two processes that serve a copy of the tiny policy: (process, gRPC port, REST port, base)."""
    base = tmp_path / "base"
    shutil.copytree(exported, base)
    monitoring = tmp_path / "monitoring.config"
    monitoring.write_text('prometheus_config { enable: true path: "/metrics" }')
    ports = tools.free_port(), tools.free_port()
    command = [sys.executable, "-m", "serving.server", "--num_processes=2", "--model_name=tiny"]
    command += [f"--port={ports[0]}", f"--rest_api_port={ports[1]}", f"--model_base_path={base}"]
    command += [f"--monitoring_config_file={monitoring}", "--file_system_poll_wait_seconds=0.1"]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stderr=log)
    try:
        wait_until(lambda: "serving gRPC on" in (tmp_path / "log").read_text())
        yield process, *ports, base
    finally:
        process.kill()
        process.wait()


def children_of(process):
    """Return the ids of the server processes that a process has started."""
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(c) for c in listed if b"--process_of" in Path(f"/proc/{c}/cmdline").read_bytes()]


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path)
    body = connection.getresponse().read()
    connection.close()
    return body


def request_counts(port):
    page = get(port, "/metrics").decode()
    pattern = r':tensorflow:serving:request_count\{model_name="(.*)",status="OK"\} (\S+)'
    return {name: float(value) for name, value in re.findall(pattern, page)}


def test_two_processes_are_one_server(together, exported, tools):
    process, grpc_port, rest_port, base = together
    (child,) = children_of(process)
    raw = tools.observations(3)
    expected = load_policy(exported / "1").act(raw)
    addresses = [f"grpc://127.0.0.1:{grpc_port}", f"http://127.0.0.1:{rest_port}"]

    def ask_all(name):
        """Use forty connections, so that each process accepts some."""
        for number in range(40):
            with connect(addresses[number % 2], name) as client:
                np.testing.assert_array_equal(client.act(raw), expected)

    before = [cpu_ticks(pid) for pid in (process.pid, child)]
    ask_all("tiny")
    assert all(cpu_ticks(pid) > ticks for pid, ticks in zip((process.pid, child), before))
    # Each process reports the metrics of both: 20 gRPC, 20 REST and 20 metadata requests.
    assert {request_counts(rest_port)["tiny"] for _ in range(6)} == {60.0}

    text = f'config {{ name: "other" base_path: "{base}" model_platform: "tensorflow" }}'
    request = text_format.Parse(
        f"config {{ model_config_list {{ {text} }} }}", model_management_pb2.ReloadConfigRequest()
    )
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        stub.HandleReloadConfigRequest(request, timeout=60)
        request.config.model_config_list.config[0].base_path = "relative"
        with pytest.raises(grpc.RpcError) as refusal:
            stub.HandleReloadConfigRequest(request, timeout=60)
        assert refusal.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    ask_all("other")
    for _ in range(10):
        with (
            connect(addresses[0], "tiny") as client,
            pytest.raises(ServingError, match="NOT_FOUND"),
        ):
            client.act(raw)

    shutil.copytree(exported / "1", base / ".aside")
    os.rename(base / ".aside", base / "2")

    def states():
        reply = json.loads(get(rest_port, "/v1/models/other"))["model_version_status"]
        return [(entry["version"], entry["state"]) for entry in reply]

    wait_until(lambda: states() == [("2", "AVAILABLE"), ("1", "END")])
    ask_all("other")

    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0 and not Path(f"/proc/{child}").exists()


def cpu_ticks(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.slow
def test_group_ends_with_one_of_its_processes(together):
    process, *_ = together
    (child,) = children_of(process)
    os.kill(child, signal.SIGKILL)
    assert process.wait(60) == 1


@pytest.mark.slow
def test_group_ends_with_process_0(together):
    process, *_ = together
    (child,) = children_of(process)
    process.kill()
    process.wait()
    wait_until(lambda: not Path(f"/proc/{child}").exists(), 60)
    assert not Path(f"/proc/{child}").exists()


def test_calls_and_errors_between_peers(tmp_path):
    async def fail(data):
        raise ServingError("FAILED_PRECONDITION", f"no {data.decode()}")

    async def scenario():
        peers = []
        for index in range(3):

            async def own(data, index=index):
                return data + str(index).encode()

            peers.append(Peers({"own": own, "fail": fail}, str(tmp_path), index, 3))
        await peers[0].start()
        waiting = asyncio.ensure_future(peers[0].call_all("own", b"x"))
        await asyncio.gather(*(each.start() for each in peers[1:]))
        assert await waiting == [b"x0", b"x1", b"x2"]
        for each in peers:
            assert await each.call_all("own", b"x") == [b"x0", b"x1", b"x2"]
            for index in range(3):
                with pytest.raises(ServingError, match="FAILED_PRECONDITION: no luck"):
                    await each.call(index, "fail", b"luck")
        await asyncio.gather(*(each.stop() for each in peers))

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_port_of_another_program_is_not_shared():
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError), reserved_port("127.0.0.1", taken.getsockname()[1]):
            pass
    with reserved_port("127.0.0.1", 0) as port, socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", port))


def test_metrics_are_summed():
    first, second = Metrics(), Metrics()
    first.request_count.labels("a", "OK").inc(2)
    second.request_count.labels("a", "OK").inc(3)
    second.request_count.labels("b", "OK").inc()
    for metrics, latency in ((first, 15.0), (second, 1e6)):
        metrics.request_latency.labels("a", "Predict", "GRPC").observe(latency)
    page = render([first.collect(), second.collect()]).decode()
    name = ":tensorflow:serving:"
    assert f'{name}request_count{{model_name="a",status="OK"}} 5.0' in page
    assert f'{name}request_count{{model_name="b",status="OK"}} 1.0' in page
    labels = 'model_name="a",API="Predict",entrypoint="GRPC"'
    assert f"{name}request_latency_count{{{labels}}} 2.0" in page
    assert f'{name}request_latency_bucket{{{labels},le="18.0"}} 1.0' in page
    assert page.count(f"# TYPE {name}request_count counter") == 1
