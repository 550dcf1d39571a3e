"""RelationalBlock and RelationalModule, compared with a composition of their parts."""

import numpy as np
import pytest
from keras import ops

from rrl_tf.layers import MultiHeadDotProductAttention, RelationalBlock, RelationalModule

X = np.random.default_rng(0).normal(size=(2, 6, 8)).astype("float32")


def array(tensor):
    return ops.convert_to_numpy(tensor)


def normalise(x, axes):
    return (x - x.mean(axis=axes, keepdims=True)) / np.sqrt(x.var(axis=axes, keepdims=True) + 1e-5)


def dense(layer, x):
    return x @ array(layer.kernel) + array(layer.bias)


def heads(block):
    return array(block.attention(X))


def test_default_is_a_projection_and_a_residual_connection():
    block = RelationalBlock(2, 5)
    output = array(block(X))
    np.testing.assert_allclose(output, X + dense(block.dense_layers[0], heads(block)), atol=1e-5)


def test_zambaldi_is_two_relus_then_residual_then_norm():
    block = RelationalBlock(2, 5, value_size=8, units=(8, 8), activation="relu", norm="entity")
    block.build(X.shape)
    block.output_norm.gamma.assign(np.arange(8.0))
    block.output_norm.beta.assign(np.arange(8.0) / 10)
    x = heads(block)
    for layer in block.dense_layers:
        x = np.maximum(dense(layer, x), 0)
    expected = np.arange(8) * normalise(X + x, -1) + np.arange(8) / 10
    np.testing.assert_allclose(array(block(X)), expected, atol=1e-4)


def test_book_is_relu_then_joint_norm_without_residual():
    block = RelationalBlock(3, 4, units=(7,), activation="relu", residual=False, norm="joint")
    output = array(block(X))
    x = np.maximum(dense(block.dense_layers[0], heads(block)), 0)
    np.testing.assert_allclose(output, normalise(x, (1, 2)), atol=1e-5)
    assert len(block.weights) == 4  # the joint norm has no gain and no bias


def test_arguments_reach_the_attention():
    block = RelationalBlock(2, 5, value_size=3, score="additive", qkv_norm="fused", dropout=0.1)
    config = block.attention.get_config()
    attention = MultiHeadDotProductAttention(
        2, 5, 3, score="additive", qkv_norm="fused", dropout=0.1, name="attention"
    )
    assert config == attention.get_config()


def test_mask_hides_entities():
    block = RelationalBlock(2, 5)
    mask = np.array([True] * 4 + [False] * 2)
    hidden = array(block(X, mask=mask[None, None, None, :]))[:, :4]
    np.testing.assert_allclose(hidden, array(block(X[:, :4])), atol=1e-5)


def test_shared_rounds_are_the_same_block_repeated():
    block = RelationalBlock(2, 5)
    module = RelationalModule(block, num_rounds=3, share_weights=True)
    output, attention = module(X, return_attention_scores=True)
    x = X
    for i in (1, 2, 3):
        x, scores = block(x, return_attention_scores=True)
        np.testing.assert_allclose(array(attention[f"round_{i}"]), array(scores), atol=1e-6)
    np.testing.assert_allclose(array(output), array(x), atol=1e-6)
    assert len(module.weights) == len(block.weights)


def test_unshared_rounds_have_separate_weights():
    module = RelationalModule(RelationalBlock(2, 5), num_rounds=2)
    module.build(X.shape)
    first, second = (array(block.attention.query_key_value.kernel) for block in module.blocks)
    assert not np.allclose(first, second)
    assert len({weight.path for weight in module.weights}) == len(module.weights)


def test_unshared_rounds_may_change_the_size():
    module = RelationalModule(RelationalBlock(2, 5, units=(3,), residual=False), num_rounds=2)
    assert module(X).shape == (2, 6, 3)


def test_mask_applies_in_every_round():
    module = RelationalModule(RelationalBlock(2, 5), num_rounds=3)
    mask = np.array([True] * 4 + [False] * 2)
    hidden = array(module(X, mask=mask[None, None, None, :]))[:, :4]
    np.testing.assert_allclose(hidden, array(module(X[:, :4])), atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_heads": 0}, "num_heads"),
        ({"units": (0,)}, "units.*0"),
        ({"norm": "fused"}, "norm.*joint.*'fused'"),
        ({"score": "cosine"}, "score.*'cosine'"),
    ],
)
def test_bad_arguments_are_errors(arguments, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        RelationalBlock(**{"num_heads": 2, "key_size": 5, **arguments})


def test_residual_needs_equal_sizes():
    with pytest.raises(ValueError, match=r"residual connection, 8.*\(7,\)"):
        RelationalBlock(2, 5, units=(7,)).build(X.shape)


def test_bad_modules_are_errors():
    with pytest.raises(ValueError, match=r"RelationalBlock that is not built; received 3"):
        RelationalModule(3)
    with pytest.raises(ValueError, match=r"num_rounds.*0"):
        RelationalModule(RelationalBlock(2, 5), num_rounds=0)
    narrowing = RelationalBlock(2, 5, units=(3,), residual=False)
    with pytest.raises(ValueError, match=r"share weights must keep the size.*8.*3"):
        RelationalModule(narrowing, num_rounds=2, share_weights=True).build(X.shape)
