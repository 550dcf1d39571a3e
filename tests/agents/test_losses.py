import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from rrl_tf.agents import double_dqn_loss, double_dqn_target

seeds = st.integers(0, 2**32 - 1)


def random_step(seed, batch=7, actions=5):
    rng = np.random.default_rng(seed)
    return {
        "q_t": rng.normal(size=(batch, actions)).astype("float32") * 3,
        "select": rng.normal(size=(batch, actions)).astype("float32"),
        "evaluate": rng.normal(size=(batch, actions)).astype("float32"),
        "action_t": rng.integers(actions, size=batch),
        "return_t": rng.normal(size=batch).astype("float32"),
        "discount_t": rng.choice([0.0, 0.9], size=batch).astype("float32"),
        "weight_t": rng.random(batch).astype("float32"),
    }


@given(seeds)
@settings(max_examples=30, deadline=None)
def test_target_equals_the_formula(seed):
    x = random_step(seed)
    target = double_dqn_target(x["select"], x["evaluate"], x["return_t"], x["discount_t"])
    for b in range(len(x["return_t"])):
        best = max(range(5), key=lambda a: x["select"][b, a])
        expected = x["return_t"][b] + x["discount_t"][b] * x["evaluate"][b, best]
        np.testing.assert_allclose(ops.convert_to_numpy(target)[b], expected, rtol=1e-6)


def test_target_below_an_observed_return_is_raised_to_it():
    x = random_step(3, batch=4)
    floor = np.array([-np.inf, 100.0, -100.0, np.inf], "float32")
    free = double_dqn_target(x["select"], x["evaluate"], x["return_t"], x["discount_t"])
    raised = double_dqn_target(x["select"], x["evaluate"], x["return_t"], x["discount_t"], floor)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(raised), np.maximum(ops.convert_to_numpy(free), floor)
    )


def test_selecting_at_t_changes_the_target():
    # The book's code takes the argmax of Q(s_t); its formula takes that of Q(s_t+1).
    x = random_step(0, batch=50)
    right = double_dqn_target(x["select"], x["evaluate"], x["return_t"], x["discount_t"])
    wrong = double_dqn_target(x["q_t"], x["evaluate"], x["return_t"], x["discount_t"])
    bootstrapped = x["discount_t"] > 0
    difference = np.abs(ops.convert_to_numpy(right - wrong))
    assert (difference[bootstrapped] > 1e-6).mean() > 0.5
    assert (difference[~bootstrapped] == 0).all()


@given(seeds, st.sampled_from(["huber", "mse"]), st.booleans())
@settings(max_examples=30, deadline=None)
def test_loss_equals_the_float64_formula(seed, loss, weighted):
    x = random_step(seed)
    weight = x["weight_t"] if weighted else None
    value, error = double_dqn_loss(x["q_t"], x["action_t"], x["return_t"], weight, loss)
    difference = x["return_t"].astype("float64") - x["q_t"][np.arange(7), x["action_t"]]
    per_item = difference**2
    if loss == "huber":
        size = np.abs(difference)
        per_item = np.where(size < 1, difference**2 / 2, size - 0.5)
    expected = np.mean(per_item * (x["weight_t"] if weighted else 1))
    np.testing.assert_allclose(float(value), expected, rtol=1e-5)
    np.testing.assert_allclose(ops.convert_to_numpy(error), difference, atol=1e-5)


@pytest.mark.tf_only
def test_no_gradient_reaches_the_target():
    import tensorflow as tf

    x = random_step(1)
    evaluate = tf.Variable(x["evaluate"])
    q_t = tf.Variable(x["q_t"])
    with tf.GradientTape() as tape:
        q = tf.identity(q_t)
        target = double_dqn_target(q, evaluate * 1.0, x["return_t"], x["discount_t"])
        loss, _ = double_dqn_loss(q, x["action_t"], target)
    q_gradient, evaluate_gradient = tape.gradient(loss, [q_t, evaluate])
    assert evaluate_gradient is None
    chosen = keras.utils.to_categorical(x["action_t"], 5) == 1
    assert (np.asarray(q_gradient)[~chosen] == 0).all()
    assert (np.asarray(q_gradient)[chosen] != 0).all()


def test_unknown_loss_is_rejected():
    x = random_step(2)
    with pytest.raises(ValueError, match=r"'huber', 'mse'.*received 'l1'"):
        double_dqn_loss(x["q_t"], x["action_t"], x["return_t"], loss="l1")
