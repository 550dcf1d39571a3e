"""One look for every picture: sizes, colours, and figures laid out in inches.

Figures are made from `matplotlib.figure.Figure` and styled artist by artist, so drawing needs no
display and neither reads nor changes matplotlib's process-wide state.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage
    from matplotlib.text import Text

# 9 in at 144 dots fill a README (about 900 px) and stay sharp on a high-resolution screen.
FIGURE_WIDTH = 9.0
FIGURE_DPI = 144

TEXT = "#1f2430"
MUTED = "#6b7280"
LINE = "#c9ced6"
GRID = "#e6e8ec"
UNSEEN = "#eceef1"
BAR = "#9db4cc"
ACCENT = "#d55e00"

# Okabe and Ito's palette, which suits all common colour blindness; the first is "ours".
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4d4d4d")

# One hue from white down to navy: its lightness falls steadily, so it also survives grey printing.
ATTENTION_MAP = LinearSegmentedColormap.from_list(
    "attention", ("#ffffff", "#d3e5f3", "#8fc0e0", "#3f8fc6", "#0b5a9c", "#06244f")
)

DASHED = (0, (4, 3))

TITLE_SIZE = 12
LABEL_SIZE = 9.5
SMALL_SIZE = 8.5
LETTER = 0.068  # width in inches of a letter of SMALL_SIZE, with room to spare


def new_figure(width: float, height: float, dpi: float = FIGURE_DPI) -> Figure:
    """Return an empty white figure of `width` by `height` inches."""
    return Figure(figsize=(width, height), dpi=dpi, facecolor="white")


def colour(index: int) -> str:
    """Return the colour of the line number `index` of a figure."""
    return PALETTE[index % len(PALETTE)]


def place(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Add axes at a place given in inches from the figure's top left corner."""
    total_width, total_height = figure.get_size_inches()
    bottom = total_height - top - height
    return figure.add_axes(
        (left / total_width, bottom / total_height, width / total_width, height / total_height)
    )


def write(
    figure: Figure,
    left: float,
    top: float,
    text: str,
    size: float = LABEL_SIZE,
    color: str = TEXT,
    **options: Any,
) -> Text:
    """Write `text` with its top left corner at a place given in inches from the top left."""
    width, height = figure.get_size_inches()
    options = {"ha": "left", "va": "top"} | options
    return figure.text(left / width, 1 - top / height, text, size=size, color=color, **options)


def bare(axes: Axes) -> None:
    """Strip the ticks from axes that hold a picture and draw a fine frame around it."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set(color=LINE, linewidth=0.8)


def plain(axes: Axes) -> None:
    """Style axes that hold a plot: muted ticks, no box, a light horizontal grid."""
    axes.tick_params(labelsize=SMALL_SIZE, colors=MUTED, color=LINE, length=3, width=0.8)
    for side, spine in axes.spines.items():
        spine.set(color=LINE, linewidth=0.8, visible=side in ("left", "bottom"))
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=GRID, linewidth=0.8)


def name_axes(axes: Axes, xlabel: str, ylabel: str = "") -> None:
    """Label the axes."""
    axes.set_xlabel(xlabel, size=LABEL_SIZE, color=TEXT)
    axes.set_ylabel(ylabel, size=LABEL_SIZE, color=TEXT)


def title(axes: Axes, text: str, size: float = LABEL_SIZE, **options: Any) -> None:
    """Write a left-aligned title above axes."""
    look: dict[str, Any] = {"color": TEXT, "loc": "left", "pad": 4} | options
    axes.set_title(text, size=size, **look)


def colour_bar(
    figure: Figure,
    image: AxesImage,
    left: float,
    top: float,
    height: float,
    label: str,
    **options: Any,
) -> None:
    """Draw a picture's colour scale with its name, at a place in inches as for `place`."""
    axes = place(figure, left, top, 0.13, height)
    bar = figure.colorbar(image, cax=axes, ticks=MaxNLocator(5), **options)
    bar.outline.set(color=LINE, linewidth=0.8)
    axes.tick_params(labelsize=SMALL_SIZE, colors=MUTED, color=LINE, length=3)
    axes.set_ylabel(label, size=SMALL_SIZE, color=MUTED)


def row_of_panels(
    count: int, top: float, height: float, gap: float, widest: float = FIGURE_WIDTH
) -> tuple[Figure, list[Axes]]:
    """Return a figure with a row of plain axes, `top` inches below its upper edge."""
    left, right = 0.75, 0.2
    width = min(widest, (FIGURE_WIDTH - left - right - gap * (count - 1)) / count)
    total = left + count * width + (count - 1) * gap + right
    figure = new_figure(total, top + height + 0.55)
    panels = [place(figure, left + i * (width + gap), top, width, height) for i in range(count)]
    for axes in panels:
        plain(axes)
    return figure, panels


def grid_of_panels(
    titles: Iterable[str], columns: int, height: float, top: float
) -> tuple[Figure, list[Axes]]:
    """Return a figure with rows of plain axes that share both scales, `top` inches from its top."""
    left, right, gap, line, foot = 0.75, 0.4, 0.3, 0.15, 0.65
    width = (FIGURE_WIDTH - left - right - gap * (columns - 1)) / columns
    wrapped = [textwrap.fill(title, int((width + gap) / LETTER)) for title in titles]
    heading = 0.1 + line * max(text.count("\n") + 1 for text in wrapped)
    each = heading + height + 0.15
    figure = new_figure(FIGURE_WIDTH, top + math.ceil(len(wrapped) / columns) * each + foot)
    panels: list[Axes] = []
    for i, text in enumerate(wrapped):
        row, column = divmod(i, columns)
        axes = place(
            figure, left + column * (width + gap), top + row * each + heading, width, height
        )
        plain(axes)
        title(axes, text, SMALL_SIZE)
        if panels:
            axes.sharex(panels[0])
            axes.sharey(panels[0])
        # Only the outer panels have numbers.
        axes.tick_params(labelbottom=i + columns >= len(wrapped), labelleft=column == 0)
        panels.append(axes)
    return figure, panels


def fill(count: int, width: float, height: float, gap: float, heading: float) -> tuple[int, float]:
    """Return the number of columns and the side of squares that fill a rectangle best.

    Args:
        count: number of squares.
        width, height: size of the rectangle in inches.
        gap: distance between two squares.
        heading: height of the title above each.
    """

    def side(columns):
        rows = math.ceil(count / columns)
        across = (width + gap) / columns - gap
        return min(across, (height + gap) / rows - gap - heading)

    if count == 0:
        return 0, 0.0
    columns = max(range(1, count + 1), key=side)
    return columns, side(columns)


def number_steps(axes: Axes, steps: int) -> None:
    """Write some of the numbers 1 to `steps` along the horizontal axis."""
    axes.set_xlim(0.5, steps + 0.5)
    ticks = MaxNLocator(12, integer=True).tick_values(1, steps)
    axes.set_xticks([tick for tick in ticks if 1 <= tick <= steps])


def legend_columns(labels: Iterable[str], width: float) -> int:
    """Return the number of columns of a legend `width` inches wide: all entries, or two."""
    labels = list(labels)
    fits = sum(0.46 + LETTER * len(label) for label in labels) <= width
    return len(labels) if fits else 2


def legend(
    figure: Figure, left: float, top: float, entries: Mapping[str, Artist], columns: int
) -> None:
    """Write the names of lines and areas, name → artist, at a place in inches as for `place`."""
    width, height = figure.get_size_inches()
    figure.legend(
        list(entries.values()),
        list(entries),
        loc="upper left",
        bbox_to_anchor=(left / width, 1 - top / height),
        ncols=columns,
        frameon=False,
        fontsize=SMALL_SIZE,
        labelcolor=TEXT,
        borderaxespad=0.2,
        columnspacing=1.4,
    )


def line(color: str, linestyle: Any = "solid", **options: Any) -> Line2D:
    """Return a line for a legend."""
    return Line2D([], [], **({"color": color, "linestyle": linestyle, "lw": 1.8} | options))


def area(color: str = MUTED, alpha: float = 0.25) -> Patch:
    """Return a filled rectangle for a legend."""
    return Patch(color=color, alpha=alpha, linewidth=0)


def references_width(labels: Iterable[str]) -> float:
    """Return the inches that the names of reference lines need to the right of axes."""
    return 0.15 + LETTER * max(map(len, labels), default=0)


def references(figure: Figure, axes: Axes, heights: Mapping[str, float]) -> None:
    """Draw thin horizontal lines across axes and write their names to the right of them.

    Names outside of the axes do not cover curves or the grid; names of close lines move up until
    they are apart. Set the axes' limits before.
    """
    for height in heights.values():
        axes.axhline(height, color=MUTED, linewidth=1, linestyle=DASHED, zorder=1)
    axes.set_ylim(axes.get_ylim())
    step = 0.16 / (axes.get_position().height * figure.get_figheight())
    free = -1.0  # in heights of the axes, like step: the lowest place for the next name
    for label, height in sorted(heights.items(), key=lambda item: item[1]):
        _, at = axes.transAxes.inverted().transform(axes.transData.transform((0, height)))
        at = max(at, free)
        axes.annotate(
            label,
            (1, at),
            xycoords="axes fraction",
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            size=SMALL_SIZE,
            color=MUTED,
        )
        free = at + step
