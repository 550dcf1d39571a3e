"""How the cost of a training step of the Relational Memory grows with slots, heads and steps.

Each of the three is changed by itself, the others stay as in `speed/relational_memory`. A head
brings its 32 units along, so the memory's rows grow with the heads.
"""

import dataclasses

from benchmarks.measure import Rounds, median, take_turns
from benchmarks.report import RESULTS, Report
from benchmarks.speed import relational_memory
from rrl_tf import viz
from rrl_tf.layers import RelationalMemory

OURS, LOOPED, PORT = "ours", "ours, looped", "PyTorch port"
AXES = {"mem_slots": "slots", "num_heads": "heads of 32 units", "steps": "steps T"}


@dataclasses.dataclass(frozen=True)
class Config(Rounds):
    """What is tried, and how long."""

    mem_slots: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    num_heads: tuple[int, ...] = (1, 2, 4, 8, 16)
    steps: tuple[int, ...] = (2, 4, 8, 16, 32)
    rounds: int = 5
    calls: int = 2


def main(config):
    """Measures how the CPU time of a training step grows with slots, heads and steps."""
    rows = []
    for name, label in AXES.items():
        for value in getattr(config, name):
            sizes = dataclasses.replace(relational_memory.Config(), **{name: value})
            times = milliseconds(sizes, config)
            cells = {f"{name}, ms": time for name, time in times.items()}
            ratio = {"ours of port": times[OURS] / times[PORT]}
            rows.append({"varied": label, "value": value, **cells, **ratio})
            print(rows[-1], flush=True)
    notes = (
        "CPU time of a training step (forward, backward, Adam), one thread, medians.",
        "What is not varied: B = 64, T = 8, 40 features, 8 slots, 8 heads of 32; `ours` is "
        "unrolled. Neither uses XLA.",
    )
    viz.save_figure(figure(rows), RESULTS / "relational_memory_scaling.png")
    title = "Cost of a training step against the sizes of the memory"
    return Report(title, rows, notes)


def milliseconds(sizes, config):
    """Median CPU time of ours, unrolled and looped, and of the port."""

    def memory(unroll):
        return RelationalMemory(sizes.mem_slots, sizes.head_size, sizes.num_heads, unroll=unroll)

    steps = {
        OURS: relational_memory.keras_step(memory(True), sizes)[0],
        LOOPED: relational_memory.keras_step(memory(False), sizes)[0],
        PORT: relational_memory.torch_step(sizes)[0],
    }
    return {name: 1e3 * median(times) for name, times in take_turns(steps, config).items()}


def figure(rows):
    """A panel for each of the sizes."""
    panels = {}
    for label in AXES.values():
        mine = [row for row in rows if row["varied"] == label]
        values = [row["value"] for row in mine]
        panels[label] = {
            name: (values, [row[f"{name}, ms"] for row in mine]) for name in (OURS, LOOPED, PORT)
        }
    return viz.cost_figure(panels, "CPU time of a training step in ms")
