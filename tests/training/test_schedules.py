"""Schedules equal their formulas and NumPy's interpolation."""

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf.agents import AgentConfig
from rrl_tf.errors import InvalidInput
from rrl_tf.training import LinearDecay, learning_rate_schedule, linear_schedule

pytestmark = pytest.mark.tf_only

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
    with pytest.raises(InvalidInput, match=rf"warmup_steps must be less than the {steps:,} steps"):
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
