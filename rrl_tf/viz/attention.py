"""Attention drawn on the cells of the agent's view, and over the frame of a game."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.patches import Rectangle
from PIL import Image

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style
from rrl_tf.viz._checks import checked_cells, checked_images, shaped

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    Cell = tuple[int, int]
_MARGIN = 0.2  # inches, as all lengths here
_GAP = 0.16
_HEADING = 0.3
_LEGEND = 0.52  # below the view, of two lines
LETTERS_LINE = 0.16
_COLOUR_BAR = 0.85
_FRAME_GAP, _FRAME_TITLE, _FRAME_HEIGHT = 0.15, 0.26, 2.6
_DIM, _GLOW, _GLOW_COLOUR = 0.4, 0.45, (255, 176, 0)
_UNBROKEN = "\N{NO-BREAK SPACE}"


def attention_grid(weights: Any, grid: Cell = (7, 7)) -> np.ndarray:
    """Return one row of attention as an image with the view's orientation.

    Observations are indexed `[x, y]` and flattened in that order, so that entity `x * height + y`
    is the cell `(x, y)`; an image has rows `y` and columns `x`.

    Args:
        weights: array `(S,)`, the attention to each of `S = width * height` cells.
        grid: `(width, height)` of the view.

    Returns:
        Array `(height, width)`.

    Raises:
        InvalidInput: if `weights` has another shape.

    Example:

    >>> import numpy as np
    >>> np.argwhere(attention_grid(np.eye(49)[27]) == 1)  # the agent: row 6, column 3
    array([[6, 3]])
    """
    return shaped("weights", weights, grid[0] * grid[1]).reshape(grid).T


def attention_figure(
    frame: Any,
    view: Any,
    scores: Any,
    cells: Mapping[str, Cell],
    unseen: Any | None = None,
    grid: Cell = (7, 7),
) -> Figure:
    """Draw the attention of each head from each labelled cell, next to the state.

    The whole frame and the agent's view are on the left, followed by one row per head and one
    column per labelled cell. The attending cell is outlined in orange, labelled cells show their
    initial, a grey line bounds the visible cells, and all panels share one colour scale.

    Args:
        frame: uint8 RGB `(height, width, 3)`, the rendered environment.
        view: uint8 RGB `(height, width, 3)`, the agent's view, upright (agent at the bottom).
        scores: array `(H, N, N)`, or a dict name -> such an array for several rounds.
            `scores[h, n, s]` is the attention of entity `n` to entity `s`, and entity
            `x * height + y` is the cell `(x, y)`.
        cells: dict label -> `(x, y)`; labels that share a cell share a column.
        unseen: boolean array indexed `[x, y]`, cells out of sight; `None` if all are visible.
        grid: `(width, height)` of the view in cells.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        InvalidInput: if an array has a wrong shape or dtype, or a cell lies outside the view.

    Example:
        >>> frame, view = np.zeros((160, 160, 3), "uint8"), np.zeros((224, 224, 3), "uint8")
        >>> cells = {"agent": (3, 6), "key": (1, 4)}
        >>> figure = attention_figure(frame, view, np.full((2, 49, 49), 1 / 49), cells)

    Reference: figures 10.23 and 10.24 of Zai and Brown, Deep Reinforcement Learning in Action.
    """
    frame, view = checked_images("frame", frame), checked_images("view", view)
    rounds = scores if isinstance(scores, dict) else {None: scores}
    nodes = grid[0] * grid[1]
    rounds = {
        name: shaped("scores" if name is None else f"scores[{name!r}]", each, "H", nodes, nodes)
        for name, each in rounds.items()
    }
    if not rounds:
        raise InvalidInput(f"scores must hold at least one round; received {scores!r}")
    cells = checked_cells(cells, grid)
    unseen = np.zeros(grid, bool) if unseen is None else unseen
    unseen = shaped("unseen", unseen, *grid, dtype=bool)

    groups = merged_cells(cells)
    places = _Places.of(rounds, groups, cells)
    figure = style.new_figure(places.width, places.height)
    _draw_state(figure, places, frame, view, cells, unseen, grid)
    _draw_panels(figure, places, rounds, groups, cells, unseen, grid)
    return figure


def merged_cells(cells: Mapping[str, Cell]) -> dict[Cell, str]:
    """Return `(x, y) -> "label + label"`: a carried key shares the agent's cell."""
    groups: dict[Cell, list[str]] = {}
    for label, cell in cells.items():
        groups.setdefault(cell, []).append(label)
    return {cell: " + ".join(labels) for cell, labels in groups.items()}


def initials(labels: Iterable[str]) -> dict[str, str]:
    """Return label -> the shortest capitalised beginning that no other label shares.

    If that needs several letters of a label of several words, such as `red key` next to `red ball`,
    it is the words' first letters, unless another label has the same. Labels that differ only in a
    number, such as `box` and `box 2`, share their letters and keep the number.
    """
    parts = {label: _without_number(label) for label in labels}
    short = _shortest({word for word, _ in parts.values()})
    return {label: short[word] + number for label, (word, number) in parts.items()}


def _shortest(words):
    short = {}
    for word in words:
        length = 1
        while length < len(word) and any(o.startswith(word[:length]) for o in words - {word}):
            length += 1
        short[word] = word[:length].capitalize()
    firsts = {word: "".join(part[0] for part in word.split()).upper() for word in words}
    for word, letters in firsts.items():
        if 1 < len(letters) < 1 + len(short[word]) and list(firsts.values()).count(letters) == 1:
            short[word] = letters
    return short


def _without_number(label):
    """Return a label's words, and the number at their end, or an empty string."""
    words, _, number = label.rpartition(" ")
    return (words, number) if words and number.isdigit() else (label, "")


def meaning(labels: Iterable[str], width: float = math.inf) -> str:
    """Return the key to the letters in the cells, in lines of at most `width` inches."""
    words = dict.fromkeys(_without_number(label)[0] for label in labels)
    entries = [f"{short} {word}" for word, short in initials(words).items()]
    whole = "  ".join(entry.replace(" ", _UNBROKEN) for entry in entries)
    letters = max(1, int(min(width / style.LETTER, len(whole) + 1)))
    return textwrap.fill(whole, letters, break_long_words=False).replace(_UNBROKEN, " ")


def mark_cells(
    axes: Axes,
    cells: Mapping[str, Cell],
    looking: Cell | None = None,
    weights: np.ndarray | None = None,
    size: float = style.SMALL_SIZE,
    letters: Mapping[str, str] | None = None,
) -> list[Artist]:
    """Outline labelled cells and write their letters; the attending cell is orange.

    Args:
        axes: axes whose data coordinates are cells, as after `draw_weights`.
        cells: dict label -> `(x, y)`.
        looking: `(x, y)` of the attending cell, or `None`.
        weights: image `(height, width)` scaled to 0..1 under the letters, which are white on dark
            cells; `None` writes no letters.
        size: font size of the letters.
        letters: dict label -> letters, if they depend on further labels, as in a film; `None` is
            the cells' `initials`.

    Returns:
        List of the artists added.
    """
    short = initials(cells) if letters is None else letters
    artists: list[Artist] = []
    for (x, y), label in merged_cells(cells).items():
        here = (x, y) == looking
        colour, width = (style.ACCENT, 2.2) if here else (style.TEXT, 1.0)
        box = Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, ec=colour, lw=width)
        box.set_zorder(4 if here else 3)
        artists.append(axes.add_patch(box))
        if weights is not None:
            text = "".join(short[part] for part in label.split(" + "))
            ink = "white" if weights[y, x] > 0.55 else style.TEXT
            place: dict[str, Any] = {"ha": "center", "va": "center_baseline", "zorder": 5}
            smaller = size if len(text) == 1 else size * 0.75
            artists.append(axes.text(x, y, text, size=smaller, weight="bold", color=ink, **place))
    return artists


def draw_weights(axes: Axes, weights: np.ndarray, largest: float) -> AxesImage:
    """Draw an image of attention `(height, width)`, white at 0 and darkest at `largest`."""
    height, width = weights.shape
    image = axes.imshow(weights, cmap=style.ATTENTION_MAP, vmin=0, vmax=largest)
    axes.vlines(np.arange(width - 1) + 0.5, -0.5, height - 0.5, color=style.GRID, lw=0.5)
    axes.hlines(np.arange(height - 1) + 0.5, -0.5, width - 0.5, color=style.GRID, lw=0.5)
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
    style.bare(axes)
    return image


def even_share(weights: Any) -> float:
    """Return the weight of each entity if a row `(..., S)` attended evenly to its entities."""
    return 1.0 / max(1, np.count_nonzero(weights, axis=-1).max())


def darkest(weights: np.ndarray, even: float) -> float:
    """Return the end of the colour scale, at which even attention is at most half as dark."""
    return float(max(weights.max(initial=0.0), min(1.0, 2 * even)))


class _Places(NamedTuple):
    """Positions and sizes in inches from the top left corner."""

    width: float
    height: float
    side: float  # of the two pictures on the left
    panel: float  # side of one attention panel
    top: float  # of the first row of panels
    left: float  # of the first column of panels

    @classmethod
    def of(cls, rounds, groups, cells):
        """Choose sizes so that the two pictures are as tall as the panels next to them."""
        rows, columns = sum(len(heads) for heads in rounds.values()), len(groups)
        grouping = 0.28 if len(rounds) > 1 else 0.0
        gaps = (columns - 1) * _GAP
        room = style.FIGURE_WIDTH - 2 * _MARGIN - 0.3 - grouping - _COLOUR_BAR - gaps
        spare = 2 * _HEADING + _LEGEND - rows * _HEADING
        panel = (room + spare / 2) / (columns + rows / 2)
        side = float(np.clip((rows * panel - spare) / 2, 1.8, 2.6))
        # Not so small that titles touch, and not taller than a page with many rows.
        least = style.LETTER * max(len(_panel_title(1, label)) for label in groups.values()) - _GAP
        most = max(least, min(1.9, 8.0 / rows))
        panel = float(np.clip((room - side) / columns, least, most))

        left = _MARGIN + side + 0.3 + grouping
        stack = 2 * (_HEADING + side) + _LEGEND + LETTERS_LINE * meaning(cells, side).count("\n")
        panels = rows * (_HEADING + panel)
        height = max(stack, panels) + 0.5 * _MARGIN + _MARGIN
        top = 0.5 * _MARGIN + max(0.0, (stack - panels) / 2)
        width = left + columns * panel + gaps + _COLOUR_BAR + _MARGIN
        return cls(width, height, side, panel, top, left)


def _panel_title(head, label):
    return f"head {head} · from {label}"


def _draw_state(figure, places, frame, view, cells, unseen, grid):
    """Draw the frame, the view below it, and the key to the letters."""
    top = 0.5 * _MARGIN + _HEADING
    axes = style.place(figure, _MARGIN, top, places.side, places.side)
    axes.imshow(frame, interpolation="antialiased")
    style.bare(axes)
    style.title(axes, "environment")

    top += places.side + _HEADING
    axes = style.place(figure, _MARGIN, top, places.side, places.side)
    width, height = grid
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    axes.imshow(view, extent=extent, interpolation="antialiased")
    for x, y in np.argwhere(unseen):
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fc=style.UNSEEN, ec="white", lw=0.6))
    style.bare(axes)
    style.title(axes, "view of the agent")
    mark_cells(axes, cells)
    top += places.side + 0.08
    letters = meaning(cells, places.side)
    style.write(figure, _MARGIN, top, letters, style.SMALL_SIZE, style.MUTED)
    top += 0.18 + LETTERS_LINE * letters.count("\n")
    orange = "orange: the cell that attends"
    style.write(figure, _MARGIN, top, orange, style.SMALL_SIZE, style.ACCENT)


def _draw_panels(figure, places, rounds, groups, cells, unseen, grid):
    """Draw the attention of every head from every cell, and the colour bar."""
    step = places.panel + _HEADING
    entities = [x * grid[1] + y for x, y in groups]
    drawn = np.concatenate([attention[:, entities] for attention in rounds.values()])
    even = even_share(drawn)
    largest = darkest(drawn, even)
    top = places.top
    for name, attention in rounds.items():
        if len(rounds) > 1:
            _name_round(figure, places, name, top + _HEADING, len(attention) * step - _HEADING)
        for head, of_head in enumerate(attention, start=1):
            for column, ((x, y), label) in enumerate(groups.items()):
                left = places.left + column * (places.panel + _GAP)
                axes = style.place(figure, left, top + _HEADING, places.panel, places.panel)
                weights = attention_grid(of_head[x * grid[1] + y], grid)
                image = draw_weights(axes, weights, largest)
                _outline_seen(axes, unseen)
                mark_cells(axes, cells, (x, y), weights / largest)
                style.title(axes, _panel_title(head, label), style.SMALL_SIZE)
            top += step

    left = places.left + len(groups) * (places.panel + _GAP)
    rows = top - places.top - _HEADING
    height = min(rows, 3.0)
    middle = places.top + _HEADING + rows / 2
    style.colour_bar(
        figure, image, left, middle - height / 2, height, f"attention; even would be {even:.2f}"
    )


def _name_round(figure, places, name, top, height):
    """Write a round's name along its rows of panels."""
    axes = style.place(figure, places.left - 0.12, top, 0.02, height)
    axes.set(xticks=[], yticks=[], facecolor=style.LINE)
    for spine in axes.spines.values():
        spine.set_visible(False)
    name = str(name).replace("_", " ")
    axes.set_ylabel(name, size=style.LABEL_SIZE, color=style.TEXT, weight="bold", labelpad=5)


def _outline_seen(axes, unseen):
    """Draw the border between visible cells and cells out of sight."""
    upright = [
        [(x + 0.5, y - 0.5), (x + 0.5, y + 0.5)] for x, y in np.argwhere(unseen[1:] != unseen[:-1])
    ]
    level = [
        [(x - 0.5, y + 0.5), (x + 0.5, y + 0.5)]
        for x, y in np.argwhere(unseen[:, 1:] != unseen[:, :-1])
    ]
    axes.add_collection(LineCollection(upright + level, colors=style.MUTED, linewidths=0.9))


def attention_paid(scores: Any, grid: tuple[int, int]) -> np.ndarray:
    """Return the attention that each entity receives, as a mean over all entities: it sums to one.

    Args:
        scores: array `(H, N, N)`; `scores[h, n, s]` is the attention of entity `n` to entity `s`,
            and entity `row * columns + column` is the cell (row, column).
        grid: `(rows, columns)` of the entities.

    Returns:
        Array `(H, rows, columns)`.

    Raises:
        InvalidInput: if `scores` has another shape.

    Example:

    >>> attention_paid(np.eye(4)[None], (2, 2))
    array([[[0.25, 0.25],
            [0.25, 0.25]]])
    """
    nodes = grid[0] * grid[1]
    scores = shaped("scores", scores, "H", nodes, nodes)
    return scores.mean(axis=1).reshape(-1, *grid)


def overlay(frame: Any, weights: Any) -> np.ndarray:
    """Blend attention into a frame: attended places are bright and orange, others are dim.

    Args:
        frame: uint8 RGB `(height, width, 3)`.
        weights: array `(rows, columns)` ≥ 0, of patches that cover the frame evenly. The largest
            glows most; the glow is interpolated between the patches' centres.

    Returns:
        uint8 array `(height, width, 3)`.

    Raises:
        InvalidInput: if `frame` is not such an image, or `weights` does not have two axes.

    Example:

    >>> overlay(np.zeros((210, 160, 3), "uint8"), np.eye(8)).shape
    (210, 160, 3)
    """
    frame = checked_images("frame", frame)
    weights = shaped("weights", weights, "rows", "columns")
    height, width, _ = frame.shape
    scaled = Image.fromarray((weights / (weights.max() or 1.0)).astype(np.float32))
    glow = np.asarray(scaled.resize((width, height), Image.Resampling.BILINEAR))[..., None]
    lit = frame * (_DIM + (1 - _DIM) * glow)
    return (lit + _GLOW * glow * (np.array(_GLOW_COLOUR) - lit)).astype(np.uint8)


def frame_attention_figure(frame: Any, scores: Mapping[str, Any], grid: tuple[int, int]) -> Figure:
    """Draw a frame, and the attention that its patches receive in each round and head.

    Each panel has its own scale, given in its title: from zero to the largest weight of a patch, in
    percent.

    Args:
        frame: uint8 RGB `(height, width, 3)`, the rendered game.
        scores: dict name → array `(H, N, N)` as for `attention_paid`, of each round.
        grid: `(rows, columns)` of the entities, which cover the frame evenly.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        InvalidInput: if an array has a wrong shape or dtype, or there is no round.

    Example:
        >>> frame = np.zeros((210, 160, 3), "uint8")
        >>> rounds = {"round 1": np.full((2, 81, 81), 1 / 81)}  # of two heads
        >>> figure = frame_attention_figure(frame, rounds, grid=(9, 9))
        >>> len(figure.axes)  # the frame, and one panel per head
        3

    Reference: figure 10.25 of Zai and Brown, Deep Reinforcement Learning in Action.
    """
    frame = checked_images("frame", frame)
    if not scores:
        raise InvalidInput(f"scores must hold at least one round; received {scores!r}")
    panels = {(0, 0): ("environment", frame)}
    for row, (name, each) in enumerate(scores.items()):
        for column, weights in enumerate(attention_paid(each, grid), start=1):
            title = f"{name.replace('_', ' ')}, head {column}: 0 to {weights.max():.1%}"
            panels[row, column] = title, overlay(frame, weights)
    columns = 1 + max(column for _, column in panels)
    aspect = frame.shape[0] / frame.shape[1]
    across = (style.FIGURE_WIDTH - 2 * _MARGIN + _FRAME_GAP) / columns
    width = min(across - _FRAME_GAP, _FRAME_HEIGHT / aspect)
    step = width + _FRAME_GAP, _FRAME_TITLE + width * aspect + _FRAME_GAP
    figure = style.new_figure(
        2 * _MARGIN + columns * step[0] - _FRAME_GAP,
        2 * _MARGIN + len(scores) * step[1] - _FRAME_GAP,
    )
    for (row, column), (title, image) in panels.items():
        left, top = _MARGIN + column * step[0], _MARGIN + row * step[1] + _FRAME_TITLE
        axes = style.place(figure, left, top, width, width * aspect)
        axes.imshow(image, interpolation="antialiased")
        style.bare(axes)
        style.title(axes, title, style.SMALL_SIZE)
    return figure
