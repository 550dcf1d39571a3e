"""Draw an animation of an episode: frames, attention, action values and memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.patches import Rectangle

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import style
from rrl_tf.viz._checks import checked_cells, checked_images, shaped
from rrl_tf.viz.attention import (
    ALL_CELLS,
    CENTRE,
    attention_from,
    centre,
    darkest,
    draw_weights,
    even_weight,
    initials,
    mark_cells,
    meaning,
    overlay,
)
from rrl_tf.viz.episode_memory import AGENT, EpisodeMemory
from rrl_tf.viz.output import figure_to_image

_DPI = 100
_TOP = 3.0  # height in inches of the row above the memory
_FRAME, _HEADS, _VALUES = 2.3, 2.8, 2.3  # widths in inches of its parts
_SCALE = 0.9  # width in inches of the scale of colours next to a frame
_WIDEST = 2.0  # largest ratio of a frame's width to its height
_CAPITAL = 0.09  # largest width in inches of a letter of an action's name
_VEIL = 0.65  # opacity of the veil that fades the last image

GATES = {"input": "written", "forget": "kept"}
"""Gates that are drawn, and the titles of their panels."""

Cells = Mapping[str, tuple[int, int]]


def film(
    frames: Any,
    scores: Any,
    cells: Sequence[Cells],
    q_values: Any,
    actions: Any,
    rewards: Any,
    action_names: Sequence[str],
    grid: tuple[int, int] = (7, 7),
    memory: EpisodeMemory | None = None,
    ended: bool = True,
    round_name: str = "",
    patches: Any | None = None,
) -> np.ndarray:
    """Draw the steps of an episode as images of an animation, which `save_film` writes to a GIF.

    Each image shows one step:

    - the frame;
    - with `patches`, a copy of the frame that is bright and orange where patches receive attention;
    - with `scores`, the attention from the agent's cell in each head or, if a step has no cell with
      the label `"agent"`, the attention from the centre and the mean over all cells;
    - a bar for the value of each action, in orange for the chosen one;
    - below, with a `memory` that has attention, the attention of each slot (mean over heads) and
      the fractions that its gates write and keep; without attention, its gates in all steps so far.

    The last image shows the final frame and, faded, the rest of the last step.

    Args:
        frames: uint8 RGB `(T + 1, height, width, 3)`, one before each of the T steps and one at the
            end.
        scores: array `(T, H, N, N)`; `scores[t]` is as in `attention_figure`. `None` draws no
            attention.
        cells: T dicts label -> `(x, y)`, which may be empty; not used if `scores` is `None`.
        q_values: array `(T, A)`.
        actions: array `(T,)` of integers from 0 to A - 1, the chosen actions.
        rewards: array `(T,)`.
        action_names: A strings.
        grid: `(width, height)` of the view in cells.
        memory: memory of the T steps; `None` draws no memory.
        ended: whether the episode ended after the T steps; `False` if it was cut.
        round_name: name of the round of attention in `scores` or `patches`, such as `"round 1"`.
        patches: array `(T, rows, columns)`, the attention that patches of the frame receive; `None`
            draws none.

    Returns:
        uint8 array `(T + 1, height, width, 3)`, about 500 pixels wide. Attention adds 280 pixels;
        attention from the centre and from all cells adds 560.

    Raises:
        InvalidInput: if a shape or dtype is wrong, an action has no name, or a cell is outside of
            the grid.

    Example:
        >>> frames = np.full((3, 64, 64, 3), 255, "uint8")  # before each of two steps, and the end
        >>> q_values, actions, rewards = [[0.5, 0.1], [0.2, 0.9]], [0, 1], [0.0, 1.0]
        >>> images = film(frames, None, [], q_values, actions, rewards, ("left", "right"))
        >>> images.shape[0], images.dtype
        (3, dtype('uint8'))
    """
    frames = checked_images("frames", frames, "T")
    q_values, actions, rewards = map(np.asarray, (q_values, actions, rewards))
    scores, cells = _checked_attention(scores, cells, grid, len(q_values))
    _check_episode(frames, cells, q_values, actions, rewards, action_names, memory)
    attention, cells = _attention(scores, cells, grid)
    letters = initials(dict.fromkeys(label for each in cells for label in each))
    largest = 0.0
    if patches is not None:
        patches = shaped("patches", patches, len(actions), "rows", "columns")
        frames, largest = _beside_attention(frames, patches), patches.max()
    page = _Page(frames[0], attention, q_values, action_names, round_name, letters, memory, largest)
    total = f"of {len(actions)}" if ended else f"of the first {len(actions)}"
    page.draw_frame(frames[0], f"step 1 {total}")
    page.draw_step(0, cells[0], actions[0])
    page.freeze_layout()
    images = []
    for t, (frame, reward) in enumerate(zip(frames, rewards)):
        page.draw_frame(frame, f"step {t + 1} {total}, reward {reward:.2f}")
        page.draw_step(t, cells[t], actions[t])
        images.append(figure_to_image(page.figure))
    state, name = ("end", "return") if ended else ("cut", "return so far")
    page.draw_frame(frames[-1], f"{state} after {len(actions)} steps, {name} {rewards.sum():.2f}")
    page.fade()
    return np.stack([*images, figure_to_image(page.figure)])


def _beside_attention(frames, patches):
    """Return frames next to copies with the attention of their patches, on one common scale."""
    shown = [*patches, np.zeros_like(patches[0])]  # after the last step, there is no attention
    copies = [overlay(frame, each, patches.max()) for frame, each in zip(frames, shown)]
    return np.concatenate([frames, copies], axis=2)


def _checked_attention(scores, cells, grid, steps):
    """Return scores and cells after checks; without scores, there are no cells."""
    if scores is None:
        return None, [{}] * steps
    nodes = grid[0] * grid[1]
    scores = shaped("scores", scores, steps, "H", nodes, nodes)
    return scores, [checked_cells(each, grid) for each in cells]


def _attention(scores, cells, grid):
    """Return the attention to draw and the labelled cells of each step.

    The attention is a dict label of the attending cell -> `(T, H, height, width)`. The label of the
    mean over all cells has no cell.
    """
    if scores is None:
        return {}, cells
    attending = (AGENT,)
    if not all(AGENT in each for each in cells):
        cells = [{**each, CENTRE: centre(grid)} for each in cells]
        attending = (CENTRE, ALL_CELLS)
    return {
        label: np.array(
            [
                [attention_from(each.get(label), head, grid) for head in heads]
                for heads, each in zip(scores, cells)
            ]
        )
        for label in attending
    }, cells


def _check_episode(frames, cells, q_values, actions, rewards, action_names, memory):
    """Raise `InvalidInput` if the arrays of an episode do not fit together."""
    steps, names = len(q_values), len(action_names)
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
                f"`{name}` must have (leading) shape {expected} for an episode of {steps} steps "
                f"with {names} action names; received {shape}"
            )
    if not np.issubdtype(actions.dtype, np.integer):
        raise InvalidInput(f"`actions` must be integers; received dtype {actions.dtype}")
    if actions.min() < 0 or actions.max() >= names:
        raise InvalidInput(f"`actions` must be from 0 to {names - 1}; received {actions.tolist()}")


class _Page:
    """A figure that draws one step at a time; its axes are reused for the next step."""

    def __init__(
        self,
        frame,
        attention,
        q_values,
        action_names,
        round_name,
        letters,
        memory,
        largest_patch=0.0,
    ):
        self._attention, self._q_values, self._names = attention, q_values, action_names
        self._round_name, self._letters, self._memory = round_name, letters, memory
        self._largest = max(
            (darkest(heads, max(map(_even, heads))) for heads in attention.values()), default=0.0
        )
        aspect = min(max(1.0, frame.shape[1] / frame.shape[0]), _WIDEST)
        names = max(0.0, _CAPITAL * max(map(len, action_names)) - 0.8)
        left = _FRAME * aspect + _SCALE * (largest_patch > 0)
        widths = [left, *[_HEADS] * len(attention), _VALUES + names]
        heights = [_TOP, *([] if memory is None else [_memory_height(memory)])]
        self.figure = style.new_figure(sum(widths), sum(heights), dpi=_DPI)
        rows = self.figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)
        self._top, *self._below = rows[:, 0]
        left, *self._middle, right = self._top.subfigures(1, len(widths), width_ratios=widths)
        self._frame, self._values = left.subplots(), right.subplots()
        self._panels = [
            _squares(part, heads.shape[1]) for part, heads in zip(self._middle, attention.values())
        ]
        self._memory_axes = [_memory_axes(part, memory) for part in self._below]
        self._of_step = [*self._middle, right, *self._below]
        if largest_patch:
            self._draw_scale(largest_patch)

    def draw_frame(self, frame, caption):
        """Draw the frame of the environment, and the caption of the whole image."""
        options = {"x": 0.02, "ha": "left", "weight": "bold", "color": style.TEXT}
        self._top.suptitle(caption, size=style.TITLE_SIZE, **options)
        _empty(self._frame)
        self._frame.imshow(frame, interpolation="antialiased")
        style.bare(self._frame)
        style.title(self._frame, "environment")

    def _draw_scale(self, largest):
        """Draw the title of the frame's copy with attention, and its scale of colours."""
        title = ", ".join(filter(None, ("attention", self._round_name)))
        style.title(self._frame, title, loc="right")
        ramp = overlay(np.full((1, 256, 3), 160, "uint8"), np.linspace(0, 1, 256)[None])
        colours = ScalarMappable(Normalize(0, largest), ListedColormap(ramp[0] / 255))
        style.colour_bar(self._frame.figure, colours, self._frame, "attention to a patch")

    def draw_step(self, t, cells, action):
        """Draw attention, action values and memory of step t."""
        for part, panels, (label, heads) in zip(
            self._middle, self._panels, self._attention.items()
        ):
            title = "attention from " + ", ".join(filter(None, (label, self._round_name)))
            scale = f"0 to {self._largest:.2f}; uniform is {_even(heads[t]):.2f}"
            part.suptitle(f"{title}\n{scale}", size=style.SMALL_SIZE)
            part.supxlabel(meaning(self._letters), size=style.SMALL_SIZE, color=style.MUTED)
            for head, (axes, weights) in enumerate(zip(panels, heads[t]), start=1):
                _draw_map(axes, weights, self._largest, cells, cells.get(label), self._letters)
                if len(panels) > 1:
                    style.title(axes, f"head {head}", color=style.MUTED, pad=3)
        colours = [style.ACCENT if i == action else style.BAR for i in range(len(self._names))]
        low, high = min(0.0, self._q_values.min()), max(0.0, self._q_values.max())
        _draw_bars(self._values, "value of each action", self._q_values[t], colours, low, high)
        self._values.set_yticks(range(len(self._names)), self._names)
        size = min(style.SMALL_SIZE, 0.9 * 72 * (_TOP - 0.8) / len(self._names))
        self._values.tick_params(length=0, labelsize=size, labelcolor=style.TEXT)
        for part, axes in zip(self._below, self._memory_axes):
            if self._memory.attention is None:
                _draw_gates(axes, self._memory, t)
            else:
                _draw_slots(part, axes, self._memory, t, cells, self._letters)

    def freeze_layout(self):
        """Compute the layout once, so that axes have the same position in all images."""
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")

    def fade(self):
        """Cover everything except the frame with a translucent white veil."""
        for part in self._of_step:
            veil = {"transform": part.transSubfigure, "color": "white", "alpha": _VEIL}
            part.add_artist(Rectangle((0, 0), 1, 1, zorder=9, **veil))


def _empty(axes):
    """Remove all artists from axes; unlike `Axes.clear`, this does not rebuild the ticks."""
    for artist in (*axes.images, *axes.lines, *axes.patches, *axes.texts, *axes.collections):
        artist.remove()


def _squares(figure, count):
    """Return `count` axes on a grid with about twice as many columns as rows."""
    columns = math.ceil(math.sqrt(2 * count))
    panels = figure.subplots(-(-count // columns), columns, squeeze=False).ravel()
    for axes in panels[count:]:
        axes.set_axis_off()
    return panels[:count]


def _draw_map(axes, weights, largest, cells, attending, letters):
    """Draw the attention to each cell of a view."""
    _empty(axes)
    draw_weights(axes, weights, largest)
    box = axes.get_window_extent()
    size = min(style.SMALL_SIZE, 0.62 * 72 * box.width / _DPI / weights.shape[1])
    mark_cells(axes, cells, attending, weights / largest, size, letters)


def _draw_bars(axes, title, values, colours, low, high):
    """Draw horizontal bars labelled with their values, on a scale from `low` to `high`."""
    _empty(axes)
    bars = axes.barh(range(len(values)), values, height=0.62, color=colours)
    axes.bar_label(bars, fmt="%.2f", padding=2, size=7.5, color=style.MUTED)
    longest = max(len(f"{value:.2f}") for value in (low, high))
    room = 0.11 * longest * ((high - low) or 1.0)
    axes.set(xlim=(low - room * (low < 0), high + room), ylim=(len(values) - 0.5, -0.5))
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.axvline(0, color=style.LINE, linewidth=0.8)
    style.title(axes, title)


def _memory_height(memory):
    """Return the height of the panels of a memory in inches."""
    if memory.attention is None:
        return 1.5
    names = style.LETTER * max(map(len, memory.entities))
    return max(0.8 + 0.22 * len(memory.slots) + names, 2.4 if memory.grid else 0.0)


def _memory_axes(figure, memory):
    """Return the axes of a memory.

    Without attention, these are one axes for the gates. With attention, they are a list of axes for
    maps of the view, one axes for the attention to entities, and a dict gate -> axes.
    """
    if memory.attention is None:
        return figure.subplots()
    gates = [gate for gate in GATES if gate in memory.gates]
    widths = [max(1.5, 0.21 * len(memory.entities)), *[0.8] * len(gates)]
    maps, rest = [], figure
    if memory.grid is not None:
        left, rest = figure.subfigures(1, 2, width_ratios=(2.6, sum(widths)))
        maps = _squares(left, len(memory.slots))
    squares, *bars = rest.subplots(1, len(widths), squeeze=False, width_ratios=widths)[0]
    return maps, squares, dict(zip(gates, bars))


def _draw_slots(figure, axes, memory, t, cells, letters):
    """Draw the attention of each slot to cells and entities, and its gates, at step t.

    Each step has its own colour scale: early in an episode, a transformer's window has few steps to
    attend to, so weights are larger.
    """
    maps, squares, bars = axes
    even = even_weight(memory.attention[t].mean(axis=0))
    entities = memory.to_entities()[t]
    of_squares = darkest(entities, even)
    text = f"attention of the memory in this step, 0 to {of_squares:.2f}; "
    if memory.grid is not None:
        of_cells = darkest(memory.to_cells()[t], even)
        text += f"to single cells 0 to {of_cells:.2f}, "
        for panel, weights, slot in zip(maps, memory.to_cells()[t], memory.slots):
            _draw_map(panel, weights, of_cells, cells, None, letters)
            style.title(panel, slot, color=style.MUTED, pad=3)
    figure.suptitle(f"{text}uniform is {even:.2f}", size=style.SMALL_SIZE, x=0.02, ha="left")
    _empty(squares)
    draw_weights(squares, entities, of_squares)
    squares.set_aspect("auto")
    squares.set_yticks(range(len(memory.slots)), memory.slots)
    # If there are many columns, write only some of their names, among them the last (newest) one.
    count = len(memory.entities)
    named = list(range(count - 1, -1, -math.ceil(count / 20)))
    squares.set_xticks(named, [memory.entities[i] for i in named], rotation=90)
    squares.tick_params(length=0, labelsize=style.SMALL_SIZE - 1, labelcolor=style.MUTED, pad=2.5)
    for gate, panel in bars.items():
        values = memory.gates[gate][t]
        _draw_bars(panel, GATES[gate], values, style.BAR, 0.0, 1.0)


def _draw_gates(axes, memory, t):
    """Draw the gates of a memory, averaged over its slots, for all steps up to t."""
    _empty(axes)
    gates = [gate for gate in GATES if gate in memory.gates] or memory.gates
    for number, gate in enumerate(gates):
        name = f"{GATES.get(gate, gate)} ({gate})"
        colour = style.colour(2 * number)  # colour 1, orange, marks the chosen action
        values = memory.gates[gate][: t + 1].mean(axis=1)
        axes.plot(range(1, t + 2), values, color=colour, marker=".", lw=1.6, label=name)
    axes.axvline(t + 1, color=style.ACCENT, linewidth=1.4, zorder=1)
    style.plain(axes)
    axes.set(ylim=(0, 1), yticks=(0, 0.5, 1))
    style.number_steps(axes, memory.steps)
    text = {"ncols": len(gates), "fontsize": style.SMALL_SIZE, "labelcolor": style.TEXT}
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False, borderpad=0.1, **text)
    style.title(axes, "memory gates")


def _even(heads):
    """Return the weight of each cell under uniform attention, for heads `(H, height, width)`."""
    return even_weight(heads.reshape(-1, heads[0].size))
