"""How the cost of a training step of the Relational Memory grows with slots, heads and steps.

    python -m benchmarks.relational_memory_scaling

Each of the three is changed by itself, the others stay as in `benchmarks.relational_memory`, which
also says what a step is and how it is measured. A head brings its 32 units along, so the memory's
rows grow with the heads.
"""

import dataclasses
import functools

import numpy as np
import tensorflow as tf
import torch

from benchmarks import relational_memory
from benchmarks.measure import alternate, timed, use_one_thread
from benchmarks.report import RESULTS, Report
from rrl_tf import viz
from rrl_tf.layers import RelationalMemory
from train_scripts import command_line

COLUMNS = ("varied", "value", "ours, ms", "ours, looped, ms", "PyTorch port, ms", "ours of port")
AXES = {"mem_slots": "slots", "num_heads": "heads of 32 units", "steps": "steps T"}


@dataclasses.dataclass(frozen=True)
class Config:
    """What is tried, and how long."""

    mem_slots: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    num_heads: tuple[int, ...] = (1, 2, 4, 8, 16)
    steps: tuple[int, ...] = (2, 4, 8, 16, 32)
    rounds: int = 5
    """Turns of each contestant."""
    updates: int = 2
    """Training steps measured in a turn, after one that isn't."""


def main(config):
    """Measures how the CPU time of a training step grows with slots, heads and steps."""
    use_one_thread()
    torch.set_num_threads(1)
    tf.get_logger().setLevel("ERROR")  # it warns that one function is traced for several models
    rows = []
    for name, label in AXES.items():
        for value in getattr(config, name):
            sizes = dataclasses.replace(relational_memory.Config(), **{name: value})
            rows.append(row(label, value, milliseconds(sizes, config)))
            print(rows[-1], flush=True)
    notes = (
        "CPU time of a training step (forward, backward, Adam), one thread, medians.",
        "What is not varied: B = 64, T = 8, 40 features, 8 slots, 8 heads of 32; `ours` is "
        "unrolled. Neither uses XLA.",
    )
    title = "Cost of a training step against the sizes of the memory"
    Report("relational_memory_scaling", title, COLUMNS, rows, notes, vars(config)).write()
    viz.save_figure(figure(rows), RESULTS / "relational_memory_scaling.png")


def milliseconds(sizes, config):
    """Median CPU time of ours, unrolled and looped, and of the port."""

    def memory(unroll):
        return RelationalMemory(sizes.mem_slots, sizes.head_size, sizes.num_heads, unroll=unroll)

    functions = (
        relational_memory.keras_step(memory(True), sizes)[0],
        relational_memory.keras_step(memory(False), sizes)[0],
        relational_memory.torch_step(sizes)[0],
    )
    seconds = alternate(
        {i: functools.partial(timed, f, config.updates) for i, f in enumerate(functions)},
        config.rounds,
    )
    return [1e3 * float(np.median(values)) for values in seconds.values()]


def row(label, value, times):
    """A line of the table."""
    return dict(zip(COLUMNS, (label, value, *times, times[0] / times[2])))


def figure(rows):
    """A panel for each of the sizes."""
    panels = {}
    for label in AXES.values():
        mine = [row for row in rows if row["varied"] == label]
        values = np.array([row["value"] for row in mine])
        panels[label] = {
            column.removesuffix(", ms"): (values, np.array([row[column] for row in mine]))
            for column in COLUMNS[2:5]
        }
    return viz.cost_figure(panels, "CPU time of a training step in ms")


if __name__ == "__main__":
    command_line.run(main, Config)
