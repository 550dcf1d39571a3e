"""Nth farthest: answers, layout of the rows, accuracies of baselines, and stages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf.data.nth_farthest import NthFarthest, nth_farthest_floors, sample_nth_farthest

TASKS = st.fixed_dictionaries(
    {
        "num_vectors": st.integers(1, 6),
        "dimension": st.integers(1, 5),
        "order": st.sampled_from(["paper", "sonnet"]),
        "seed": st.integers(0, 2**32),
    }
)


def split(sequence, count, order):
    """Split a question into vectors (T, dimension) and one-hot labels, n and m (T, T)."""
    size = sequence.shape[-1] - 3 * count
    vectors, labels, first, second = np.split(sequence, size + count * np.arange(3), axis=-1)
    return vectors, labels, *((first, second) if order == "paper" else (second, first))


def answered_by_a_loop(vectors, labels, n, m, order):
    """Return the label of the n-th farthest (`sonnet`: nearest) row that has a label."""
    rows = [i for i in range(len(labels)) if labels[i].any()]
    label = {i: int(labels[i].argmax()) for i in rows}
    (reference,) = [i for i in rows if label[i] == m]
    distance = {i: np.linalg.norm(vectors[i].astype(float) - vectors[reference]) for i in rows}
    return label[sorted(rows, key=distance.get, reverse=order == "paper")[n]]


@given(task=TASKS, data=st.data())
def test_answers_and_layout_equal_a_loop_over_vectors(task, data):
    count, size = task["num_vectors"], task["dimension"]
    vectors_on = data.draw(st.integers(1, count))
    numbers_on = data.draw(st.integers(1, size))
    ranks = data.draw(st.integers(1, vectors_on))
    sequences, answers = sample_nth_farthest(
        8,
        **task,
        active_vectors=vectors_on,
        active_dimensions=numbers_on,
        farthest_ranks=ranks,
    )
    assert sequences.shape == (8, count, size + 3 * count)
    assert sequences.dtype == np.float32 and answers.dtype == np.int32
    for sequence, answer in zip(sequences, answers):
        vectors, labels, n, m = split(sequence, count, task["order"])
        assert (np.abs(vectors) <= 1).all() and not vectors[:, numbers_on:].any()
        blank = ~labels.any(axis=-1)
        assert blank.sum() == count - vectors_on and not vectors[blank].any()
        assert (vectors[~blank, :numbers_on] != 0).all()
        assert (labels.sum(axis=0) <= 1).all() and labels.sum() == vectors_on
        for part in (n, m):  # the same one-hot vector on every row
            assert (part == part[0]).all() and part[0].sum() == part[0].max() == 1
        n, m = n[0].argmax(), m[0].argmax()
        assert (n if task["order"] == "paper" else vectors_on - 1 - n) in range(ranks)
        assert answer == answered_by_a_loop(vectors, labels, n, m, task["order"])


@pytest.mark.parametrize("order", ["paper", "sonnet"])
def test_labels_ranks_and_answers_are_uniform(order):
    sequences, answers = sample_nth_farthest(20_000, 4, 3, order, seed=1)
    _, labels, n, m = split(sequences, 4, order)
    for one_hot in (labels[:, 0], labels[:, 3], n[:, 0], m[:, 0], np.eye(4)[answers]):
        np.testing.assert_allclose(one_hot.mean(axis=0), 0.25, atol=0.02)


def test_equal_seeds_give_equal_questions():
    first, again, other = (sample_nth_farthest(4, 3, 2, seed=seed)[0] for seed in (5, 5, 6))
    assert (first == again).all() and (first != other).any()


def test_floors_equal_published_accuracies():
    floors = nth_farthest_floors(8, 16, num_questions=50_000)
    assert list(floors) == ["chance", "no geometry", "norms only"]
    assert floors["chance"] == pytest.approx(1 / 8, abs=0.01)
    assert floors["no geometry"] == pytest.approx(2 / 8, abs=0.01)
    assert floors["norms only"] == pytest.approx(0.309, abs=0.01)  # a published simulation
    assert nth_farthest_floors(8, 16, num_questions=50_000) == floors


def test_two_vectors_need_no_geometry():
    floors = nth_farthest_floors(2, 3, num_questions=5000)
    assert floors["no geometry"] == floors["norms only"] == 1


def test_stages_are_easier_tasks_of_the_same_shape():
    data = NthFarthest(16, 1, 5, 4, stages=((2, 1, 2, 0), (5, 4, 5, 0)))
    easy, _ = data[0]
    data.stage = 1
    whole, _ = data[0]
    assert easy.shape == whole.shape
    assert (easy[..., :4] != 0).sum() == 16 * 2 and (whole[..., :4] != 0).all()


def test_vector_m_follows_the_preceding_vectors():
    sequences, _ = sample_nth_farthest(400, 6, 2, seed=3, active_vectors=5, preceding_vectors=3)
    labels, m = sequences[..., 2:8], sequences[:, :1, 14:]
    before = np.cumsum(labels.sum(axis=-1), axis=1)[(labels * m).any(axis=-1)] - 1
    assert set(before) == {3, 4}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_vectors": 0}, "`num_vectors` must be a positive integer; received 0"),
        ({"dimension": -1}, "`dimension` must be a positive integer; received -1"),
        ({"batch_size": 2.5}, "`batch_size` must be a positive integer; received 2.5"),
        ({"order": "farthest"}, "`order` must be one of .*; received 'farthest'"),
        ({"active_vectors": 9}, "`active_vectors` must be at most 8; received 9"),
        ({"active_vectors": 3, "farthest_ranks": 4}, "`farthest_ranks` must be at most 3"),
        ({"active_vectors": 3, "preceding_vectors": 3}, "`preceding_vectors` .* 3; received 3"),
        (
            {"preceding_vectors": -1},
            "`preceding_vectors` must be an integer of at least 0; received -1",
        ),
        ({"active_dimensions": 17}, "`active_dimensions` must be at most 16; received 17"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        sample_nth_farthest(**{"batch_size": 2, **arguments})


def test_a_stage_beyond_the_task_raises():
    with pytest.raises(ValueError, match="must be at most 4"):
        NthFarthest(2, 1, 4, 2, stages=((3, 1, 3, 0), (5, 1, 5, 0)))
