"""An episode as pictures: the frame, where the agent looks, and what it thinks of each action."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.patches import Rectangle

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style
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
from rrl_tf.viz.checks import checked_cells, checked_images, checked_scores
from rrl_tf.viz.episode_memory import EpisodeMemory
from rrl_tf.viz.film_memory import add_memory, memory_height
from rrl_tf.viz.output import figure_to_image

_DPI = 100
_MARGIN, _TOP, _SIDE = 0.2, 0.72, 2.1  # inches, as everything here
_ATTENTION_WIDTH, _NAMES_WIDTH, _VALUES_WIDTH = 2.7, 0.85, 1.25
_HEADS_GAP, _HEADS_TITLE = 0.12, 0.2
_MEMORY_GAP = 0.16
_WIDEST = 2.0  # times as wide as high
_CAPITAL = 0.09  # width of a letter of a name, at most
_DIGIT = 0.046  # width of a letter at the bars


def film(
    frames: Any,
    scores: Any,
    cells: Sequence[Mapping[str, tuple[int, int]]],
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

    Each picture shows the frame, the attention of each head from the `source` cell, if there is
    any (`scores.mean(axis=1, keepdims=True)` shows their mean), and a bar for the value of each
    action, the chosen one in orange. The last shows the end, or the cut, and the last step veiled.

    Below, the memory, if there is one: what each slot attends to, mean of the heads, and how much
    is written and kept; where nothing attends, that of all steps so far.

    Args:
        frames: uint8 RGB `(T + 1, height, width, 3)`: before each of the `T` steps, and at the end.
        scores: array `(T, H, N, N)`, each as `attention_figure` takes it; `None` shows none.
        cells: `T` dicts label -> `(x, y)`, each with the label `source`; not used without `scores`.
        q_values: array `(T, A)`.
        actions: integers `(T,)`, what was done, `0 <= action < A`.
        rewards: array `(T,)`.
        action_names: `A` strings.
        source: label of the cell whose attention is shown.
        grid: `(width, height)` of the view in cells.
        memory: of the `T` steps; `None` shows none.
        ended: whether the episode was over after the `T` steps.
        round_name: which of several rounds of attention `scores` are, such as `"round 1"`.

    Returns:
        uint8 array `(T + 1, height, width, 3)`, about 700 pixels wide.

    Raises:
        ValueError: if a shape or dtype is wrong, an action has no name, or `source` is missing.

    Example:
        >>> frames = np.full((3, 64, 64, 3), 255, "uint8")  # before each of two steps, and the end
        >>> q_values, actions, rewards = [[0.5, 0.1], [0.2, 0.9]], [0, 1], [0.0, 1.0]
        >>> images = film(frames, None, [], q_values, actions, rewards, ("left", "right"))
        >>> images.shape[0], images.dtype
        (3, dtype('uint8'))
    """
    frames = checked_images("frames", frames, 4)
    q_values, actions, rewards = np.asarray(q_values), np.asarray(actions), np.asarray(rewards)
    scores, cells = _checked_attention(scores, cells, grid, source, len(q_values))
    _check_episode(frames, scores, cells, q_values, actions, rewards, action_names, source, memory)
    looking = [each[source] for each in cells]
    pictures = _attention_from(looking, scores, grid)
    labels = dict.fromkeys(label for each in cells for label in each)
    page = _Page(frames[0], pictures, q_values, action_names, (source, round_name), labels, memory)
    steps = _images(page, frames, pictures, cells, looking, q_values, actions, rewards, ended)
    return np.stack([*steps, page.draw_end(frames[-1], rewards, ended)])


def _images(page, frames, pictures, cells, looking, q_values, actions, rewards, ended):
    """Yield the picture of every step."""
    total = f"of {len(actions)}" if ended else f"of the first {len(actions)}"
    for t, action in enumerate(actions):
        page.show_frame(frames[t], f"step {t + 1} {total}", f"reward {rewards[t]:.2f}")
        page.show_attention(pictures[t], cells[t], looking[t])
        page.show_values(q_values[t], action)
        page.show_memory(t, cells[t])
        yield figure_to_image(page.figure)


def _checked_attention(scores, cells, grid, source, steps):
    """Scores and cells of an episode; of no heads where there is no attention."""
    if scores is None:
        return np.zeros((steps, 0, 1, 1)), [{source: (0, 0)}] * steps
    return checked_scores("scores", scores, grid, "TH"), [checked_cells(c, grid) for c in cells]


def _attention_from(
    looking: list[tuple[int, int]], scores: np.ndarray, grid: tuple[int, int]
) -> np.ndarray:
    """Return every step's attention from its cell as pictures `(T, H, height, width)`."""
    pictures = [
        [attention_grid(head[x * grid[1] + y], grid) for head in heads]
        for heads, (x, y) in zip(scores, looking)
    ]
    return np.array(pictures).reshape(*scores.shape[:2], *grid[::-1])


def _check_episode(frames, scores, cells, q_values, actions, rewards, action_names, source, memory):
    """Raise a ValueError where the arrays of an episode do not fit each other."""
    steps, names = len(scores), len(action_names)
    for name, shape, expected in (
        ("frames", frames.shape[:1], (steps + 1,)),
        ("cells", (len(cells),), (steps,)),
        ("q_values", q_values.shape, (steps, names)),
        ("actions", actions.shape, (steps,)),
        ("rewards", rewards.shape, (steps,)),
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
    if memory is not None and memory.steps != steps:
        raise InvalidInput(f"memory must be of {steps} steps; received {memory.steps}")


class _Page:
    """One figure whose artists are updated from picture to picture: setting up costs the most."""

    def __init__(self, frame, pictures, q_values, action_names, shown, labels, memory):
        columns, side = _heads_layout(pictures.shape[1])
        frame_width = _SIDE * min(max(1.0, frame.shape[1] / frame.shape[0]), _WIDEST)
        attention_width = max(0.0, columns * (side + _HEADS_GAP) - _HEADS_GAP)
        attention_left = _MARGIN + frame_width + (0.3 if columns else 0.0)
        self._names_size, names_width = _names_layout(action_names)
        values_left = attention_left + attention_width + names_width
        right = values_left + _VALUES_WIDTH
        self._short = initials(labels)  # of the whole film: a thing has the same letters throughout
        letters = meaning(labels, attention_width) if columns else ""
        letters_top = _heads_bottom(pictures.shape[1], columns, side) + 0.08
        foot = letters_top + LETTERS_LINE * (letters.count("\n") + 1) + 0.08
        width, height = right + _MARGIN, max(_TOP + _SIDE + 0.32, foot)
        below = 0.0 if memory is None else memory_height(memory, width) + _MEMORY_GAP
        self.figure = style.new_figure(width, height + below, _DPI)
        self._caption = style.write(self.figure, _MARGIN, 0.13, "", style.TITLE_SIZE, weight="bold")
        self._reward = style.write(self.figure, right, 0.13, "", style.TITLE_SIZE, ha="right")

        axes = style.place(self.figure, _MARGIN, _TOP, frame_width, _SIDE)
        self._frame = axes.imshow(frame, interpolation="antialiased")
        style.bare(axes)
        style.title(axes, "environment", style.SMALL_SIZE)

        self._largest = darkest(pictures, max(map(_even, pictures)))
        self._letters = min(style.SMALL_SIZE, 0.62 * 72 * side / pictures.shape[-1])
        self._marks = []
        self._shown = "attention from " + ", ".join(filter(None, shown))
        self._heads = self._add_heads(pictures[0], attention_left, columns, side)
        style.write(
            self.figure, attention_left, letters_top, letters, style.SMALL_SIZE, style.MUTED
        )
        self._bars, self._labels = self._add_values(q_values, action_names, values_left)
        self._memory = None
        if memory is not None:
            self._memory = add_memory(self.figure, memory, height + _MEMORY_GAP / 2)

    def _add_heads(self, heads, attention_left, columns, side):
        if not len(heads):
            return []
        heading = _heading(len(heads))
        step = side + heading + _HEADS_GAP
        first = 2 * _TOP + _SIDE - _heads_bottom(len(heads), columns, side) + heading
        above = first - heading - 0.04
        self._scale = style.write(
            self.figure, attention_left, above, "", style.SMALL_SIZE, va="bottom"
        )
        images = []
        for head, weights in enumerate(heads):
            row, column = divmod(head, columns)
            left = attention_left + column * (side + _HEADS_GAP)
            axes = style.place(self.figure, left, first + row * step, side, side)
            images.append(draw_weights(axes, weights, self._largest))
            if heading:
                style.title(axes, f"head {head + 1}", style.SMALL_SIZE, color=style.MUTED, pad=3)
        return images

    def _add_values(self, q_values, action_names, left):
        """Add one bar an action, on a scale that holds the whole episode."""
        axes = style.place(self.figure, left, _TOP, _VALUES_WIDTH, _SIDE)
        rows = range(len(action_names))
        bars = axes.barh(rows, np.zeros(len(rows)), height=0.62)
        axes.set_yticks(rows, action_names)
        low, high = min(0.0, q_values.min()), max(0.0, q_values.max())
        # For the numbers at the ends of the bars, on both sides.
        longest = min(0.5, _DIGIT * max(len(f" {value:.2f} ") for value in (low, high)))
        room = longest / (_VALUES_WIDTH - 2 * longest) * ((high - low) or 1.0)
        axes.set_xlim(low - (room if low < 0 else 0), high + room)
        axes.invert_yaxis()
        axes.tick_params(length=0, labelsize=self._names_size, labelcolor=style.TEXT)
        axes.set_xticks([])
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.axvline(0, color=style.LINE, linewidth=0.8)
        style.title(axes, "value of each action", style.SMALL_SIZE)
        labels = [axes.text(0, y, "", size=min(7.5, self._names_size), va="center") for y in rows]
        return bars, labels

    def show_frame(self, frame, caption, reward):
        self._frame.set_data(frame)
        self._caption.set_text(caption)
        self._reward.set_text(reward)

    def draw_end(self, frame, rewards, ended):
        """The picture after the last step."""
        caption, earned = ("the end", "return") if ended else ("cut", "return so far")
        self.show_frame(
            frame, f"{caption}, after {len(rewards)} steps", f"{earned} {rewards.sum():.2f}"
        )
        self._veil()
        return figure_to_image(self.figure)

    def _veil(self):
        """Fade what is no longer so: all but the frame and what stands above it."""
        right = self._frame.axes.get_position().x1
        top = 1 - (_TOP - 0.35) / self.figure.get_figheight()
        bottom = self._frame.axes.get_position().y0
        look = {"color": "white", "alpha": 0.65, "lw": 0, "zorder": 10}
        self.figure.add_artist(Rectangle((right, bottom), 1 - right, top - bottom, **look))
        self.figure.add_artist(Rectangle((0, 0), 1, bottom, **look))

    def show_attention(self, heads, cells, looking):
        for mark in self._marks:
            mark.remove()
        self._marks = []
        if self._heads:
            scale = f"0 to {self._largest:.2f}; even would be {_even(heads):.2f}"
            self._scale.set_text(f"{self._shown}\n{scale}")
        for image, weights in zip(self._heads, heads):
            image.set_data(weights)
            scaled = weights / self._largest
            size = self._letters
            self._marks += mark_cells(image.axes, cells, looking, scaled, size, self._short)

    def show_memory(self, t, cells):
        if self._memory is not None:
            # Where no attention is drawn, the cells are those of no view.
            self._memory.show(t, cells if self._heads else {}, self._short)

    def show_values(self, values, action):
        for index, (bar, label, value) in enumerate(zip(self._bars, self._labels, values)):
            chosen = index == action
            bar.set(width=value, facecolor=style.ACCENT if chosen else style.BAR)
            label.set(
                text=f" {value:.2f} ",
                x=value,
                ha="left" if value >= 0 else "right",
                weight="bold" if chosen else "normal",
                color=style.ACCENT if chosen else style.MUTED,
            )


def _even(heads):
    """An even share of the attention of heads `(H, height, width)`."""
    return even_share(heads.reshape(-1, heads[0].size)) if len(heads) else 1.0


def _names_layout(names):
    """Return the size and the width in inches of the actions' names: many are written smaller."""
    size = min(style.SMALL_SIZE, 0.9 * 72 * _SIDE / len(names))
    longest = max(map(len, names)) * _CAPITAL * size / style.SMALL_SIZE
    return size, max(_NAMES_WIDTH, longest)


def _heads_layout(heads):
    """Return how many columns of heads, and which side of each, fill their place best."""
    return style.fill(heads, _ATTENTION_WIDTH, _SIDE, _HEADS_GAP, _heading(heads))


def _heads_bottom(heads, columns, side):
    """Return where the lowest heads end: all of them lie in the middle of their place."""
    rows = math.ceil(heads / max(1, columns))
    taken = rows * (side + _heading(heads) + _HEADS_GAP) - _HEADS_GAP
    return _TOP + (_SIDE + taken) / 2


def _heading(heads):
    """Return the room above each head for its name; a lone one has none."""
    return _HEADS_TITLE if heads > 1 else 0.0
