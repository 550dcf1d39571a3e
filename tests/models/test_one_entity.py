"""The last round updates only the entity that is read: the same numbers as updating all."""

import numpy as np
import pytest
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
def test_the_output_of_one_entity_is_its_row_of_all(entity, share_weights, mask_shape):
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


def test_what_needs_all_entities_refuses_one():
    with pytest.raises(ValueError, match="norm='joint' needs all entities"):
        RelationalBlock(2, 4, norm="joint")(random(2, 7, 8), entity=0)
    with pytest.raises(ValueError, match="no row for one entity; received entity=0"):
        MultiHeadDotProductAttention(2, 4, score="book_additive")(random(2, 7, 8), entity=0)
