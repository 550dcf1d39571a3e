"""Faithfulness of attention: the figure alone; docs/experiments/faithfulness.md names the rest.

python -m benchmarks reproductions/faithfulness --no-train
"""

import numpy as np

from benchmarks.reproduction import Reproduction
from rrl_tf.viz import style

PANELS = {
    ("fast-graph", "drop"): ("DoorKey-5x5", "Q"),
    ("doorkey-6x6", "drop"): ("DoorKey-6x6, LSTM", "Q"),
    ("doorkey-8x8", "drop"): ("DoorKey-8x8, LSTM", "Q"),
    ("box-world", "drop"): ("Box-World", "Q"),
    ("sort-of-clevr", "drop"): ("Sort-of-CLEVR, relational", "probability"),
    ("sort-of-clevr", "accuracy_drop"): ("Sort-of-CLEVR, relational", "accuracy"),
}
"""Network and measure in `curves.csv` -> title of the panel, and value whose change it shows."""


def curves(results):
    """Draw the change of each network's output against the number of removed entities.

    A change is the negative drop of the table, so values below zero mean that the output falls.
    """
    figure = style.new_figure(style.FIGURE_WIDTH, 6.6)
    entries = {}
    for axes, (key, (title, value)) in zip(figure.subplots(2, 3).flat, PANELS.items()):
        rows = [row for row in results.log if (row["network"], row["falls"]) == key]
        for index, order in enumerate(dict.fromkeys(row["order"] for row in rows)):
            names = ("count", "mean", "low", "high")
            points = [[float(r[name]) for name in names] for r in rows if r["order"] == order]
            count, *drops = np.array(points).T
            mean, low, high = (-drop for drop in drops)
            [entries[order]] = axes.plot(count, mean, color=style.colour(index), lw=2)
            axes.fill_between(count, low, high, color=style.colour(index), alpha=0.18, lw=0)
        style.plain(axes)
        axes.axhline(0, color=style.MUTED, lw=1)
        axes.set_xticks([1, 4, 8, 16, 32][: 4 + (count.max() > 16)])
        style.title(axes, title)
        style.name_axes(axes, "entities removed", f"change of {value}")
    style.legend(figure, entries | {"95 % interval": style.area()})
    return figure


REPRODUCTION = Reproduction(
    page="faithfulness", trainings={}, tables={}, figures={"curves": curves}
)
