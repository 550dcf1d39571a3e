"""Accuracy against how far the input was perturbed."""

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from rrl_tf.viz import style

_DASHES = {False: "solid", True: (0, (4, 2))}


def robustness_figure(panels, ylabel, references=None):
    """Draw a panel a perturbation and a line a model, with bands over seeds.

    Args:
        panels: dict axis title → dict label → `(strengths (P,), values (seeds, P))`. A label keeps
            its colour in all panels. Labels are `model · kind`: a colour a model, and all kinds but
            the first are dashed.
        ylabel: what is measured.
        references: dict axis title → (low, high), the strengths met in training; drawn grey.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    labels = list(dict.fromkeys(label for lines in panels.values() for label in lines))
    models = list(dict.fromkeys(label.partition(" · ")[0] for label in labels))
    kinds = list(dict.fromkeys(label.partition(" · ")[2] for label in labels))
    gap, left, legend = 0.25, 0.7, 0.35
    width = (style.FIGURE_WIDTH - left - 0.2 - gap * (len(panels) - 1)) / len(panels)
    figure = style.new_figure(style.FIGURE_WIDTH, 3.1 + legend + 0.6)
    for i, (title, lines) in enumerate(panels.items()):
        axes = style.place(figure, left + i * (width + gap), legend + 0.05, width, 3.0)
        style.plain(axes)
        for label, (strengths, values) in lines.items():
            model, _, kind = label.partition(" · ")
            values = np.asarray(values, np.float64)
            colour = style.PALETTE[models.index(model) % len(style.PALETTE)]
            dashes = _DASHES[kinds.index(kind) > 0]
            axes.plot(strengths, values.mean(0), color=colour, linestyle=dashes, lw=1.8)
            if len(values) > 1:
                low, high = values.min(0), values.max(0)
                axes.fill_between(strengths, low, high, color=colour, alpha=0.15, linewidth=0)
        if references and title in references:
            axes.axvspan(*references[title], color=style.GRID, zorder=0, linewidth=0)
        axes.set_xlabel(title, size=style.LABEL_SIZE, color=style.TEXT)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_ylim(0, 1.01)
        axes.margins(x=0)
        if i == 0:
            axes.set_ylabel(ylabel, size=style.LABEL_SIZE, color=style.TEXT)
        else:
            axes.set_yticklabels([])
    styles = [(style.PALETTE[i % len(style.PALETTE)], "solid") for i in range(len(models))]
    styles += [(style.MUTED, _DASHES[bool(i)]) for i in range(len(kinds))]
    figure.legend(
        [Line2D([], [], color=colour, linestyle=dashes, lw=1.8) for colour, dashes in styles],
        [*models, *kinds],
        loc="upper left",
        bbox_to_anchor=(left / style.FIGURE_WIDTH, 1.0),
        ncols=len(styles),
        frameon=False,
        fontsize=style.SMALL_SIZE,
        labelcolor=style.TEXT,
        borderaxespad=0.2,
        columnspacing=1.4,
    )
    return figure
