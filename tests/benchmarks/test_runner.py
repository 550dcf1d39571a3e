"""Trainings run in separate processes, several at a time, and end with the command."""

import subprocess
import sys

import psutil
import pytest

from benchmarks import runner
from rrl_tf.errors import InvalidInput

SLEEPER = """
import psutil, subprocess, sys, time
from benchmarks import runner

def sleep(number):
    # Without a buffer, print writes the line in two pieces, and other output may come between.
    script = "import os, time; os.write(1, b'begun\\\\n'); time.sleep(60)"
    subprocess.run([sys.executable, "-c", script])

def slowly(process, terminate=psutil.Process.terminate):
    # Leaves enough time for the next run to start after the first one is terminated.
    terminate(process)
    time.sleep(1)

psutil.Process.terminate = slowly
runner.train_all(sleep, [(number,) for number in range(4)], jobs=2)
"""


@pytest.mark.parametrize("jobs", [1, 3])
def test_all_wanted_runs_are_trained(jobs):
    done, wanted = [], [("a", 1), ("b", 2), ("c", 3)]
    runner.train_all(lambda *run: done.append(run), wanted, jobs)
    assert sorted(done) == wanted


def test_sigterm_terminates_running_trainings_and_starts_no_other():
    process = subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, text=True)
    with process:
        assert [process.stdout.readline() for _ in range(2)] == ["begun\n"] * 2
        trainings = psutil.Process(process.pid).children()
        process.terminate()
        assert process.wait(20) == 143
        assert process.stdout.read() == ""
    assert len(trainings) == 2 and not any(each.is_running() for each in trainings)


def test_error_of_failed_script_holds_its_last_line():
    with pytest.raises(InvalidInput, match=r"train_doorkey --preset=none failed: .*'none'"):
        runner.run_script("train_doorkey", ["--preset=none"])


def test_config_refuses_zero_jobs():
    with pytest.raises(InvalidInput, match="`jobs` must be greater than 0; received 0"):
        runner.Config(jobs=0)
