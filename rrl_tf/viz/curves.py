"""Learning curves over seeds."""

import numpy as np
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style

_BANDS = {
    "range": ("min–max over seeds", lambda values: (values.min(axis=0), values.max(axis=0))),
    "deviation": (
        "± 1 standard deviation over seeds",
        lambda values: (values.mean(0) - values.std(0), values.mean(0) + values.std(0)),
    ),
}

_LETTERS_IN_A_ROW = 60  # of the legend, beside its lines


def learning_curves(
    curves, ylabel, band="range", references=None, ylim=None, xlabel="environment steps"
):
    """Draw the mean over seeds of several agents, each with a band, in one figure.

    Args:
        curves: dict label -> `(steps, values)`; `steps` is an array `(P,)` and `values` an array
            `(seeds, P)`.
        ylabel: what is measured, with its unit.
        band: `"range"` (smallest to largest seed) or `"deviation"` (mean ± one population
            standard deviation). A single seed gets no band.
        references: dict label -> height of a dashed horizontal line, or `None`.
        ylim: `(low, high)` of the vertical axis, or `None` for what the data span.
        xlabel: what steps are counted in.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: if `band` is unknown, there is no curve, or shapes do not match.

    Example:

    ```python
    figure = learning_curves(
        {"fast": (steps, success), "book": (book_steps, book_success)},
        ylabel="greedy success",
        references={"all 48 starts": 1.0},
    )
    ```
    """
    if band not in _BANDS:
        raise InvalidInput(f"band must be one of {sorted(_BANDS)}. Received: {band!r}")
    if not curves:
        raise InvalidInput(f"curves must hold at least one curve. Received: {curves!r}")
    curves = {label: _checked_curve(label, *curve) for label, curve in curves.items()}

    figure = style.new_figure(style.FIGURE_WIDTH, 4.4)
    axes = style.place(figure, 0.75, 0.55, style.FIGURE_WIDTH - 1.05, 3.25)
    style.plain(axes)
    band_name, edges = _BANDS[band]
    for index, (label, (steps, values)) in enumerate(curves.items()):
        colour = style.PALETTE[index % len(style.PALETTE)]
        seeds = len(values)
        if seeds > 1:
            axes.fill_between(steps, *edges(values), color=colour, alpha=0.18, linewidth=0)
        name = f"{label} (mean of {seeds})" if seeds > 1 else f"{label} (1 seed)"
        axes.plot(steps, values.mean(axis=0), color=colour, linewidth=2, label=name)
    for label, height in (references or {}).items():
        style.reference(axes, label, height)
    _finish(figure, axes, curves, (xlabel, ylabel), ylim, band_name)
    return figure


def _checked_curve(label, steps, values):
    """Return `(steps (P,), values (seeds, P))` as floats."""
    steps, values = np.asarray(steps, np.float64), np.asarray(values, np.float64)
    if steps.ndim != 1 or values.ndim != 2 or values.shape[1:] != steps.shape or 0 in values.shape:
        raise InvalidInput(
            f"curves[{label!r}] must be (steps, values) of shapes (P,) and (seeds, P). "
            f"Received shapes: {steps.shape} and {values.shape}"
        )
    return steps, values


def _finish(figure, axes, curves, labels, ylim, band_name):
    """Add the axes' names and limits, and the legend above the plot."""
    xlabel, ylabel = labels
    axes.set_ylabel(ylabel, size=style.LABEL_SIZE, color=style.TEXT)
    axes.set_xlabel(xlabel, size=style.LABEL_SIZE, color=style.TEXT)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda steps, _: f"{steps:,.0f}"))
    axes.margins(x=0)
    if ylim is not None:
        axes.set_ylim(ylim)
    lines, _ = axes.get_legend_handles_labels()
    if any(len(values) > 1 for _, values in curves.values()):
        lines.append(Patch(color=style.MUTED, alpha=0.25, linewidth=0, label=band_name))
    fits_one_row = sum(len(line.get_label()) for line in lines) <= _LETTERS_IN_A_ROW
    axes.legend(
        handles=lines,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=len(lines) if fits_one_row else 2,
        frameon=False,
        fontsize=style.LABEL_SIZE,
        labelcolor=style.TEXT,
        borderaxespad=0.2,
        handlelength=1.6,
        columnspacing=1.6,
    )
