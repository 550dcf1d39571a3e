"""Figures draw attention on the right cells, in the right orientation, and over frames."""

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from minigrid.core.constants import OBJECT_TO_IDX

from rrl_tf.viz import (
    attention_figure,
    attention_grid,
    attention_paid,
    frame_attention_figure,
    overlay,
)
from rrl_tf.viz.attention import initials, meaning

AGENT, KEY = (3, 6), (5, 2)
FRAME = np.full((40, 40, 3), 90, np.uint8)
VIEW = np.full((70, 70, 3), 60, np.uint8)


def one_hot_scores(targets, heads=1, grid=(7, 7)):
    """Return scores where the cells in `targets` attend to one cell and all others uniformly."""
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
    """Return the data coordinates `(x, y)` of the largest value in the image of `axes`."""
    (image,) = axes.get_images()
    row, column = np.argwhere(image.get_array() == image.get_array().max())[0]
    return (int(column), int(row))


def letters(axes):
    return {text.get_text(): text.get_position() for text in axes.texts}


@given(x=st.integers(0, 6), y=st.integers(0, 6))
@settings(max_examples=15, deadline=None)
def test_attention_grid_puts_the_cell_in_column_x_and_row_y(x, y):
    observation = np.zeros((7, 7))  # indexed [x, y] as in MiniGrid
    observation[x, y] = 1
    assert np.argwhere(attention_grid(observation.ravel()) == 1).tolist() == [[y, x]]


def test_attention_grid_of_a_view_that_is_not_square():
    picture = attention_grid(np.arange(6), grid=(2, 3))
    np.testing.assert_array_equal(picture, [[0, 3], [1, 4], [2, 5]])
    with pytest.raises(ValueError, match=r"\(7, 7\)"):
        attention_grid(np.zeros((7, 7)))


def test_each_panel_shows_the_attention_of_its_own_cell():
    scores = one_hot_scores({AGENT: KEY, KEY: (0, 4)}, heads=2)
    figure = attention_figure(FRAME, VIEW, scores, {"agent": AGENT, "key": KEY})
    for head in (1, 2):
        assert brightest(panel(figure, f"head {head}\nfrom agent")) == KEY
        assert brightest(panel(figure, f"head {head}\nfrom key")) == (0, 4)


def test_rows_grow_downwards_and_columns_rightwards_on_the_canvas():
    figure = attention_figure(FRAME, VIEW, one_hot_scores({AGENT: KEY}), {"agent": AGENT})
    axes = panel(figure, "head 1\nfrom agent")
    figure.draw_without_rendering()
    agent, key = axes.transData.transform([AGENT, KEY])
    box = axes.get_window_extent()
    assert agent[0] == pytest.approx((box.x0 + box.x1) / 2)
    assert agent[1] == pytest.approx(box.y0 + box.height / 14)
    assert key[0] > agent[0] and key[1] > agent[1]  # y of the canvas points up


def test_view_and_attention_share_their_coordinates():
    view = VIEW.copy()
    view[20:30, 50:60] = 255  # the tile of KEY; a tile has 10 x 10 pixels
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
    axes = panel(figure, "head 1\nfrom key")
    assert letters(axes) == {"A": AGENT, "K": KEY, "D": (1, 1)}
    widths = {(p.get_x() + 0.5, p.get_y() + 0.5): p.get_linewidth() for p in axes.patches}
    assert max(widths, key=widths.get) == KEY
    assert panel(figure, "view of the agent").get_xlabel().startswith("A agent  K key  D door\n")


def test_labels_with_the_same_initial_stay_apart():
    cells = {"ball": (0, 0), "box": (1, 0)}
    figure = attention_figure(FRAME, VIEW, one_hot_scores({}), cells)
    assert letters(panel(figure, "head 1\nfrom ball")) == {"Ba": (0, 0), "Bo": (1, 0)}


def test_a_carried_key_shares_the_agents_panel():
    figure = attention_figure(FRAME, VIEW, one_hot_scores({}), {"agent": AGENT, "key": AGENT})
    assert letters(panel(figure, "head 1\nfrom agent + key")) == {"AK": AGENT}


def test_panels_share_one_colour_scale():
    scores = one_hot_scores({AGENT: KEY})
    scores[:, 5 * 7 + 2] = 0.25 * np.eye(49)[0]
    figure = attention_figure(FRAME, VIEW, scores, {"agent": AGENT, "key": KEY})
    limits = {
        panel(figure, f"head 1\nfrom {label}").get_images()[0].get_clim()
        for label in ("agent", "key")
    }
    assert limits == {(0.0, 1.0)}
    assert any(axes.get_ylabel().startswith("attention") for axes in figure.axes)


def test_uniform_attention_is_half_as_dark_as_the_scale_and_labelled():
    """Regression: uniform attention was drawn dark."""
    scores = np.zeros((1, 49, 49))
    scores[:, :, 30:40] = 0.1
    figure = attention_figure(FRAME, VIEW, scores, {"agent": AGENT})
    (image,) = panel(figure, "head 1\nfrom agent").get_images()
    assert image.get_clim() == (0.0, 0.2)
    assert any(axes.get_ylabel().endswith("uniform is 0.10") for axes in figure.axes)


def test_many_panels_become_means_over_heads_from_the_first_cells():
    """Regression: the figure for four rounds and eight objects had 64 panels."""
    cells = {f"cell {i}": (i % 7, i // 7) for i in range(8)}
    rounds = {f"round_{i}": random_scores(2, (7, 7), seed=i) for i in range(1, 5)}
    figure = attention_figure(FRAME, VIEW, rounds, cells)
    panels = [axes for axes in figure.axes if "from cell" in axes.get_title("left")]
    titles = [f"round {i}\nfrom cell {j}" for i in range(1, 5) for j in range(3)]
    assert [axes.get_title("left") for axes in panels] == titles
    (image,) = panels[1].get_images()  # attention from cell (1, 0), entity 7
    mean = rounds["round_1"].mean(axis=0)[7].reshape(7, 7).T
    np.testing.assert_allclose(image.get_array(), mean)
    assert any("mean over heads" in axes.get_ylabel() for axes in figure.axes)


def test_several_rounds_are_drawn_under_their_names():
    rounds = {
        "round_1": one_hot_scores({AGENT: KEY}, heads=2),
        "round_2": one_hot_scores({AGENT: (0, 0)}),
    }
    figure = attention_figure(FRAME, VIEW, rounds, {"agent": AGENT})
    panels = [axes for axes in figure.axes if "from agent" in axes.get_title("left")]
    assert [brightest(axes) for axes in panels] == [KEY, KEY, (0, 0)]
    titles = [axes.get_title("left").partition("\n")[0] for axes in panels]
    assert titles == ["round 1, head 1", "round 1, head 2", "round 2, head 1"]


def test_masked_rows_of_zeros_are_drawn():
    figure = attention_figure(FRAME, VIEW, np.zeros((1, 49, 49)), {"agent": AGENT})
    assert panel(figure, "head 1\nfrom agent").get_images()[0].get_clim() == (0.0, 1.0)


def test_without_labelled_cells_centre_and_mean_are_drawn():
    centre = 3 * 7 + 3
    scores = np.zeros((1, 49, 49))
    scores[0, :, 0] = 1
    scores[0, centre] = np.eye(49)[centre]
    figure = attention_figure(FRAME, VIEW, scores, {})
    attention = {
        title: panel(figure, f"head 1\nfrom {title}").get_images()[0].get_array()
        for title in ("centre", "all cells (mean)")
    }
    np.testing.assert_allclose(attention["centre"], np.eye(49)[centre].reshape(7, 7))
    assert attention["all cells (mean)"][0, 0] == pytest.approx(48 / 49)
    assert attention["all cells (mean)"][3, 3] == pytest.approx(1 / 49)
    assert letters(panel(figure, "head 1\nfrom centre")) == {"C": (3, 3)}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"frame": np.zeros((40, 40), np.uint8)}, r"`frame` .*\(40, 40\)"),
        ({"view": np.zeros((7, 7, 4), np.uint8)}, r"`view` .*\(7, 7, 4\)"),
        ({"frame": np.zeros((4, 4, 3), np.float32)}, "`frame` .*float32"),
        ({"scores": np.zeros((1, 1, 49, 49))}, r"`scores` .*\(1, 1, 49, 49\)"),
        ({"scores": np.zeros((1, 48, 48))}, r"`scores` .*\(1, 48, 48\)"),
        ({"scores": {"round_2": np.zeros((49, 49))}}, r"round_2.*\(49, 49\)"),
        ({"scores": {}}, "at least one round"),
        ({"cells": {"key": (7, 0)}}, r"'key' at \(7, 0\)"),
        ({"unseen": np.zeros((5, 5), bool)}, r"`unseen` .*\(5, 5\)"),
    ],
)
def test_invalid_input_raises(changed, message):
    good = {"frame": FRAME, "view": VIEW, "scores": one_hot_scores({}), "cells": {"agent": AGENT}}
    with pytest.raises(ValueError, match=message):
        attention_figure(**(good | changed))


def test_numbered_labels_share_their_initial_and_keep_the_number():
    labels = ["agent", "gem", "box", "box 2", "box 13", "open"]
    assert list(initials(labels).values()) == ["A", "G", "B", "B2", "B13", "O"]
    assert meaning(labels) == "A agent  G gem  B box  O open"
    assert meaning(["box 2"]) == "B box"
    # Line breaks are between names only.
    labels = ["agent", "red key", "red ball", "green goal"]
    assert meaning(labels) == "A agent  RK red key  RB red ball\nG green goal"
    assert initials(["goal", "gem", "key 1"]) == {"goal": "Go", "gem": "Ge", "key 1": "K1"}
    # Regression: the labels were `Red k` and `Red b`, which are wider than a cell.
    coloured = ["agent", "red key", "red ball", "blue ball", "green goal"]
    assert list(initials(coloured).values()) == ["A", "RK", "RB", "B", "G"]
    assert list(initials(["blue box", "blue ball"]).values()) == ["Ba", "Bb"]
    lamps = ["lamp (off)", "lamp (on)", "lamp (on) 2", "agent"]
    assert list(initials(lamps).values()) == ["La", "Lb", "Lb2", "A"]
    assert meaning(lamps) == "La lamp (off)  Lb lamp (on)\nA agent"
    many = initials([f"lamp, {'x' * i}" for i in range(1, 40)] + ["lab"])
    assert len(set(many.values())) == 40 and max(map(len, many.values())) == 3


def random_scores(heads, grid, seed=0):
    entities = grid[0] * grid[1]
    return np.random.default_rng(seed).dirichlet(np.ones(entities), size=(heads, entities))


@given(
    heads=st.integers(1, 3),
    rows=st.integers(1, 5),
    columns=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_attention_paid_sums_to_one_in_row_order(heads, rows, columns, seed):
    given_scores = random_scores(heads, (rows, columns), seed)
    paid = attention_paid(given_scores, (rows, columns))
    assert paid.shape == (heads, rows, columns)
    np.testing.assert_allclose(paid.sum(axis=(1, 2)), 1)
    entity = (rows - 1) * columns + columns // 2
    np.testing.assert_allclose(
        paid[:, rows - 1, columns // 2], given_scores[:, :, entity].mean(axis=1)
    )


def test_attended_places_of_a_frame_glow():
    weights = np.zeros((9, 9))
    weights[2, 6] = 0.3
    frame = np.full((210, 160, 3), 60, np.uint8)
    seen = overlay(frame, weights).astype(int)
    assert seen.shape == frame.shape
    brightest = np.unravel_index(seen.sum(axis=-1).argmax(), (210, 160))
    assert (brightest[0] * 9 // 210, brightest[1] * 9 // 160) == (2, 6)
    corner = seen[-1, 0]
    assert (corner == corner[0]).all() and corner[0] < 60  # still grey, but darker


def test_unattended_places_of_a_frame_are_dim():
    frame = np.random.default_rng(0).integers(0, 256, (21, 16, 3)).astype(np.uint8)
    np.testing.assert_array_less(overlay(frame, np.zeros((3, 3))), frame.astype(int) + 1)


def test_a_figure_has_a_panel_for_every_head_of_every_round():
    frame = np.zeros((210, 160, 3), np.uint8)
    rounds = {"round_1": random_scores(2, (3, 4)), "round_2": random_scores(2, (3, 4), 1)}
    figure = frame_attention_figure(frame, rounds, (3, 4))
    titles = [title for axes in figure.axes if (title := axes.get_title(loc="left"))]
    largest = [attention_paid(each, (3, 4)).max(axis=(1, 2)) for each in rounds.values()]
    assert titles == ["environment"] + [
        f"round {i}, head {h}\n0 to {largest[i - 1][h - 1]:.1%}" for i in (1, 2) for h in (1, 2)
    ]


def test_attention_over_a_frame_names_a_bad_shape():
    frame = np.zeros((210, 160, 3), np.uint8)
    with pytest.raises(ValueError, match=r"\(H, 12, 12\)"):
        attention_paid(random_scores(2, (3, 3)), (3, 4))
    with pytest.raises(ValueError, match="at least one round"):
        frame_attention_figure(frame, {}, (3, 4))
    with pytest.raises(ValueError, match=r"\(rows, columns\); received shape \(4,\)"):
        overlay(frame, np.ones(4))
    with pytest.raises(ValueError, match="`frame` must be uint8"):
        overlay(frame.astype("float32"), np.ones((2, 2)))
