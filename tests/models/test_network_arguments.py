"""Arguments of networks of grids, and errors for bad ones."""

import re

import numpy as np
import pytest

from rrl_tf.errors import InvalidInput
from rrl_tf.models import RelationalQNetwork


def observation(shape, batch=2):
    return np.random.default_rng(0).random((batch, *shape)).astype("float32")


NARROWING = [
    {"conv_kernel_size": 3},
    {"conv_kernel_size": (1, 2), "conv_filters": (8, 8)},
    {"conv_padding": "same", "conv_strides": 2},
    {"conv_padding": "top_left", "conv_kernel_size": 2, "conv_pool": 2},
]


@pytest.mark.parametrize("size", [None, 7])
@pytest.mark.parametrize(
    "marks", [{"readout": "feature", "readout_feature": 1}, {"unseen_feature": 1}]
)
@pytest.mark.parametrize("arguments", NARROWING)
def test_features_of_cells_need_convolutions_that_keep_the_size(size, marks, arguments):
    model = RelationalQNetwork(3, **marks, **arguments)
    with pytest.raises(InvalidInput, match="must have convolutions that keep the size of the grid"):
        model.build((None, size, size, 5))
    RelationalQNetwork(3, **arguments).build((None, size, size, 5))


@pytest.mark.parametrize("arguments", [{}, {"conv_padding": "same", "conv_kernel_size": 3}])
def test_readout_of_a_feature_takes_grids_of_any_size(arguments):
    model = RelationalQNetwork(3, readout="feature", readout_feature=1, **arguments)
    model.build((None, None, None, 5))
    assert model(observation((4, 6, 5))).shape == (2, 3)


def test_calling_with_a_grid_that_is_too_small_is_an_error():
    model = RelationalQNetwork(3, conv_pool=4)
    model.build((None, None, None, 5))
    with pytest.raises(ValueError, match="zero or negative"):
        model(observation((3, 3, 5)))


@pytest.mark.parametrize(
    "arguments",
    [
        {"conv_kernel_size": 9},
        {"conv_kernel_size": (5, 5), "conv_filters": (8, 8)},
        {"conv_pool": 8},
    ],
)
def test_building_for_a_grid_that_is_too_small_is_an_error(arguments):
    with pytest.raises(ValueError, match="zero or negative"):
        RelationalQNetwork(3, **arguments).build((None, 7, 7, 20))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"block": {"a": 1}}, "`block` must be a dict of arguments of RelationalBlock.*'a': 1"),
        ({"block": "dot"}, "`block` must be a dict; received 'dot'"),
        ({"coordinates": {"a": 1}}, "`coordinates`.*of AppendCoordinates.*received {'a': 1}"),
        ({"coordinates": 3}, "`coordinates` must be a dict; received 3"),
        ({"random_shift": -1}, "random_shift.*received -1"),
        ({"random_shift": 1.0}, "`random_shift`.*received 1.0"),
        *[({"unseen_feature": bad}, f"`unseen_feature`.*{bad!r}") for bad in (1.5, "0", True)],
        *[
            ({"readout": "feature", "readout_feature": bad}, f"`readout_feature`.*{bad!r}")
            for bad in (1.5, "0", True)
        ],
        *[
            ({"readout_cell": bad}, f"`readout_cell` must be a.*received {re.escape(repr(bad))}$")
            for bad in (3, (), (1,), (1, 2, 3), "ab")
        ],
        ({"readout_cell": (1.5, 1)}, "`readout_cell` must be an integer; received 1.5"),
    ],
)
def test_bad_arguments_are_errors(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        RelationalQNetwork.from_preset("fast", **arguments)
