"""The GPU check also runs on a CPU and reports a missing GPU."""

import sys
import types

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import __main__ as program
from benchmarks import training_steps
from benchmarks.speed import gpu_check
from train_scripts import train_mnist

pytestmark = pytest.mark.tf_only

TOY = {"device": "CPU:0", "small": True, "rounds": 1, "calls": 1}


@pytest.mark.slow  # twenty compilations
@pytest.mark.parametrize("task", training_steps.MAKERS)
def test_steps_of_all_tasks_are_measured_and_compared(task):
    check(task)


def test_step_is_measured_and_compared(monkeypatch):
    monkeypatch.setattr(train_mnist, "FAST", train_mnist.PATCHES)  # it compiles faster
    check("mnist")


def check(task):
    report = gpu_check.main(gpu_check.Config(tasks=(task,), **TOY))
    assert [(row["precision"], row["XLA"]) for row in report.rows] == [
        ("float32", ""),
        ("float32", "XLA"),
        ("bfloat16", ""),
        ("bfloat16", "XLA"),
    ]
    assert all(row["ms"] > 0 for row in report.rows)
    assert all(row["equal to the CPU"] == "yes" for row in report.rows)
    assert (
        max(report.rows[0][name] for name in ("relative error of the loss", "of the gradient"))
        < 1e-6
    )  # the reference is the same computation
    assert all(row["of the gradient"] > 0 for row in report.rows[2:])  # bfloat16 is not exact
    assert "CPU:0" in report.notes[0] and report.notes[-1].endswith("Not equal: none.")


def test_distance_is_relative():
    assert gpu_check.distance(np.array([3.0, 5.0]), np.array([3.0, 4.0])) == 0.2


@pytest.mark.slow
def test_failed_step_is_reported_and_others_run(monkeypatch):
    made = []

    def make(task, dtype, xla, small):
        made.append((dtype, xla))
        if xla:
            raise tf.errors.InternalError(None, None, "libdevice not found\nat ...")
        momentum = tf.Variable([1.0, 2.0], name="momentum")
        momentum.path = "adam/momentum"
        optimizer = types.SimpleNamespace(variables=[momentum])
        return training_steps.Step(lambda: 3.0, optimizer)

    monkeypatch.setattr(training_steps, "make", make)
    report = gpu_check.main(gpu_check.Config(tasks=("text",), **TOY))
    assert len(made) == 1 + len(report.rows) == 5
    answers = [row["equal to the CPU"] for row in report.rows]
    assert answers == ["yes", "failed: libdevice not found"] * 2
    assert report.notes[-1].endswith("Not equal: text float32 XLA, text bfloat16 XLA.")


def test_missing_gpu_is_an_error_that_lists_the_devices(monkeypatch, capsys):
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("this machine has a GPU")
    monkeypatch.setattr(sys, "argv", ["benchmarks", "speed/gpu_check"])
    monkeypatch.setattr(program.measure, "use_one_thread", lambda: None)
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 1
    error = capsys.readouterr().err
    assert error.startswith("error: device must be one of CPU:0")
    assert "docs/how_to/gpu.md" in error and error.endswith("received 'GPU:0'\n")
