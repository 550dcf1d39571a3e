"""Graphs and relative positions in the relational layers, compared with NumPy."""

import re

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from rrl_tf.layers import (
    MultiHeadDotProductAttention,
    RelationalBlock,
    RelationalModule,
    RelativePositionBias,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 6, 8)).astype("float32")
HEADS, KEY = 2, 5
SEEDS = st.integers(0, 2**16)


def array(tensor):
    return ops.convert_to_numpy(tensor)


def random_graph(seed, share=0.4):
    return np.random.default_rng(seed).random((2, 6, 6)) < share


def softmax(scores, allowed):
    """Compute the softmax of each row over its allowed keys, or zeros if it has none."""
    result = np.zeros_like(scores)
    for row in np.ndindex(scores.shape[:-1]):
        keys = np.nonzero(allowed[row])[0]
        if len(keys):
            shares = np.exp(scores[row][keys] - scores[row][keys].max())
            result[row][keys] = shares / shares.sum()
    return result


def expected(block, x, allowed, bias):
    """Compute output `(B, N, F)` and attention `(B, H, N, N)` of a default block in NumPy."""
    qkv = x @ array(block.attention.query_key_value.kernel)
    qkv = (qkv + array(block.attention.query_key_value.bias)).reshape(*x.shape[:2], HEADS, -1)
    query, key, value = np.split(qkv.transpose(0, 2, 1, 3), [KEY, 2 * KEY], axis=-1)
    scores = query @ key.transpose(0, 1, 3, 2) / np.sqrt(KEY) + bias
    attention = softmax(scores, np.broadcast_to(allowed, scores.shape))
    heads = (attention @ value).transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1)
    (dense,) = block.dense_layers
    return x + heads @ array(dense.kernel) + array(dense.bias), attention


@given(seed=SEEDS)
def test_attention_follows_the_edges(seed):
    edges = random_graph(seed)
    block = RelationalBlock(HEADS, KEY)
    output, attention = block(X, edges=edges, return_attention_scores=True)
    known = expected(block, X, edges[:, None], 0)
    np.testing.assert_allclose(array(output), known[0], atol=1e-5)
    np.testing.assert_allclose(array(attention), known[1], atol=1e-6)
    weights = block(X, edges=edges.astype("float32"))  # an adjacency matrix of numbers
    np.testing.assert_array_equal(array(weights), array(output))


@given(seed=SEEDS)
def test_edge_features_bias_the_scores_of_every_head(seed):
    features = np.random.default_rng(seed).normal(size=(2, 6, 6, 3)).astype("float32")
    there = random_graph(seed + 1)
    block = RelationalBlock(HEADS, KEY, edge_size=3)
    output, attention = block(X, edges=features, mask=there[:, None], return_attention_scores=True)
    bias = (features @ array(block.edge_bias.kernel)).transpose(0, 3, 1, 2)
    known = expected(block, X, there[:, None], bias)
    np.testing.assert_allclose(array(output), known[0], atol=1e-5)
    np.testing.assert_allclose(array(attention), known[1], atol=1e-6)


@given(seed=SEEDS)
@settings(max_examples=5)
def test_nodes_depend_on_nodes_within_as_many_edges_as_rounds(seed):
    """Change one node: after two rounds, only nodes within two edges differ."""
    edges = random_graph(seed, 0.25)
    module = RelationalModule(RelationalBlock(HEADS, KEY), num_rounds=2, share_weights=True)
    before = array(module(X, edges=edges))
    changed = X.copy()
    changed[:, 0] += 1
    after = array(module(changed, edges=edges))
    for graph in range(2):
        step = edges[graph].astype(int) + np.eye(6, dtype=int)
        within_reach = np.linalg.matrix_power(step, 2)[:, 0] > 0
        differs = (after[graph] != before[graph]).any(axis=-1)
        np.testing.assert_array_equal(differs, within_reach)


def test_mask_and_edges_combine():
    edges, counts = random_graph(3), np.array([[True] * 4 + [False] * 2] * 2)
    block = RelationalBlock(HEADS, KEY)
    both = array(block(X, mask=counts, edges=edges))
    known, _ = expected(block, X, edges[:, None] & counts[:, None, None], 0)
    np.testing.assert_allclose(both, known, atol=1e-5)


@pytest.mark.parametrize("arguments", [{}, {"edge_size": 3}, {"max_offset": 1}])
def test_one_entity_equals_its_row_of_all(arguments):
    graph = {"edges": RNG.normal(size=(2, 6, 6, 3)).astype("float32")}
    graph = graph if "edge_size" in arguments else {"edges": random_graph(1)}
    if "max_offset" in arguments:
        graph["grid"] = (2, 3)
    module = RelationalModule(RelationalBlock(HEADS, KEY, **arguments), num_rounds=2)
    module.build(X.shape)
    for weight in module.weights:
        weight.assign(RNG.normal(size=weight.shape))
    whole = array(module(X, **graph))
    np.testing.assert_allclose(array(module(X, entity=4, **graph)), whole[:, 4:5], atol=1e-4)


@pytest.mark.tf_only
@pytest.mark.parametrize("arguments", [{"edge_size": 3}, {"max_offset": 1}])
def test_biases_of_minus_infinity_have_finite_gradients(arguments):
    import tensorflow as tf

    block = RelationalBlock(HEADS, KEY, **arguments)
    block.build(X.shape)
    if block.max_offset is None:
        block.edge_bias.kernel.assign(np.full((3, HEADS), 2.0))
        call = {"edges": np.full((2, 6, 6, 3), -3e38, "float32")}  # finite; the bias overflows
    else:
        block.position_bias.embeddings.assign(
            np.full(block.position_bias.embeddings.shape, -np.inf)
        )
        call = {"grid": (2, 3)}
    with tf.GradientTape() as tape:
        output, attention = block(X, return_attention_scores=True, **call)
        loss = tf.reduce_sum(output**2)
    np.testing.assert_array_equal(array(attention), 0)
    (dense,) = block.dense_layers
    np.testing.assert_allclose(array(output), X + array(dense.bias), atol=1e-6)
    for gradient in tape.gradient(loss, block.trainable_weights):
        assert gradient is None or np.isfinite(tf.convert_to_tensor(gradient).numpy()).all()


def filled(bias):
    if not bias.built:
        bias.build()
    bias.embeddings.assign(RNG.normal(size=bias.embeddings.shape))
    return array(bias.embeddings)


@given(rows=st.integers(1, 5), columns=st.integers(1, 5), reach=st.integers(1, 4))
def test_position_bias_depends_on_the_clipped_offset(rows, columns, reach):
    layer = RelativePositionBias(HEADS, reach)
    table = filled(layer).reshape(2 * reach + 1, 2 * reach + 1, HEADS)
    bias = array(layer(grid=(rows, columns)))
    assert bias.shape == (1, HEADS, rows * columns, rows * columns)
    for i in range(rows * columns):
        for j in range(rows * columns):
            way = [j // columns - i // columns, j % columns - i % columns]
            dy, dx = (max(-reach, min(reach, step)) for step in way)
            np.testing.assert_array_equal(bias[0, :, i, j], table[reach + dy, reach + dx])


def test_relative_positions_bias_the_scores_of_every_head():
    block = RelationalBlock(HEADS, KEY, max_offset=2)
    block.build(X.shape)
    filled(block.position_bias)
    output, attention = block(X, grid=(2, 3), return_attention_scores=True)
    known = expected(block, X, np.True_, array(block.position_bias(grid=(2, 3))))
    np.testing.assert_allclose(array(output), known[0], atol=1e-5)
    np.testing.assert_allclose(array(attention), known[1], atol=1e-6)


def test_entities_after_the_grid_have_no_position_bias():
    block = RelationalBlock(HEADS, KEY, max_offset=2)
    block.build(X.shape)
    filled(block.position_bias)
    _, attention = block(X, grid=(2, 2), return_attention_scores=True)
    bias = np.zeros((1, HEADS, 6, 6))
    bias[..., :4, :4] = array(block.position_bias(grid=(2, 2)))
    np.testing.assert_allclose(array(attention), expected(block, X, np.True_, bias)[1], atol=1e-6)


def test_shifted_grid_gives_shifted_attention():
    """Place the same cells in a larger grid: their attention to each other does not change."""
    block = RelationalBlock(HEADS, KEY, max_offset=4)
    block.build((None, None, 8))
    filled(block.position_bias)
    small = RNG.normal(size=(1, 2, 2, 8)).astype("float32")
    _, scores = block(small.reshape(1, 4, 8), grid=(2, 2), return_attention_scores=True)
    for top, left in ((0, 0), (1, 2)):
        large = np.zeros((1, 3, 4, 8), "float32")
        large[:, top : top + 2, left : left + 2] = small
        there = np.zeros((3, 4), bool)
        there[top : top + 2, left : left + 2] = True
        _, within = block(
            large.reshape(1, 12, 8),
            grid=(3, 4),
            mask=there.reshape(1, 1, 1, 12),
            return_attention_scores=True,
        )
        cells = np.nonzero(there.ravel())[0]
        np.testing.assert_allclose(array(within)[:, :, cells][..., cells], array(scores), atol=1e-5)


def test_bias_is_added_to_the_scores():
    layer = MultiHeadDotProductAttention(HEADS, KEY)
    layer.build(X.shape)
    layer.query_key_value.kernel.assign(np.zeros(layer.query_key_value.kernel.shape))
    bias = RNG.normal(size=(1, 1, 6, 6)).astype("float32")
    _, attention = layer(X, bias=bias, return_attention_scores=True)
    known = np.broadcast_to(softmax(bias[0, 0], np.full((6, 6), True)), (2, HEADS, 6, 6))
    np.testing.assert_allclose(array(attention), known, atol=1e-6)


def test_functional_model_of_graphs_saves_and_loads(tmp_path):
    nodes, edges = keras.Input((None, 8)), keras.Input((None, None, 3))
    module = RelationalModule(RelationalBlock(HEADS, KEY, edge_size=3), num_rounds=2)
    output, scores = module(nodes, edges=edges, return_attention_scores=True)
    assert output.shape == (None, None, 8) and scores["round_2"].shape == (None, HEADS, None, None)
    model = keras.Model([nodes, edges], output)
    model.save(tmp_path / "graph.keras")
    again = keras.saving.load_model(tmp_path / "graph.keras")
    for size in (6, 4):
        graph = [X[:, :size], RNG.normal(size=(2, size, size, 3)).astype("float32")]
        np.testing.assert_array_equal(array(again(graph)), array(model(graph)))


def test_fit_changes_every_bias():
    for arguments, graph in (
        ({"edge_size": 3}, {"edges": RNG.normal(size=(2, 6, 6, 3)).astype("float32")}),
        ({"max_offset": 2}, {"grid": (2, 3)}),
    ):
        block = RelationalBlock(HEADS, KEY, **arguments)

        class Model(keras.Model):
            def __init__(self, block, graph):
                super().__init__()
                self.block, self.graph = block, graph

            def call(self, x):
                return self.block(x, **self.graph)

        block.build(X.shape)
        before = [array(weight) for weight in block.trainable_weights]
        model = Model(block, graph)
        model.compile(keras.optimizers.SGD(1.0), "mse")
        model.fit(X, RNG.normal(size=X.shape), batch_size=2, epochs=1, verbose=0)
        for weight, old in zip(block.trainable_weights, before):
            assert (array(weight) != old).any(), weight.path


@pytest.mark.parametrize(
    ("arguments", "graph", "message"),
    [
        ({}, {"edges": np.ones((2, 6, 5))}, r"\(B, N, N\), here \((\d+|None), 6, 6\).*6, 5\)"),
        ({}, {"edges": np.ones((2, 6, 6, 3))}, r"edge_size=None; received.*\(2, 6, 6, 3\)"),
        ({"edge_size": 3}, {"edges": np.ones((2, 6, 6))}, r"\(B, N, N, E\).*edge_size=3"),
        ({"edge_size": 3}, {}, r"\(B, N, N, E\) with edge_size=3; received None"),
        ({"max_offset": 2}, {}, r"`grid` must be.*6 cells.*; received None"),
        ({"max_offset": 2}, {"grid": (2, 4)}, r"6 cells.*; received \(2, 4\)"),
        *(
            ({"max_offset": 2}, {"grid": grid}, "`grid` must be.*6 cells.*; received")
            for grid in (
                (np.int64(3), np.int64(3)),
                (-1, -2),
                (0, 0),
                (True, True),
                (2, 2.0),
                ("a", 1),
                5,
                (1, 2, 3),
                (6,),
            )
        ),
        ({}, {"entity": 6}, "`entity` must be an index of the 6 entities; received 6"),
        ({}, {"entity": -1}, "`entity` must be an index of the 6 entities; received -1"),
        ({}, {"entity": 1.0}, "`entity` must be an integer; received 1.0"),
        ({"norm": "joint"}, {"entity": 1}, "norm='joint', which needs all"),
        *(
            (
                {},
                {"edges": np.ones((2, 6, 6), bool), "mask": np.ones(shape, bool)},
                f"`mask` must be .*; received the shape {re.escape(str(shape))}",
            )
            for shape in ((2, 6, 6), (3, 6), (3, 1, 6, 6), (6,))
        ),
    ],
)
def test_bad_graphs_and_grids_are_errors(arguments, graph, message):
    with pytest.raises(ValueError, match=message):
        RelationalBlock(HEADS, KEY, **arguments)(X, **graph)
    if "mask" not in graph:
        with pytest.raises(ValueError, match=message):
            RelationalModule(RelationalBlock(HEADS, KEY, **arguments))(
                keras.Input(X.shape[1:]), **graph
            )


@pytest.mark.parametrize("entity", [-1, 6, True])
def test_entity_out_of_range_is_an_error(entity):
    with pytest.raises(ValueError, match=f"`entity` must be .*; received {entity}"):
        MultiHeadDotProductAttention(HEADS, KEY)(X, entity=entity)


def test_rounds_have_consecutive_dropout_seeds():
    block = RelationalBlock(HEADS, KEY, dropout=0.5, seed=3)
    module = RelationalModule(block, num_rounds=3)
    assert [each.seed for each in module.rounds] == [3, 4, 5]
    again = RelationalModule.from_config(module.get_config())
    assert [each.seed for each in again.rounds] == [3, 4, 5]
    shared = RelationalModule(
        RelationalBlock(HEADS, KEY, dropout=0.5), num_rounds=2, share_weights=False
    )
    assert [each.seed for each in shared.rounds] == [None, None]


@pytest.mark.parametrize("name", ["edge_size", "max_offset"])
def test_bad_arguments_are_errors(name):
    with pytest.raises(ValueError, match=f"`{name}` must be a positive integer; received 0"):
        RelationalBlock(HEADS, KEY, **{name: 0})
