"""Schedules equal their formulas; optimizers that evaluate them once equal those of Keras."""

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf.agents import AgentConfig
from rrl_tf.errors import InvalidInput
from rrl_tf.training import (
    LinearDecay,
    learning_rate_schedule,
    linear_schedule,
    make_optimizer,
    optimizers,
)

pytestmark = pytest.mark.tf_only  # training needs TensorFlow


class Counting(keras.optimizers.schedules.LearningRateSchedule):
    """A constant learning rate that counts its calls."""

    calls = 0

    def __call__(self, step):
        self.calls += 1
        return keras.ops.cast(0.01, "float32")


def trained(optimizer, updates=5):
    keras.utils.set_random_seed(0)
    network = keras.Sequential([keras.layers.Dense(4, activation="relu") for _ in range(3)])
    network.build((None, 4))
    network.compile(optimizer, "mse")
    x = np.random.default_rng(0).normal(size=(8 * updates, 4)).astype("float32")
    network.fit(x, x**2, batch_size=8, shuffle=False, verbose=0)
    return network


@pytest.mark.parametrize("rate", [0.01, learning_rate_schedule("cosine", 0.02, 6, 2, 0.001)])
@pytest.mark.parametrize("name", ["AdamW", "Muon"])
def test_update_equals_that_of_keras(name, rate):
    ours, theirs = (
        trained(getattr(module, name)(rate, weight_decay=0.3))
        for module in (optimizers, keras.optimizers)
    )
    for a, b in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_learning_rate_may_be_changed_during_the_training():
    networks = [trained(optimizers.AdamW(0.01, weight_decay=decay)) for decay in (0.3, 0.0)]
    sizes = [np.square(network.get_weights()[0]).sum() for network in networks]
    assert sizes[0] < sizes[1]
    networks[0].optimizer.learning_rate = 0.0
    before = networks[0].get_weights()
    networks[0].fit(np.ones((8, 4)), np.ones((8, 4)), verbose=0)
    for a, b in zip(networks[0].get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", ["AdamW", "Muon"])
def test_private_weight_decay_of_keras_3_15_accepts_another_learning_rate(name):
    """Check `_OneLearningRate` before you add a version here and in pyproject.toml."""
    assert keras.version().startswith("3.15.")
    theirs = getattr(keras.optimizers, name)(0.5, weight_decay=0.1)
    weight = keras.Variable([[2.0]])
    theirs.build([weight])
    wrapped = optimizers._WithLearningRate(theirs)
    wrapped.learning_rate = 0.25
    theirs._apply_weight_decay.__func__(wrapped, [weight])
    np.testing.assert_allclose(weight, [[2 - 2 * 0.1 * 0.25]], rtol=1e-6)


@pytest.mark.parametrize("make", [optimizers.AdamW, optimizers.Muon])
def test_schedule_is_not_called_for_every_weight(make):
    schedule = Counting()
    optimizer = make(schedule, weight_decay=0.1)
    weights = [keras.Variable(np.ones((2, 2), "float32")) for _ in range(10)]
    optimizer.build(weights)
    schedule.calls = 0
    optimizer.apply([keras.ops.ones((2, 2)) for _ in weights], weights)
    assert schedule.calls <= 2  # once for the update, once for the decay


@pytest.mark.parametrize("name", ["AdamW", "Muon"])
def test_optimizer_is_saved_with_a_model(tmp_path, name):
    network = trained(getattr(optimizers, name)(0.01, weight_decay=0.1))
    network.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras").optimizer
    assert type(again) is getattr(optimizers, name)
    assert again.get_config() == network.optimizer.get_config()


def test_muon_excludes_the_head():
    optimizer = make_optimizer("muon", learning_rate=0.01)
    assert isinstance(optimizer, optimizers.Muon) and optimizer.exclude_layers == ["head"]
    assert type(make_optimizer("adam", learning_rate=0.01)) is keras.optimizers.Adam


rates = st.floats(1e-5, 1.0)


def values(schedule, steps):
    return np.array([float(schedule(step)) for step in steps])


@given(peak=rates, fraction=st.floats(0, 1), steps=st.integers(2, 10_000), data=st.data())
def test_cosine_equals_its_formula(peak, fraction, steps, data):
    warmup = data.draw(st.integers(0, steps - 1))
    end = fraction * peak
    at = np.unique([0, warmup, steps // 2, steps, 2 * steps])
    done = np.clip((at - warmup) / (steps - warmup), 0, 1)
    expected = end + (peak - end) * (1 + np.cos(np.pi * done)) / 2
    expected = np.where(at < warmup, peak * at / max(warmup, 1), expected)
    schedule = learning_rate_schedule("cosine", peak, steps, warmup, end)
    np.testing.assert_allclose(values(schedule, at), expected, rtol=1e-5, atol=1e-6 * peak)


@given(peak=rates, warmup=st.integers(1, 1000))
def test_constant_follows_a_linear_warmup(peak, warmup):
    at = np.array([0, warmup // 2, warmup, 3 * warmup])
    expected = peak / warmup + (peak - peak / warmup) * np.minimum(at / warmup, 1)
    schedule = learning_rate_schedule("constant", peak, 5000, warmup)
    np.testing.assert_allclose(values(schedule, at), expected, rtol=1e-5, atol=1e-6 * peak)


def test_constant_without_warmup_is_a_number():
    assert learning_rate_schedule("constant", 3e-4, 1000) == 3e-4


@given(steps=st.integers(1, 1000), more=st.integers(0, 1000))
def test_warmup_of_the_whole_run_is_rejected(steps, more):
    with pytest.raises(
        InvalidInput, match=rf"`warmup_steps` must be less than the {steps:,} steps"
    ):
        learning_rate_schedule("cosine", 1e-3, steps, steps + more)
    with pytest.raises(InvalidInput, match=r"`schedule` must be one of .*'linear'"):
        learning_rate_schedule("linear", 1e-3, steps)


@given(rates, rates, st.integers(1, 1000), st.integers(0, 999), st.integers(0, 2000))
def test_linear_decay_equals_interpolation(start, end, falling, hold, step):
    schedule = LinearDecay(start, end, hold + falling, hold)
    expected = np.interp(step, [hold, hold + falling], [start, end])
    np.testing.assert_allclose(keras.ops.convert_to_numpy(schedule(step)), expected, rtol=1e-4)
    assert LinearDecay.from_config(schedule.get_config()).get_config() == schedule.get_config()


@given(rates, rates, st.integers(1, 1000), st.integers(0, 2000))
def test_linear_schedule_equals_interpolation(start, end, steps, step):
    expected = np.interp(step, [0, steps], [start, end])
    assert linear_schedule(step, start, end, steps) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hold": -50}, "hold must be from 0 to 99; received -50"),
        ({"hold": float("nan")}, "`hold` must be an integer; received nan"),
        ({"hold": "40"}, "`hold` must be an integer; received '40'"),
        ({"hold": 100}, "hold must be from 0 to 99; received 100"),
        ({"updates": -3, "hold": 1}, "`updates` must be a positive integer; received -3"),
        ({"updates": 2**63}, "updates must be from 1 to 9223372036854775807; received 9223"),
        ({"start": -1e-3}, "start must be at least 0 and finite; received -0.001"),
        ({"end": float("nan")}, "end must be at least 0 and finite; received nan"),
    ],
)
def test_invalid_linear_decay_is_rejected(changes, message):
    with pytest.raises(InvalidInput, match=message):
        LinearDecay(**{"start": 1e-3, "end": 1e-4, "updates": 100, **changes})


def test_hold_may_be_the_largest_integer():
    assert float(LinearDecay(1e-3, 0.0, 2**63 - 1, 2**63 - 2)(np.int64(5))) == pytest.approx(1e-3)


def test_hold_until_the_end_is_rejected_in_the_config():
    expected = "`learning_rate_hold` must be less than learning_rate_updates=100; received 100"
    with pytest.raises(InvalidInput, match=expected):
        AgentConfig(learning_rate_updates=100, learning_rate_hold=100)
