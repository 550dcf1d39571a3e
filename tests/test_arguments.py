"""Checks of arguments."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf._arguments import number_from
from rrl_tf.errors import InvalidInput


@given(
    value=st.floats() | st.integers(),
    least=st.floats(-9, 9),
    most=st.none() | st.floats(-9, 9),
)
def test_a_number_lies_between_its_bounds_and_is_finite(value, least, most):
    bounds = (least,) if most is None else (least, most)
    if math.isfinite(value) and value >= least and (most is None or value <= most):
        assert number_from("share", value, *bounds) is value
    else:
        with pytest.raises(InvalidInput, match=r"^share must be .*; received ") as raised:
            number_from("share", value, *bounds)
        assert str(raised.value).endswith(repr(value))
