"""RelationalMemory in Keras wrappers, training, files, graphs and other backends."""

import importlib.util
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops
from random_relational_memory import (
    ARGUMENTS,
    FEATURES,
    RNG,
    START,
    STATE,
    array,
    assert_equal,
    random_inputs,
    random_layer,
)

from rrl_tf.layers import RelationalMemory


def test_fit_changes_a_learned_start():
    model = keras.Sequential([RelationalMemory(**ARGUMENTS, learned_start=True)])
    model.compile(keras.optimizers.SGD(1.0), "mse", run_eagerly=True)
    model.fit(random_inputs(), np.ones((2, STATE)), verbose=0)
    assert (array(model.layers[0].cell.initial_memory) != START).any()


def test_keras_rnn_runs_the_cell():
    layer = random_layer(return_sequences=True)
    x = random_inputs()
    assert_equal(keras.layers.RNN(layer.cell, return_sequences=True)(x), layer(x))
    stacked = keras.layers.RNN([layer.cell, keras.layers.LSTMCell(4)])
    assert stacked(x).shape == (2, 4)
    matrices = random_layer(num_rows=2)
    x = random_inputs(num_rows=2)
    assert_equal(keras.layers.RNN(matrices.cell)(x), matrices(x))


@pytest.mark.parametrize("return_sequences", [False, True])
def test_bidirectional_runs_the_layer_in_both_directions(return_sequences):
    both = keras.layers.Bidirectional(
        RelationalMemory(**ARGUMENTS, return_sequences=return_sequences)
    )
    both.build((None, 5, FEATURES))
    layer = random_layer(return_sequences=return_sequences)
    for each in (both.forward_layer, both.backward_layer):
        each.set_weights(layer.get_weights())
    x = random_inputs()
    back = layer(x[:, ::-1])
    if return_sequences:
        back = array(back)[:, ::-1]
    assert_equal(both(x), np.concatenate([array(layer(x)), array(back)], axis=-1))
    mask = np.arange(5) < np.array([[3], [5]])
    assert_equal(both(x, mask=mask)[1], both(x)[1])


def test_time_distributed_runs_the_layer_on_every_sequence():
    layer = random_layer()
    x = np.stack([random_inputs(), random_inputs()], axis=1)  # (B, 2, T, F)
    wanted = np.stack([array(layer(x[:, 0])), array(layer(x[:, 1]))], axis=1)
    assert_equal(keras.layers.TimeDistributed(layer)(x), wanted)


@keras.saving.register_keras_serializable(package="rrl_tf_tests")
class Reader(keras.Model):
    """A subclassed model with an embedding, a memory and a dense layer."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embedding = keras.layers.Embedding(5, FEATURES, mask_zero=True)
        self.memory = RelationalMemory(**ARGUMENTS)
        self.answer = keras.layers.Dense(2)

    def call(self, tokens):
        return self.answer(self.memory(self.embedding(tokens)))


def functional_reader():
    tokens = keras.Input((3,), dtype="int32")
    x = keras.layers.Embedding(5, FEATURES, mask_zero=True)(tokens)
    layer = RelationalMemory(**ARGUMENTS, return_state=True, unroll=True)
    start = keras.layers.Dense(STATE)(x[:, 0])
    _, state, scores = layer(x, initial_state=start, return_attention_scores=True)
    attention = keras.layers.Flatten()(scores["block_1"])
    return keras.Model(tokens, keras.layers.Dense(2)(ops.concatenate([state, attention], axis=-1)))


@pytest.mark.parametrize("make", [Reader, functional_reader])
def test_fit_after_loading_equals_fit_without_saving(make, tmp_path):
    tokens = RNG.integers(0, 5, (8, 3))
    tokens[:, 0] = 1
    targets = RNG.normal(size=(8, 2))

    def fit(model):
        return model.fit(tokens, targets, 4, shuffle=False, verbose=0).history["loss"][0]

    model = make()
    model.compile("adam", "mse", jit_compile=False, run_eagerly=True)  # tracing a graph is slow
    first = fit(model)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    again.run_eagerly = True
    np.testing.assert_array_equal(array(again(tokens)), array(model(tokens)))
    loss = fit(model)
    np.testing.assert_allclose(fit(again), loss, rtol=1e-6)
    assert loss < first


def test_saved_file_keeps_the_arguments(tmp_path):
    symbol = keras.Input((5, FEATURES))
    layer = RelationalMemory(
        **ARGUMENTS,
        num_blocks=2,
        forget_bias=np.inf,
        gate_style="memory",
        key_size=3,
        learned_start=True,
        return_sequences=True,
        go_backwards=True,
        unroll=True,
        zero_output_for_mask=True,
        dtype="mixed_bfloat16",
        name="core",
    )
    keras.Model(symbol, layer(symbol)).save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras").get_layer("core")
    assert again.get_config() == layer.get_config()
    assert again.cell.compute_dtype == "bfloat16"
    assert (again.loop.unroll, again.go_backwards, again.cell.forget_bias) == (True, True, np.inf)


@pytest.mark.tf_only
@pytest.mark.parametrize("masked", [False, True])
def test_graph_with_a_free_number_of_steps(masked):
    import tensorflow as tf

    layer = random_layer(return_sequences=True)
    signature = [tf.TensorSpec((None, None, FEATURES)), tf.TensorSpec((None, None), tf.bool)]

    @tf.function(input_signature=signature)
    def graph(x, mask):
        return layer(x, mask=mask if masked else None, return_attention_scores=True)

    for steps in (1, 4):
        x, mask = random_inputs(steps), RNG.random((2, steps)) < 0.5
        outputs, scores = graph(x, mask)
        wanted, wanted_scores = layer(
            x, mask=mask if masked else None, return_attention_scores=True
        )
        assert_equal(outputs, wanted)
        assert_equal(scores["block_1"], wanted_scores["block_1"])


@pytest.mark.tf_only
def test_xla_gives_the_same_gradients_of_a_loop():
    import tensorflow as tf

    layer = random_layer()
    x = tf.constant(random_inputs(steps=2))
    mask = tf.constant(np.arange(2) < np.array([[1], [2]]))

    def gradients():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x, mask=mask) ** 2)
        return tape.gradient(loss, [weight.value for weight in layer.trainable_weights])

    for compiled, eager in zip(tf.function(gradients, jit_compile=True)(), gradients()):
        np.testing.assert_allclose(array(compiled), array(eager), atol=1e-4, rtol=1e-4)


ON_ANOTHER_BACKEND = """
import json, pathlib, sys
import keras, numpy as np
from rrl_tf.convert import sonnet_relational_memory
from rrl_tf.layers import RelationalMemory

case = json.loads(pathlib.Path(sys.argv[1]).read_text())["cases"][0]
x = np.swapaxes(np.array(case["inputs"], "float32"), 0, 1)
wanted = np.swapaxes(np.array(case["outputs"]), 0, 1)
# JAX would compile the random initialiser for every shape, for weights that are replaced anyway.
arguments = {**case["arguments"], "kernel_initializer": "zeros"}
padded = np.pad(x, ((0, 0), (2, 0), (0, 0)))

layer = RelationalMemory(**arguments, return_sequences=True)
symbol = keras.Input(padded.shape[1:])
outputs, scores = layer(keras.layers.Masking()(symbol), return_attention_scores=True)
sonnet_relational_memory(layer.cell, case["variables"])
model = keras.Model(symbol, [outputs, scores["block_2"]])
outputs, scores = model.predict(padded, verbose=0)
np.testing.assert_allclose(outputs[:, 2:], wanted, atol=2e-5)
sums = np.broadcast_to((padded != 0)[:, :, :1, None], scores.shape[:-1])
np.testing.assert_allclose(scores.sum(axis=-1), sums, atol=1e-5)

trainer = keras.Sequential([layer, keras.layers.Dense(1)])
trainer.compile("adam", "mse")
losses = trainer.fit(x, np.ones((2, 4, 1)), epochs=2, verbose=0).history["loss"]
assert losses[-1] < losses[0]

# JAX compiles every operation of the rest separately; `KERAS_BACKEND=jax make test` covers it.
if keras.backend.backend() == "jax":
    sys.exit()
stateful = RelationalMemory(**arguments, return_sequences=True, stateful=True)
trainer = keras.Sequential([keras.Input(batch_shape=(2, 2, 3)), stateful])
stateful.set_weights(model.get_weights())
wanted = layer(x)
for half in (slice(0, 2), slice(2, 4)):
    np.testing.assert_allclose(stateful(x[:, half]).detach(), wanted[:, half].detach(), atol=2e-5)
stateful.reset_state()
trainer.compile("adam", "mse")
trainer.fit(x[:, :2], np.ones((2, 2, stateful.cell.state_size)), verbose=0)
"""


# Compilation in JAX takes a minute.
@pytest.mark.parametrize("backend", [pytest.param("jax", marks=pytest.mark.slow), "torch"])
def test_other_backends_give_the_numbers_of_sonnet(backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    recorded = os.path.join(
        os.path.dirname(__file__), "..", "convert", "test_sonnet_relational_memory.json"
    )
    subprocess.run(
        [sys.executable, "-c", ON_ANOTHER_BACKEND, recorded],
        env={**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": os.getcwd()},
        check=True,
        timeout=600,
    )
