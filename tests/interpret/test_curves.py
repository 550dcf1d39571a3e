"""Removal curves remove entities in the order of their relevance."""

import numpy as np
import pytest
from interpreted_networks import ENTITIES, agent, states
from recurrent_networks import array

from rrl_tf.errors import InvalidInput
from rrl_tf.interpret import RemovalCurves, removal_curves

RELEVANCE = np.random.default_rng(0).permuted(np.tile(np.arange(ENTITIES), (4, 1)), axis=1)


def value(removed):
    x = states()
    q = array(agent()(x))
    return array(agent()(x, removed=removed))[range(4), q.argmax(axis=1)]


def test_curves_hold_the_output_without_the_most_relevant_entities():
    candidate = np.tile(np.arange(ENTITIES) != 6, (4, 1))
    found = removal_curves(agent(), states(), RELEVANCE, candidate, points=8, draws=2)
    rank = np.argsort(np.argsort(-np.where(candidate, RELEVANCE, -1)))
    for count in range(8):
        first = rank < count
        np.testing.assert_allclose(found.curves["deletion"][count], value(first), atol=1e-5)
        others = candidate & ~first
        np.testing.assert_allclose(found.curves["insertion"][count], value(others), atol=1e-5)
    random = found.curves["deletion, random"]
    np.testing.assert_allclose(random[[0, 7]], found.curves["deletion"][[0, 7]], atol=1e-5)
    np.testing.assert_array_equal(found.curves["insertion, random"], random[::-1])


def test_masked_entities_and_the_one_that_is_read_are_no_candidates_by_default():
    x = states()
    x[..., 0] = 1.0
    x[:, :, :2, 0] = 0.0  # cells 0, 1, 4 and 5 are visible
    model = agent(unseen_feature=0)
    x[:, 1, 2, 0] = 0.0  # so is cell 6, from which the Q values are read
    given = np.tile(np.isin(np.arange(ENTITIES), (0, 1, 4, 5)), (4, 1))
    found, expected = (
        removal_curves(model, x, RELEVANCE, each, points=3, draws=1) for each in (None, given)
    )
    np.testing.assert_array_equal(found.curves["deletion"], expected.curves["deletion"])


def test_area_is_the_mean_over_fractions_and_has_an_interval():
    falling = np.array([[2.0, 4.0], [1.0, 2.0], [0.0, 0.0]])
    curves = {"deletion": 0 * falling, "insertion": falling + 1}
    curves |= {"deletion, random": falling, "insertion, random": falling}
    found = RemovalCurves(np.array([0, 0.5, 1]), curves)
    assert found.area["deletion, random"].tolist() == [1.0, 2.0]
    rows = {row["curve"]: row for row in found.rows()}
    assert rows["deletion, better than random"]["area"] == 1.5
    assert rows["insertion, better than random"] == {
        "curve": "insertion, better than random",
        **{"area": 1.0, "low": 1.0, "high": 1.0},
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"relevance": np.zeros((4, 7))}, r"`relevance` must be \(B, N\), here \(4, 8\).*\(4, 7\)"),
        ({"candidate": np.ones(8, bool)}, r"`candidate` must be .*\(8,\)"),
        ({"draws": 0}, "`draws` must be a positive integer"),
    ],
)
def test_wrong_arguments_raise_one_error(changes, message):
    with pytest.raises(InvalidInput, match=message):
        removal_curves(**{"model": agent(), "inputs": states(), "relevance": RELEVANCE, **changes})
