"""Stored weights: which ones are kept, and errors for files that cannot be read."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rrl_tf.errors import InvalidInput
from rrl_tf.models import BehaviorCloning
from rrl_tf.offline.saved_weights import BestWeights

pytestmark = pytest.mark.tf_only


def behavior_cloning():
    model = BehaviorCloning(2, 2, hidden_units=(4,))
    model.build()
    return model


@settings(max_examples=8)
@given(scores=st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_best_weights_are_those_of_the_last_best_score(tmp_path_factory, scores):
    model = behavior_cloning()
    best = BestWeights(tmp_path_factory.mktemp("run") / "best.npz", model, 0.0)
    assert not best.exists()
    for i, score in enumerate(scores):
        model.set_weights([np.full(w.shape, i) for w in model.get_weights()])
        best.update(score)
    expected = max(i for i, score in enumerate(scores) if score == max(scores))
    assert best.exists() and best.score == max(scores)
    with pytest.raises(KeyError), best.restored():
        assert all((w == expected).all() for w in model.get_weights())
        raise KeyError
    assert all((w == len(scores) - 1).all() for w in model.get_weights())


def test_scores_of_another_target_do_not_count(tmp_path):
    model = behavior_cloning()
    BestWeights(tmp_path / "best.npz", model, target=20.0).update(5.0)
    same = BestWeights(tmp_path / "best.npz", model, 20.0)
    assert (same.score, same.kept_target) == (5.0, 20.0)
    other = BestWeights(tmp_path / "best.npz", model, 30.0)
    assert (other.score, other.kept_target) == (-np.inf, 20.0)
    other.update(1.0)
    assert (other.score, other.kept_target) == (1.0, 30.0)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_score_that_is_not_finite_is_not_stored(tmp_path, wrong):
    best = BestWeights(tmp_path / "best.npz", behavior_cloning(), 0.0)
    for stored in (False, True):
        with pytest.raises(InvalidInput, match=f"`score` must be finite .*; received {wrong}"):
            best.update(wrong)
        assert best.exists() == stored
        best.update(1.0)
    kept = dict(np.load(best.file)) | {"score": np.array(wrong)}
    np.savez(best.file, **kept)
    with pytest.raises(InvalidInput, match=f"score in .*best.npz must be finite.*{wrong}"):
        BestWeights(best.file, behavior_cloning(), 0.0)


def test_best_weights_that_cannot_be_read_are_one_error(tmp_path):
    (tmp_path / "best.npz").write_bytes(b"PK none")
    with pytest.raises(InvalidInput, match=r"best.npz cannot be read .*Remove it"):
        BestWeights(tmp_path / "best.npz", behavior_cloning(), 0.0)
