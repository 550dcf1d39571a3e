"""Where a layer does not do what moving its input should do."""

import numpy as np

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style
from rrl_tf.viz.attention import draw_weights

_MARGIN, _GAP, _TITLE, _NAMES, _ERROR = 0.2, 0.25, 0.62, 0.4, 0.26


def equivariance_figure(errors):
    """Draw where `f(g(x))` differs from `g(f(x))`, for layers f and movements g.

    One row a movement, one column a layer; a panel shows the difference in each cell of the output,
    white where it is none and darkest where it is as large as the output itself.

    Args:
        errors: dict movement → dict layer → array `(rows, columns)`, norm of the difference
            relative to the largest of the output. Every movement has the same layers; names may
            hold line breaks.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: if movements have different layers.
    """
    layers = list(next(iter(errors.values())))
    if any(list(row) != layers for row in errors.values()):
        raise InvalidInput(
            f"every movement needs the layers {layers}. "
            f"Received: {[list(row) for row in errors.values()]}"
        )
    room = style.FIGURE_WIDTH - 2 * _MARGIN - _NAMES - (len(layers) - 1) * _GAP
    panel = min(room / len(layers), 2.0)
    height = 2 * _MARGIN + _TITLE + len(errors) * (panel + _ERROR + _GAP) - _GAP
    figure = style.new_figure(style.FIGURE_WIDTH, height)
    for i, (movement, row) in enumerate(errors.items()):
        for j, (layer, error) in enumerate(row.items()):
            left = _MARGIN + _NAMES + j * (panel + _GAP)
            top = _MARGIN + _TITLE + i * (panel + _ERROR + _GAP)
            axes = style.place(figure, left, top, panel, panel)
            draw_weights(axes, np.minimum(error, 1.0), 1.0)
            if i == 0:
                style.title(axes, layer, style.SMALL_SIZE)
            if j == 0:
                axes.set_ylabel(movement, size=style.SMALL_SIZE, color=style.TEXT, labelpad=5)
            share = np.mean(error > 1e-4)
            text = f"largest {_power(error.max())}, {share:.0%} of cells differ"
            style.write(figure, left, top + panel + 0.05, text, style.SMALL_SIZE, style.MUTED)
    return figure


def _power(value):
    return f"{value:.2f}" if value >= 0.01 else f"{value:.0e}"
