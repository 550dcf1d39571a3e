"""Networks that compute only one entity or only visible entities give the same Q values."""

import functools

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from rrl_tf.layers import MultiHeadDotProductAttention, RelationalBlock, RelationalModule
from rrl_tf.models import RelationalQNetwork


def random(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def same(actual, expected):
    actual, expected = ops.convert_to_numpy(actual), ops.convert_to_numpy(expected)
    np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize("entity", [0, 3, 6])
@pytest.mark.parametrize("share_weights", [False, True])
@pytest.mark.parametrize("mask_shape", [(2, 7), (2, 1, 1, 7), (2, 1, 7, 7), (1, 2, 7, 7)])
def test_output_of_one_entity_equals_its_row_of_all(entity, share_weights, mask_shape):
    block = RelationalBlock(2, 4, norm="entity", qkv_norm="joint", score="additive")
    module = RelationalModule(block, num_rounds=2, share_weights=share_weights)
    x, mask = random(2, 7, 8), random(*mask_shape) > -1
    x_all, attention_all = module(x, mask=mask, return_attention_scores=True)
    x_one, attention_one = module(x, mask=mask, entity=entity, return_attention_scores=True)
    rows = slice(entity, entity + 1)
    same(x_one, x_all[:, rows])
    same(attention_one["round_1"], attention_all["round_1"])
    same(attention_one["round_2"], attention_all["round_2"][:, :, rows])


@pytest.mark.parametrize("block", [{}, {"norm": "joint"}, {"score": "book_additive"}])
def test_q_values_are_the_same_with_and_without_the_attention(block):
    model = RelationalQNetwork.from_preset(
        "fast", block=block, unseen_feature=0, readout_cell=(3, 6)
    )
    x = random(2, 7, 7, 24)
    q, attention = model(x, return_attention_scores=True)
    assert tuple(attention["round_2"].shape) == (2, 2, 49, 49)
    same(model(x), q)


def test_one_entity_with_joint_norm_or_book_score_is_an_error():
    with pytest.raises(ValueError, match="norm='joint', which needs all entities"):
        RelationalBlock(2, 4, norm="joint")(random(2, 7, 8), entity=0)
    with pytest.raises(ValueError, match="no row for one entity; received 0"):
        MultiHeadDotProductAttention(2, 4, score="book_additive")(random(2, 7, 8), entity=0)


SPARSE = {"unseen_feature": 0, "readout_feature": 1, "readout": "feature"}
"""Arguments for a grid with many unseen cells (feature 0); feature 1 marks the agent's cell."""

VIEW = {"unseen_feature": 0, "readout_cell": (2, 3)}
"""Arguments for a view of the agent, whose cell is always node 13."""


@functools.cache
def sparse_networks(max_entities, view=False):
    """Return the same network without and with `max_entities`."""
    networks, arguments = [], VIEW if view else SPARSE
    for bound in (None, max_entities):
        keras.utils.set_random_seed(0)
        network = RelationalQNetwork.from_preset("fast", **arguments, max_entities=bound)
        network.build((None, 4, 5, 6))
        networks.append(network)
    return networks


def sparse_grid(cells):
    """Return a grid (1, 4, 5, 6) with the agent in `cells[0]` and objects in the other cells."""
    grid = np.zeros((20, 6), "float32")
    grid[:, 0] = 1
    grid[cells] = random(20, 6)[cells]
    grid[cells, :2] = 0
    grid[cells[0], 1] = 1
    return grid.reshape(1, 4, 5, 6)


@pytest.mark.parametrize(("view", "agent"), [(False, None), (True, 13)])
@given(cells=st.lists(st.integers(0, 19), min_size=1, max_size=4, unique=True))
def test_max_entities_does_not_change_q_values(view, agent, cells):
    everything, bounded = sparse_networks(5, view)
    grid = sparse_grid(cells if agent is None else [agent, *cells])
    same(bounded(grid), everything(grid))
    q, attention = bounded(grid, return_attention_scores=True)
    same(q, everything(grid))
    assert tuple(attention["round_2"].shape) == (1, 2, 20, 20)


def test_cells_beyond_max_entities_are_left_out_except_the_agents():
    everything, bounded = sparse_networks(3)
    same(bounded(sparse_grid([19, 2, 8, 11])), everything(sparse_grid([19, 2, 8])))
    everything_read, bounded_read = sparse_networks(3, view=True)
    same(bounded_read(sparse_grid([13, 2, 8, 11])), everything_read(sparse_grid([13, 2, 8])))
    gap = bounded(sparse_grid([19, 2, 8])) - everything(sparse_grid([19, 2]))
    assert np.abs(keras.ops.convert_to_numpy(gap)).max() > 1e-4


@given(st.lists(st.integers(0, 19), min_size=2, max_size=20, unique=True))
def test_attention_beyond_max_entities_is_zero(cells):
    for bounded, grid in (
        (sparse_networks(3)[1], sparse_grid(cells)),
        (sparse_networks(3, view=True)[1], sparse_grid([13, *(c for c in cells if c != 13)])),
    ):
        q, attention = bounded(grid, return_attention_scores=True)
        same(q, bounded(grid))
        attended = keras.ops.convert_to_numpy(attention["round_1"])[0].max(axis=(0, 1)) > 0
        assert attended.sum() <= 3


def test_max_entities_does_not_change_q_values_without_an_agent():
    everything, bounded = sparse_networks(5)
    grid = sparse_grid([4, 2, 8])
    grid[..., 1] = 0
    same(bounded(grid), everything(grid))
    same(bounded(grid, return_attention_scores=True)[0], everything(grid))


def test_max_entities_survives_saving(tmp_path):
    _, network = sparse_networks(4)
    network.save(tmp_path / "network.keras")
    loaded = keras.saving.load_model(tmp_path / "network.keras")
    assert loaded.max_entities == 4
    same(loaded(sparse_grid([0, 7])), network(sparse_grid([0, 7])))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_entities": 0}, "max_entities.*0"),
        ({"unseen_feature": None}, "received unseen_feature=None"),
        ({"readout": "max", "readout_feature": None}, "received readout='max'"),
        ({"block": {"norm": "joint"}}, "received block=.*joint"),
        ({"block": {"qkv_norm": "joint"}}, "received block=.*joint"),
        ({"block": {"max_offset": 3}}, "received block=.*max_offset"),
    ],
)
def test_max_entities_with_other_arguments_is_an_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        RelationalQNetwork.from_preset("fast", **{**SPARSE, "max_entities": 3, **arguments})
