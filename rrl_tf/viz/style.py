"""Define sizes, colours and styles that all figures share.

Figures are `matplotlib.figure.Figure` objects that do not use pyplot, and every artist is styled
explicitly. Drawing therefore needs no display, and neither reads nor changes the global settings of
matplotlib.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase
    from matplotlib.image import AxesImage

# 9 inches at 144 dpi fill the width of a README (about 900 px), also on a high-resolution screen.
FIGURE_WIDTH = 9.0
FIGURE_DPI = 144

TEXT = "#1f2430"
MUTED = "#6b7280"
LINE = "#c9ced6"
GRID = "#e6e8ec"
UNSEEN = "#eceef1"
BAR = "#9db4cc"
ACCENT = "#d55e00"

# Okabe and Ito's palette, whose colours remain distinct for people with colour blindness, and three
# of Paul Tol's colours.
PALETTE = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4d4d4d"),
    *("#882255", "#999933", "#332288"),
)

# One hue from white to navy. Its lightness decreases steadily, so it also works in grey print.
ATTENTION_MAP = LinearSegmentedColormap.from_list(
    "attention", ("#ffffff", "#d3e5f3", "#8fc0e0", "#3f8fc6", "#0b5a9c", "#06244f")
)

DASHED = (0, (4, 3))

TITLE_SIZE = 12
LABEL_SIZE = 9.5
SMALL_SIZE = 8.5
LETTER = 0.068  # generous width in inches of a letter of SMALL_SIZE


def new_figure(width: float, height: float, caption: str = "", dpi: float = FIGURE_DPI) -> Figure:
    """Return an empty white figure of `width` by `height` inches.

    Its layout engine makes room for titles, labels and legends. `save_figure` writes the caption
    into the file, and reports show it.
    """
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)
    figure = Figure(figsize=(width, height), dpi=dpi, facecolor="white", layout=layout)
    figure.set_label(caption)
    return figure


def colour(index: int) -> str:
    """Return the colour of line number `index` of a figure; colours repeat after ten lines."""
    return PALETTE[index % len(PALETTE)]


def bare(axes: Axes) -> None:
    """Style axes that contain a picture: no ticks, and a thin frame."""
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(color=LINE, linewidth=0.8)


def plain(axes: Axes) -> None:
    """Style axes that contain a plot: grey ticks, no box, and light horizontal grid lines."""
    axes.tick_params(labelsize=SMALL_SIZE, colors=MUTED, color=LINE, length=3, width=0.8)
    for side, spine in axes.spines.items():
        spine.set(color=LINE, linewidth=0.8, visible=side in ("left", "bottom"))
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=GRID, linewidth=0.8)


def name_axes(axes: Axes, xlabel: str, ylabel: str = "") -> None:
    """Write labels on the horizontal and vertical axis."""
    axes.set_xlabel(xlabel, size=LABEL_SIZE, color=TEXT)
    axes.set_ylabel(ylabel, size=LABEL_SIZE, color=TEXT)


def title(axes: Axes, text: str, **options: Any) -> None:
    """Write a small left-aligned title above axes."""
    defaults: dict[str, Any] = {"size": SMALL_SIZE, "color": TEXT, "loc": "left", "pad": 4}
    axes.set_title(text, **(defaults | options))


def colour_bar(figure: FigureBase, image: AxesImage, axes: Any, label: str) -> None:
    """Draw a colour bar with a label to the right of `axes`."""
    bar = figure.colorbar(image, ax=axes, ticks=MaxNLocator(5), fraction=0.04, aspect=25)
    bar.outline.set(color=LINE, linewidth=0.8)
    bar.ax.tick_params(labelsize=SMALL_SIZE, colors=MUTED, color=LINE, length=3)
    bar.ax.set_ylabel(label, size=SMALL_SIZE, color=MUTED)


def number_steps(axes: Axes, steps: int) -> None:
    """Set ticks at some of the steps 1 to `steps` on the horizontal axis."""
    axes.set_xlim(0.5, steps + 0.5)
    ticks = MaxNLocator(12, integer=True).tick_values(1, steps)
    axes.set_xticks([tick for tick in ticks if 1 <= tick <= steps])


def legend(figure: Figure, entries: Mapping[str, Artist]) -> None:
    """Draw a legend above all axes; `entries` is a dict name -> artist."""
    widest = 0.75 + LETTER * max(map(len, entries))
    figure.legend(
        list(entries.values()),
        list(entries),
        loc="outside upper left",
        ncols=min(len(entries), max(1, int(figure.get_figwidth() / widest))),
        frameon=False,
        fontsize=SMALL_SIZE,
        labelcolor=TEXT,
        columnspacing=1.4,
    )


def line(color: str, linestyle: Any = "solid", **options: Any) -> Line2D:
    """Return a line for a legend."""
    return Line2D([], [], **({"color": color, "linestyle": linestyle, "lw": 1.8} | options))


def area(color: str = MUTED, alpha: float = 0.25) -> Patch:
    """Return a filled rectangle for a legend."""
    return Patch(color=color, alpha=alpha, linewidth=0)
