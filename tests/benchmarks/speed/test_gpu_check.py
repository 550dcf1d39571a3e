"""The check of a GPU runs on a CPU too, and says so where there is no GPU."""

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
def test_every_step_is_timed_counted_and_compared(task):
    check(task)


def test_a_step_is_timed_counted_and_compared(monkeypatch):
    monkeypatch.setattr(train_mnist, "FAST", train_mnist.PATCHES)  # it compiles sooner
    check("mnist")


def check(task):
    report = gpu_check.main(gpu_check.Config(tasks=(task,), **TOY))
    assert [(row["precision"], row["XLA"]) for row in report.rows] == [
        ("float32", ""),
        ("float32", "XLA"),
        ("bfloat16", ""),
        ("bfloat16", "XLA"),
    ]
    assert all(row["ms"] > 0 and row["TFLOP/s"] > 0 and row["GB/s"] > 0 for row in report.rows)
    assert all(row["as on the CPU"] == "yes" for row in report.rows)
    assert max(report.rows[0]["loss off"], report.rows[0]["gradient off"]) < 1e-6  # the CPU itself
    assert all(row["gradient off"] > 0 for row in report.rows[2:])  # not compared with itself
    assert "CPU:0" in report.notes[0] and report.notes[-1].endswith("all are.")


def test_steps_that_compute_something_else_are_named():
    rates = dict.fromkeys(gpu_check.PRECISIONS, (1e12, 1e9))
    *_, last = gpu_check.notes(gpu_check.Config(**TOY), rates, ["text bfloat16 XLA"])
    assert last.endswith("; it is not: text bfloat16 XLA.")
    assert gpu_check.distance(np.array([3.0, 5.0]), np.array([3.0, 4.0])) == 0.2


@pytest.mark.slow
def test_what_cannot_run_does_not_stop_the_rest(monkeypatch):
    made = []

    def make(task, dtype, xla, small):
        made.append((dtype, xla))
        if xla:
            raise tf.errors.InternalError(None, None, "libdevice not found\nat ...")
        memory = tf.Variable([1.0, 2.0], name="momentum")
        memory.path = "adam/momentum"
        optimizer = types.SimpleNamespace(variables=[memory])
        graph = tf.function(tf.matmul).get_concrete_function(tf.ones((2, 2)), tf.ones((2, 2))).graph
        return training_steps.Step(lambda: 3.0, optimizer, lambda: graph, 1)

    monkeypatch.setattr(training_steps, "make", make)
    report = gpu_check.main(gpu_check.Config(tasks=("text",), **TOY))
    assert len(made) == 1 + len(report.rows) == 5
    answers = [row["as on the CPU"] for row in report.rows]
    assert answers == ["yes", "failed: libdevice not found"] * 2
    assert report.notes[-1].endswith("it is not: text float32 XLA, text bfloat16 XLA.")


def test_without_a_gpu_it_says_what_there_is(monkeypatch, capsys):
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("there is one")
    monkeypatch.setattr(sys, "argv", ["benchmarks", "speed/gpu_check"])
    monkeypatch.setattr(program.measure, "use_one_thread", lambda: None)
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith("error: device must be one of CPU:0")
    assert "docs/gpu.md" in said and said.endswith("received 'GPU:0'\n")
