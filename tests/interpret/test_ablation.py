"""Ablations have the same effect as setting weights to zero."""

import contextlib

import numpy as np
import pytest
from interpreted_networks import agent, functional, states
from recurrent_networks import array, sequences, shared

from rrl_tf.envs import doorkey_task
from rrl_tf.errors import InvalidInput
from rrl_tf.interpret import ablate, play_ablated
from rrl_tf.interpret.ablation import _shuffled
from rrl_tf.models import RecurrentQNetwork, RelationalQNetwork


@contextlib.contextmanager
def zeroed(weight, columns):
    """Set the elements `weight[columns]` to zero inside the context."""
    before = np.array(weight)
    changed = before.copy()
    changed[columns] = 0
    weight.assign(changed)
    yield
    weight.assign(before)


def after(found, name):
    return found.after[found.names.index(name)]


def test_head_and_round_without_effect_equal_zero_weights():
    model, x = agent(), states()
    found = ablate(model, x)
    block = model.relations.rounds[1]
    kernel, bias = block.dense_layers[0].kernel, block.dense_layers[0].bias
    with zeroed(kernel, slice(0, 4)):  # inputs from the first head
        np.testing.assert_allclose(after(found, "round_2, head 1"), array(model(x)), atol=1e-5)
    with zeroed(kernel, slice(None)), zeroed(bias, slice(None)):
        np.testing.assert_allclose(after(found, "round_2"), array(model(x)), atol=1e-5)
    np.testing.assert_array_equal(found.before, array(model(x, return_attention_scores=True)[0]))


def test_uniform_attention_equals_zero_queries():
    model, x = agent(), states()
    dense = model.relations.rounds[0].attention.query_key_value
    columns = np.isin(np.arange(24) % 12, range(4))  # the queries of each head
    with zeroed(dense.kernel, (slice(None), columns)), zeroed(dense.bias, columns):
        expected = array(model(x))
        found = ablate(model, x, ["shuffled"])  # shuffling does not change uniform attention
        np.testing.assert_allclose(after(found, "round_1, shuffled"), expected, atol=1e-5)
    found = ablate(model, x, ["uniform"])
    np.testing.assert_allclose(after(found, "round_1, uniform"), expected, atol=1e-5)


def test_shuffled_scores_change_places_only_where_attention_is_allowed():
    rng = np.random.default_rng(0)
    scores = rng.random((2, 2, 6, 6)) * (rng.random((2, 1, 1, 6)) < 0.7)
    shuffled = _shuffled(scores, rng)
    np.testing.assert_array_equal(scores == 0, shuffled == 0)
    np.testing.assert_array_equal(np.sort(scores), np.sort(shuffled))
    assert (scores != shuffled).any()


def test_slot_without_effect_equals_a_memory_with_zeros():
    step = {name: value[:, 0] for name, value in sequences().items()}
    memory = np.random.default_rng(0).normal(size=(2, 24)).astype("float32")
    found = ablate(shared("relational-memory-entities"), {**step, "memory": memory})
    assert {"memory, slot 3", "block_1, uniform", "block_1, head 2"} <= set(found.names)
    memory[:, 8:16] = 0
    expected, *_ = shared("relational-memory-entities")(step, memory)
    np.testing.assert_allclose(after(found, "memory, slot 2"), array(expected), atol=1e-5)


def test_table_has_the_drop_of_the_original_choice():
    found = ablate(functional(), states(shape=(5, 3)), ["round"])
    [row], choice = found.rows(), found.before.argmax(axis=1)
    drop = (found.before - found.after[0])[range(4), choice]
    assert row["drop of the output"] == pytest.approx(drop.mean())
    assert row["same choice"] == np.mean(found.after[0].argmax(axis=1) == choice)
    assert drop.min() - 1e-6 <= row["low"] <= drop.mean() <= row["high"] <= drop.max() + 1e-6


def test_unknown_kind_raises_an_error():
    with pytest.raises(InvalidInput, match=r"`kinds` must be one of .*'head'.*received 'neuron'"):
        ablate(agent(), states(), ["neuron"])


def test_zeroed_memory_equals_a_memory_of_zeros():
    step = {name: value[:, 0] for name, value in sequences().items()}
    memory = np.random.default_rng(0).normal(size=(2, 24)).astype("float32")
    found = ablate(shared("relational-memory-entities"), {**step, "memory": memory}, ["memory"])
    expected, *_ = shared("relational-memory-entities")(step, 0 * memory)
    assert found.names == ("memory",)
    np.testing.assert_allclose(found.after[0], array(expected), atol=1e-5)


@pytest.mark.tf_only
def test_play_without_a_change_is_greedy_play(open_envs):
    from rrl_tf.agents import RecurrentDoubleDQN, evaluate

    task = doorkey_task((5,), max_steps=15)
    resets = task.evaluation_resets()[:3]
    feedforward = RelationalQNetwork.from_preset("doorkey-5x5")
    recurrent = RecurrentQNetwork.from_preset("doorkey-6x6")
    greedy = {
        feedforward: lambda seen: array(feedforward(task.preprocessor(seen))).argmax(axis=1),
        recurrent: RecurrentDoubleDQN(recurrent, task.preprocessor).greedy_policy(),
    }
    for model, act in greedy.items():
        found = play_ablated(model, task, resets, ["round"])
        assert list(found) == ["nothing", "round_1", "round_2"] and not open_envs
        expected = evaluate(act, task.make_test_env, resets)
        np.testing.assert_array_equal(found["nothing"].length, expected.length)
        assert found["nothing"].success.all() and not found["round_2"].success.any()
    with pytest.raises(InvalidInput, match=r"`kinds` must be one of .*received 'neuron'"):
        play_ablated(feedforward, task, resets, ["neuron"])
