"""Every task's training step on a GPU: its time, the rates it reaches, and its correctness.

Each step is timed in float32 and mixed_bfloat16, without and with XLA, from a batch on the device
to the loss as a number. Its products are counted in
its graph and compared with the rates of a large product and of a large copy, measured in the same
run. One step from the same weights also runs on the CPU in float32; losses and first gradients,
which are read from the optimizer's momentum after clipping, are compared.

`--device CPU:0 --small` tries all of it without a GPU.
"""

import dataclasses
import gc
import time
from typing import Literal

import numpy as np
import tensorflow as tf

from benchmarks import training_steps
from benchmarks.measure import Report, Rounds, median, take_turns
from benchmarks.products import count_products
from rrl_tf.errors import InvalidInput

PRECISIONS = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
TOLERANCES = {"float32": 1e-2, "bfloat16": 0.2}
"""Largest relative distance from the CPU; a GPU's float32 products may be TF32, with 10 bits."""


@dataclasses.dataclass(frozen=True)
class Config(Rounds):
    """Which device and tasks, and how long is measured."""

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
    rates = {name: measured_rates(name, config) for name in PRECISIONS}
    rows = [row for task in config.tasks for row in task_rows(task, config, rates)]
    return Report("Training steps on a GPU", rows, notes(config, rates, rows))


def task_rows(task, config, rates):
    """Yield the rows of a task."""
    with tf.device("CPU:0"):
        expected = first_step(training_steps.make(task, "float32", False, config.small))
    for precision in PRECISIONS:
        for xla in (False, True):
            name = {"task": task, "precision": precision, "XLA": "XLA" if xla else ""}
            try:
                with tf.device(config.device):
                    step = training_steps.make(task, PRECISIONS[precision], xla, config.small)
                    cells = measured(step, precision, expected, config, rates[precision])
            except tf.errors.OpError as error:  # such as one of XLA or memory; others may run
                cells = {"as on the CPU": f"failed: {str(error).partition(chr(10))[0]}"}
            yield name | cells
            gc.collect()  # the models of all tasks may not fit into memory together


def measured(step, precision, expected, config, rates):
    """Return the cells of a step: its distance from the CPU's, its time and its rates."""
    off = [distance(*pair) for pair in zip(first_step(step), expected)]
    products = count_products(step.graph(), step.loop_steps)
    seconds = median(take_turns({"step": step.train}, config, time.perf_counter)["step"])
    flops, moved = (number / seconds for number in products)
    return {
        "ms": 1e3 * seconds,
        "TFLOP/s": flops / 1e12,
        "of a large product's": f"{flops / rates[0]:.1%}",
        "GB/s": moved / 1e9,
        "of a large copy's": f"{moved / rates[1]:.1%}",
        "loss off": off[0],
        "gradient off": off[1],
        "as on the CPU": "yes" if max(off) <= TOLERANCES[precision] else "no",
    }


def first_step(step):
    """Return loss and gradient of the first step, as vectors."""
    loss = step.train()
    momenta = [m.numpy().ravel() for m in step.optimizer.variables if "momentum" in m.path]
    return np.array([loss]), np.concatenate(momenta)


def distance(found, expected):
    """Return the distance of two vectors, relative to the length of the second."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def measured_rates(precision, config):
    """Return operations per second of a large product, and bytes per second of a large copy."""
    size = 256 if config.small else 8192
    with tf.device(config.device):
        a, b = (tf.cast(tf.random.normal((size, size), seed=seed), precision) for seed in (0, 1))
        multiply = tf.function(lambda: tf.reduce_sum((a @ b)[0]))
        copy = tf.function(lambda: (a + b)[0, 0], jit_compile=False)
        sides = {"product": lambda: multiply().numpy(), "copy": lambda: copy().numpy()}
        seconds = take_turns(sides, config, time.perf_counter)
    moved = 3 * size**2 * a.dtype.size
    return 2 * size**3 / median(seconds["product"]), moved / median(seconds["copy"])


def notes(config, rates, rows):
    """Return the notes of the table."""
    reached = ", ".join(
        f"{product / 1e12:.3g} TFLOP/s and {copied / 1e9:.3g} GB/s in {name}"
        for name, (product, copied) in rates.items()
    )
    wrong = [
        f"{r['task']} {r['precision']} {r['XLA']}" for r in rows if r["as on the CPU"] != "yes"
    ]
    return (
        f"On {described(config.device)}. Wall time of a step, until its loss is a number.",
        f"Large products and copies reach {reached}.",
        "Operations and bytes are counted in the graph: those of matrix products and convolutions, "
        "with operands and results moved once. The rest of a step takes time but is not counted. "
        "No step has dropout, whose numbers depend on the device.",
        "Off: distance from the CPU's float32 in one step, relative to its length; "
        f"at most {TOLERANCES['float32']} in float32 and {TOLERANCES['bfloat16']} in bfloat16 "
        f"counts as equal. Not equal: {', '.join(wrong) or 'none'}.",
    )


def described(device):
    """Return the name of a device, with the name that the driver reports."""
    kind, _, index = device.partition(":")
    physical = tf.config.list_physical_devices(kind)[int(index or 0)]
    details = tf.config.experimental.get_device_details(physical) if kind == "GPU" else {}
    return f"{details['device_name']} ({device})" if "device_name" in details else device
