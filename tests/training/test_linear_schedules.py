"""Numbers that change over a run, beside NumPy's interpolation."""

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf.agents import AgentConfig
from rrl_tf.errors import InvalidInput
from rrl_tf.training import LinearDecay, linear_schedule

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
def test_numbers_of_a_schedule_that_make_none_are_refused(changes, message):
    with pytest.raises(InvalidInput, match=message):
        LinearDecay(**{"start": 1e-3, "end": 1e-4, "updates": 100, **changes})


def test_a_step_size_can_be_held_for_as_long_as_integers_reach():
    assert float(LinearDecay(1e-3, 0.0, 2**63 - 1, 2**63 - 2)(np.int64(5))) == pytest.approx(1e-3)


def test_a_step_size_that_never_falls_is_refused():
    expected = "`learning_rate_hold` must be less than learning_rate_updates=100; received 100"
    with pytest.raises(InvalidInput, match=expected):
        AgentConfig(learning_rate_updates=100, learning_rate_hold=100)
