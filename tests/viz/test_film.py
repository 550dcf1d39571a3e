"""Animations of episodes, and the memory in animations and figures."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import SubFigure
from PIL import Image

from rrl_tf.viz import EpisodeMemory, film, gates_figure, save_film, style
from rrl_tf.viz.episode_film import _beside_attention, _Page

NAMES = ("left", "right", "forward")
RNG = np.random.default_rng(0)
FRAME = np.zeros((20, 30, 3), np.uint8)


def episode(steps=4, heads=2, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.dirichlet(np.ones(49), size=(steps, heads, 49))
    return {
        "frames": rng.integers(0, 256, (steps + 1, 5, 5, 3)).astype(np.uint8).repeat(8, 1),
        "scores": scores,
        "cells": [{"agent": (3, 6), "key": (t % 7, 2)} for t in range(steps)],
        "q_values": rng.normal(size=(steps, len(NAMES))),
        "actions": rng.integers(len(NAMES), size=steps),
        "rewards": np.eye(steps)[-1],
        "action_names": NAMES,
    }


def rgb(colour):
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])


def near(image, colour, tolerance=12):
    """Return a mask of the pixels whose colour is close to `colour`."""
    return (np.abs(image.astype(int) - rgb(colour)) <= tolerance).all(axis=-1)


def page_of(given, memory=None):
    """Return the page that draws the steps of an episode."""
    frames, scores = given["frames"], given["scores"]
    attention = {} if scores is None else {"agent": scores[:, :, 0].reshape(-1, 2, 7, 7)}
    letters = {"agent": "A", "red door": "RD", "red key": "RK"}
    return _Page(frames[0], attention, given["q_values"], NAMES, "round 1", letters, memory)


@pytest.mark.parametrize("heads", [1, 3])
def test_film_has_one_image_per_step_and_one_for_the_end(heads):
    images = film(**episode(steps=2, heads=heads))
    assert images.dtype == np.uint8
    assert len(images) == 3
    assert 700 <= images.shape[2] <= 800


def test_captions_show_whether_the_episode_ended(monkeypatch):
    captions = []
    monkeypatch.setattr(_Page, "draw_frame", lambda page, frame, caption: captions.append(caption))
    for ended in (True, False):
        film(**{**episode(steps=2), "scores": None}, ended=ended)
    _, first, second, end, _, _, in_cut, cut = captions
    assert [first, second] == ["step 1 of 2, reward 0.00", "step 2 of 2, reward 1.00"]
    assert end == "end after 2 steps, return 1.00"
    assert in_cut == "step 2 of the first 2, reward 1.00"
    assert cut == "cut after 2 steps, return so far 1.00"


def test_film_without_attention_has_frame_and_values():
    given = {**episode(steps=2), "scores": None, "cells": None}
    images = film(**given)
    assert len(images) == 3
    assert images.shape[2] < film(**episode(steps=1)).shape[2]
    chosen = [near(image, style.ACCENT).sum() for image in images]
    assert min(chosen[:2]) > 50 > chosen[2]


def test_wide_frames_and_long_action_names_widen_the_film():
    given = {**episode(steps=1), "scores": None, "cells": None}
    square = film(**{**given, "frames": np.zeros((2, 20, 20, 3), np.uint8)})
    wide = film(**{**given, "frames": np.zeros((2, 20, 30, 3), np.uint8)})
    assert wide.shape[1] == square.shape[1]
    assert wide.shape[2] - square.shape[2] == pytest.approx(0.5 * 230, abs=2)
    named = film(**{**given, "action_names": ("DOWNRIGHTFIRE", "b", "c")})
    assert named.shape[2] > square.shape[2]


def test_attention_to_patches_is_drawn_next_to_the_frame_on_one_scale():
    frames = np.full((3, 24, 18, 3), 80, np.uint8)
    patches = np.zeros((2, 5, 3))
    patches[0, 2, 1], patches[1, 2, 1] = 0.2, 0.4
    pairs = _beside_attention(frames, patches)
    assert pairs.shape == (3, 24, 36, 3)
    np.testing.assert_array_equal(pairs[:, :, :18], frames)
    weak, strong, none = pairs[:, 12, 18 + 9].sum(axis=-1).astype(int)
    assert none < weak < strong
    given = {**episode(steps=2), "scores": None, "cells": None, "frames": frames}
    images = film(**given, patches=patches, round_name="round 2")
    assert images.shape[2] > film(**given).shape[2]
    with pytest.raises(ValueError, match=r"`patches` must have shape \(2, rows, columns\)"):
        film(**given, patches=patches[:1])


def test_film_of_patches_has_a_title_and_a_scale_of_colours():
    page = _Page(FRAME, {}, np.ones((1, 3)), NAMES, "round 2", {}, None, 0.4)
    page.draw_frame(FRAME, "step 1")
    [left] = [axes for axes in page.figure.axes if axes.get_title("right")]
    assert (left.get_title("left"), left.get_title("right")) == (
        "environment",
        "attention, round 2",
    )
    [scale] = [axes for axes in page.figure.axes if axes.get_ylabel() == "attention to a patch"]
    assert scale.get_ylim() == (0, 0.4)


def test_each_image_shows_its_own_frame():
    given = episode(steps=2)
    given["frames"] = np.zeros((3, 8, 8, 3), np.uint8)
    colours = ("#ff0000", "#00ff00", "#0000ff")
    given["frames"][:] = np.array([rgb(c) for c in colours])[:, None, None]
    images = film(**given)
    for t, colour in enumerate(colours):
        left = images[t][:, : images.shape[2] // 3]
        assert [near(left, c).sum() > 10_000 for c in colours] == [c == colour for c in colours]


def test_attention_is_drawn_on_its_cell():
    given = episode(steps=2, heads=1)
    given["scores"] = np.zeros((2, 1, 49, 49))
    given["cells"] = [{"agent": (3, 6)}] * 2
    given["scores"][0, 0, 27, 5 * 7 + 1] = 1  # cell (5, 1), right of and above the agent
    given["scores"][1, 0, 27, 1 * 7 + 5] = 1
    images = film(**given)
    places = [np.argwhere(near(image, "#06244f")) for image in images[:2]]
    first, second = (place.mean(axis=0) for place in places)
    side = np.ptp(places[0], axis=0) + 1
    # The first maximum is four cells to the right of the second one and four cells above it.
    np.testing.assert_allclose(first - second, [-4 * side[0], 4 * side[1]], atol=8)


def test_without_the_agents_cell_centre_and_mean_are_drawn():
    given = episode(steps=1, heads=1)
    given["scores"] = np.zeros((1, 1, 49, 49))
    given["scores"][..., 6] = 1  # cell (0, 6), bottom left
    given["scores"][0, 0, 24] = np.eye(49)[42]  # centre -> cell (6, 0), top right
    images = [film(**{**given, "cells": cells}) for cells in ([{"agent": (3, 3)}], [{}])]
    agent, centre = (np.argwhere(near(image[0], "#06244f")) for image in images)
    wider = images[1].shape[2] - images[0].shape[2]
    assert wider == pytest.approx(280, abs=2)
    first = centre[:, 1] < centre[:, 1].mean()
    np.testing.assert_allclose(centre[first].mean(axis=0), agent.mean(axis=0), atol=8)
    side = np.ptp(agent, axis=0) + 1
    expected = [6 * side[0], wider - 6 * side[1]]  # 48 of 49 cells attend to the bottom left
    np.testing.assert_allclose(
        centre[~first].mean(axis=0) - centre[first].mean(axis=0), expected, atol=12
    )


def test_chosen_action_is_orange():
    given = {**episode(steps=3), "scores": None}
    given["q_values"] = np.ones((3, 3))
    given["actions"] = np.array([0, 2, 1])
    images = film(**given)
    heights = [np.argwhere(near(image, style.ACCENT))[:, 0].mean() for image in images[:3]]
    assert heights[0] < heights[2] < heights[1]
    assert not near(images[3], style.ACCENT).any()


def test_title_names_round_and_uniform_attention():
    given = episode(steps=1)
    given["scores"][:] = 0
    given["scores"][..., :14] = 1 / 14
    page = page_of(given)
    page.draw_step(0, {"agent": (3, 6)}, 0)
    texts = [text.get_text() for part in page.figure.findobj(SubFigure) for text in part.texts]
    assert "attention from agent, round 1\n0 to 0.14; uniform is 0.07" in texts
    assert "A agent  RD red door  RK red key" in texts


def test_an_entity_has_the_same_letters_in_every_step():
    """Regression: a red door was R until the red key came into view, but RD in the legend."""
    labels = ("agent", "red door", "red key")
    page = page_of(episode(steps=1))
    for seen in (labels[:2], labels, labels[::2]):
        page.draw_step(0, {label: (3, number) for number, label in enumerate(seen)}, 0)
        written = {text.get_text() for axes in page.figure.axes for text in axes.texts}
        letters = {"agent": "A", "red door": "RD", "red key": "RK"}
        assert written & {"A", "R", "RD", "RK"} == {letters[label] for label in seen}


def test_last_image_fades_all_but_the_frame():
    given = episode(steps=1)
    given["frames"] = np.full((2, 40, 40, 3), 200, np.uint8)
    last, end = film(**given)
    dark, faded = (image[60:, image.shape[1] // 3 :].min() for image in (last, end))
    assert dark < 60 and 120 < faded < 200
    left = slice(75, 250), slice(22, 226)
    np.testing.assert_array_equal(last[left], end[left])


def test_gif_has_all_images_with_their_durations(tmp_path):
    images = np.random.default_rng(0).integers(0, 2, (5, 6, 9, 3)).astype(np.uint8) * 255
    path = save_film(images, tmp_path / "deeper" / "episode.gif", seconds=0.4, last_seconds=2)
    assert [each.name for each in path.parent.iterdir()] == ["episode.gif"]
    with Image.open(path) as gif:
        assert gif.n_frames == 5
        assert gif.info["loop"] == 0
        durations = []
        for t, image in enumerate(images):
            gif.seek(t)
            durations.append(gif.info["duration"])
            np.testing.assert_array_equal(np.array(gif.convert("RGB")), image)
    assert durations == [400] * 4 + [2000]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"frames": np.zeros((4, 8, 8, 3), np.uint8)}, r"`frames` .*\(5,\).*\(4,\)"),
        ({"frames": np.zeros((8, 8, 3), np.uint8)}, r"`frames` .*\(8, 8, 3\)"),
        ({"scores": np.zeros((2, 49, 49))}, r"`scores` .*\(2, 49, 49\)"),
        ({"q_values": np.zeros((4, 5))}, r"`q_values` .*\(4, 3\).*\(4, 5\)"),
        ({"actions": np.array([0, 1, 2, 3])}, "from 0 to 2"),
        ({"actions": np.zeros(4)}, "integers.*float64"),
        ({"rewards": np.zeros(5)}, r"`rewards` .*\(5,\)"),
        ({"cells": [{"agent": (3, 6)}]}, "cells"),
        ({"scores": episode(steps=3)["scores"]}, r"`scores` must have shape \(4, H, 49, 49\)"),
    ],
)
def test_film_names_invalid_arguments(changed, message):
    with pytest.raises(ValueError, match=message):
        film(**(episode() | changed))


def slots(count):
    return tuple(f"slot {i + 1}" for i in range(count))


def attention(*shape):
    return RNG.dirichlet(np.ones(shape[-1]), size=shape[:-1])


def gates(steps, count):
    return {name: RNG.random((steps, count)) for name in ("input", "forget")}


def with_cells(steps=4, count=3, grid=(7, 7), heads=2):
    entities = (*slots(count), "view", "action")
    size = count + grid[0] * grid[1] + 1
    scores = attention(steps, heads, count, size)
    return EpisodeMemory(slots(count), gates(steps, count), scores, entities, grid)


def lstm(steps=4):
    return EpisodeMemory(("LSTM",), gates(steps, 1))


def window(scores):
    names = (*(f"-{k}" for k in range(scores.shape[-1] - 1, 0, -1)), "now")
    return EpisodeMemory(("block 1",), {}, scores, names)


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_episode_memory_splits_attention_into_cells_and_entities(count, width, height, heads):
    memory = with_cells(2, count, (width, height), heads)
    entities, cells = memory.to_entities(), memory.to_cells()
    mean = memory.attention.mean(axis=1)
    np.testing.assert_allclose(entities[..., :count], mean[..., :count])
    np.testing.assert_allclose(entities[..., -1], mean[..., -1])
    np.testing.assert_allclose(entities.sum(axis=-1), 1)
    for x in range(width):
        for y in range(height):
            np.testing.assert_allclose(cells[:, :, y, x], mean[..., count + x * height + y])


@pytest.mark.parametrize(
    "memory",
    [with_cells(2), window(attention(2, 2, 1, 16)), lstm(2)],
    ids=["cells", "window", "lstm"],
)
def test_film_has_the_memory_below_and_all_else_as_before(memory):
    arrays = episode(2)
    without, images = film(**arrays), film(**arrays, memory=memory)
    assert images.shape[2] == without.shape[2]
    above = without.shape[1] - 10  # the layout may move by a pixel
    assert np.abs(images[:, :above].astype(int) - without[:, :above]).mean() < 3
    below = images[:, without.shape[1] :]
    assert all((one != other).any() for one, other in itertools.pairwise(below))


def test_memory_of_slots_is_drawn_at_its_step():
    memory = with_cells()
    page = page_of({**episode(), "scores": None}, memory)
    [(maps, squares, bars)] = page._memory_axes
    for t in (2, 0):
        page.draw_step(t, {"agent": (3, 6)}, 0)
        for axes, weights in zip(maps, memory.to_cells()[t], strict=True):
            np.testing.assert_allclose(axes.images[0].get_array(), weights)
        np.testing.assert_allclose(squares.images[0].get_array(), memory.to_entities()[t])
        for name, axes in bars.items():
            shown = [bar.get_width() for bar in axes.patches]
            np.testing.assert_allclose(shown, memory.gates[name][t])


def test_each_step_of_a_window_is_drawn_on_its_own_scale():
    """At the first step the weight is 1; later all weights of 16 steps are far below 1."""
    scores = np.zeros((3, 2, 1, 16))
    scores[0, ..., -1] = 1
    scores[1, ..., -2:] = 0.3, 0.7
    scores[2] = 1 / 16
    scores[2, ..., 3:5] = 0.5 / 16, 1.5 / 16
    page = page_of({**episode(3), "scores": None}, window(scores))
    [(_, squares, _)] = page._memory_axes
    for t, (end, even) in enumerate([(1.0, 1.0), (1.0, 0.5), (0.125, 1 / 16)]):
        page.draw_step(t, {}, 0)
        assert squares.images[0].get_clim() == (0, end)
        title = page._below[0].get_suptitle()
        assert f"in this step, 0 to {end:.2f}; uniform is {even:.2f}" in title


def test_gates_of_a_memory_are_drawn_up_to_the_step():
    memory = lstm(6)
    page = page_of({**episode(6), "scores": None}, memory)
    [axes] = page._memory_axes
    for t in (3, 0, 5):
        page.draw_step(t, {}, 0)
        written, kept, now = axes.lines
        for line, name in ((written, "input"), (kept, "forget")):
            steps, values = line.get_data()
            np.testing.assert_array_equal(steps, np.arange(1, t + 2))
            np.testing.assert_allclose(values, memory.gates[name][: t + 1, 0])
        assert set(now.get_xdata()) == {t + 1}


def arriving(steps=9):
    """Return cells with the key in view in steps 3, 4 and 7, and the ball in all steps."""
    cells = [{"agent": (3, 6), "ball": (0, 0)} for _ in range(steps)]
    for t in (2, 3, 6):
        cells[t]["key"] = (1, 1)
    return cells


@pytest.mark.parametrize("count", [1, 9])
def test_gates_figure_draws_gates_and_what_comes_into_view(count):
    steps = 9
    memory = EpisodeMemory(slots(count), gates(steps, count))
    figure = gates_figure(memory, arriving(steps))
    written, kept, in_view = figure.axes
    for axes, name in ((written, "input"), (kept, "forget")):
        for line, values in zip(axes.lines, memory.gates[name].T):
            np.testing.assert_array_equal(line.get_xdata(), np.arange(1, steps + 1))
            np.testing.assert_allclose(line.get_ydata(), values)
        assert [line.get_xdata()[0] for line in axes.lines[count:]] == [1, 3, 7]
    assert "dashed: something comes into view" in in_view.get_title("left")
    assert [label.get_text() for label in in_view.get_yticklabels()] == ["ball", "key"]
    stays = [
        [(path.vertices[:, 0].min(), path.vertices[:, 0].max()) for path in drawn.get_paths()]
        for drawn in in_view.collections
    ]
    assert stays == [[(0.5, 9.5)], [(2.5, 4.5), (6.5, 7.5)]]


def test_gates_figure_draws_many_units_as_rows_in_order_of_their_change():
    """The mean of 64 units is nearly constant, and 64 lines would be unreadable."""
    values = {name: RNG.random((9, 64)) * np.linspace(0, 1, 64) for name in ("input", "forget")}
    figure = gates_figure(EpisodeMemory(slots(64), values), arriving())
    assert not figure.legends
    written, kept = (axes for axes in figure.axes if axes.get_images())
    order = np.argsort(-sum(each.std(axis=0) for each in values.values()))
    for axes, name in ((written, "input"), (kept, "forget")):
        (image,) = axes.get_images()
        np.testing.assert_allclose(image.get_array(), values[name].T[order])
        assert image.get_clim() == (0, 1)
        assert [line.get_xdata()[0] for line in axes.lines] == [1, 3, 7]


def test_gates_figure_without_entities_has_gates_only():
    figure = gates_figure(lstm(3), [{"agent": (3, 6)}] * 3)
    assert len(figure.axes) == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EpisodeMemory(("a",)), "attention or a gate; received neither"),
        (
            lambda: EpisodeMemory(("a",), {"input": np.ones((3, 2))}),
            r"\(3, 1\); received shape \(3, 2\)",
        ),
        (lambda: EpisodeMemory(("a",), {"input": np.full((3, 1), 2.0)}), "0 to 1; received 2"),
        (lambda: EpisodeMemory(("a",), {"input": np.full((3, 1), np.nan)}), "received nan"),
        (
            lambda: EpisodeMemory(("a",), {}, np.ones((3, 1, 1, 6)), ("a", "view"), (2, 2)),
            r"\(T, H, 1, 5\); received shape \(3, 1, 1, 6\)",
        ),
        (
            lambda: EpisodeMemory(("a",), {}, np.ones((3, 1, 1, 5)), ("a", "b"), (2, 2)),
            "`entities` must have .view. once .* received",
        ),
        (
            lambda: EpisodeMemory(("a",), {"input": np.ones((2, 1))}, np.ones((3, 1, 1, 1)), "a"),
            r"\(3, 1\); received shape \(2, 1\)",
        ),
        (
            lambda: film(**episode(3), memory=lstm(4)),
            r"`memory` must .* received \(4,\)",
        ),
        (lambda: gates_figure(lstm(4), [{}] * 3), "must be 4 dicts, .* received 3"),
        (
            lambda: gates_figure(window(attention(4, 2, 1, 16)), [{}] * 4),
            r"must have at least one gate of .*; received \[\]",
        ),
        (lambda: lstm().to_cells(), "`grid` must be set .* received None"),
    ],
)
def test_episode_memory_names_invalid_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
