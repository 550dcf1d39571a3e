"""Attention over a frame: weights sum to one and glow where they are large."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf.errors import InvalidInput
from rrl_tf.viz import attention_paid, figure_to_image, frame_attention_figure, overlay


def scores(heads, grid, seed=0):
    entities = grid[0] * grid[1]
    return np.random.default_rng(seed).dirichlet(np.ones(entities), size=(heads, entities))


@given(
    heads=st.integers(1, 3),
    rows=st.integers(1, 5),
    columns=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_attention_paid_sums_to_one_in_row_order(heads, rows, columns, seed):
    given_scores = scores(heads, (rows, columns), seed)
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
    assert (corner == corner[0]).all() and corner[0] < 60  # grey as it was, and dimmed


def test_unattended_places_of_a_frame_are_dim():
    frame = np.random.default_rng(0).integers(0, 256, (21, 16, 3)).astype(np.uint8)
    np.testing.assert_array_less(overlay(frame, np.zeros((3, 3))), frame.astype(int) + 1)


def test_a_figure_has_a_panel_for_every_head_of_every_round():
    frame = np.zeros((210, 160, 3), np.uint8)
    rounds = {"round_1": scores(2, (3, 4)), "round_2": scores(2, (3, 4), 1)}
    figure = frame_attention_figure(frame, rounds, (3, 4))
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    largest = [attention_paid(each, (3, 4)).max(axis=(1, 2)) for each in rounds.values()]
    assert titles == ["environment"] + [
        f"round {i}, head {h}: 0 to {largest[i - 1][h - 1]:.1%}" for i in (1, 2) for h in (1, 2)
    ]
    assert figure_to_image(figure).std() > 0


def test_mismatched_arguments_raise():
    frame = np.zeros((210, 160, 3), np.uint8)
    with pytest.raises(InvalidInput, match=r"\(H, 12, 12\)"):
        attention_paid(scores(2, (3, 3)), (3, 4))
    with pytest.raises(InvalidInput, match="at least one round"):
        frame_attention_figure(frame, {}, (3, 4))
    with pytest.raises(InvalidInput, match=r"\(rows, columns\); received shape \(4,\)"):
        overlay(frame, np.ones(4))
    with pytest.raises(InvalidInput, match="frame must be uint8"):
        overlay(frame.astype("float32"), np.ones((2, 2)))
