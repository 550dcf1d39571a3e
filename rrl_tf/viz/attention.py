"""Draw attention on the cells of the agent's view, or on the frame of a game."""

from __future__ import annotations

import string
import textwrap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

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
_STATE_WIDTH, _STATE_HEIGHT = 2.5, 5.2  # of the two pictures on the left, in inches
_DIM, _GLOW, _GLOW_COLOUR = 0.4, 0.45, (255, 176, 0)
_UNBROKEN = "\N{NO-BREAK SPACE}"
_KEY_LETTERS = 32
_MOST_LETTERS = 3  # of a label in a cell, without its number
_MOST_PANELS = 12
CENTRE, ALL_CELLS = "centre", "all cells (mean)"


def attention_grid(weights: Any, grid: Cell = (7, 7)) -> np.ndarray:
    """Return the attention of one entity as an image in which the view is upright.

    Observations are indexed `[x, y]`, and the cell `(x, y)` is entity `x * height + y`. The image
    is indexed `[y, x]`.

    Args:
        weights: array `(S,)`, the attention to each of `S = width * height` cells.
        grid: `(width, height)` of the view.

    Returns:
        Array `(height, width)`.

    Raises:
        InvalidInput: if `weights` has a wrong shape.

    Example:

    >>> import numpy as np
    >>> np.argwhere(attention_grid(np.eye(49)[27]) == 1)  # the agent's cell is row 6, column 3
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
    """Draw the attention from each labelled cell in each head, next to the state.

    The rendered frame and the agent's view are on the left. On the right is a grid of panels, with
    one row per head and one column per labelled cell. All panels have the same colour scale. If no
    cell is labelled, the columns show the attention from the centre, and the mean over all cells.
    In a panel,

    - the attending cell is outlined in orange,
    - labelled cells show the initials of their label,
    - a grey line separates visible cells from the others.

    If this needs more than 12 panels, the figure shows the mean over the heads of each round, from
    the first labelled cells only.

    Args:
        frame: uint8 RGB `(height, width, 3)`, the rendered environment.
        view: uint8 RGB `(height, width, 3)`, the agent's view, upright (agent at the bottom).
        scores: array `(H, N, N)`, or a dict of such arrays whose keys are names of rounds.
            `scores[h, n, s]` is the attention of entity `n` to entity `s`, and the cell `(x, y)` is
            entity `x * height + y`.
        cells: dict label -> `(x, y)`; may be empty. Labels of the same cell have one column.
        unseen: bool array indexed `[x, y]`, true for cells that are not visible; `None` if all are
            visible.
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
        raise InvalidInput(f"`scores` must have at least one round; received {scores!r}")
    labelled = checked_cells(cells, grid)
    unseen = np.zeros(grid, bool) if unseen is None else unseen
    unseen = shaped("unseen", unseen, *grid, dtype=bool)

    cells = labelled or {CENTRE: centre(grid)}
    groups = merged_cells(cells) | ({} if labelled else {None: ALL_CELLS})
    rows, of_heads = sum(map(len, rounds.values())), ""
    if rows * len(groups) > _MOST_PANELS:
        rounds = {name: each.mean(axis=0, keepdims=True) for name, each in rounds.items()}
        rows, of_heads = len(rounds), ", mean over heads"
        groups = dict(list(groups.items())[: max(1, _MOST_PANELS // rows)])
    widest = style.LETTER * max(len(f"from {label}") for label in groups.values())
    panel = max(widest, min(1.7, 5.4 / len(groups)))
    width, height = _STATE_WIDTH + len(groups) * (panel + 0.15) + 0.9, rows * (panel + 0.5)
    figure = style.new_figure(
        width,
        max(_STATE_HEIGHT, height),
        "Left: the environment, and the view of the agent. Right: attention from the orange cell "
        "to all cells; the darkest cell receives most.",
    )
    ratios = _STATE_WIDTH, width - _STATE_WIDTH
    state, attention = figure.subfigures(1, 2, width_ratios=ratios, squeeze=False).flat
    _draw_state(state, frame, view, cells, unseen, grid)
    _draw_panels(attention, rounds, groups, cells, unseen, grid, of_heads)
    return figure


def centre(grid: Cell) -> Cell:
    """Return the cell `(x, y)` in the middle of a grid `(width, height)`."""
    return grid[0] // 2, grid[1] // 2


def attention_from(cell: Cell | None, scores: np.ndarray, grid: Cell) -> np.ndarray:
    """Return the attention from a cell, or the mean over all cells, as an image.

    Args:
        cell: `(x, y)` of the attending cell, or `None` for the mean over all cells.
        scores: `(N, N)`, the attention of one head.
        grid: `(width, height)` of the view.

    Returns:
        Array `(height, width)`.
    """
    weights = scores.mean(axis=0) if cell is None else scores[cell[0] * grid[1] + cell[1]]
    return attention_grid(weights, grid)


def merged_cells(cells: Mapping[str, Cell]) -> dict[Cell, str]:
    """Return `(x, y)` -> label; labels of the same cell are joined, such as `agent + key`."""
    groups: dict[Cell, list[str]] = {}
    for label, cell in cells.items():
        groups.setdefault(cell, []).append(label)
    return {cell: " + ".join(labels) for cell, labels in groups.items()}


def initials(labels: Iterable[str]) -> dict[str, str]:
    """Return a short, unambiguous abbreviation of each label.

    - An abbreviation is the shortest beginning of a label that no other label has, capitalised.
    - If this has several letters and the label has several words, such as `red key` next to
      `red ball`, the first letters of the words are used instead, unless they are ambiguous.
    - If it still has more than three letters, as for `lamp (on)` next to `lamp (off)`, it is the
      first letter and one of a, b, ..., because longer ones do not fit into a cell.
    - Labels that differ only in a number, such as `box` and `box 2`, get the same letters, followed
      by the number.
    """
    parts = {label: _without_number(label) for label in labels}
    short = _shortest(dict.fromkeys(word for word, _ in parts.values()))
    return {label: short[word] + number for label, (word, number) in parts.items()}


def _shortest(words):
    short = {}
    for word in words:
        length = 1
        while length < len(word) and any(
            other.startswith(word[:length]) for other in words if other != word
        ):
            length += 1
        short[word] = word[:length].capitalize()
    firsts = {word: "".join(part[0] for part in word.split()).upper() for word in words}
    for word, letters in firsts.items():
        if 1 < len(letters) < 1 + len(short[word]) and list(firsts.values()).count(letters) == 1:
            short[word] = letters
    for word in (word for word in words if len(short[word]) > _MOST_LETTERS):
        short[word] = next(
            letters
            for middle in ("", *string.ascii_lowercase)
            for last in string.ascii_lowercase
            if (letters := word[0].upper() + middle + last) not in short.values()
        )
    return short


def _without_number(label):
    """Return the words of a label and the number at its end; without one, an empty string."""
    words, _, number = label.rpartition(" ")
    return (words, number) if words and number.isdigit() else (label, "")


def meaning(labels: Iterable[str]) -> str:
    """Return the text that explains the letters in cells, in lines of about `_KEY_LETTERS`."""
    words = dict.fromkeys(_without_number(label)[0] for label in labels)
    entries = [f"{short} {word}" for word, short in initials(words).items()]
    whole = "  ".join(entry.replace(" ", _UNBROKEN) for entry in entries)
    return textwrap.fill(whole, _KEY_LETTERS, break_long_words=False).replace(_UNBROKEN, " ")


def mark_cells(
    axes: Axes,
    cells: Mapping[str, Cell],
    attending: Cell | None = None,
    weights: np.ndarray | None = None,
    size: float = style.SMALL_SIZE,
    letters: Mapping[str, str] | None = None,
) -> list[Artist]:
    """Outline labelled cells and write their letters; the outline of the attending cell is orange.

    Args:
        axes: axes whose data coordinates are cells, as after `draw_weights`.
        cells: dict label -> `(x, y)`.
        attending: `(x, y)` of the attending cell, or `None`.
        weights: image `(height, width)` of the attention behind the letters, from 0 to 1. Letters
            are white on dark cells. `None` writes no letters.
        size: font size of the letters in points.
        letters: dict label -> letters. An animation passes letters that are unambiguous for all of
            its steps. `None` uses `initials(cells)`.

    Returns:
        List of the added matplotlib artists.
    """
    short = initials(cells) if letters is None else letters
    artists: list[Artist] = []
    for (x, y), label in merged_cells(cells).items():
        here = (x, y) == attending
        colour, width = (style.ACCENT, 2.2) if here else (style.TEXT, 1.0)
        box = Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, ec=colour, lw=width)
        box.set_zorder(4 if here else 3)
        artists.append(axes.add_patch(box))
        if weights is not None:
            text = "".join(short[part] for part in label.split(" + "))
            ink = "white" if weights[y, x] > 0.55 else style.TEXT
            options: dict[str, Any] = {"ha": "center", "va": "center_baseline", "zorder": 5}
            smaller = size if len(text) == 1 else size * 0.75
            artists.append(axes.text(x, y, text, size=smaller, weight="bold", color=ink, **options))
    return artists


def draw_weights(axes: Axes, weights: np.ndarray, largest: float) -> AxesImage:
    """Draw an image of attention `(height, width)`, from white at 0 to darkest at `largest`."""
    height, width = weights.shape
    image = axes.imshow(weights, cmap=style.ATTENTION_MAP, vmin=0, vmax=largest)
    axes.vlines(np.arange(width - 1) + 0.5, -0.5, height - 0.5, color=style.GRID, lw=0.5)
    axes.hlines(np.arange(height - 1) + 0.5, -0.5, width - 0.5, color=style.GRID, lw=0.5)
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
    style.bare(axes)
    return image


def even_weight(weights: Any) -> float:
    """Return the weight of each entity under uniform attention, for weights `(..., S)`.

    Entities of weight 0 do not count, because they are masked.
    """
    return 1.0 / max(1, np.count_nonzero(weights, axis=-1).max())


def darkest(weights: np.ndarray, even: float) -> float:
    """Return the weight of the darkest colour, at least twice the weight of uniform attention.

    Nearly uniform attention therefore never looks strong.
    """
    return float(max(weights.max(initial=0.0), min(1.0, 2 * even)))


def _draw_state(figure, frame, view, cells, unseen, grid):
    """Draw the frame, the view below it, and the explanation of the letters."""
    above, below = figure.subplots(2, 1)
    above.imshow(frame, interpolation="antialiased")
    style.title(above, "environment")
    width, height = grid
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    below.imshow(view, extent=extent, interpolation="antialiased")
    for x, y in np.argwhere(unseen):
        below.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fc=style.UNSEEN, ec="white", lw=0.6))
    style.title(below, "view of the agent")
    mark_cells(below, cells)
    explanation = f"{meaning(cells)}\norange: the cell that attends"
    below.set_xlabel(explanation, size=style.SMALL_SIZE, color=style.MUTED, loc="left")
    for axes, anchor in ((above, "S"), (below, "N")):
        style.bare(axes)
        axes.set_anchor(anchor)


def _draw_panels(figure, rounds, groups, cells, unseen, grid, of_heads):
    """Draw the attention from each labelled cell in each head, and the colour bar."""
    heads = {
        ", ".join([*filter(None, [name]), *([] if of_heads else [f"head {head}"])]).replace(
            "_", " "
        ): [attention_from(cell, weights, grid) for cell in groups]
        for name, attention in rounds.items()
        for head, weights in enumerate(attention, start=1)
    }
    drawn = np.stack(list(heads.values()))
    even = even_weight(drawn.reshape(*drawn.shape[:2], -1))
    largest = darkest(drawn, even)
    panels = figure.subplots(len(heads), len(groups), squeeze=False)
    for row, (name, attention) in zip(panels, heads.items()):
        for axes, (cell, label), weights in zip(row, groups.items(), attention):
            image = draw_weights(axes, weights, largest)
            _outline_seen(axes, unseen)
            mark_cells(axes, cells, cell, weights / largest)
            style.title(axes, f"{name}\nfrom {label}".strip())
    style.colour_bar(figure, image, panels, f"attention{of_heads}; uniform is {even:.2f}")


def _outline_seen(axes, unseen):
    """Draw the border between cells that are visible and cells that are not."""
    upright = [
        [(x + 0.5, y - 0.5), (x + 0.5, y + 0.5)] for x, y in np.argwhere(unseen[1:] != unseen[:-1])
    ]
    level = [
        [(x - 0.5, y + 0.5), (x + 0.5, y + 0.5)]
        for x, y in np.argwhere(unseen[:, 1:] != unseen[:, :-1])
    ]
    axes.add_collection(LineCollection(upright + level, colors=style.MUTED, linewidths=0.9))


def attention_paid(scores: Any, grid: tuple[int, int]) -> np.ndarray:
    """Return the attention that each entity receives, averaged over the attending entities.

    Args:
        scores: array `(H, N, N)`; `scores[h, n, s]` is the attention of entity `n` to entity `s`,
            and the cell (row, column) is entity `row * columns + column`.
        grid: `(rows, columns)` of the entities.

    Returns:
        Array `(H, rows, columns)`, which sums to one for each head.

    Raises:
        InvalidInput: if `scores` has a wrong shape.

    Example:

    >>> attention_paid(np.eye(4)[None], (2, 2))
    array([[[0.25, 0.25],
            [0.25, 0.25]]])
    """
    nodes = grid[0] * grid[1]
    scores = shaped("scores", scores, "H", nodes, nodes)
    return scores.mean(axis=1).reshape(-1, *grid)


def overlay(frame: Any, weights: Any, largest: float = 0.0) -> np.ndarray:
    """Blend attention into a frame: attended patches are bright and orange, others are dim.

    Args:
        frame: uint8 RGB `(height, width, 3)`.
        weights: non-negative array `(rows, columns)`, the attention to patches that cover the frame
            evenly. It is interpolated between the centres of patches.
        largest: the attention that is drawn brightest; 0 means the maximum of `weights`.

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
    scaled = Image.fromarray((weights / (largest or weights.max() or 1.0)).astype(np.float32))
    glow = np.asarray(scaled.resize((width, height), Image.Resampling.BILINEAR))[..., None]
    lit = frame * (_DIM + (1 - _DIM) * glow)
    return (lit + _GLOW * glow * (np.array(_GLOW_COLOUR) - lit)).astype(np.uint8)


def frame_attention_figure(frame: Any, scores: Mapping[str, Any], grid: tuple[int, int]) -> Figure:
    """Draw a frame, and the attention that its patches receive in each round and head.

    Each panel has its own scale, from zero to the largest attention to a patch. The title of the
    panel states this maximum in percent.

    Args:
        frame: uint8 RGB `(height, width, 3)`, the rendered game.
        scores: dict name of a round → array `(H, N, N)` as for `attention_paid`.
        grid: `(rows, columns)` of the patches, which cover the frame evenly.

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
        raise InvalidInput(f"`scores` must have at least one round; received {scores!r}")
    heads = {name: attention_paid(each, grid) for name, each in scores.items()}
    columns = 1 + max(map(len, heads.values()))
    aspect = frame.shape[0] / frame.shape[1]
    width = min(style.FIGURE_WIDTH / columns, 2.6 / aspect)
    figure = style.new_figure(
        columns * width,
        len(heads) * (width * aspect + 0.35),
        "A frame, and the attention that its patches receive in each round and head: the brightest "
        "patch receives most.",
    )
    panels = figure.subplots(len(heads), columns, squeeze=False)
    for axes in panels.flat:
        axes.set_axis_off()
    pictures = [(panels[0, 0], "environment", frame)]
    for row, (name, of_round) in zip(panels, heads.items()):
        for number, (axes, weights) in enumerate(zip(row[1:], of_round), start=1):
            title = f"{name.replace('_', ' ')}, head {number}\n0 to {weights.max():.1%}"
            pictures.append((axes, title, overlay(frame, weights)))
    for axes, title, picture in pictures:
        axes.set_axis_on()
        axes.imshow(picture, interpolation="antialiased")
        style.bare(axes)
        style.title(axes, title)
    return figure
