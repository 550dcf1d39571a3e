"""Step sizes against their formulas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf.errors import InvalidInput
from rrl_tf.training import learning_rate_schedule

pytestmark = pytest.mark.tf_only

rates = st.floats(1e-5, 1.0)


def values(schedule, steps):
    return np.array([float(schedule(step)) for step in steps])


@given(peak=rates, share=st.floats(0, 1), steps=st.integers(2, 10_000), data=st.data())
def test_a_cosine_is_its_formula(peak, share, steps, data):
    warmup = data.draw(st.integers(0, steps - 1))
    end = share * peak
    at = np.unique([0, warmup, steps // 2, steps, 2 * steps])
    done = np.clip((at - warmup) / (steps - warmup), 0, 1)
    expected = end + (peak - end) * (1 + np.cos(np.pi * done)) / 2
    expected = np.where(at < warmup, peak * at / max(warmup, 1), expected)
    schedule = learning_rate_schedule("cosine", peak, steps, warmup, end)
    np.testing.assert_allclose(values(schedule, at), expected, rtol=1e-5, atol=1e-6 * peak)


@given(peak=rates, warmup=st.integers(1, 1000))
def test_a_constant_follows_a_straight_line(peak, warmup):
    at = np.array([0, warmup // 2, warmup, 3 * warmup])
    expected = peak / warmup + (peak - peak / warmup) * np.minimum(at / warmup, 1)
    schedule = learning_rate_schedule("constant", peak, 5000, warmup)
    np.testing.assert_allclose(values(schedule, at), expected, rtol=1e-5, atol=1e-6 * peak)


def test_a_constant_without_a_warm_up_is_a_number():
    assert learning_rate_schedule("constant", 3e-4, 1000) == 3e-4


@given(steps=st.integers(1, 1000), more=st.integers(0, 1000))
def test_a_warm_up_without_an_end_is_named(steps, more):
    with pytest.raises(InvalidInput, match=rf"warmup_steps must be less than the {steps:,} steps"):
        learning_rate_schedule("cosine", 1e-3, steps, steps + more)
    with pytest.raises(InvalidInput, match="received 'linear'"):
        learning_rate_schedule("linear", 1e-3, steps)
