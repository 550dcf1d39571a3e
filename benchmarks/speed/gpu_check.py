"""Every task's training step on a GPU: how fast, how far from what the GPU can do, and how right.

Each step is timed in float32 and mixed_bfloat16, without and with XLA, from a batch that lies on
the device (for the double DQN in NumPy, as in its loop) to the loss as a number. Its products are
counted in its graph, and compared with the rates of a large product and of a large copy, measured
in the same run. Then one step from the same weights is taken on the CPU in float32, and losses and
gradients are compared: what the optimiser keeps of the first gradient, after clipping.

`--device CPU:0 --small` tries all of it out where there is no GPU.
"""

import dataclasses
import gc
import time

import numpy as np
import tensorflow as tf

from benchmarks import training_steps
from benchmarks.measure import Rounds, median, take_turns
from benchmarks.products import count_products
from benchmarks.report import Report
from rrl_tf.errors import InvalidInput

PRECISIONS = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
TOLERANCES = {"float32": 1e-2, "bfloat16": 0.2}
"""Largest relative distance from the CPU's; a GPU's float32 products may be TF32's, of 10 bits."""


@dataclasses.dataclass(frozen=True)
class Config(Rounds):
    """Where, what, and how long."""

    device: str = "GPU:0"
    """As TensorFlow names it."""
    tasks: tuple[training_steps.Task, ...] = tuple(training_steps.MAKERS)
    """Whose training steps are taken."""
    small: bool = False
    """Toy sizes, to see whether it runs."""
    rounds: int = 5
    calls: int = 10


def main(config):
    """Measures every task's training step on a GPU, and compares it with the CPU's."""
    require_device(config.device)
    rates = {name: measured_rates(name, config) for name in PRECISIONS}
    rows = [row for task in config.tasks for row in rows_of(task, config, rates)]
    far = [f"{r['task']} {r['precision']} {r['XLA']}" for r in rows if r["as on the CPU"] != "yes"]
    return Report("Training steps on a GPU", rows, notes(config, rates, far))


def require_device(name):
    """Raises `InvalidInput` where TensorFlow has no such device."""
    names = [device.name.removeprefix("/device:") for device in tf.config.list_logical_devices()]
    if name not in names:
        raise InvalidInput(
            f"device must be one of {', '.join(names)}, as TensorFlow finds no other here "
            f"(docs/gpu.md says what a GPU needs); received {name!r}"
        )


def rows_of(task, config, rates):
    """Lines of the table for a task."""
    with tf.device("CPU:0"):
        expected = first_step(training_steps.make(task, "float32", False, config.small))
    for precision in PRECISIONS:
        for xla in (False, True):
            name = {"task": task, "precision": precision, "XLA": "XLA" if xla else ""}
            try:
                with tf.device(config.device):
                    step = training_steps.make(task, PRECISIONS[precision], xla, config.small)
                    cells = checked(step, precision, expected, config, rates[precision])
            except tf.errors.OpError as error:  # such as XLA's, or memory's; others may run
                cells = {"as on the CPU": f"failed: {str(error).partition(chr(10))[0]}"}
            yield name | cells
            gc.collect()  # the models of all tasks together may not fit


def checked(step, precision, expected, config, rates):
    """Cells of the table for a step: how far from the CPU's it is, and how fast."""
    off = [distance(*pair) for pair in zip(first_step(step), expected)]
    return {
        **timed(step, config, rates),
        **dict(zip(("loss off", "gradient off"), off)),
        "as on the CPU": "yes" if max(off) <= TOLERANCES[precision] else "no",
    }


def first_step(step):
    """Loss and gradient, as vectors, of the first step."""
    loss = step.train()
    kept = [m.numpy().ravel() for m in step.optimizer.variables if "momentum" in m.path]
    return np.array([loss]), np.concatenate(kept)


def timed(step, config, rates):
    """Time of a step and the rates it reaches."""
    products = count_products(step.graph(), step.loop_steps)
    seconds = take_turns({"step": step.train}, config, time.perf_counter)["step"]
    flops, moved = (number / median(seconds) for number in products)
    return {
        "ms": 1e3 * median(seconds),
        "TFLOP/s": flops / 1e12,
        "of a large product's": f"{flops / rates[0]:.1%}",
        "GB/s": moved / 1e9,
        "of a large copy's": f"{moved / rates[1]:.1%}",
    }


def distance(found, expected):
    """How far two vectors are from each other, relative to the second's length."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def measured_rates(precision, config):
    """Operations a second of a large matrix product, and bytes a second of a large copy."""
    size = 256 if config.small else 8192
    with tf.device(config.device):
        a, b = (tf.cast(tf.random.normal((size, size), seed=seed), precision) for seed in (0, 1))
        multiply = tf.function(lambda: tf.reduce_sum((a @ b)[0]))
        copy = tf.function(lambda: (a + b)[0, 0], jit_compile=False)
        turns = {"product": lambda: multiply().numpy(), "copy": lambda: copy().numpy()}
        seconds = take_turns(turns, config, time.perf_counter)
    moved = 3 * size**2 * a.dtype.size
    return 2 * size**3 / median(seconds["product"]), moved / median(seconds["copy"])


def notes(config, rates, far):
    """What the table means, and where its numbers come from."""
    reached = ", ".join(
        f"{product / 1e12:.3g} TFLOP/s and {copied / 1e9:.3g} GB/s in {name}"
        for name, (product, copied) in rates.items()
    )
    return (
        f"On {described(config.device)}. Wall time of a step, until its loss is a number.",
        f"Large products and copies reach {reached}.",
        "Operations and bytes are counted in the graph: those of matrix products and convolutions, "
        "with operands and results moved once. What else a step does is time without a count. No "
        "step has dropout, whose numbers depend on the device.",
        "Off: distance from the CPU's float32 in one step, relative to its length; "
        f"at most {TOLERANCES['float32']} in float32 and {TOLERANCES['bfloat16']} in "
        f"bfloat16 is as on the CPU{'; it is not: ' + ', '.join(far) if far else ', and all are'}.",
    )


def described(device):
    """The device's name, and what the driver calls it."""
    kind, _, index = device.partition(":")
    physical = tf.config.list_physical_devices(kind)[int(index or 0)]
    details = tf.config.experimental.get_device_details(physical) if kind == "GPU" else {}
    return f"{details['device_name']} ({device})" if "device_name" in details else device
