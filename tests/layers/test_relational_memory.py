"""RelationalMemory: sequences compared with NumPy, masks, states and errors."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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
    variables,
)
from relational_memory_oracle import Oracle

from rrl_tf.layers import RelationalMemory, RelationalMemoryCell


@settings(max_examples=10)
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
def test_sequence_equals_the_oracle(
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
def test_forty_steps_equal_the_oracle(unroll):
    layer = random_layer(return_sequences=True, unroll=unroll)
    x = random_inputs(steps=40)
    outputs, scores = layer(x, return_attention_scores=True)
    wanted, (wanted_scores,) = Oracle(variables(), **ARGUMENTS).run(x)
    np.testing.assert_allclose(array(outputs), wanted, atol=5e-5, rtol=0)
    np.testing.assert_allclose(array(scores["block_1"]), wanted_scores, atol=5e-5, rtol=0)


@pytest.mark.parametrize("return_sequences", [False, True])
@pytest.mark.parametrize("return_state", [False, True])
def test_call_returns_outputs_state_and_attention(return_sequences, return_state):
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


def test_masked_tail_does_not_change_earlier_outputs():
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
def test_masked_front_padding_does_not_change_the_output(unroll):
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


def test_fully_masked_sequence_keeps_the_initial_memory():
    mask = np.zeros((2, 5), bool)
    assert_equal(random_layer()(random_inputs(), mask=mask), np.stack(2 * [START]))


def test_zero_output_for_mask_zeroes_masked_steps():
    mask = RNG.random((2, 5)) < 0.5
    layer = random_layer(return_sequences=True, return_state=True, zero_output_for_mask=True)
    x = random_inputs()
    outputs, state = layer(x, mask=mask)
    plain = random_layer(return_sequences=True)(x, mask=mask)
    assert_equal(outputs, np.where(mask[:, :, None], array(plain), 0.0))
    assert_equal(state, plain[:, -1])


def test_carried_mask_applies_with_an_initial_state():
    x = random_inputs()
    x[0, 3:] = 0.0
    masked = keras.layers.Masking()(x)
    layer = random_layer(return_sequences=True)
    for start in (None, np.ones((2, STATE), "float32")):
        wanted = layer(x, initial_state=start, mask=(x != 0).any(axis=-1))
        assert_equal(layer(masked, initial_state=start), wanted)
    assert layer.compute_mask(masked, "the mask") == "the mask"
    assert random_layer().compute_mask(masked, "the mask") is None


def test_returned_state_continues_a_sequence():
    layer = random_layer(return_sequences=True, return_state=True)
    x = random_inputs(steps=6)
    whole, _ = layer(x)
    first, state = layer(x[:, :4])
    second, _ = layer(x[:, 4:], initial_state=[state])
    assert_equal(ops.concatenate([first, second], axis=1), whole)


@pytest.mark.parametrize("learned_start", [False, True])
def test_stateful_layer_continues_until_reset(learned_start):
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


@pytest.mark.parametrize("name", ["num_heads", "mem_slots", "num_blocks", "key_size"])
def test_bad_arguments_are_errors(name):
    with pytest.raises(ValueError, match=f"`{name}` must be a positive integer; received 0"):
        RelationalMemory(**{**ARGUMENTS, name: 0})


@pytest.mark.parametrize("shape", [(2, 5), (2, 5, 2, 2, FEATURES)])
def test_sequences_of_another_rank_are_an_error(shape):
    with pytest.raises(ValueError, match=r"\(B, T, F\) or matrices.*; received the shape"):
        RelationalMemory(**ARGUMENTS)(np.ones(shape))


def test_sequences_of_another_size_are_an_error():
    with pytest.raises(ValueError, match=r"shape=\(None, None, 3\)"):
        random_layer()(np.ones((2, 5, FEATURES + 1)))


@pytest.mark.parametrize("shape", [(2, 5), (2, 3, 4), (STATE,), (3, STATE)])
def test_initial_state_of_another_shape_is_an_error(shape):
    layer = random_layer()
    message = r"`initial_state` must be a flat memory.*here \({}, 12\); received the shape"
    with pytest.raises(ValueError, match=message.format(2)):
        layer(random_inputs(), initial_state=np.ones(shape, "float32"))
    with pytest.raises(ValueError, match=message.format(2)):
        layer(
            keras.Input(batch_shape=(2, 5, FEATURES)), initial_state=keras.Input(batch_shape=shape)
        )


def test_two_initial_states_are_an_error():
    start = np.ones((2, STATE), "float32")
    with pytest.raises(ValueError, match=r"one memory; received 2"):
        random_layer()(random_inputs(), initial_state=[start, start])


@pytest.mark.parametrize("shape", [(2, 5, 1), (5,), (2, 4)])
def test_mask_of_another_shape_is_an_error(shape):
    with pytest.raises(ValueError, match=r"`mask` must be \(B, T\).*; received the shape"):
        random_layer()(random_inputs(), mask=np.ones(shape, bool))


def test_stateful_layer_needs_a_known_batch():
    with pytest.raises(ValueError, match="batch size must be static"):
        RelationalMemory(**ARGUMENTS, stateful=True)(keras.Input((5, FEATURES)))
    with pytest.raises(ValueError, match=r"memories, 2; received 3"):
        random_layer(stateful=True)(random_inputs(batch=3))


@pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="Keras traces an unknown size as a number there"
)
def test_unrolling_needs_a_known_number_of_steps():
    with pytest.raises(ValueError, match=r"unroll=True.*\(None, None, 3\)"):
        RelationalMemory(**ARGUMENTS, unroll=True)(keras.Input((None, FEATURES)))


def test_cell_equals_the_cell_of_the_layer():
    layer = random_layer(key_size=5)
    assert isinstance(layer.cell, RelationalMemoryCell)
    assert layer.cell.key_size == 5
    assert len(layer.weights) == len(layer.cell.weights)
