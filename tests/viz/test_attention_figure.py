"""Attention figures draw weights on their cells in the right orientation."""

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from minigrid.core.constants import OBJECT_TO_IDX

from rrl_tf.viz import attention_figure, attention_grid
from rrl_tf.viz.attention import initials, meaning

AGENT, KEY = (3, 6), (5, 2)
FRAME = np.full((40, 40, 3), 90, np.uint8)
VIEW = np.full((70, 70, 3), 60, np.uint8)


def one_hot_scores(targets, heads=1, grid=(7, 7)):
    """Return attention of each query cell entirely on its target, and uniform elsewhere."""
    nodes = grid[0] * grid[1]
    scores = np.full((heads, nodes, nodes), 1 / nodes)
    for (x, y), (to_x, to_y) in targets.items():
        scores[:, x * grid[1] + y] = 0
        scores[:, x * grid[1] + y, to_x * grid[1] + to_y] = 1
    return scores


def panel(figure, title):
    (axes,) = [axes for axes in figure.axes if axes.get_title("left") == title]
    return axes


def brightest(axes):
    """Return the data coordinates `(x, y)` of the largest value drawn in axes."""
    (image,) = axes.get_images()
    row, column = np.argwhere(image.get_array() == image.get_array().max())[0]
    return (int(column), int(row))


def letters(axes):
    return {text.get_text(): text.get_position() for text in axes.texts}


@given(x=st.integers(0, 6), y=st.integers(0, 6))
@settings(max_examples=15, deadline=None)
def test_attention_grid_puts_the_cell_in_column_x_and_row_y(x, y):
    observation = np.zeros((7, 7))  # indexed [x, y] like the environment's
    observation[x, y] = 1
    assert np.argwhere(attention_grid(observation.ravel()) == 1).tolist() == [[y, x]]


def test_attention_grid_of_a_view_that_is_not_square():
    picture = attention_grid(np.arange(6), grid=(2, 3))
    np.testing.assert_array_equal(picture, [[0, 3], [1, 4], [2, 5]])


def test_the_agent_is_drawn_at_the_bottom_centre():
    assert np.argwhere(attention_grid(np.eye(49)[27]) == 1).tolist() == [[6, 3]]


def test_each_panel_shows_the_attention_of_its_own_cell():
    scores = one_hot_scores({AGENT: KEY, KEY: (0, 4)}, heads=2)
    figure = attention_figure(FRAME, VIEW, scores, {"agent": AGENT, "key": KEY})
    for head in (1, 2):
        assert brightest(panel(figure, f"head {head} · from agent")) == KEY
        assert brightest(panel(figure, f"head {head} · from key")) == (0, 4)


def test_rows_grow_downwards_and_columns_rightwards_on_the_canvas():
    figure = attention_figure(FRAME, VIEW, one_hot_scores({AGENT: KEY}), {"agent": AGENT})
    axes = panel(figure, "head 1 · from agent")
    agent, key = axes.transData.transform([AGENT, KEY])
    box = axes.get_window_extent()
    assert agent[0] == pytest.approx((box.x0 + box.x1) / 2)
    assert agent[1] == pytest.approx(box.y0 + box.height / 14)
    assert key[0] > agent[0] and key[1] > agent[1]  # the canvas counts from the bottom


def test_view_and_attention_share_their_coordinates():
    view = VIEW.copy()
    view[20:30, 50:60] = 255  # the tile of KEY, ten pixels a tile
    figure = attention_figure(FRAME, view, one_hot_scores({}), {"agent": AGENT, "key": KEY})
    axes = panel(figure, "view of the agent")
    left, right, bottom, top = axes.get_images()[0].get_extent()
    assert (left, right, bottom, top) == (-0.5, 6.5, 6.5, -0.5)
    outlined = {(p.get_x() + 0.5, p.get_y() + 0.5) for p in axes.patches if not p.get_fill()}
    assert outlined == {AGENT, KEY}


@pytest.mark.parametrize("seed", range(4))
def test_orientation_equals_the_environments_image(seed):
    env = gymnasium.make("MiniGrid-DoorKey-5x5-v0")
    observation = env.reset(seed=seed)[0]["image"]
    view = env.unwrapped.get_pov_render(tile_size=32)
    codes = attention_grid(observation[..., 0].ravel())
    yellow = (view[..., 0] > 150) & (view[..., 1] > 150) & (view[..., 2] < 130)
    tiles = yellow.reshape(7, 32, 7, 32).any(axis=(1, 3))
    np.testing.assert_array_equal(
        tiles, np.isin(codes, [OBJECT_TO_IDX["door"], OBJECT_TO_IDX["key"]])
    )


def test_unseen_cells_are_greyed_where_they_are():
    unseen = np.zeros((7, 7), bool)
    unseen[2, 0] = True
    figure = attention_figure(FRAME, VIEW, one_hot_scores({}), {"agent": AGENT}, unseen=unseen)
    axes = panel(figure, "view of the agent")
    greyed = [(p.get_x() + 0.5, p.get_y() + 0.5) for p in axes.patches if p.get_fill()]
    assert greyed == [(2, 0)]


def test_labels_are_on_their_cells_and_the_attending_cell_is_marked():
    cells = {"agent": AGENT, "key": KEY, "door": (1, 1)}
    figure = attention_figure(FRAME, VIEW, one_hot_scores({}), cells)
    axes = panel(figure, "head 1 · from key")
    assert letters(axes) == {"A": AGENT, "K": KEY, "D": (1, 1)}
    widths = {(p.get_x() + 0.5, p.get_y() + 0.5): p.get_linewidth() for p in axes.patches}
    assert max(widths, key=widths.get) == KEY
    assert any("K key" in text.get_text() for text in figure.texts)


def test_labels_with_the_same_initial_stay_apart():
    cells = {"ball": (0, 0), "box": (1, 0)}
    figure = attention_figure(FRAME, VIEW, one_hot_scores({}), cells)
    assert letters(panel(figure, "head 1 · from ball")) == {"Ba": (0, 0), "Bo": (1, 0)}


def test_a_carried_key_shares_the_agents_panel():
    figure = attention_figure(FRAME, VIEW, one_hot_scores({}), {"agent": AGENT, "key": AGENT})
    assert letters(panel(figure, "head 1 · from agent + key")) == {"AK": AGENT}


def test_panels_share_one_colour_scale():
    scores = one_hot_scores({AGENT: KEY})
    scores[:, 5 * 7 + 2] = 0.25 * np.eye(49)[0]
    figure = attention_figure(FRAME, VIEW, scores, {"agent": AGENT, "key": KEY})
    limits = {
        panel(figure, f"head 1 · from {label}").get_images()[0].get_clim()
        for label in ("agent", "key")
    }
    assert limits == {(0.0, 1.0)}
    assert any(axes.get_ylabel().startswith("attention") for axes in figure.axes)


def test_even_attention_is_half_way_and_labelled():
    """Regression: panels of even attention were dark."""
    scores = np.zeros((1, 49, 49))
    scores[:, :, 30:40] = 0.1
    figure = attention_figure(FRAME, VIEW, scores, {"agent": AGENT})
    (image,) = panel(figure, "head 1 · from agent").get_images()
    assert image.get_clim() == (0.0, 0.2)
    assert any(axes.get_ylabel().endswith("even would be 0.10") for axes in figure.axes)


def test_several_rounds_are_drawn_under_their_names():
    rounds = {
        "round_1": one_hot_scores({AGENT: KEY}, heads=2),
        "round_2": one_hot_scores({AGENT: (0, 0)}),
    }
    figure = attention_figure(FRAME, VIEW, rounds, {"agent": AGENT})
    panels = [axes for axes in figure.axes if "from agent" in axes.get_title("left")]
    assert [brightest(axes) for axes in panels] == [KEY, KEY, (0, 0)]
    assert {axes.get_ylabel() for axes in figure.axes} >= {"round 1", "round 2"}


@pytest.mark.parametrize("heads", [1, 3, 8])
@pytest.mark.parametrize("count", [1, 4])
def test_nothing_leaves_the_figure_or_overlaps(heads, count):
    cells = dict(list({"agent": AGENT, "key": KEY, "door": (1, 1), "goal": (2, 3)}.items())[:count])
    figure = attention_figure(FRAME, VIEW, one_hot_scores({}, heads), cells)
    figure.draw_without_rendering()
    width, height = figure.bbox.size
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    for box in [*boxes, *(text.get_window_extent() for text in figure.texts)]:
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])


@pytest.mark.parametrize("heads", [1, 8])
def test_the_key_to_the_letters_is_below_the_view(heads):
    """Regression: KeyCorridor's labels covered the panels."""
    names = ("agent", "red key", "red door", "yellow door", "green ball", "blue door")
    cells = {name: (3, 6 - place) for place, name in enumerate(names)}
    figure = attention_figure(FRAME, VIEW, one_hot_scores({}, heads), cells)
    figure.draw_without_rendering()
    below = [text.get_window_extent() for text in figure.texts]
    assert max(box.x1 for box in below) < panel(figure, "head 1 · from agent").bbox.x0
    assert not below[0].overlaps(below[1]) and min(box.y0 for box in below) > 0


def test_masked_rows_of_zeros_are_drawn():
    figure = attention_figure(FRAME, VIEW, np.zeros((1, 49, 49)), {"agent": AGENT})
    assert panel(figure, "head 1 · from agent").get_images()[0].get_clim() == (0.0, 1.0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"frame": np.zeros((40, 40), np.uint8)}, r"frame .*\(40, 40\)"),
        ({"view": np.zeros((7, 7, 4), np.uint8)}, r"view .*\(7, 7, 4\)"),
        ({"frame": np.zeros((4, 4, 3), np.float32)}, "frame .*float32"),
        ({"scores": np.zeros((1, 1, 49, 49))}, r"scores .*\(1, 1, 49, 49\)"),
        ({"scores": np.zeros((1, 48, 48))}, r"scores .*\(1, 48, 48\)"),
        ({"scores": {"round_2": np.zeros((49, 49))}}, r"round_2.*\(49, 49\)"),
        ({"scores": {}}, "at least one round"),
        ({"cells": {}}, "at least one cell"),
        ({"cells": {"key": (7, 0)}}, r"'key' at \(7, 0\)"),
        ({"unseen": np.zeros((5, 5), bool)}, r"unseen .*\(5, 5\)"),
    ],
)
def test_invalid_input_raises(changed, message):
    good = {"frame": FRAME, "view": VIEW, "scores": one_hot_scores({}), "cells": {"agent": AGENT}}
    with pytest.raises(ValueError, match=message):
        attention_figure(**(good | changed))


def test_attention_grid_names_a_bad_shape():
    with pytest.raises(ValueError, match=r"\(7, 7\)"):
        attention_grid(np.zeros((7, 7)))


def test_numbered_labels_share_their_initial_and_keep_the_number():
    labels = ["agent", "gem", "box", "box 2", "box 13", "open"]
    assert list(initials(labels).values()) == ["A", "G", "B", "B2", "B13", "O"]
    assert meaning(labels) == "A agent  G gem  B box  O open"
    assert meaning(["box 2"]) == "B box"
    # A line for what fits, and no name is broken.
    assert meaning(["agent", "red key", "red ball"], 1.4) == "A agent  RK red key\nRB red ball"
    assert meaning(["agent", "red key"], 0.1) == "A agent\nR red key"
    assert initials(["goal", "gem", "key 1"]) == {"goal": "Go", "gem": "Ge", "key 1": "K1"}
    # Once `Red k` and `Red b`, wider than a cell.
    coloured = ["agent", "red key", "red ball", "blue ball", "green goal"]
    assert list(initials(coloured).values()) == ["A", "RK", "RB", "B", "G"]
    assert list(initials(["blue box", "blue ball"]).values()) == ["Blue bo", "Blue ba"]
