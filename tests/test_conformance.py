"""Properties that all layers and models share, tested for each case in conformance.py."""

import functools
import inspect

import keras
import numpy as np
import pytest
from conformance import CASES
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops
from wrapped import OfOneArray

from rrl_tf.layers.base import BaseLayer

BATCH = 3
ATTENDING = [case for case in CASES if case.attention]
PERMUTED = [case for case in CASES if case.equivariant is not None]

# The XLA test of these is slow-only, because another case compiles the same operations.
COMPILED_ELSEWHERE = {
    "memory-two-blocks",
    "RelationalClassifier-fast",
    "sequence-fast",
    "windows-min-dt",
    "windows-fast",
    "q-network-zambaldi",
    "q-network-atari",
    "recurrent-none",
}
# One case per kind of loop trains as a graph, because tracing takes seconds.
FITTED_AS_GRAPH = {"memory-default", "sequence-fast-lstm", "recurrent-lstm-dense"}

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
attending = pytest.mark.parametrize("case", ATTENDING, ids=lambda case: case.name)
permuted = pytest.mark.parametrize("case", PERMUTED, ids=lambda case: case.name)


def inputs(case, seed=0):
    shape = (BATCH, *case.shape)
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def array(tensor):
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def built(case, **kwargs):
    """Return a layer with random gains and biases."""
    layer = case.make(**kwargs)
    layer.build((None, *case.shape))
    rng = np.random.default_rng(1)
    for weight in layer.weights:
        if len(weight.shape) not in (2, 4):  # neither a matrix nor a convolution kernel
            weight.assign(rng.normal(1.0, 0.3, size=weight.shape))
    return layer


@functools.cache
def shared(case):
    """Return the layer that tests share. A test that changes its weights restores them."""
    return built(case)


@functools.cache
def shared_output(case):
    """Return the output of the shared layer as an array."""
    return array(shared(case)(inputs(case)))


@functools.cache
def shared_attention(case):
    """Return the output of the shared layer and its attention, name -> array."""
    output, scores = shared(case)(inputs(case), return_attention_scores=True)
    return array(output), {name: array(score) for name, score in named(scores).items()}


@functools.cache
def shared_model(case):
    """Return a functional model of the shared layer."""
    symbol = keras.Input(case.shape)
    return keras.Model(symbol, shared(case)(symbol))


def named(scores):
    return scores if isinstance(scores, dict) else {"": scores}


def as_config(value):
    if isinstance(value, keras.initializers.Initializer):
        return keras.initializers.serialize(value)
    if isinstance(value, keras.layers.Layer):
        return keras.saving.serialize_keras_object(value)["config"]
    return keras.activations.serialize(value) if callable(value) else value


def constructor_arguments(kind):
    """Return the names of the arguments of a class and of the classes that it passes others to."""
    names = set()
    for each in kind.__mro__:
        if issubclass(each, BaseLayer) and "__init__" in vars(each):
            parameters = list(inspect.signature(each.__init__).parameters.values())[1:]
            names |= {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}
    return names


@every_case
def test_config_holds_the_constructor_arguments_and_makes_the_same_layer(case):
    layer = case.make()
    again = type(layer).from_config(layer.get_config())
    registered = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert type(registered) is type(layer)
    assert again.get_config() == registered.get_config() == layer.get_config()
    renamed = type(layer).from_config({**layer.get_config(), "name": "renamed"})
    assert renamed.name == "renamed"
    if isinstance(layer, OfOneArray):
        layer = layer.layer
        again = type(layer).from_config(layer.get_config())
    names = constructor_arguments(type(layer))
    assert names
    for one in (layer, again):
        config = one.get_config()
        for name in names:
            value, stored = getattr(one, name), config[name]
            stored = stored["config"] if isinstance(value, keras.layers.Layer) else stored
            assert as_config(value) == stored, name
    assert set(layer.get_config()) <= {*names, "name", "trainable", "dtype"}


@every_case
def test_saved_file_gives_the_same_output(case, tmp_path):
    layer = shared(case)
    model = layer if isinstance(layer, keras.Model) else shared_model(case)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(array(again(inputs(case))), shared_output(case))


@pytest.mark.slow  # quantizes every layer and model
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")  # convolutions
@every_case
def test_quantized_layer_saves_and_loads(case, tmp_path):
    layer, x = built(case), inputs(case)
    model = layer
    if not isinstance(layer, keras.Model):
        symbol = keras.Input(case.shape)
        model = keras.Model(symbol, layer(symbol))
    model.quantize("int8")
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(array(again(x)), array(model(x)))


@every_case
def test_build_from_shape_alone(case):
    layer = case.make()
    layer.build((None, *case.shape))
    shapes = [tuple(weight.shape) for weight in layer.weights]
    assert layer.count_params() == case.parameters
    layer(inputs(case))
    assert [tuple(weight.shape) for weight in layer.weights] == shapes


@every_case
def test_symbolic_shape_is_the_real_shape(case):
    layer = shared(case)
    real = layer(inputs(case))
    symbol = shared_model(case).output
    assert symbol.shape == (None, *real.shape[1:])
    assert keras.backend.standardize_dtype(real.dtype) == symbol.dtype
    if not isinstance(layer, OfOneArray):
        assert layer.compute_output_shape((BATCH, *case.shape)) == tuple(real.shape)


@attending
def test_functional_model_returns_attention_of_the_symbolic_shape(case):
    # A new layer, because Keras treats a second symbolic call as the first and drops its arguments.
    layer, symbol = built(case), keras.Input(case.shape)
    layer.set_weights(shared(case).get_weights())
    symbolic, symbols = layer(symbol, return_attention_scores=True)
    output, scores = keras.Model(symbol, [symbolic, symbols])(inputs(case))
    expected, expected_scores = shared_attention(case)
    assert symbolic.shape == (None, *expected.shape[1:])
    np.testing.assert_allclose(array(output), expected, rtol=1e-6, atol=1e-6)
    assert named(symbols).keys() == expected_scores.keys() == case.attention.keys()
    for name, shape in case.attention.items():
        assert named(symbols)[name].shape == (None, *shape)
        assert tuple(named(scores)[name].shape) == (BATCH, *shape)
        np.testing.assert_allclose(
            array(named(scores)[name]), expected_scores[name], rtol=1e-6, atol=1e-6
        )


@attending
def test_attention_rows_sum_to_one_and_do_not_change_the_output(case):
    output, scores = shared_attention(case)
    tolerance = 0.0 if case.exact else 1e-5
    np.testing.assert_allclose(shared_output(case), output, rtol=tolerance, atol=tolerance)
    for score in scores.values():
        assert (score >= 0).all()
        np.testing.assert_allclose(score.sum(axis=-1), 1.0, atol=1e-5)


@every_case
def test_mixed_precision_computes_in_float16_and_keeps_float32_weights(case):
    layer, half = built(case, dtype="mixed_float16"), "float16"
    layer.set_weights(shared(case).get_weights())
    assert {weight.dtype for weight in layer.weights} <= {"float32"}
    result = layer(inputs(case), **({"return_attention_scores": True} if case.attention else {}))
    output, *attention = keras.tree.flatten(result)
    output_dtype = "float32" if case.full_precision else half
    assert keras.backend.standardize_dtype(output.dtype) == output_dtype
    if keras.backend.backend() != "torch":  # Keras reports float32 for layers with weights
        assert layer(keras.Input(case.shape)).dtype == output_dtype
    for scores in attention:
        assert keras.backend.standardize_dtype(scores.dtype) == half
    for tensor in (output, *attention):
        assert np.isfinite(array(tensor)).all()
    np.testing.assert_allclose(array(output), shared_output(case), atol=0.15, rtol=0.15)


@pytest.mark.tf_only
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=[pytest.mark.slow] * (case.name in COMPILED_ELSEWHERE))
        for case in CASES
    ],
    ids=lambda case: case.name,
)
def test_xla_gives_the_same_output(case):
    import tensorflow as tf

    compiled = tf.function(shared(case), jit_compile=True)
    output = array(compiled(inputs(case)))
    np.testing.assert_allclose(output, shared_output(case), rtol=2e-4, atol=2e-4)


@pytest.mark.tf_only
@attending
def test_graph_with_a_free_batch_dimension(case):
    import tensorflow as tf

    graph = tf.function(shared(case), input_signature=[tf.TensorSpec((None, *case.shape))])
    output = array(graph(inputs(case)))
    np.testing.assert_allclose(output, shared_output(case), rtol=2e-4, atol=2e-4)


@pytest.mark.tf_only
@pytest.mark.parametrize(
    "case", [case for case in ATTENDING if case.equivariant], ids=lambda case: case.name
)
def test_graph_with_a_free_number_of_entities(case):
    import tensorflow as tf

    layer, x = shared(case), inputs(case)
    signature = [tf.TensorSpec((None, None, case.shape[-1]))]
    graph = tf.function(layer, input_signature=signature)
    for few in (x, x[:, :2]):
        np.testing.assert_allclose(array(graph(few)), array(layer(few)), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.parameters], ids=lambda case: case.name
)
def test_one_step_of_fit_changes_every_weight(case):
    layer, model, x = shared(case), shared_model(case), inputs(case)
    eagerly = keras.backend.backend() == "tensorflow" and case.name not in FITTED_AS_GRAPH
    model.compile(keras.optimizers.SGD(1.0), "mse", run_eagerly=eagerly)
    weights, before = layer.get_weights(), [array(weight) for weight in layer.trainable_weights]
    target = np.random.default_rng(2).normal(size=shared_output(case).shape).astype("float32")
    history = model.fit(x, target, epochs=1, verbose=0)
    after = [array(weight) for weight in layer.trainable_weights]
    layer.set_weights(weights)
    assert np.isfinite(history.history["loss"][0])
    unchanged = [
        weight.path
        for weight, old, new in zip(layer.trainable_weights, before, after)
        if (old == new).all()
    ]
    # A constant that is added to all keys does not change the softmax.
    assert all(path.endswith("key_norm/beta") for path in unchanged)


@permuted
@settings(max_examples=6)
@given(order=st.permutations(range(6)))
def test_permuting_entities_permutes_the_output(case, order):
    if list(order) == sorted(order):
        return
    output = array(shared(case)(inputs(case)[:, order]))
    permutes = np.allclose(output, shared_output(case)[:, order], rtol=1e-4, atol=1e-4)
    assert permutes == case.equivariant
