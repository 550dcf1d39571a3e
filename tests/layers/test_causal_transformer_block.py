"""CausalTransformerBlock, compared with NumPy: causality, padding, rows and dropout."""

import math

import keras
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from keras import ops

from rrl_tf.layers import CausalTransformerBlock

STEPS, WIDTH = 7, 12
X = np.random.default_rng(0).normal(size=(3, STEPS, WIDTH)).astype("float32")
NORMS = pytest.mark.parametrize("norm", ["post", "pre"])


def array(tensor):
    return ops.convert_to_numpy(tensor)


def built(seed=0, **arguments):
    block = CausalTransformerBlock(**{"num_heads": 2, **arguments})
    block.build((None, None, WIDTH))
    rng = np.random.default_rng(seed)
    for weight in block.weights:
        if len(weight.shape) == 1:
            weight.assign(rng.normal(0.8, 0.3, size=weight.shape))
    return block


def oracle(block, x, mask=None):
    """Compute output and attention of the block in float64, query by query."""
    w = {v.path.split("/", 1)[1]: array(v).astype("float64") for v in block.weights}
    batch, steps, width = x.shape
    heads, size = block.num_heads, width // block.num_heads
    mask = np.ones((batch, steps), bool) if mask is None else mask
    pre = block.norm == "pre"

    def dense(name, x):
        return x @ w[f"{name}/kernel"] + w[f"{name}/bias"]

    def norm(name, x):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + block.epsilon)
        return x * w[f"{name}/gamma"] + w[f"{name}/beta"]

    z = norm("attention_norm", x) if pre else x
    q, (k, v) = dense("query", z), np.split(dense("key_value", z), 2, axis=-1)
    gathered, scores = np.zeros(x.shape), np.zeros((batch, heads, steps, steps))
    for b in range(batch):
        for i in range(steps):
            seen = [j for j in range(i + 1) if mask[b, j] or j == i]
            for h in range(heads):
                part = slice(h * size, (h + 1) * size)
                logits = np.array([q[b, i, part] @ k[b, j, part] for j in seen]) / math.sqrt(size)
                p = np.exp(logits - logits.max())
                scores[b, h, i, seen] = p / p.sum()
                gathered[b, i, part] = scores[b, h, i, seen] @ v[b, seen, part]
    y = x + dense("projection", gathered)
    y = y if pre else norm("attention_norm", y)
    hidden = dense("hidden", norm("output_norm", y) if pre else y)
    gelu = hidden * 0.5 * (1 + np.vectorize(math.erf)(hidden / math.sqrt(2)))
    y = y + dense("output", gelu)
    return (y if pre else norm("output_norm", y)), scores


@NORMS
@settings(max_examples=8)
@example(lengths=[STEPS] * 3, end=True, seed=0)
@given(
    lengths=st.lists(st.integers(0, STEPS), min_size=3, max_size=3),
    end=st.booleans(),
    seed=st.integers(0, 9),
)
def test_block_equals_numpy(norm, lengths, end, seed):
    block = built(seed, norm=norm)
    steps = np.arange(STEPS)
    lengths = np.array(lengths)[:, None]
    mask = steps < lengths if end else steps >= STEPS - lengths
    mask = None if mask.all() else mask
    expected, expected_scores = oracle(block, X, mask)
    output, scores = block(X, mask=mask, return_attention_scores=True)
    np.testing.assert_allclose(array(scores), expected_scores, atol=1e-5)
    np.testing.assert_allclose(array(output), expected, atol=2e-5, rtol=1e-5)
    np.testing.assert_allclose(array(block(X, mask=mask)), expected, atol=2e-5, rtol=1e-5)


@NORMS
@settings(max_examples=5)
@given(step=st.integers(0, STEPS - 1), ask=st.booleans())
def test_output_does_not_depend_on_later_positions(norm, step, ask):
    block = built(norm=norm)

    def outputs(x):
        result = block(x, return_attention_scores=ask)
        return array(result[0] if ask else result)

    changed = X.copy()
    changed[:, step] += np.linspace(-5, 5, WIDTH)
    before, after = outputs(X), outputs(changed)
    np.testing.assert_array_equal(before[:, :step], after[:, :step])
    assert (np.abs(before - after)[:, step:].max(axis=-1) > 1e-6).all()


@NORMS
@given(length=st.integers(1, STEPS), front=st.integers(0, 4), back=st.integers(0, 4))
def test_padding_changes_no_real_position(norm, length, front, back):
    block = built(norm=norm)
    x = X[:, :length]
    rng = np.random.default_rng(length)
    padding = [100 * rng.normal(size=(3, n, WIDTH)).astype("float32") for n in (front, back)]
    padded = np.concatenate([padding[0], x, padding[1]], axis=1)
    mask = np.zeros(padded.shape[:2], bool)
    mask[:, front : front + length] = True
    output = array(block(padded, mask=mask))
    assert np.isfinite(output).all()
    np.testing.assert_allclose(output[mask].reshape(x.shape), array(block(x)), atol=1e-5, rtol=1e-5)


@NORMS
@given(
    rows=st.sampled_from([slice(1, None, 3), slice(-1, None), slice(0, 4), slice(None, None, 2)])
)
def test_rows_equal_the_rows_of_the_full_output(norm, rows):
    block = built(norm=norm)
    mask = np.arange(STEPS) >= np.array([[0], [3], [6]])
    output, scores = block(X, mask=mask, return_attention_scores=True)
    some, some_scores = block(X, mask=mask, rows=rows, return_attention_scores=True)
    np.testing.assert_allclose(array(some), array(output)[:, rows], atol=1e-5)
    np.testing.assert_allclose(array(some_scores), array(scores)[:, :, rows], atol=1e-6)
    np.testing.assert_allclose(array(block(X, mask=mask, rows=rows)), array(some), atol=1e-5)
    symbol = block(keras.Input((STEPS, WIDTH)), rows=rows)
    assert symbol.shape[1:] == some.shape[1:]


def test_single_position_gives_no_warning():
    block = built()
    output, scores = block(X[:, :1], return_attention_scores=True)
    np.testing.assert_array_equal(array(scores), 1.0)
    np.testing.assert_allclose(array(output), array(block(X))[:, :1], atol=1e-5)


@pytest.mark.parametrize("placement", ["output", "probabilities"])
def test_dropout_acts_in_training_only(placement):
    block = built(dropout=0.5, dropout_placement=placement)
    without = built()
    without.set_weights(block.get_weights()[: len(without.weights)])
    np.testing.assert_array_equal(array(block(X)), array(without(X)))
    assert not np.allclose(array(block(X, training=True)), array(without(X)))
    _, asked = block(X, training=True, return_attention_scores=True)
    np.testing.assert_allclose(array(asked).sum(-1), 1.0, atol=1e-5)  # returned before dropout


@pytest.mark.parametrize("placement", ["output", "probabilities"])
def test_dropout_placement_selects_the_dropped_tensor(placement):
    """All values are 1, so the output of attention varies only if probabilities are dropped."""
    block = CausalTransformerBlock(1, dropout=0.5, dropout_placement=placement, seed=1)
    block.build((None, STEPS, WIDTH))
    ones = np.ones((3, 1, STEPS, WIDTH), "float32")
    heads, _ = block._attend(ones, ones, ones, 0.0, training=True)
    assert (len(np.unique(array(heads).round(3))) > 1) == (placement == "probabilities")


def test_mask_of_keras_is_padding():
    x = np.where(np.arange(STEPS)[:, None] >= 3, X, 0)
    masked = keras.layers.Masking()(x)
    block = built()
    np.testing.assert_allclose(
        array(block(masked))[:, 3:], array(block(X[:, 3:])), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_heads": 0}, "`num_heads` must be a positive integer"),
        ({"norm": "middle"}, "`norm` must be one of"),
        ({"dropout": 1.0}, "`dropout` must be in"),
        ({"dropout_placement": "input"}, "`dropout_placement` must be one of"),
        ({"hidden_units": -1}, "`hidden_units` must be a positive integer"),
    ],
)
def test_bad_arguments_are_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        CausalTransformerBlock(**{"num_heads": 2, **arguments})


@pytest.mark.parametrize(
    ("shape", "message"),
    [((None, 5, 9), "must divide F"), ((None, 8), "sequences"), ((None, 5, None), "known F")],
)
def test_bad_shapes_are_errors(shape, message):
    with pytest.raises(ValueError, match=message):
        CausalTransformerBlock(2).build(shape)
