"""What something costs against its size."""

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style


def cost_figure(panels, ylabel):
    """Draw a panel for each size that is varied and a line for each contestant, both axes in logs.

    Args:
        panels: dict name of the size → dict label → `(sizes (P,), costs (P,))`, positive. A label
            keeps its colour in all panels.
        ylabel: what is measured, with its unit.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: if there is nothing to draw, or sizes and costs do not match.

    Example:

    ```python
    figure = cost_figure({"slots": {"ours": ([1, 2, 4], [3.0, 4.0, 7.0])}}, "ms")
    ```
    """
    labels = list(dict.fromkeys(label for lines in panels.values() for label in lines))
    if not labels:
        raise InvalidInput(f"panels must hold at least one line. Received: {panels!r}")
    gap, left, top = 0.5, 0.75, 0.5
    width = (style.FIGURE_WIDTH - left - 0.2 - gap * (len(panels) - 1)) / len(panels)
    figure = style.new_figure(style.FIGURE_WIDTH, 3.6)
    for i, (name, lines) in enumerate(panels.items()):
        axes = style.place(figure, left + i * (width + gap), top, width, 2.5)
        style.plain(axes)
        for label, (sizes, costs) in lines.items():
            sizes, costs = np.asarray(sizes, float), np.asarray(costs, float)
            if sizes.ndim != 1 or sizes.shape != costs.shape:
                raise InvalidInput(
                    f"panels[{name!r}][{label!r}] must be (sizes, costs) of the same shape (P,). "
                    f"Received shapes: {sizes.shape} and {costs.shape}"
                )
            colour = style.PALETTE[labels.index(label) % len(style.PALETTE)]
            axes.plot(sizes, costs, color=colour, lw=1.8, marker="o", ms=4, label=label)
        axes.set(xscale="log", yscale="log")
        axes.set_xticks(sizes)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_locator(NullLocator())
        axes.set_xlabel(name, size=style.LABEL_SIZE, color=style.TEXT)
        if i == 0:
            axes.set_ylabel(ylabel, size=style.LABEL_SIZE, color=style.TEXT)
    figure.axes[0].legend(
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=len(labels),
        frameon=False,
        fontsize=style.LABEL_SIZE,
        labelcolor=style.TEXT,
    )
    return figure
