"""Films of episodes: frame, attention, action values, and the memory below them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style
from rrl_tf.viz._checks import checked_cells, checked_images, shaped
from rrl_tf.viz.attention import (
    LETTERS_LINE,
    attention_grid,
    darkest,
    draw_weights,
    even_share,
    initials,
    mark_cells,
    meaning,
)
from rrl_tf.viz.episode_memory import EpisodeMemory
from rrl_tf.viz.output import figure_to_image

_DPI = 100
_MARGIN, _TOP, _SIDE = 0.2, 0.72, 2.1  # inches, as all lengths here
_ATTENTION_WIDTH, _NAMES_WIDTH, _VALUES_WIDTH = 2.7, 0.85, 1.25
_GAP, _HEAD_TITLE = 0.12, 0.2
_MEMORY_GAP, _MEMORY_TITLE = 0.16, 0.26
_SQUARE, _BAR, _BAR_ROOM = 0.21, 0.72, 1.75  # a bar that ends at 1 needs room for its number
_MAPS_HEIGHT = 1.5
_STRIP_LEFT, _STRIP_HEIGHT, _STRIP_BELOW = 0.45, 0.7, 0.42
_WIDEST = 2.0  # ratio of a frame's width to its height
_CAPITAL = 0.09  # largest width of a letter of a name
_DIGIT = 0.046  # width of a digit at the bars
_VEIL = 0.65

GATES = {"input": "written", "forget": "kept"}
"""Effects of the gates that are drawn."""

Cells = Mapping[str, tuple[int, int]]


def film(
    frames: Any,
    scores: Any,
    cells: Sequence[Cells],
    q_values: Any,
    actions: Any,
    rewards: Any,
    action_names: Sequence[str],
    source: str = "agent",
    grid: tuple[int, int] = (7, 7),
    memory: EpisodeMemory | None = None,
    ended: bool = True,
    round_name: str = "",
) -> np.ndarray:
    """Draw an episode step by step; `save_film` writes the result as a GIF.

    Each image shows the frame, the attention of each head from the `source` cell, if there is any,
    and a bar for the value of each action, the chosen one in orange. The last image shows the final
    frame, with the last step faded. The memory is below: the attention of each slot, as a mean over
    heads, and the fractions written and kept, or, without attention, its gates in all steps so far.

    Args:
        frames: uint8 RGB `(T + 1, height, width, 3)`: before each of the `T` steps, and at the end.
        scores: array `(T, H, N, N)`, each as for `attention_figure`; `None` shows none.
        cells: `T` dicts label -> `(x, y)`, each with the label `source`; unused without `scores`.
        q_values, actions, rewards: arrays `(T, A)`, `(T,)` integers from 0 to A - 1, and `(T,)`.
        action_names: `A` strings.
        source: label of the cell whose attention is shown.
        grid: `(width, height)` of the view in cells.
        memory: memory of the `T` steps; `None` shows none.
        ended: whether the episode ended after the `T` steps.
        round_name: name of the round of attention in `scores`, such as `"round 1"`.

    Returns:
        uint8 array `(T + 1, height, width, 3)`, about 700 pixels wide.

    Raises:
        InvalidInput: if a shape or dtype is wrong, an action has no name, or `source` is missing.

    Example:
        >>> frames = np.full((3, 64, 64, 3), 255, "uint8")  # before each of two steps, and the end
        >>> q_values, actions, rewards = [[0.5, 0.1], [0.2, 0.9]], [0, 1], [0.0, 1.0]
        >>> images = film(frames, None, [], q_values, actions, rewards, ("left", "right"))
        >>> images.shape[0], images.dtype
        (3, dtype('uint8'))
    """
    frames = checked_images("frames", frames, "T")
    q_values, actions, rewards = map(np.asarray, (q_values, actions, rewards))
    scores, cells = _checked_attention(scores, cells, grid, source, len(q_values))
    _check_episode(frames, scores, cells, q_values, actions, rewards, action_names, source, memory)
    attending = [each[source] for each in cells]
    heads = _attention_from(attending, scores, grid)
    letters = initials(dict.fromkeys(label for each in cells for label in each))
    title = "attention from " + ", ".join(filter(None, (source, round_name)))
    page = _Page(frames[0], heads, q_values, action_names, title, letters)
    below = None if memory is None else _below(memory, page.figure.get_figwidth(), letters)
    steps = zip(frames, heads, cells, attending, q_values, actions, rewards)
    images = [*_images(page, below, steps, len(actions), ended)]
    page.show_end(frames[-1], rewards, ended)
    return np.stack([*images, _faded(_stacked(page, below), page)])


def _checked_attention(scores, cells, grid, source, steps):
    """Return scores and cells; without attention there are no heads."""
    if scores is None:
        return np.zeros((steps, 0, 1, 1)), [{source: (0, 0)}] * steps
    nodes = grid[0] * grid[1]
    scores = shaped("scores", scores, "T", "H", nodes, nodes)
    return scores, [checked_cells(each, grid) for each in cells]


def _images(page, below, steps, count, ended):
    """Yield the image of every step."""
    for t, (frame, heads, cells, attending, values, action, reward) in enumerate(steps):
        total = f"of {count}" if ended else f"of the first {count}"
        page.show_frame(frame, f"step {t + 1} {total}", f"reward {reward:.2f}")
        page.show_attention(heads, cells, attending)
        page.show_values(values, action)
        if below is not None:
            below.show(t, cells if len(heads) else {})  # no cells without attention
        yield _stacked(page, below)


def _below(memory, width, letters):
    """Return the figure of a memory, which is below the page."""
    return (_Strip if memory.attention is None else _Slots)(memory, width, letters)


def _attention_from(attending, scores, grid):
    """Return the attention of each step's attending cell as images `(T, H, height, width)`."""
    images = [
        [attention_grid(head[x * grid[1] + y], grid) for head in heads]
        for heads, (x, y) in zip(scores, attending)
    ]
    return np.array(images).reshape(*scores.shape[:2], *grid[::-1])


def _stacked(page, below):
    image = figure_to_image(page.figure)
    return image if below is None else np.concatenate([image, figure_to_image(below.figure)])


def _faded(image, page):
    """Fade all of the last image that belongs to the last step, but not the frame and captions."""
    faded = image + (_VEIL * (255 - image)).astype(np.uint8)
    frame = page.frame_axes.get_window_extent()
    height = page.figure.bbox.height
    above, bottom = int((_TOP - 0.35) * _DPI), math.ceil(height - frame.y0)
    faded[:above] = image[:above]
    faded[:bottom, : math.ceil(frame.x1)] = image[:bottom, : math.ceil(frame.x1)]
    return faded


def _check_episode(frames, scores, cells, q_values, actions, rewards, action_names, source, memory):
    """Raise an `InvalidInput` if the arrays of an episode do not fit each other."""
    steps, names = len(scores), len(action_names)
    for name, shape, expected in (
        ("frames", frames.shape[:1], (steps + 1,)),
        ("cells", (len(cells),), (steps,)),
        ("q_values", q_values.shape, (steps, names)),
        ("actions", actions.shape, (steps,)),
        ("rewards", rewards.shape, (steps,)),
        ("memory", (steps if memory is None else memory.steps,), (steps,)),
    ):
        if shape != expected:
            raise InvalidInput(
                f"an episode of {steps} steps (from scores) with {names} action names needs "
                f"{name} of (leading) shape {expected}; received {shape}"
            )
    if not np.issubdtype(actions.dtype, np.integer):
        raise InvalidInput(f"actions must be integers; received dtype {actions.dtype}")
    if actions.min() < 0 or actions.max() >= names:
        raise InvalidInput(f"actions must lie in 0..{names - 1}; received {actions.tolist()}")
    for t, each in enumerate(cells):
        if source not in each:
            raise InvalidInput(f"cells[{t}] has no {source!r}; received labels {sorted(each)}")


class _Page:
    """A figure of frame, attention and values whose artists change from image to image."""

    def __init__(self, frame, pictures, q_values, action_names, title, letters):
        count = pictures.shape[1]
        heading = _HEAD_TITLE if count > 1 else 0.0  # a single head has no title
        columns, side = style.fill(count, _ATTENTION_WIDTH, _SIDE, _GAP, heading)
        rows = math.ceil(count / max(1, columns))
        frame_width = _SIDE * min(max(1.0, frame.shape[1] / frame.shape[0]), _WIDEST)
        heads_width = max(0.0, columns * (side + _GAP) - _GAP)
        heads_height = rows * (side + heading + _GAP) - _GAP
        heads_left = _MARGIN + frame_width + (0.3 if columns else 0.0)
        heads_top = _TOP + (_SIDE - heads_height) / 2
        # Many names are written smaller.
        names_size = min(style.SMALL_SIZE, 0.9 * 72 * _SIDE / len(action_names))
        longest = max(map(len, action_names)) * _CAPITAL * names_size / style.SMALL_SIZE
        values_left = heads_left + heads_width + max(_NAMES_WIDTH, longest)
        right = values_left + _VALUES_WIDTH
        key = meaning(letters, heads_width) if columns else ""
        key_top = heads_top + heads_height + 0.08
        foot = key_top + LETTERS_LINE * (key.count("\n") + 1) + 0.08
        self.figure = style.new_figure(right + _MARGIN, max(_TOP + _SIDE + 0.32, foot), _DPI)
        self._caption = style.write(self.figure, _MARGIN, 0.13, "", style.TITLE_SIZE, weight="bold")
        self._reward = style.write(self.figure, right, 0.13, "", style.TITLE_SIZE, ha="right")
        self.frame_axes = style.place(self.figure, _MARGIN, _TOP, frame_width, _SIDE)
        self._frame = self.frame_axes.imshow(frame, interpolation="antialiased")
        style.bare(self.frame_axes)
        style.title(self.frame_axes, "environment", style.SMALL_SIZE)

        self._title, self._short, self._marks = title, letters, []
        self._largest = darkest(pictures, max(map(_even, pictures)))
        self._letters_size = min(style.SMALL_SIZE, 0.62 * 72 * side / pictures.shape[-1])
        above = heads_top - 0.04
        look = {"size": style.SMALL_SIZE, "va": "bottom"}
        self._scale = style.write(self.figure, heads_left, above, "", **look)
        style.write(self.figure, heads_left, key_top, key, style.SMALL_SIZE, style.MUTED)
        self._heads = []
        for head, weights in enumerate(pictures[0]):
            row, column = divmod(head, columns)
            top = heads_top + row * (side + heading + _GAP) + heading
            axes = style.place(self.figure, heads_left + column * (side + _GAP), top, side, side)
            self._heads.append(draw_weights(axes, weights, self._largest))
            if heading:
                style.title(axes, f"head {head + 1}", style.SMALL_SIZE, color=style.MUTED, pad=3)
        self._bars, self._numbers = self._add_values(
            q_values, action_names, values_left, names_size
        )

    def _add_values(self, q_values, action_names, left, names_size):
        """Add one bar per action, on a scale of the whole episode."""
        axes = style.place(self.figure, left, _TOP, _VALUES_WIDTH, _SIDE)
        rows = range(len(action_names))
        bars = axes.barh(rows, np.zeros(len(rows)), height=0.62)
        low, high = min(0.0, q_values.min()), max(0.0, q_values.max())
        # For the numbers at the ends of the bars, on both sides.
        longest = min(0.5, _DIGIT * max(len(f" {value:.2f} ") for value in (low, high)))
        room = longest / (_VALUES_WIDTH - 2 * longest) * ((high - low) or 1.0)
        axes.set_xlim(low - (room if low < 0 else 0), high + room)
        axes.invert_yaxis()
        axes.tick_params(length=0, labelsize=names_size, labelcolor=style.TEXT)
        axes.set_xticks([])
        axes.set_yticks(rows, action_names)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.axvline(0, color=style.LINE, linewidth=0.8)
        style.title(axes, "value of each action", style.SMALL_SIZE)
        return bars, [axes.text(0, y, "", size=min(7.5, names_size), va="center") for y in rows]

    def show_frame(self, frame, caption, reward):
        self._frame.set_data(frame)
        self._caption.set_text(caption)
        self._reward.set_text(reward)

    def show_end(self, frame, rewards, ended):
        caption, name = ("the end", "return") if ended else ("cut", "return so far")
        caption += f", after {len(rewards)} steps"
        self.show_frame(frame, caption, f"{name} {rewards.sum():.2f}")

    def show_attention(self, heads, cells, looking):
        for mark in self._marks:
            mark.remove()
        self._marks = []
        if self._heads:
            scale = f"0 to {self._largest:.2f}; even would be {_even(heads):.2f}"
            self._scale.set_text(f"{self._title}\n{scale}")
        for image, weights in zip(self._heads, heads):
            image.set_data(weights)
            scaled, size = weights / self._largest, self._letters_size
            self._marks += mark_cells(image.axes, cells, looking, scaled, size, self._short)

    def show_values(self, values, action):
        for index, (bar, number, value) in enumerate(zip(self._bars, self._numbers, values)):
            chosen = index == action
            bar.set(width=value, facecolor=style.ACCENT if chosen else style.BAR)
            number.set(
                text=f" {value:.2f} ",
                x=value,
                ha="left" if value >= 0 else "right",
                weight="bold" if chosen else "normal",
                color=style.ACCENT if chosen else style.MUTED,
            )


class _Slots:
    """A figure of the memory: a map of the view, a row of squares and bars of gates per slot."""

    def __init__(self, memory: EpisodeMemory, width: float, letters: Mapping[str, str]) -> None:
        self._memory, self._letters = memory, letters
        slots, entities = len(memory.slots), len(memory.entities)
        gates = [gate for gate in GATES if gate in memory.gates]
        names = _names_width(memory.slots)
        room = width - 2 * _MARGIN - names - (_BAR + _GAP) * len(gates)
        square = min(_SQUARE, room / entities)
        heading = _HEAD_TITLE if gates or memory.grid else 0.0
        height = heading + slots * square + _names_width(memory.entities)
        top, left, side, columns = _MEMORY_GAP / 2 + _MEMORY_TITLE, _MARGIN, 0.0, 0
        self._squares, self._cells = memory.to_entities(), np.zeros((memory.steps, 0, 1, 1))
        if memory.grid is not None:  # the maps fill the rest of the width
            room -= entities * square + 2 * _GAP
            columns, side = style.fill(slots, room, max(_MAPS_HEIGHT, height), _GAP, heading)
            height = max(height, -(-slots // columns) * (heading + side + _GAP))
            left += columns * (side + _GAP) + _GAP
            self._cells = memory.to_cells()
        self.figure = style.new_figure(width, top + height + _MEMORY_GAP / 2, _DPI)
        self._title = style.write(self.figure, _MARGIN, _MEMORY_GAP / 2, "", style.SMALL_SIZE)
        self._marks: list = []
        self._marks_size = min(style.SMALL_SIZE, 0.62 * 72 * side / self._cells.shape[-1])
        self._maps = []
        for slot, weights in enumerate(self._cells[0]):
            row, column = divmod(slot, columns)
            place = _MARGIN + column * (side + _GAP), top + heading + row * (side + _GAP + heading)
            axes = style.place(self.figure, *place, side, side)
            self._maps.append(draw_weights(axes, weights, 1.0))
            style.title(axes, memory.slots[slot], style.SMALL_SIZE, color=style.MUTED, pad=3)
        left, top = left + names, top + heading
        self._matrix = self._add_matrix(left, top, square)
        left += entities * square + _GAP
        self._bars = {
            gate: self._add_bars(GATES[gate], left + i * (_BAR + _GAP), top, slots * square)
            for i, gate in enumerate(gates)
        }

    def _add_matrix(self, left, top, square):
        slots, entities = self._memory.slots, self._memory.entities
        axes = style.place(self.figure, left, top, len(entities) * square, len(slots) * square)
        image = draw_weights(axes, self._squares[0], 1.0)
        axes.set_aspect("auto")
        axes.set_yticks(range(len(slots)), slots)
        # Narrow columns leave room for some of the names, with the last, the newest, among them.
        named = list(range(len(entities) - 1, -1, -int(np.ceil(0.13 / square))))
        axes.set_xticks(named, [entities[i] for i in named], rotation=90)
        axes.tick_params(length=0, labelsize=style.SMALL_SIZE - 1, labelcolor=style.MUTED, pad=2.5)
        return image

    def _add_bars(self, title, left, top, height):
        slots = range(len(self._memory.slots))
        axes = style.place(self.figure, left, top, _BAR, height)
        bars = axes.barh(slots, np.zeros(len(slots)), height=0.62, color=style.BAR)
        axes.set(xlim=(0, _BAR_ROOM), ylim=(len(slots) - 0.5, -0.5), xticks=[], yticks=[])
        for side, spine in axes.spines.items():
            spine.set(color=style.LINE, linewidth=0.8, visible=side == "left")
        style.title(axes, title, style.SMALL_SIZE, color=style.MUTED, pad=3)
        look = {"size": 7.5, "va": "center_baseline", "color": style.MUTED}
        return bars, [axes.text(0, y, "", **look) for y in slots]

    def show(self, t: int, cells: Cells) -> None:
        """Show step number t with labelled cells.

        Each step has its own scale, because a window has few entities to attend to at first.
        """
        even = even_share(self._memory.attention[t].mean(axis=0))
        of_cells, of_squares = (darkest(each[t], even) for each in (self._cells, self._squares))
        text = f"attention of the memory in this step, 0 to {of_squares:.2f}; "
        if self._memory.grid is not None:
            text += f"to single cells 0 to {of_cells:.2f}, "
        self._title.set_text(f"{text}even would be {even:.2f}")
        for mark in self._marks:
            mark.remove()
        self._marks = []
        for image, weights in zip(self._maps, self._cells[t]):
            image.set(data=weights, clim=(0, of_cells))
            scaled, size = weights / of_cells, self._marks_size
            self._marks += mark_cells(image.axes, cells, None, scaled, size, self._letters)
        self._matrix.set(data=self._squares[t], clim=(0, of_squares))
        for gate, (bars, numbers) in self._bars.items():
            for bar, number, value in zip(bars, numbers, self._memory.gates[gate][t]):
                bar.set_width(value)
                number.set(text=f" {value:.2f}", x=value)


class _Strip:
    """A figure of a memory without attention: its gates as lines up to the current step."""

    def __init__(self, memory: EpisodeMemory, width: float, letters: Mapping[str, str]) -> None:
        gates = [gate for gate in GATES if gate in memory.gates] or memory.gates
        self._values = {gate: memory.gates[gate].mean(axis=1) for gate in gates}
        top = _MEMORY_GAP / 2
        height = top + _MEMORY_TITLE + _STRIP_HEIGHT + _STRIP_BELOW + top
        self.figure = style.new_figure(width, height, _DPI)
        place = _STRIP_LEFT, top + _MEMORY_TITLE, width - _STRIP_LEFT - _MARGIN, _STRIP_HEIGHT
        axes = style.place(self.figure, *place)
        style.plain(axes)
        axes.set(ylim=(0, 1), yticks=(0, 0.5, 1))
        style.number_steps(axes, memory.steps)
        style.write(self.figure, _MARGIN, top, "memory, mean of its gates:", style.SMALL_SIZE)
        left = _MARGIN + 27 * style.LETTER
        self._lines = {}
        for number, gate in enumerate(self._values):
            colour = style.colour(2 * number)  # the second colour is that of the chosen action
            (self._lines[gate],) = axes.plot([], [], color=colour, marker=".", lw=1.6)
            text = f"{GATES.get(gate, gate)} ({gate})"
            style.write(self.figure, left, top, text, style.SMALL_SIZE, colour, weight="bold")
            left += (len(text) + 2) * style.LETTER * 1.08
        self._now = axes.axvline(1, color=style.ACCENT, linewidth=1.4, zorder=1)

    def show(self, t: int, cells: Cells) -> None:
        """Show the steps up to number t."""
        until = t + 1
        for gate, line in self._lines.items():
            line.set_data(np.arange(1, until + 1), self._values[gate][:until])
        self._now.set_xdata([until, until])


def _even(heads):
    """Return the weight of each cell if heads `(H, height, width)` attended evenly."""
    return even_share(heads.reshape(-1, heads[0].size)) if len(heads) else 1.0


def _names_width(names):
    """Return the width in inches of the longest name."""
    return 0.06 + style.LETTER * max(map(len, names), default=0)
