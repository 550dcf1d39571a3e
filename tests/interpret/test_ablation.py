"""Ablations have the same effect as setting weights to zero."""

import contextlib
import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interpreted_networks import agent, functional, states
from recurrent_networks import array, network, sequences, shared, some_memory

from rrl_tf.envs import doorkey_task, enumerate_memory_starts, memory_task
from rrl_tf.errors import InvalidInput
from rrl_tf.interpret import ablate, play_ablated
from rrl_tf.interpret.ablation import _Player, _shuffled
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


@pytest.mark.parametrize("preset", ["relational-memory-entities", "relational-memory"])
def test_uniform_attention_of_a_memory_equals_zero_queries(preset):
    model, step = network(preset), {name: value[:, 0] for name, value in sequences().items()}
    memory = some_memory(model, 2)
    found = ablate(model, {**step, "memory": memory}, ["uniform"])
    [attention] = model.core_layer.cell.attentions
    gamma, beta = attention.fused_norm.gamma, attention.fused_norm.beta
    columns = np.arange(gamma.shape[-1]).reshape(attention.num_heads, -1)
    queries = columns[:, : attention.key_size].ravel()  # columns are [head][q | k | v]
    with zeroed(gamma, queries), zeroed(beta, queries):
        expected, *_ = model(step, memory)
    np.testing.assert_allclose(after(found, "block_1, uniform"), array(expected), atol=1e-5)
    assert np.abs(found.before - array(expected)).max() > 1e-3


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


@pytest.mark.tf_only
def test_episodes_act_with_the_memory_of_another_one():
    """With the memory of the episode that shows the other object, both episodes fail."""
    task, model = memory_task((11,), max_steps=50), RecurrentQNetwork.from_preset("memory-s17")
    start = next(iter(enumerate_memory_starts(11)))
    pair = [dataclasses.replace(start, shown=shown) for shown in ("key", "ball")]
    resets = [{"options": {"start": each}} for each in pair]
    found = play_ablated(model, task, resets, ["memory", "exchanged"])
    success = {name: each.success.tolist() for name, each in found.items()}
    assert success.pop("nothing") == [True, True]
    assert success == {"memory": [False, False], "exchanged": [False, False]}
    with pytest.raises(InvalidInput, match="at least 2 elements to exchange memories; received 1"):
        play_ablated(model, task, resets[:1], ["exchanged"])


@given(st.integers(2, 9), st.integers(0, 2**16))
def test_exchange_moves_every_memory(count, seed):
    memory = np.arange(count)[:, None, None]
    exchanged = _Player(None, None, "exchanged", seed).exchanged(memory)
    assert (exchanged != memory).all()
    assert sorted(exchanged.ravel()) == list(range(count))


def test_last_episode_gets_the_memory_of_one_that_ended():
    model = shared("lstm")
    player, memory = _Player(model, None, "exchanged", 0), some_memory(model, 2)
    step = np.zeros(2, "int32"), np.zeros(2, "float32"), np.array([True, False])
    player.next_state(memory, *step)
    np.testing.assert_array_equal(player.exchanged(memory[1:].reshape(1, 2, -1)).ravel(), memory[0])
