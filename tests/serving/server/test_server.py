"""Start, hot swap under load, drain and start errors of a whole server."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from rrl_tf.export import load_policy
from serving.client import ServingError, connect

pytestmark = pytest.mark.tf_only
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True, scope="module")
def quiet_logging():
    """Restore the logging of this process, which `main()` configures."""
    import logging

    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


def stderr_of_failed_start(arguments, capfd):
    from serving.server import main

    assert main(arguments) == 1
    lines = [line for line in capfd.readouterr().err.splitlines() if "serving.server:" in line]
    assert len(lines) == 1
    return lines[0]


def test_failures_to_start_are_one_line(exported, tmp_path, tools, capfd):
    missing = f"--model_base_path={tmp_path / 'missing'}"
    assert "missing: No such file" in stderr_of_failed_start([missing], capfd)
    (tmp_path / "file").write_text("")
    assert "Not a directory" in stderr_of_failed_start(
        [f"--model_base_path={tmp_path}/file"], capfd
    )
    (tmp_path / "base" / "1").mkdir(parents=True)
    broken = [f"--model_base_path={tmp_path / 'base'}", "--max_num_load_retries=0"]
    assert "version 1 failed to load" in stderr_of_failed_start(broken, capfd)
    shutil.copytree(exported, tmp_path / "run" / "export")
    forgotten = [f"--model_base_path={tmp_path / 'run'}", "--file_system_poll_wait_seconds=0"]
    assert f"did you mean {tmp_path / 'run' / 'export'}?" in stderr_of_failed_start(
        forgotten, capfd
    )
    config = [f"--model_config_file={tmp_path / 'file'}"]
    assert "must contain a model_config_list" in stderr_of_failed_start(config, capfd)
    (tmp_path / "file").write_text("model_config_list { config { name: ")
    assert "Expected string" in stderr_of_failed_start(config, capfd)
    elsewhere = [f"--model_base_path={exported}", "--host=192.0.2.1", "--port=0"]
    assert "annot assign requested address" in stderr_of_failed_start(elsewhere, capfd)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        base = f"--model_base_path={exported}"
        for ports in ([f"--port={port}"], ["--port=0", f"--rest_api_port={port}"]):
            said = stderr_of_failed_start([base, *ports], capfd)
            assert f":{port}" in said and "ddress already in use" in said


def test_models_from_a_configuration_file(exported, tmp_path, tools):
    shutil.copytree(exported / "1", tmp_path / "second" / "3")
    path = tmp_path / "models.config"
    path.write_text(
        "model_config_list {\n"
        f'  config {{ name: "first" base_path: "{exported}" model_platform: "tensorflow" }}\n'
        f'  config {{ name: "second" base_path: "{tmp_path}/second" model_platform: "tensorflow"\n'
        '           version_labels { key: "stable" value: 3 } }\n'
        "}\n"
    )
    raw = tools.observations(3)
    with tools.serve("", model_config_file=str(path)) as server:
        address = f"http://127.0.0.1:{server.rest_port}"
        for name, folder in (("first", exported / "1"), ("second", tmp_path / "second" / "3")):
            with connect(address, name) as client:
                np.testing.assert_array_equal(client.act(raw), load_policy(folder).act(raw))
        with connect(address, "second", label="stable") as client:
            client.act(raw)


@pytest.mark.parametrize(
    ("num_clients", "num_swaps", "enable_batching"),
    [
        (4, 3, True),
        *(pytest.param(64, 20, batching, marks=pytest.mark.slow) for batching in (False, True)),
    ],
)
def test_hot_swap_fails_no_request(tmp_path, tools, num_clients, num_swaps, enable_batching):
    """Every reply during swaps equals one of the versions."""
    base = tmp_path / "base"
    tools.export_tiny(base, seed=0)
    tools.export_tiny(tmp_path / "new", seed=2)
    raw = tools.observations(16)
    expected = {1: load_policy(base / "1"), 2: load_policy(tmp_path / "new" / "1")}
    answers = {tuple(policy.act(raw)): number for number, policy in expected.items()}
    assert len(answers) == 2
    seen, stop, failures = set(), threading.Event(), []

    def keep_asking(address):
        with connect(address, "tiny", retries=0) as client:
            while not stop.is_set():
                try:
                    seen.add(answers[tuple(client.act(raw))])
                except Exception as error:
                    failures.append(error)

    with tools.serve(base, enable_batching=enable_batching) as server:
        addresses = [f"grpc://127.0.0.1:{server.grpc_port}", f"http://127.0.0.1:{server.rest_port}"]
        threads = [
            threading.Thread(target=keep_asking, args=(a,)) for a in addresses * (num_clients // 2)
        ]
        for thread in threads:
            thread.start()
        for number in range(2, 2 + num_swaps):
            source = tmp_path / "new" / "1" if number % 2 == 0 else base / "1"
            shutil.copytree(source, base / ".aside")
            os.rename(base / ".aside", base / str(number))
            while server.repository.models["tiny"].available != [number]:
                time.sleep(0.01)
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures and seen == {1, 2}


def test_sigterm_drains_and_exits_with_0_during_an_endless_load(exported, tmp_path, tools):
    """A model load that never ends, as on a disk that hangs, does not keep the process alive."""
    shutil.copytree(exported / "1", tmp_path / "1")
    port, rest_port = tools.free_port(), tools.free_port()
    command = [sys.executable, "-m", "serving.server", f"--port={port}", "--model_name=tiny"]
    command += [f"--rest_api_port={rest_port}", f"--model_base_path={tmp_path}"]
    command += ["--file_system_poll_wait_seconds=0.05"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    outcomes, raw = [], tools.observations(2)

    def act_until_an_error():
        with connect(f"grpc://127.0.0.1:{port}", "tiny", retries=0) as other:
            while True:
                try:
                    outcomes.append(len(other.act(raw)))
                except ServingError as error:
                    outcomes.append(error.code)
                    return

    try:
        with connect(f"http://127.0.0.1:{rest_port}", "tiny", timeout=300) as client:
            client.act(raw)
            (tmp_path / ".aside").mkdir()
            os.mkfifo(tmp_path / ".aside" / "saved_model.pb")
            os.rename(tmp_path / ".aside", tmp_path / "2")
            time.sleep(1.0)
            thread = threading.Thread(target=act_until_an_error)
            thread.start()
            while len(outcomes) < 20:
                time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        thread.join()
        assert set(outcomes[:-1]) == {2} and outcomes[-1] == "UNAVAILABLE"
        log = process.stderr.read()
        assert "has not ended" in log and "Traceback" not in log
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
