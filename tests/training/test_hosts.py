"""Two processes that act as hosts of one run equal one process, and only the chief writes."""

import json
import signal
import subprocess
import sys

import pytest
import shared_runs

from serving.local import free_ports

pytestmark = pytest.mark.tf_only

slow = pytest.mark.slow


def hosts(folder, task, signals=("", ""), options=({}, {})):
    """Start two processes that train one run as hosts and have the run folders `0` and `1`.

    Args:
        folder: parent of the run folders.
        task: name of a task.
        signals: per process, `SIGNAL` of shared_runs.py.
        options: per process, fields of its configuration.
    """
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(2)]}
    for index in (0, 1):
        task_config = {"type": "worker", "index": index}
        environment = {
            **shared_runs.environment(),
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": task_config}),
            "SIGNAL": signals[index],
        }
        run = f"{task}:1:run:{json.dumps(options[index])}"
        yield subprocess.Popen(
            [sys.executable, shared_runs.__file__, str(folder / str(index)), run],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def ended(processes):
    """Wait for processes; return their exit codes and standard errors."""
    processes = list(processes)
    try:
        errors = [process.communicate(timeout=300)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [process.returncode for process in processes], errors


@pytest.mark.parametrize(
    "task", [t if t == "mnist" else pytest.param(t, marks=slow) for t in shared_runs.NAMES]
)
def test_two_hosts_equal_one(tmp_path, task):
    codes, errors = ended(hosts(tmp_path, task))
    assert codes == [0, 0], errors
    assert not (tmp_path / "1" / "run").exists()  # only the chief writes
    shared_runs.train(tmp_path, task, 1, "one")
    shared_runs.assert_equal(tmp_path / "0" / "run", tmp_path / "one")
    written = {path.name for path in (tmp_path / "one").iterdir() if "tfevents" not in path.name}
    assert written <= {path.name for path in (tmp_path / "0" / "run").iterdir()}


@slow
@pytest.mark.parametrize(("task", "row"), [("mnist", 15), ("double_dqn", 64)])
@pytest.mark.parametrize("victim", [0, 1])
def test_lost_host_is_reported_and_the_run_resumes(tmp_path, task, row, victim):
    signals = [f"9:{row}" if host == victim else "" for host in (0, 1)]
    codes, errors = ended(hosts(tmp_path, task, signals))
    assert codes[victim] == -signal.SIGKILL
    assert codes[1 - victim] == 1
    assert "another host of this run has stopped" in errors[1 - victim]
    (checkpoint,) = shared_runs.checkpoints(tmp_path / "0" / "run")
    assert 0 < int(checkpoint.name) < row
    codes, errors = ended(hosts(tmp_path, task))
    assert codes == [0, 0], errors
    shared_runs.train(tmp_path, task, 1, "one")
    shared_runs.assert_equal(tmp_path / "0" / "run", tmp_path / "one")


@slow
def test_signal_to_one_host_stops_all_with_a_checkpoint(tmp_path):
    codes, errors = ended(hosts(tmp_path, "mnist", ("", f"{signal.SIGTERM:d}:5")))
    assert codes == [128 + signal.SIGTERM] * 2, errors
    assert [path.name for path in shared_runs.checkpoints(tmp_path / "0" / "run")] == ["0000000005"]


@slow
def test_hosts_with_different_settings_do_not_train(tmp_path):
    codes, errors = ended(hosts(tmp_path, "mnist", options=({}, {"seed": 3})))
    assert codes == [1, 1]
    assert "seed was 0 and is now 3" in errors[1]
    assert not shared_runs.checkpoints(tmp_path / "0" / "run")
