"""Where a layer does not do what moving its input should do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style
from rrl_tf.viz.attention import draw_weights

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARGIN, _GAP, _TITLE, _NAMES, _ERROR, _COLOUR_BAR = 0.2, 0.25, 0.17, 0.4, 0.4, 0.7


def equivariance_figure(errors: Mapping[str, Mapping[str, Any]]) -> Figure:
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
        ValueError: if there is no movement, or movements have different layers.

    Example:

    >>> errors = {"rolled": {"convolution": np.eye(4), "relations": np.zeros((4, 4))}}
    >>> figure = equivariance_figure(errors)
    """
    if not errors:
        raise InvalidInput(f"errors must hold at least one movement; received {errors!r}")
    layers = list(next(iter(errors.values())))
    if any(list(row) != layers for row in errors.values()):
        raise InvalidInput(
            f"every movement needs the layers {layers}; "
            f"received {[list(row) for row in errors.values()]}"
        )
    room = style.FIGURE_WIDTH - 2 * _MARGIN - _NAMES - _COLOUR_BAR - (len(layers) - 1) * _GAP
    panel = min(room / len(layers), 2.0)
    step = panel + _ERROR + _GAP
    top = _MARGIN + _TITLE * max(layer.count("\n") + 1 for layer in layers)
    rows = len(errors) * step - _ERROR - _GAP
    figure = style.new_figure(style.FIGURE_WIDTH, top + rows + _ERROR + _MARGIN)
    for i, (movement, row) in enumerate(errors.items()):
        for j, (layer, error) in enumerate(row.items()):
            error = np.asarray(error)
            left, above = _MARGIN + _NAMES + j * (panel + _GAP), top + i * step
            axes = style.place(figure, left, above, panel, panel)
            image = draw_weights(axes, error, 1.0)
            if i == 0:
                style.title(axes, layer, style.SMALL_SIZE)
            if j == 0:
                axes.set_ylabel(movement, size=style.SMALL_SIZE, color=style.TEXT, labelpad=5)
            share = np.mean(error > 1e-4)
            text = f"largest {_power(error.max())}\n{share:.0%} of cells differ"
            style.write(figure, left, above + panel + 0.05, text, style.SMALL_SIZE, style.MUTED)
    beyond = any(np.max(error) > 1 for row in errors.values() for error in row.values())
    place = _MARGIN + _NAMES + len(layers) * (panel + _GAP), top, rows
    label = "difference, relative to the largest output"
    style.colour_bar(figure, image, *place, label, extend="max" if beyond else "neither")
    return figure


def _power(value: float) -> str:
    return f"{value:.2f}" if value >= 0.01 else f"{value:.0e}"
