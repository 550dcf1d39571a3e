import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.speed import scaling

pytestmark = pytest.mark.tf_only


@given(st.floats(-1, 3), st.floats(0.1, 10))
def test_the_power_of_a_power_is_found(exponent, factor):
    values = np.array([2, 5, 16, 40])
    assert scaling.power(values, factor * values**exponent) == pytest.approx(exponent, abs=1e-6)


def test_what_is_measured_is_computed():
    gradients = scaling.relations(entities=8)()
    assert all(np.abs(gradient).max() > 0 for gradient in gradients)
    metrics, errors = scaling.update(4)()
    assert np.isfinite(metrics["loss"]) and errors.shape == (4,)
