"""MultiHeadDotProductAttention, compared with loops in NumPy, and its errors."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from rrl_tf.errors import InvalidInput
from rrl_tf.layers import MultiHeadDotProductAttention

RNG = np.random.default_rng(0)


def array(tensor):
    return ops.convert_to_numpy(tensor)


def randomised(layer, *shapes):
    layer.build(*shapes)
    rng = np.random.default_rng(1)
    for weight in layer.weights:
        weight.assign(rng.normal(0.3, 0.5, size=weight.shape))
    return layer


def weights_of(layer):
    """Return a dict from weight names, without the layer's name, to float64 arrays."""
    return {
        "/".join(weight.path.split("/")[-2:]): array(weight).astype("float64")
        for weight in layer.weights
    }


def normalise(x, gain, bias):
    """Normalise over the last `gain.ndim` axes."""
    axes = tuple(range(-gain.ndim, 0))
    mean = x.mean(axis=axes, keepdims=True)
    return gain * (x - mean) / np.sqrt(x.var(axis=axes, keepdims=True) + 1e-5) + bias


def one_score(layer, w, q_i, k_i, k_j, j):
    """Return the score of query i for key j; `k_i` is the key of entity i."""
    if layer.score == "dot":
        return q_i @ k_j / np.sqrt(layer.key_size)
    query = q_i @ w["score_query/kernel"] + w["score_query/bias"]
    if layer.score == "additive":
        return np.tanh(query + k_j @ w["score_key/kernel"]) @ w["score_output/kernel"][:, 0]
    z = query + k_i @ w["score_key/kernel"] + w["score_key/bias"]
    elu = np.where(z > 0, z, np.expm1(z))
    return elu @ w["score_output/kernel"][:, j] + w["score_output/bias"][j]


def oracle(layer, x, context=None, mask=None):
    """Return output and scores of one (N, F) input in float64, computed entity by entity."""
    w = weights_of(layer)
    h_count, k, v = layer.num_heads, layer.key_size, layer.value_size
    if context is None:
        fused = x @ w["query_key_value/kernel"] + w["query_key_value/bias"]
        if layer.qkv_norm == "fused":
            fused = normalise(fused, w["fused_norm/gamma"], w["fused_norm/beta"])
        columns = fused.reshape(len(x), h_count, 2 * k + v)  # [head][q | k | v]
        q, key, value = columns[..., :k], columns[..., k : 2 * k], columns[..., 2 * k :]
    else:
        q = (x @ w["query/kernel"] + w["query/bias"]).reshape(len(x), h_count, k)
        both = context @ w["key_value/kernel"] + w["key_value/bias"]
        both = both.reshape(len(context), h_count, k + v)
        key, value = both[..., :k], both[..., k:]
    q, key, value = (a.transpose(1, 0, 2) for a in (q, key, value))  # (H, N, size)
    if layer.qkv_norm in ("entity", "joint"):
        q, key, value = (
            normalise(a, w[f"{name}_norm/gamma"], w[f"{name}_norm/beta"])
            for a, name in ((q, "query"), (key, "key"), (value, "value"))
        )
    nodes, keys = q.shape[1], key.shape[1]
    scores = np.zeros((h_count, nodes, keys))
    output = np.zeros((nodes, h_count, v))
    for h in range(h_count):
        for i in range(nodes):
            allowed = [j for j in range(keys) if mask is None or mask[h, i, j]]
            own = key[h, i] if keys == nodes else None
            row = np.array([one_score(layer, w, q[h, i], own, key[h, j], j) for j in allowed])
            if allowed:
                scores[h, i, allowed] = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
            output[i, h] = scores[h, i] @ value[h]
    output = output.reshape(nodes, h_count * v)
    if layer.output_size is not None:
        output = output @ w["output_projection/kernel"] + w["output_projection/bias"]
    return output, scores


def assert_is_oracle(layer, x, context=None, mask=None):
    output, scores = layer(x, context=context, mask=mask, return_attention_scores=True)
    full = None if mask is None else np.broadcast_to(mask, scores.shape)
    for b in range(len(x)):
        wanted, wanted_scores = oracle(
            layer,
            x[b].astype("float64"),
            None if context is None else context[b].astype("float64"),
            None if full is None else full[b],
        )
        np.testing.assert_allclose(array(output)[b], wanted, atol=2e-5, rtol=2e-5)
        np.testing.assert_allclose(array(scores)[b], wanted_scores, atol=2e-5, rtol=2e-5)


sizes = st.integers(2, 4)


@settings(max_examples=10)
@given(
    score=st.sampled_from(["dot", "additive", "book_additive"]),
    qkv_norm=st.sampled_from([None, "entity", "joint", "fused"]),
    heads=sizes,
    key_size=st.integers(2, 5),
    value_size=st.one_of(st.none(), st.integers(2, 5)),
    output_size=st.one_of(st.none(), sizes),
    nodes=sizes,
    masked=st.booleans(),
)
def test_self_attention_equals_numpy(
    score, qkv_norm, heads, key_size, value_size, output_size, nodes, masked
):
    layer = MultiHeadDotProductAttention(
        heads, key_size, value_size, output_size, score=score, qkv_norm=qkv_norm
    )
    randomised(layer, (None, nodes, 3))
    x = RNG.normal(size=(2, nodes, 3)).astype("float32")
    mask = RNG.random((2, heads, nodes, nodes)) < 0.5 if masked else None
    assert_is_oracle(layer, x, mask=mask)


@settings(max_examples=8)
@given(
    score=st.sampled_from(["dot", "additive"]),
    qkv_norm=st.sampled_from([None, "entity", "joint"]),
    nodes=sizes,
    keys=sizes,
    masked=st.booleans(),
)
def test_cross_attention_equals_numpy(score, qkv_norm, nodes, keys, masked):
    layer = MultiHeadDotProductAttention(2, 3, 4, score=score, qkv_norm=qkv_norm)
    randomised(layer, (None, nodes, 3), (None, keys, 5))
    x = RNG.normal(size=(2, nodes, 3)).astype("float32")
    context = RNG.normal(size=(2, keys, 5)).astype("float32")
    mask = RNG.random((2, 1, 1, keys)) < 0.5 if masked else None
    assert_is_oracle(layer, x, context, mask)


def test_symbolic_shapes_of_cross_attention_are_the_real_shapes():
    layer = MultiHeadDotProductAttention(2, 3, 4)
    output, scores = layer(
        keras.Input((6, 3)), context=keras.Input((5, 7)), return_attention_scores=True
    )
    assert output.shape == (None, 6, 8)
    assert scores.shape == (None, 2, 6, 5)


def test_cross_attention_saves_and_loads(tmp_path):
    x, context = keras.Input((6, 3)), keras.Input((5, 7))
    model = keras.Model([x, context], MultiHeadDotProductAttention(2, 3)(x, context=context))
    model.save(tmp_path / "model.keras")
    values = [RNG.normal(size=(2, 6, 3)), RNG.normal(size=(2, 5, 7))]
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(array(again(values)), array(model(values)))


@pytest.mark.parametrize("shape", [(1, 1, 6, 6), (1, 1, 1, 6), (2, 1, 6, 6), (2, 2, 6, 6)])
def test_mask_broadcasts_to_the_scores(shape):
    layer = randomised(MultiHeadDotProductAttention(2, 3), (None, 6, 3))
    mask = RNG.random(shape) < 0.5
    assert_is_oracle(layer, RNG.normal(size=(2, 6, 3)).astype("float32"), mask=mask)


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_fully_masked_rows_give_zeros(dtype):
    layer = MultiHeadDotProductAttention(2, 3, use_bias=False, output_size=5, dtype=dtype)
    mask = np.ones((1, 1, 6, 6), bool)
    mask[0, 0, 2] = False
    output, scores = layer(30 * RNG.normal(size=(1, 6, 3)), mask=mask, return_attention_scores=True)
    output, scores = array(ops.cast(output, "float32")), array(ops.cast(scores, "float32"))
    assert (output[:, 2] == 0).all()
    assert (scores[:, :, 2] == 0).all()
    assert np.isfinite(output).all()
    np.testing.assert_allclose(scores[:, :, [0, 1, 3, 4, 5]].sum(axis=-1), 1.0, atol=0.01)


@pytest.mark.tf_only
def test_fully_masked_rows_have_finite_gradients():
    import tensorflow as tf

    layer = MultiHeadDotProductAttention(2, 3)
    x = tf.constant(RNG.normal(size=(1, 6, 3)), tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(layer(x, mask=np.zeros((1, 6), bool)) ** 2)
    for gradient in tape.gradient(loss, [x, *layer.trainable_weights]):
        assert gradient is None or np.isfinite(gradient.numpy()).all()


HIDES = np.where(RNG.random((2, 2, 6, 6)) < 0.5, 0.0, -np.inf).astype("float32")
HIDES[:, :, 2] = -np.inf  # query 2 has no visible key


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("score", ["dot", "additive", "book_additive"])
def test_bias_of_minus_infinity_hides_keys_as_a_mask_does(score, dtype):
    layer = MultiHeadDotProductAttention(2, 3, score=score, output_size=5, dtype=dtype)
    x = RNG.normal(size=(2, 6, 3)).astype("float32")
    padding = np.array([[True] * 4 + [False] * 2] * 2)
    for bias, mask in ((HIDES, None), (HIDES, padding), (HIDES[:1, :1], padding[:, None, None])):
        expected_mask = np.isfinite(bias)
        if mask is not None:
            expected_mask = expected_mask & mask.reshape(2, 1, 1, 6)
        results = layer(x, bias=bias, mask=mask, return_attention_scores=True)
        masked = layer(x, mask=expected_mask, return_attention_scores=True)
        for result, expected in zip(results, masked):
            np.testing.assert_array_equal(
                array(ops.cast(result, "float32")), array(ops.cast(expected, "float32"))
            )
        assert (array(ops.cast(results[1], "float32"))[:, :, 2] == 0).all()


def test_row_of_scores_that_overflow_float16_is_finite():
    layer = MultiHeadDotProductAttention(2, 3, use_bias=False, dtype="mixed_float16")
    lowest = np.full((1, 1, 6, 6), np.finfo("float16").min)
    x = np.full((1, 6, 3), 30.0)
    layer.build(x.shape)
    query, key, value = np.split(RNG.uniform(1, 2, size=(2, 3, 9)), 3, axis=-1)
    kernel = np.concatenate([query, -key, value], axis=-1).transpose(1, 0, 2).reshape(3, 18)
    layer.query_key_value.kernel.assign(kernel)
    _, attention = layer(x, bias=lowest, return_attention_scores=True)
    np.testing.assert_allclose(array(ops.cast(attention, "float32")), 1 / 6, rtol=1e-3)


def test_bias_of_nan_is_not_hidden():
    layer = MultiHeadDotProductAttention(2, 3)
    bias = np.full((1, 1, 6, 6), np.nan, "float32")
    assert np.isnan(array(layer(RNG.normal(size=(1, 6, 3)), bias=bias))).all()


@pytest.mark.tf_only
@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
def test_bias_of_minus_infinity_has_finite_gradients(dtype):
    import tensorflow as tf

    layer = MultiHeadDotProductAttention(2, 3, score="additive", dtype=dtype)
    x, bias = tf.constant(RNG.normal(size=(2, 6, 3)), tf.float32), tf.constant(HIDES)
    with tf.GradientTape() as tape:
        tape.watch([x, bias])
        loss = tf.reduce_sum(tf.cast(layer(x, bias=bias), "float32") ** 2)
    for gradient in tape.gradient(loss, [x, bias, *layer.trainable_weights]):
        assert np.isfinite(gradient.numpy()).all()


@pytest.mark.parametrize("size", [1, 4, 6, 100])
@pytest.mark.parametrize("rows", [1, 6])
def test_chunks_of_queries_change_no_output(size, rows):
    whole = randomised(MultiHeadDotProductAttention(2, 3, output_size=5), (None, 6, 3))
    config = {**whole.get_config(), "query_chunk_size": size}
    chunked = MultiHeadDotProductAttention.from_config(config)
    chunked.build((None, 6, 3))
    chunked.set_weights(whole.get_weights())
    x = RNG.normal(size=(2, 6, 3)).astype("float32")
    mask, bias = RNG.random((2, 1, rows, 6)) < 0.6, RNG.normal(size=(1, 2, rows, 6))
    for pairs in ({}, {"mask": mask}, {"bias": bias}, {"mask": mask, "bias": bias}, {"entity": 4}):
        np.testing.assert_allclose(array(chunked(x, **pairs)), array(whole(x, **pairs)), atol=1e-5)


@pytest.mark.parametrize("masked", [False, True])
def test_chunks_of_queries_change_no_update(masked):
    x = RNG.normal(size=(4, 6, 3)).astype("float32")
    mask = RNG.random((1, 1, 6, 6)) < 0.6 if masked else None
    weights = []
    for size in (None, 4):
        entities = keras.Input((6, 3))
        layer = MultiHeadDotProductAttention(2, 3, query_chunk_size=size)
        model = keras.Model(entities, layer(entities, mask=mask))
        model.set_weights(
            [np.linspace(-1, 1, np.prod(w.shape)).reshape(w.shape) for w in model.weights]
        )
        model.compile(keras.optimizers.SGD(0.1), "mse")
        model.fit(x, np.ones((4, 6, 6)), epochs=3, verbose=0)
        weights.append(model.get_weights())
    for chunked, whole in zip(*weights):
        np.testing.assert_allclose(chunked, whole, atol=1e-5)


def test_chunks_of_queries_have_limits():
    for arguments in ({"score": "additive"}, {"dropout": 0.1}):
        with pytest.raises(InvalidInput, match="`query_chunk_size` must be None unless"):
            MultiHeadDotProductAttention(2, 3, query_chunk_size=2, **arguments)
    with pytest.raises(InvalidInput, match="number of entities must be known"):
        MultiHeadDotProductAttention(2, 3, query_chunk_size=2)(keras.Input((None, 3)))


def test_dropout_acts_on_the_probabilities_in_training_only():
    layer = MultiHeadDotProductAttention(2, 3, dropout=0.5, seed=1)
    x = RNG.normal(size=(2, 6, 3)).astype("float32")
    still, scores = layer(x, return_attention_scores=True)
    np.testing.assert_array_equal(array(layer(x, training=False)), array(still))
    dropped, scores_in_training = layer(x, training=True, return_attention_scores=True)
    assert not np.allclose(array(dropped), array(still))
    np.testing.assert_array_equal(array(scores_in_training), array(scores))
    mean = np.mean([array(layer(x, training=True)) for _ in range(50)], axis=0)
    np.testing.assert_allclose(mean, array(still), atol=0.5)


def test_projections_have_different_initial_weights():
    layer = MultiHeadDotProductAttention(1, 3, output_size=3, score="additive")
    layer.build((None, 6, 3))
    kernels = [array(layer.score_query.kernel), array(layer.score_key.kernel)]
    kernels.append(array(layer.output_projection.kernel))
    assert not np.allclose(kernels[0], kernels[1])
    assert not np.allclose(kernels[1], kernels[2])


def test_initializers_and_epsilon_are_arguments():
    layer = MultiHeadDotProductAttention(
        2,
        3,
        output_size=4,
        qkv_norm="entity",
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.02),
        norm_initializer="zeros",
        norm_epsilon=0.5,
    )
    layer.build((None, 6, 50))
    assert array(layer.query_key_value.kernel).std() == pytest.approx(0.02, rel=0.2)
    assert (array(layer.query_norm.gamma) == 0).all()
    assert layer.value_norm.epsilon == 0.5
    again = MultiHeadDotProductAttention.from_config(layer.get_config())
    assert again.kernel_initializer.stddev == 0.02
    assert again.norm_epsilon == 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_heads": 0}, "num_heads.*positive integer.*0"),
        ({"num_heads": 2.0}, "num_heads.*positive integer.*2.0"),
        ({"key_size": 0}, "key_size.*positive integer.*0"),
        ({"value_size": -1}, "value_size.*positive integer.*-1"),
        ({"output_size": 0}, "output_size.*positive integer.*0"),
        ({"score": "cosine"}, "score.*book_additive.*'cosine'"),
        ({"qkv_norm": "layer"}, "qkv_norm.*fused.*'layer'"),
        ({"dropout": 1.0}, "dropout.*1.0"),
        ({"norm_epsilon": -1.0}, "norm_epsilon.*-1.0"),
        ({"norm_epsilon": float("nan")}, "norm_epsilon.*nan"),
        ({"norm_epsilon": "a"}, "norm_epsilon.*'a'"),
        ({"seed": "x"}, "seed.*'x'"),
    ],
)
def test_bad_arguments_are_errors(arguments, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        MultiHeadDotProductAttention(**{"num_heads": 2, "key_size": 3, **arguments})


@pytest.mark.parametrize(
    ("arguments", "shapes", "message"),
    [
        ({}, [(6, 3)], r"\(B, N, F\).*\(6, 3\)"),
        ({}, [(None, 6, None)], "known F"),
        ({"score": "book_additive"}, [(None, None, 3)], "number of entities must be known"),
        ({"qkv_norm": "joint"}, [(None, None, 3)], "number of entities must be known"),
        ({"score": "book_additive"}, [(None, 6, 3), (None, 6, 3)], "`context` must be None"),
        ({"qkv_norm": "fused"}, [(None, 6, 3), (None, 6, 3)], "`context` must be None"),
    ],
)
def test_bad_shapes_are_errors(arguments, shapes, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        MultiHeadDotProductAttention(2, 3, **arguments).build(*shapes)


@pytest.mark.parametrize(
    "shape", [(6, 6), (2, 5), (6,), (2, 6, 6), (1, 1, 1, 1, 6), (3, 1, 6, 6), (2, 2, 5, 6)]
)
def test_mask_that_does_not_broadcast_is_an_error(shape):
    layer = MultiHeadDotProductAttention(2, 3)
    message = r"\(B, S\), here \(2, 6\).*\(B, H, N, S\), here \(2, 2, 6, 6\); received the shape"
    with pytest.raises(InvalidInput, match=message):
        layer(np.ones((2, 6, 3), "float32"), mask=np.ones(shape, bool))


@pytest.mark.parametrize(
    "shape", [(6, 6), (2, 6, 6), (6,), (3, 1, 6, 6), (2, 2, 5, 6), (1, 1, 1, 1, 6)]
)
@pytest.mark.parametrize("entity", [None, 2])
def test_bias_that_does_not_broadcast_is_an_error(shape, entity):
    layer = MultiHeadDotProductAttention(2, 3)
    with pytest.raises(InvalidInput, match=r"bias.*here \(2, 2, 6, 6\); received the shape"):
        layer(np.ones((2, 6, 3), "float32"), bias=np.ones(shape, "float32"), entity=entity)


def test_context_after_building_without_one_is_an_error():
    x = np.ones((1, 6, 3), "float32")
    layer = MultiHeadDotProductAttention(2, 3)
    layer(x)
    with pytest.raises(ValueError, match=r"`context` must be None, as when .*; received a tensor"):
        layer(x, context=x)


@pytest.mark.parametrize("arguments", [{"qkv_norm": "joint"}, {"score": "book_additive"}], ids=repr)
@pytest.mark.parametrize("nodes", [1, 5])
def test_other_number_of_entities_than_weights_is_an_error(arguments, nodes):
    layer = MultiHeadDotProductAttention(2, 3, **arguments)
    layer(np.ones((1, 6, 3), "float32"))
    with pytest.raises(InvalidInput, match=rf"\(6, 6\); received \({nodes}, {nodes}\)"):
        layer(np.ones((1, nodes, 3), "float32"))


def test_single_entity_gives_no_warning():
    layer = MultiHeadDotProductAttention(num_heads=2, key_size=3)
    for mask in (None, np.ones((2, 1, 1, 1), bool)):
        _, scores = layer(np.ones((2, 1, 5), "float32"), mask=mask, return_attention_scores=True)
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(scores), 1.0)
