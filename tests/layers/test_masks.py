"""Padding masks that Keras passes from layer to layer, in every kind of model."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from rrl_tf.layers import (
    CausalTransformerBlock,
    MultiHeadDotProductAttention,
    PositionEmbedding,
    RelationalBlock,
    RelationalMemory,
    RelationalModule,
)
from rrl_tf.layers.masks import keras_mask_functions

# Keras warns about a softmax over one entity, and about a nested model that drops its mask.
pytestmark = [
    pytest.mark.filterwarnings("ignore:You are using a softmax"),
    pytest.mark.filterwarnings("ignore:Layer .* does not support masking"),
]

RNG = np.random.default_rng(0)
WIDTH = 6
LAYERS = {
    "attention": lambda: MultiHeadDotProductAttention(2, 3, output_size=WIDTH),
    "additive": lambda: MultiHeadDotProductAttention(2, 3, score="additive", qkv_norm="entity"),
    "block": lambda: RelationalBlock(2, 3, norm="entity"),
    "module": lambda: RelationalModule(RelationalBlock(2, 3), num_rounds=2),
    "shared": lambda: RelationalModule(RelationalBlock(2, 3), num_rounds=2, share_weights=True),
    "causal": lambda: CausalTransformerBlock(2),
    "memory": lambda: RelationalMemory(2, 3, 2, return_sequences=True),
}
RELATIONAL = ["attention", "additive", "block", "module", "shared"]
relational = pytest.mark.parametrize("name", RELATIONAL)


def array(tensor):
    return ops.convert_to_numpy(tensor)


def padded_tokens(batch, length, front=False):
    """Return tokens 1 to 4, padded with zeros at the end or the front; row 1 is all padding."""
    sizes = RNG.integers(1, length + 1, batch)
    sizes[0] = length
    sizes[1:2] = 0
    places = np.arange(length)[::-1] if front else np.arange(length)
    return np.where(places < sizes[:, None], RNG.integers(1, 5, (batch, length)), 0)


def embedding():
    return keras.layers.Embedding(5, WIDTH, mask_zero=True)


def sequential(layer):
    return keras.Sequential([embedding(), layer])


def functional(layer):
    tokens = keras.Input((None,), dtype="int32")
    return keras.Model(tokens, layer(embedding()(tokens)))


def functional_with_scores(layer):
    tokens = keras.Input((None,), dtype="int32")
    return keras.Model(tokens, layer(embedding()(tokens), return_attention_scores=True)[0])


def nested(layer):
    entities = keras.Input((None, WIDTH))
    inner = keras.Model(entities, layer(entities))
    return keras.Sequential([embedding(), inner])


def masking(layer):
    """Return a model whose mask comes from a Masking layer."""
    tokens = keras.Input((None,), dtype="int32")
    words = keras.layers.Embedding(5, WIDTH)(tokens) * ops.cast(tokens[..., None] > 0, "float32")
    return keras.Model(tokens, layer(keras.layers.Masking()(words)))


@keras.saving.register_keras_serializable(package="rrl_tf_tests")
class Subclassed(keras.Model):
    def __init__(self, layer, **kwargs):
        super().__init__(**kwargs)
        self.embedding, self.layer = embedding(), layer

    def call(self, tokens):
        return self.layer(self.embedding(tokens))


MODELS = [sequential, functional, functional_with_scores, nested, masking, Subclassed]


def assert_padding_changes_nothing(model, tokens):
    """Check that each row of a padded batch equals the output for the sequence without padding."""
    together = array(model(tokens))
    assert np.isfinite(together).all()
    for sequence, output in zip(tokens, together):
        real = sequence > 0
        if real.any():
            alone = array(model(sequence[real][None]))[0]
            np.testing.assert_allclose(output[real], alone, atol=2e-5)


def test_private_mask_functions_exist_in_keras_3_15():
    """Check `keras_mask_functions` before you add a version here and in pyproject.toml."""
    assert keras.version().startswith("3.15.")
    get_mask, set_mask = keras_mask_functions()
    tensor, mask = ops.ones((1, 2, 3)), ops.ones((1, 2), "bool")
    assert get_mask(tensor) is None
    set_mask(tensor, mask)
    assert get_mask(tensor) is mask


@pytest.mark.parametrize(
    ("name", "make"),
    [
        *((name, functional) for name in LAYERS),
        *(("module", make) for make in MODELS[:1] + MODELS[2:]),
    ],
)
def test_padding_changes_nothing(name, make):
    """The batch size equals the length, so a mask along the wrong axis raises no shape error."""
    assert_padding_changes_nothing(make(LAYERS[name]()), padded_tokens(4, 4))


@pytest.mark.parametrize("name", ["attention", "module"])
@settings(max_examples=6)
@given(batch=st.integers(1, 5), length=st.integers(1, 5), front=st.booleans())
def test_padding_changes_nothing_in_batches_of_any_size(name, batch, length, front):
    model = functional(LAYERS[name]())
    assert_padding_changes_nothing(model, padded_tokens(batch, length, front))


@relational
@pytest.mark.parametrize("make", [functional, nested], ids=lambda m: m.__name__)
def test_saved_model_applies_the_same_mask(name, make, tmp_path):
    model, tokens = make(LAYERS[name]()), padded_tokens(5, 5)
    model(tokens)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(array(again(tokens)), array(model(tokens)))
    assert_padding_changes_nothing(again, tokens)


def test_padding_does_not_change_fit_and_predict():
    tokens = np.where(padded_tokens(6, 4) == 0, 0, RNG.integers(1, 5, (6, 4)))
    tokens[1, 0] = 1
    targets = RNG.normal(size=(6, 1))
    answers = []
    for more in (0, 2):  # further steps of padding
        keras.utils.set_random_seed(1)
        x = np.pad(tokens, ((0, 0), (0, more)))
        model = keras.Sequential(
            [
                embedding(),
                LAYERS["module"](),
                keras.layers.GlobalAveragePooling1D(),  # ignores masked steps
                keras.layers.Dense(1),
            ]
        )
        model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
        losses = model.fit(x, targets, epochs=1, shuffle=False, verbose=0).history["loss"]
        answers.append((losses, model.predict(x, verbose=0)))
    np.testing.assert_allclose(answers[1][0], answers[0][0], rtol=1e-4)
    np.testing.assert_allclose(answers[1][1], answers[0][1], atol=1e-4)


@pytest.mark.parametrize("length", [5, 7])
def test_mask_of_the_context_applies_to_the_keys(length):
    """Use five queries, including padding, and as many or more keys."""
    questions, tokens = padded_tokens(5, 5), padded_tokens(5, length, front=True)
    x, y = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    attention = MultiHeadDotProductAttention(2, 3)
    output, scores = attention(embedding()(x), context=embedding()(y), return_attention_scores=True)
    model = keras.Model([x, y], [output, scores])
    output, scores = (array(result) for result in model([questions, tokens]))
    assert (scores[np.broadcast_to(tokens[:, None, None] == 0, scores.shape)] == 0).all()
    for q, t, one in zip(questions, tokens, output):
        if (t > 0).any():
            alone = array(model([q[None], t[t > 0][None]])[0])[0]
            np.testing.assert_allclose(one, alone, atol=2e-5)
    explicit = attention(
        model.layers[2](questions), context=model.layers[3](tokens), mask=tokens > 0
    )
    np.testing.assert_allclose(array(explicit), output, atol=1e-6)


@relational
def test_mask_of_the_caller_combines_with_padding(name):
    tokens, layer = padded_tokens(5, 5), LAYERS[name]()
    causal = np.tril(np.ones((5, 5), bool))[None, None]
    entities = embedding()(tokens)
    _, scores = layer(entities, mask=causal, return_attention_scores=True)
    visible = np.logical_and(causal, (tokens > 0)[:, None, None, :])
    for score in map(array, keras.tree.flatten(scores)):
        np.testing.assert_array_equal(score > 0, np.broadcast_to(visible, score.shape))
        np.testing.assert_allclose(
            score.sum(-1), np.broadcast_to(visible.any(-1), score.shape[:3]), atol=1e-5
        )


@relational
def test_padding_mask_passes_to_the_next_layer(name):
    """GlobalAveragePooling1D ignores padding, with and without a mask argument."""
    tokens, layer, average = (
        padded_tokens(4, 5),
        LAYERS[name](),
        keras.layers.GlobalAveragePooling1D(),
    )
    entities = embedding()(tokens)
    everywhere = np.ones((1, 1, 5, 5), bool)
    for arguments in ({}, {"mask": everywhere}, {"mask": tokens > 0}):
        output = layer(entities, **arguments)
        for i in (0, 2, 3):  # sequence 1 is all padding
            expected = array(output)[i][tokens[i] > 0].mean(axis=0)
            np.testing.assert_allclose(array(average(output))[i], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "symbolic"),
    [*((name, False) for name in RELATIONAL), ("block", True), ("module", True)],
)
def test_output_of_one_entity_carries_its_mask(name, symbolic):
    tokens, layer = padded_tokens(4, 5), LAYERS[name]()
    last = {"entity": 4, "return_attention_scores": True}
    memory = RelationalMemory(2, 3, 2)  # a masked step leaves the initial memory unchanged
    if symbolic:
        words = keras.Input((5,), dtype="int32")
        model = keras.Model(words, memory(layer(embedding()(words), **last)[0]))
        result = array(model(tokens))
    else:
        result = array(memory(layer(embedding()(tokens), **last)[0]))
    start = array(memory.get_initial_state(1)[0])
    hidden = tokens[:, 4] == 0
    np.testing.assert_array_equal((result == start).all(axis=-1), hidden)


def test_position_embedding_passes_the_mask():
    tokens = padded_tokens(5, 5)
    model = keras.Sequential([embedding(), PositionEmbedding(), RelationalBlock(2, 3)])
    before = array(model(tokens))
    model.layers[0].embeddings.assign(
        np.concatenate([np.full((1, WIDTH), 9.0), array(model.layers[0].embeddings)[1:]])
    )
    after = array(model(tokens))
    np.testing.assert_allclose(after[tokens > 0], before[tokens > 0], atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 1, 1, 5), (1, 1, 5, 5), (2, 1, 5, 5), (2, 2, 1, 5)])
@pytest.mark.tf_only
def test_one_entity_in_a_graph_with_unknown_sizes(shape):
    import tensorflow as tf

    layer, x = LAYERS["module"](), RNG.normal(size=(2, 5, WIDTH)).astype("float32")
    mask = RNG.random(shape) < 0.6
    signature = [tf.TensorSpec((None, None, WIDTH)), tf.TensorSpec((None,) * 4, tf.bool)]
    graph = tf.function(lambda x, mask: layer(x, mask=mask, entity=3), input_signature=signature)
    expected = array(layer(x, mask=mask))[:, 3:4]
    np.testing.assert_allclose(array(graph(x, mask)), expected, atol=1e-5)
