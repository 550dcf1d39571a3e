"""Checks of arguments."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rrl_tf._arguments import (
    array_of,
    batch_generator,
    finite,
    integers_from,
    natural,
    number_from,
    path_of,
    random_generator,
)
from rrl_tf.data.graphs import random_graphs
from rrl_tf.data.nth_farthest import sample_nth_farthest
from rrl_tf.data.sort_of_clevr import sample_sort_of_clevr
from rrl_tf.errors import InvalidInput


@given(
    value=st.floats() | st.integers(),
    least=st.floats(-9, 9),
    most=st.none() | st.floats(-9, 9),
)
def test_number_from_checks_bounds(value, least, most):
    bounds = (least,) if most is None else (least, most)
    if math.isfinite(value) and value >= least and (most is None or value <= most):
        assert number_from("share", value, *bounds) is value
    else:
        with pytest.raises(InvalidInput, match=r"^`share` must be .*; received ") as raised:
            number_from("share", value, *bounds)
        assert str(raised.value).endswith(repr(value))


NO_NUMBERS = [None, "x", "1", (1, 2), [], {}, {1}, 1j, np.zeros(2), np.array("x")]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_number_from_refuses_other_types(value):
    for bounds in ((0,), (0, 1)):
        with pytest.raises(InvalidInput, match=r"^`share` must be .*; received ") as raised:
            number_from("share", value, *bounds)
        assert str(raised.value).endswith(repr(value))


@given(st.integers() | st.floats() | st.text() | st.none() | st.booleans())
def test_natural_takes_integers_from_0(value):
    if type(value) is int and value >= 0:
        assert natural("seed", value) == value
    else:
        with pytest.raises(InvalidInput, match=r"seed.* must be .*; received "):
            natural("seed", value)


@given(st.lists(st.integers(-3, 9) | st.sampled_from([1.0, "1", None, True])), st.integers(0, 3))
def test_integers_from_takes_one_or_several_integers(values, least):
    if values and all(type(each) is int and each >= least for each in values):
        assert integers_from("boxes", iter(values), least) == tuple(values)
        assert integers_from("boxes", np.int64(values[0]), least) == (values[0],)
    else:
        with pytest.raises(
            InvalidInput, match=f"`boxes` must be an integer of at least {least}, or"
        ):
            integers_from("boxes", values, least)


@given(
    seeds=st.lists(st.integers(0, 2**128 - 1) | st.integers(0, 2), min_size=2, max_size=2),
    epoch=st.integers(0, 2**32 - 1) | st.just(0),
    index=st.integers(0, 2**32 - 1) | st.just(0),
)
def test_batch_generator_differs_from_every_seed(seeds, epoch, index):
    """NumPy creates equal generators for the seeds 7 and [7, 0, 0]."""
    batch = batch_generator(seeds[0], epoch, index).bit_generator.state
    assert batch == batch_generator(seeds[0], epoch, index).bit_generator.state
    for seed in seeds:
        assert batch != random_generator(seed).bit_generator.state


@given(
    values=arrays.arrays(
        st.sampled_from(["bool", "int8", "int32", "uint64", "float32", "float64"]),
        arrays.array_shapes(min_side=0),
    ),
    dtype=st.sampled_from(["uint8", "int16", "int32", "int64"]),
)
def test_array_of_integers_keeps_the_values(values, dtype):
    given = values.tolist()
    whole = values.dtype.kind in "biu"
    limits = np.iinfo(dtype)
    if values.size and not (whole and limits.min <= values.min() <= values.max() <= limits.max):
        with pytest.raises(InvalidInput, match=f"x must be .*{dtype}.*; received"):
            array_of("x", given, dtype)
        return
    found = array_of("x", given, dtype)
    assert found.dtype == dtype and found.tolist() == given


@given(st.lists(st.floats(width=32) | st.integers(-99, 99)))
def test_array_of_floats_keeps_integers(values):
    found = array_of("x", values, "float32")
    assert found.dtype == "float32"
    np.testing.assert_array_equal(found, np.array(values, "float32"))


@pytest.mark.parametrize(
    ("value", "received"),
    [
        ([0.0, 1.5], "whole numbers (uint8); received 1.5"),
        ([1.0, math.nan], "whole numbers (uint8); received nan"),
        ([0, 300], "uint8, 0 to 255; received 300"),
        ([0, -1], "uint8, 0 to 255; received -1"),
        ([2**70], f"whole numbers (uint8); received {2**70}"),
        ([[1], [1, 2]], "an array of whole numbers (uint8); received [[1], [1, 2]]"),
        ("abc", "whole numbers (uint8); received 'abc'"),
        (None, "whole numbers (uint8); received None"),
        ({"a": 1}, "whole numbers (uint8); received {'a': 1}"),
    ],
)
def test_array_of_refuses_values_that_change(value, received):
    with pytest.raises(InvalidInput) as error:
        array_of("x", value, "uint8")
    assert str(error.value) == f"x must be {received}"


@given(arrays.arrays("float64", arrays.array_shapes(min_dims=0, min_side=0)))
def test_finite_checks_float32(values):
    held = [math.isfinite(value) and abs(value) <= 2.0**128 - 2.0**104 for value in values.flat]
    if all(held):
        assert finite("reward", values) is values
    else:
        first = re.escape(str(values.flat[held.index(False)]))
        with pytest.raises(InvalidInput, match=f"^reward must be finite in .*; received {first}$"):
            finite("reward", values)


@pytest.mark.parametrize("there", ["file", "nothing", "nothing/below", "."])
def test_path_of_takes_existing_and_new_paths(there, tmp_path):
    (tmp_path / "file").write_text("")
    assert path_of("folder", str(tmp_path / there)) == path_of("folder", tmp_path / there)


@pytest.mark.parametrize("wrong", [None, 3, b"file", "x" * 300, "a\0b", "file/below"])
def test_path_of_refuses_other_values(wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match=r"^`folder` must be a path; received .*[(].*[)]$"):
        path_of("folder", wrong)


@pytest.mark.parametrize("draw", [random_graphs, sample_nth_farthest, sample_sort_of_clevr])
@pytest.mark.parametrize("seed", [-1, 0.5, "7", [0, -1], {}], ids=str)
def test_bad_seeds_are_errors(draw, seed):
    with pytest.raises(InvalidInput, match="`seed` must be .*; received " + re.escape(repr(seed))):
        draw(2, 4, seed=seed)
