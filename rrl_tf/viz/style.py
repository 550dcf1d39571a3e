"""One look for every picture: sizes, colours, and figures laid out in inches.

Figures are made from `matplotlib.figure.Figure` and styled artist by artist, so drawing needs no
display and neither reads nor changes matplotlib's process-wide state.
"""

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

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

# Okabe and Ito's palette, told apart with every common colour blindness; the first is "ours".
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4d4d4d")

# One hue from white down to navy: its lightness falls steadily, so it also survives grey printing.
ATTENTION_MAP = LinearSegmentedColormap.from_list(
    "attention", ("#ffffff", "#d3e5f3", "#8fc0e0", "#3f8fc6", "#0b5a9c", "#06244f")
)

TITLE_SIZE = 12
LABEL_SIZE = 9.5
SMALL_SIZE = 8.5


def new_figure(width, height, dpi=FIGURE_DPI):
    """Return an empty white figure of `width` by `height` inches."""
    return Figure(figsize=(width, height), dpi=dpi, facecolor="white")


def place(figure, left, top, width, height) -> Axes:
    """Add axes at a place given in inches from the figure's top left corner."""
    total_width, total_height = figure.get_size_inches()
    bottom = total_height - top - height
    return figure.add_axes(
        (left / total_width, bottom / total_height, width / total_width, height / total_height)
    )


def write(figure, left, top, text, size=LABEL_SIZE, color=TEXT, **options):
    """Write `text` with its top left corner at a place given in inches from the top left."""
    width, height = figure.get_size_inches()
    options = {"ha": "left", "va": "top"} | options
    return figure.text(left / width, 1 - top / height, text, size=size, color=color, **options)


def bare(axes):
    """Strip the ticks from axes that hold a picture and draw a fine frame around it."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set(color=LINE, linewidth=0.8)


def plain(axes):
    """Style axes that hold a plot: muted ticks, no box, a light horizontal grid."""
    axes.tick_params(labelsize=SMALL_SIZE, colors=MUTED, color=LINE, length=3, width=0.8)
    for side, spine in axes.spines.items():
        spine.set(color=LINE, linewidth=0.8, visible=side in ("left", "bottom"))
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=GRID, linewidth=0.8)


def title(axes, text, size=LABEL_SIZE, **options):
    """Write a left-aligned title above axes."""
    axes.set_title(text, **({"size": size, "color": TEXT, "loc": "left", "pad": 4} | options))


def reference(axes, label, height, linestyle=(0, (4, 3))):
    """Draw a thin horizontal line across axes and write its name above its right end."""
    axes.axhline(height, color=MUTED, linewidth=1, linestyle=linestyle, zorder=1)
    axes.annotate(
        label,
        (1, height),
        xycoords=("axes fraction", "data"),
        xytext=(-2, 3),
        textcoords="offset points",
        ha="right",
        size=SMALL_SIZE,
        color=MUTED,
    )
