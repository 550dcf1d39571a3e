"""RelationalMemory: sequences against numpy, masks, states, and everything Keras does with it."""

import importlib.util
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops
from relational_memory_oracle import Oracle, identity, random_variables

from rrl_tf.convert import sonnet_relational_memory
from rrl_tf.layers import RelationalMemory, RelationalMemoryCell

RNG = np.random.default_rng(0)
FEATURES = 3
ARGUMENTS = {"mem_slots": 3, "head_size": 2, "num_heads": 2}
STATE = 12
START = identity(3, 4).reshape(-1).astype("float32")


def array(tensor):
    return ops.convert_to_numpy(tensor)


def random_inputs(steps=5, num_rows=None, batch=2):
    rows = () if num_rows is None else (num_rows,)
    return RNG.normal(size=(batch, steps, *rows, FEATURES)).astype("float32")


def variables(num_rows=None, **arguments):
    return random_variables({**ARGUMENTS, **arguments}, FEATURES, num_rows or 1)


def random_layer(num_rows=None, **options):
    """A layer whose weights are the same for the same sizes."""
    layer = RelationalMemory(**{**ARGUMENTS, **options})
    rows = () if num_rows is None else (num_rows,)
    layer.build((2 if layer.stateful else None, None, *rows, FEATURES))
    sizes = {k: v for k, v in options.items() if k in ("num_blocks", "gate_style", "key_size")}
    sonnet_relational_memory(layer.cell, variables(num_rows, **sizes))
    return layer


def assert_equal(one, other):
    np.testing.assert_allclose(array(one), array(other), atol=2e-6, rtol=0)


@settings(max_examples=20)
@given(
    sizes=st.fixed_dictionaries(
        {
            "num_blocks": st.integers(1, 2),
            "gate_style": st.sampled_from(["unit", "memory", None]),
            "key_size": st.sampled_from([None, 3]),
        }
    ),
    num_rows=st.sampled_from([None, 2]),
    steps=st.integers(1, 4),
    go_backwards=st.booleans(),
    unroll=st.booleans(),
    masked=st.booleans(),
    given_start=st.booleans(),
)
def test_a_sequence_is_the_oracles(
    sizes, num_rows, steps, go_backwards, unroll, masked, given_start
):
    layer = random_layer(
        num_rows,
        **sizes,
        return_sequences=True,
        return_state=True,
        go_backwards=go_backwards,
        unroll=unroll,
    )
    x = random_inputs(steps, num_rows)
    mask = RNG.random((2, steps)) < 0.6 if masked else np.ones((2, steps), bool)
    start = RNG.normal(size=(2, STATE)).astype("float32") if given_start else np.stack(2 * [START])
    outputs, state, scores = layer(
        x,
        initial_state=start if given_start else None,
        mask=mask if masked else None,
        return_attention_scores=True,
    )
    oracle = Oracle(variables(num_rows, **sizes), **ARGUMENTS, **sizes)
    assert list(scores) == [f"block_{i + 1}" for i in range(sizes["num_blocks"])]
    for b in range(2):
        memory = start[b]
        order = reversed(range(steps)) if go_backwards else range(steps)
        for place, t in enumerate(order):
            wanted_scores = [0.0] * sizes["num_blocks"]
            if mask[b, t]:
                wanted, wanted_scores = oracle.run(x[b : b + 1, t : t + 1], memory[None])
                memory, wanted_scores = wanted[0, 0], [score[0, 0] for score in wanted_scores]
            np.testing.assert_allclose(array(outputs)[b, place], memory, atol=2e-5, rtol=0)
            for score, wanted_score in zip(scores.values(), wanted_scores):
                np.testing.assert_allclose(array(score)[b, place], wanted_score, atol=2e-5, rtol=0)
        np.testing.assert_allclose(array(state)[b], memory, atol=2e-5, rtol=0)


@pytest.mark.parametrize("unroll", [False, True])
def test_forty_steps_are_the_oracles(unroll):
    layer = random_layer(return_sequences=True, unroll=unroll)
    x = random_inputs(steps=40)
    outputs, scores = layer(x, return_attention_scores=True)
    wanted, (wanted_scores,) = Oracle(variables(), **ARGUMENTS).run(x)
    np.testing.assert_allclose(array(outputs), wanted, atol=5e-5, rtol=0)
    np.testing.assert_allclose(array(scores["block_1"]), wanted_scores, atol=5e-5, rtol=0)


@pytest.mark.parametrize("return_sequences", [False, True])
@pytest.mark.parametrize("return_state", [False, True])
def test_what_comes_back(return_sequences, return_state):
    layer = random_layer(return_sequences=return_sequences, return_state=return_state)
    x = random_inputs()
    everything = random_layer(return_sequences=True)(x)
    for asked in (False, True):
        result = layer(x, return_attention_scores=asked)
        symbols = layer(keras.Input((5, FEATURES)), return_attention_scores=asked)
        assert isinstance(result, tuple) == (return_state or asked)
        flat, flat_symbols = keras.tree.flatten(result), keras.tree.flatten(symbols)
        assert [symbol.shape[1:] for symbol in flat_symbols] == [t.shape[1:] for t in flat]
        assert_equal(flat[0], everything if return_sequences else everything[:, -1])
        if return_state:
            assert_equal(flat[1], everything[:, -1])


def test_a_masked_tail_changes_nothing_before_it():
    layer = random_layer(return_sequences=True)
    x = random_inputs(steps=6)
    mask = np.arange(6) < np.array([[4], [6]])
    outputs = layer(x, mask=mask)
    other = np.where(mask[:, :, None], x, 100.0)
    np.testing.assert_array_equal(array(layer(other, mask=mask)), array(outputs))
    assert_equal(outputs[:1, :4], layer(x[:1, :4]))
    assert_equal(outputs[0, 4:], np.stack(2 * [array(outputs)[0, 3]]))
    assert_equal(outputs[1], layer(x)[1])


@pytest.mark.parametrize("unroll", [False, True])
def test_padding_at_the_front_with_a_mask_is_no_padding(unroll):
    layer = random_layer(return_sequences=True, unroll=unroll)
    x = random_inputs(steps=4)
    padded = np.concatenate([np.full((2, 3, FEATURES), 7.0, "float32"), x], axis=1)
    mask = np.broadcast_to(np.arange(7) >= 3, (2, 7))
    outputs, scores = layer(padded, mask=mask, return_attention_scores=True)
    wanted, wanted_scores = layer(x, return_attention_scores=True)
    assert_equal(outputs[:, 3:], wanted)
    assert_equal(scores["block_1"][:, 3:], wanted_scores["block_1"])
    assert_equal(outputs[:, :3], np.broadcast_to(START, (2, 3, STATE)))
    assert (array(scores["block_1"])[:, :3] == 0).all()


def test_a_sequence_without_a_step_that_counts_leaves_the_start():
    mask = np.zeros((2, 5), bool)
    assert_equal(random_layer()(random_inputs(), mask=mask), np.stack(2 * [START]))


def test_masked_steps_may_be_zero():
    mask = RNG.random((2, 5)) < 0.5
    layer = random_layer(return_sequences=True, return_state=True, zero_output_for_mask=True)
    x = random_inputs()
    outputs, state = layer(x, mask=mask)
    plain = random_layer(return_sequences=True)(x, mask=mask)
    assert_equal(outputs, np.where(mask[:, :, None], array(plain), 0.0))
    assert_equal(state, plain[:, -1])


def test_a_mask_that_keras_carries_counts_with_a_start_too():
    x = random_inputs()
    x[0, 3:] = 0.0
    masked = keras.layers.Masking()(x)
    layer = random_layer(return_sequences=True)
    for start in (None, np.ones((2, STATE), "float32")):
        wanted = layer(x, initial_state=start, mask=(x != 0).any(axis=-1))
        assert_equal(layer(masked, initial_state=start), wanted)
    assert layer.compute_mask(masked, "the mask") == "the mask"
    assert random_layer().compute_mask(masked, "the mask") is None


def test_a_state_goes_on_where_it_ended():
    layer = random_layer(return_sequences=True, return_state=True)
    x = random_inputs(steps=6)
    whole, _ = layer(x)
    first, state = layer(x[:, :4])
    second, _ = layer(x[:, 4:], initial_state=[state])
    assert_equal(ops.concatenate([first, second], axis=1), whole)


@pytest.mark.parametrize("learned_start", [False, True])
def test_stateful_layers_go_on_until_they_are_reset(learned_start):
    options = {"return_sequences": True, "learned_start": learned_start}
    layer, plain = random_layer(stateful=True, **options), random_layer(**options)
    if learned_start:
        for each in (layer, plain):
            each.cell.initial_memory.assign(np.arange(STATE) / STATE)
        layer.reset_state()
    x = random_inputs(steps=6)
    whole = plain(x)
    for _ in range(2):
        assert_equal(layer(x[:, :4]), whole[:, :4])
        second, scores = layer(x[:, 4:], return_attention_scores=True)
        assert_equal(second, whole[:, 4:])
        assert_equal(scores["block_1"], plain(x, return_attention_scores=True)[1]["block_1"][:, 4:])
        layer.reset_state()
    assert_equal(layer.states[0], plain.get_initial_state(2)[0])


def test_a_learned_start_learns():
    model = keras.Sequential([RelationalMemory(**ARGUMENTS, learned_start=True)])
    model.compile(keras.optimizers.SGD(1.0), "mse", run_eagerly=True)
    model.fit(random_inputs(), np.ones((2, STATE)), verbose=0)
    assert (array(model.layers[0].cell.initial_memory) != START).any()


def test_keras_own_rnn_runs_the_cell():
    layer = random_layer(return_sequences=True)
    x = random_inputs()
    assert_equal(keras.layers.RNN(layer.cell, return_sequences=True)(x), layer(x))
    stacked = keras.layers.RNN([layer.cell, keras.layers.LSTMCell(4)])
    assert stacked(x).shape == (2, 4)
    matrices = random_layer(num_rows=2)
    x = random_inputs(num_rows=2)
    assert_equal(keras.layers.RNN(matrices.cell)(x), matrices(x))


@pytest.mark.parametrize("return_sequences", [False, True])
def test_bidirectional(return_sequences):
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


def test_time_distributed():
    layer = random_layer()
    x = np.stack([random_inputs(), random_inputs()], axis=1)  # (B, 2, T, F)
    wanted = np.stack([array(layer(x[:, 0])), array(layer(x[:, 1]))], axis=1)
    assert_equal(keras.layers.TimeDistributed(layer)(x), wanted)


@keras.saving.register_keras_serializable(package="rrl_tf_tests")
class Reader(keras.Model):
    """A subclassed model: an embedding, the core, an answer."""

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


# The conformance tests fit functional models as a graph; here they are eager, which is sooner done.
@pytest.mark.parametrize(("make", "eager"), [(Reader, False), (functional_reader, True)])
def test_fit_save_load_and_go_on_give_the_same_numbers(make, eager, tmp_path):
    tokens = RNG.integers(0, 5, (8, 3))
    tokens[:, 0] = 1
    targets = RNG.normal(size=(8, 2))

    def fit(model, epochs):
        return model.fit(tokens, targets, 4, epochs, shuffle=False, verbose=0).history["loss"]

    model = make()
    model.compile("adam", "mse", jit_compile=False, run_eagerly=eager)
    first = fit(model, 2)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    again.run_eagerly = eager
    np.testing.assert_array_equal(array(again(tokens)), array(model(tokens)))
    losses = fit(model, 2)
    np.testing.assert_allclose(fit(again, 2), losses, rtol=1e-6)
    assert losses[-1] < first[0]


def test_arguments_survive_a_saved_file(tmp_path):
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
@pytest.mark.parametrize("unroll", [False, True])
def test_xla_gives_the_same_gradients(unroll):
    import tensorflow as tf

    layer = random_layer(unroll=unroll)
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

# JAX compiles every operation of the rest one by one; `KERAS_BACKEND=jax make test` asks it.
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


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_other_backends_give_sonnets_numbers(backend):
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


@pytest.mark.parametrize("name", ["num_heads", "mem_slots", "num_blocks", "key_size"])
def test_bad_arguments(name):
    with pytest.raises(ValueError, match=f"`{name}` must be a positive integer; received 0"):
        RelationalMemory(**{**ARGUMENTS, name: 0})


@pytest.mark.parametrize("shape", [(2, 5), (2, 5, 2, 2, FEATURES)])
def test_sequences_of_another_rank_are_refused(shape):
    with pytest.raises(ValueError, match=r"\(B, T, F\) or matrices.*; received the shape"):
        RelationalMemory(**ARGUMENTS)(np.ones(shape))


def test_sequences_of_another_size_are_refused():
    with pytest.raises(ValueError, match=r"shape=\(None, None, 3\)"):
        random_layer()(np.ones((2, 5, FEATURES + 1)))


@pytest.mark.parametrize("shape", [(2, 5), (2, 3, 4), (STATE,), (3, STATE)])
def test_a_start_of_another_shape_is_refused(shape):
    layer = random_layer()
    message = r"`initial_state` must be a flat memory.*here \({}, 12\); received the shape"
    with pytest.raises(ValueError, match=message.format(2)):
        layer(random_inputs(), initial_state=np.ones(shape, "float32"))
    with pytest.raises(ValueError, match=message.format(2)):
        layer(
            keras.Input(batch_shape=(2, 5, FEATURES)), initial_state=keras.Input(batch_shape=shape)
        )


def test_two_starts_are_refused():
    start = np.ones((2, STATE), "float32")
    with pytest.raises(ValueError, match=r"one memory; received 2"):
        random_layer()(random_inputs(), initial_state=[start, start])


@pytest.mark.parametrize("shape", [(2, 5, 1), (5,), (2, 4)])
def test_a_mask_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"`mask` must be \(B, T\).*; received the shape"):
        random_layer()(random_inputs(), mask=np.ones(shape, bool))


def test_a_stateful_layer_needs_a_known_batch():
    with pytest.raises(ValueError, match="batch size must be static"):
        RelationalMemory(**ARGUMENTS, stateful=True)(keras.Input((5, FEATURES)))
    with pytest.raises(ValueError, match=r"batch of 2; received a batch of 3"):
        random_layer(stateful=True)(random_inputs(batch=3))


def test_unrolling_needs_a_known_number_of_steps():
    with pytest.raises(ValueError, match=r"unroll=True.*\(None, None, 3\)"):
        RelationalMemory(**ARGUMENTS, unroll=True)(keras.Input((None, FEATURES)))


def test_the_cell_of_the_layer_is_the_cell():
    layer = random_layer(key_size=5)
    assert isinstance(layer.cell, RelationalMemoryCell)
    assert layer.cell.key_size == 5
    assert len(layer.weights) == len(layer.cell.weights)
