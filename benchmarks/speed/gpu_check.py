"""Compare every task's training step on a GPU with the CPU: time, loss and gradient.

Each step is timed in float32 and mixed_bfloat16, without and with XLA, from a batch on the device
to the loss as a number. One step from the same weights also runs on the CPU in float32; losses
and first gradients, which are read from the optimizer's momentum after clipping, are compared.

`--device CPU:0 --small` tries the check without a GPU.
"""

import dataclasses
import gc
import time
from typing import Literal

import numpy as np
import tensorflow as tf

from benchmarks import training_steps
from benchmarks.measure import Report, Rounds, median, take_turns
from rrl_tf.errors import InvalidInput

PRECISIONS = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
TOLERANCES = {"float32": 1e-2, "bfloat16": 0.2}
"""Largest relative distance from the CPU. A GPU's float32 products may be TF32 with 10 bits."""


@dataclasses.dataclass(frozen=True)
class Config(Rounds):
    """Select the device and the tasks, and set the number of measurements."""

    device: str = "GPU:0"
    """TensorFlow's name of the device."""
    tasks: tuple[Literal[tuple(training_steps.MAKERS)], ...] = tuple(training_steps.MAKERS)
    """Tasks whose training steps are measured."""
    small: bool = False
    """Toy sizes, for a test of the benchmark."""
    rounds: int = 5
    calls: int = 10


def main(config):
    """Measure every task's training step on a GPU, and compare it with the CPU's."""
    names = [device.name.removeprefix("/device:") for device in tf.config.list_logical_devices()]
    if config.device not in names:
        raise InvalidInput(
            f"device must be one of {', '.join(names)}, the devices that TensorFlow finds (see "
            f"docs/how_to/gpu.md for the requirements of a GPU); received {config.device!r}"
        )
    rows = [row for task in config.tasks for row in task_rows(task, config)]
    return Report("Training steps on a GPU", rows, notes(config, rows))


def task_rows(task, config):
    """Yield the rows of a task."""
    with tf.device("CPU:0"):
        expected = first_step(training_steps.make(task, "float32", False, config.small))
    for precision in PRECISIONS:
        for xla in (False, True):
            name = {"task": task, "precision": precision, "XLA": "XLA" if xla else ""}
            try:
                with tf.device(config.device):
                    step = training_steps.make(task, PRECISIONS[precision], xla, config.small)
                    cells = measured(step, precision, expected, config)
            except tf.errors.OpError as error:  # such as an error of XLA; later steps may run
                cells = {"equal to the CPU": f"failed: {str(error).partition(chr(10))[0]}"}
            yield name | cells
            gc.collect()  # the models of all tasks may not fit into memory together


def measured(step, precision, expected, config):
    """Return the cells of a step: its time and its distance from the CPU's."""
    off = [distance(*pair) for pair in zip(first_step(step), expected)]
    seconds = median(take_turns({"step": step.train}, config, time.perf_counter)["step"])
    return {
        "ms": 1e3 * seconds,
        "relative error of the loss": off[0],
        "of the gradient": off[1],
        "equal to the CPU": "yes" if max(off) <= TOLERANCES[precision] else "no",
    }


def first_step(step):
    """Return the loss and the gradient of the first step as vectors."""
    loss = step.train()
    momenta = [m.numpy().ravel() for m in step.optimizer.variables if "momentum" in m.path]
    return np.array([loss]), np.concatenate(momenta)


def distance(found, expected):
    """Return the distance of two vectors, relative to the length of the second."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def notes(config, rows):
    """Return the notes that are printed below the table."""
    wrong = [
        f"{r['task']} {r['precision']} {r['XLA']}" for r in rows if r["equal to the CPU"] != "yes"
    ]
    return (
        f"On {described(config.device)}. Wall time of a step, until its loss is a number. "
        "No step has dropout, whose numbers depend on the device.",
        "Relative errors are those of one step, compared with the CPU's in float32; "
        f"at most {TOLERANCES['float32']} in float32 and {TOLERANCES['bfloat16']} in bfloat16 "
        f"counts as equal. Not equal: {', '.join(wrong) or 'none'}.",
    )


def described(device):
    """Return the name of a device, with the name that the driver reports."""
    kind, _, index = device.partition(":")
    physical = tf.config.list_physical_devices(kind)[int(index or 0)]
    details = tf.config.experimental.get_device_details(physical) if kind == "GPU" else {}
    return f"{details['device_name']} ({device})" if "device_name" in details else device
