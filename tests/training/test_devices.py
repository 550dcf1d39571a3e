"""Training on two devices equals training on one. Each test runs in a process with two devices."""

import pathlib
import subprocess
import sys

import pytest
import shared_runs

pytestmark = pytest.mark.tf_only

ROOT = pathlib.Path(__file__).parents[2]


def with_two_devices(*arguments):
    environment = {**shared_runs.environment(), "LOGICAL_DEVICES": "2"}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:]


@pytest.mark.slow  # takes a minute; test_hosts tests the sum over replicas by default
def test_two_devices_equal_one():
    file = pathlib.Path(__file__).with_name("two_devices.py")
    with_two_devices("-m", "pytest", "-n", "0", "-p", "no:cacheprovider", file)


@pytest.mark.slow
@pytest.mark.parametrize("task", shared_runs.NAMES)
def test_run_on_two_devices_equals_run_on_one(tmp_path, task):
    runs = [f"{task}:{devices}:{name}" for devices, name in ((1, "one"), (2, "two"))]
    with_two_devices("tests/shared_runs.py", tmp_path, *runs)
    shared_runs.assert_equal(tmp_path / "two", tmp_path / "one")
