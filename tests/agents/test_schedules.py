"""Numbers that change over a run, beside NumPy's interpolation."""

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf.agents import LinearDecay, linear_schedule
from rrl_tf.errors import InvalidInput
from rrl_tf.training.agent_run import AgentConfig

RATES = st.floats(1e-5, 1e-1)


@given(RATES, RATES, st.integers(1, 1000), st.integers(0, 999), st.integers(0, 2000))
def test_a_step_size_is_held_and_then_falls_along_a_line(start, end, falling, hold, step):
    schedule = LinearDecay(start, end, hold + falling, hold)
    expected = np.interp(step, [hold, hold + falling], [start, end])
    np.testing.assert_allclose(keras.ops.convert_to_numpy(schedule(step)), expected, rtol=1e-4)
    assert LinearDecay.from_config(schedule.get_config()).get_config() == schedule.get_config()


@given(RATES, RATES, st.integers(1, 1000), st.integers(0, 2000))
def test_an_exploration_rate_falls_along_a_line(start, end, steps, step):
    expected = np.interp(step, [0, steps], [start, end])
    assert linear_schedule(step, start, end, steps) == pytest.approx(expected)


def test_a_step_size_that_never_falls_is_refused():
    expected = "`learning_rate_hold` must be less than learning_rate_updates=100; received 100"
    with pytest.raises(InvalidInput, match=expected):
        AgentConfig(learning_rate_updates=100, learning_rate_hold=100)
