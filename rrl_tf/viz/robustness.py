"""Accuracy against how far the input was perturbed."""

import numpy as np
from matplotlib.ticker import PercentFormatter

from rrl_tf.viz import style


def robustness_figure(panels, ylabel, references=None):
    """Draw a panel a perturbation and a line a model, with bands over seeds.

    Args:
        panels: dict axis title → dict label → `(strengths (P,), values (seeds, P))`. A label keeps
            its colour in all panels; labels that differ in what follows " · " share a colour, and
            all but the first of them are dashed.
        ylabel: what is measured.
        references: dict axis title → (low, high), the strengths met in training; drawn grey.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    labels = list(dict.fromkeys(label for lines in panels.values() for label in lines))
    models = list(dict.fromkeys(label.partition(" · ")[0] for label in labels))
    kinds = list(dict.fromkeys(label.partition(" · ")[2] for label in labels))
    gap, left, legend = 0.25, 0.7, 0.3 * len(kinds) + 0.1
    width = (style.FIGURE_WIDTH - left - 0.2 - gap * (len(panels) - 1)) / len(panels)
    figure = style.new_figure(style.FIGURE_WIDTH, 3.1 + legend + 0.6)
    for i, (title, lines) in enumerate(panels.items()):
        axes = style.place(figure, left + i * (width + gap), legend + 0.05, width, 3.0)
        style.plain(axes)
        for label, (strengths, values) in lines.items():
            model, _, kind = label.partition(" · ")
            values = np.asarray(values, np.float64)
            colour = style.PALETTE[models.index(model) % len(style.PALETTE)]
            dashes = (0, (4, 2)) if kinds.index(kind) else "solid"
            axes.plot(
                strengths, values.mean(0), color=colour, linestyle=dashes, lw=1.8, label=label
            )
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
    handles, names = figure.axes[0].get_legend_handles_labels()
    order = sorted(range(len(names)), key=lambda k: names[k].partition(" · ")[2] != kinds[0])
    figure.legend(
        [handles[k] for k in order],
        [names[k] for k in order],
        loc="upper left",
        bbox_to_anchor=(left / style.FIGURE_WIDTH, 1.0),
        ncols=len(models),
        frameon=False,
        fontsize=style.SMALL_SIZE,
        labelcolor=style.TEXT,
    )
    return figure
