"""Sort-of-CLEVR: pictures, questions and answers, compared with loops over the objects."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf.data.sort_of_clevr import (
    ANSWERS,
    COLORS,
    SortOfClevr,
    examples,
    kinds_of,
    question_text,
    sample_sort_of_clevr,
)

SEEDS = st.integers(0, 2**32)


def answer_by_a_loop(question, centers, is_square):
    """Return the answer to a question of 11 bits, by a loop over the objects."""
    on = [i for i, bit in enumerate(question) if bit]
    (color,) = [i for i in on if i < 6]
    (family,) = [i - 6 for i in on if 6 <= i < 8]
    (kind,) = [i - 8 for i in on if i >= 8]
    row, column = map(int, centers[color])
    shape = ["square" if square else "circle" for square in is_square]
    if family == 0:
        place = "yes" if (column, row)[kind - 1] < 75 / 2 else "no"
        return shape[color] if kind == 0 else place
    if kind == 2:
        return str(sum(each == shape[color] for each in shape))
    others = [i for i in range(6) if i != color]
    distance = {i: (centers[i][0] - row) ** 2 + (centers[i][1] - column) ** 2 for i in others}
    return shape[(min, max)[kind](others, key=distance.get)]


@given(seed=SEEDS, each=st.integers(1, 10))
def test_answers_equal_a_loop_over_the_objects(seed, each):
    pictures = sample_sort_of_clevr(5, each, seed)
    assert pictures.questions.shape == (5, 2 * each, 11)
    assert pictures.questions.dtype == np.float32 and pictures.answers.dtype == np.int32
    for questions, answers, centers, is_square in zip(*pictures[1:]):
        for number, (question, answer) in enumerate(zip(questions, answers)):
            assert set(question) <= {0, 1} and question.sum() == 3
            assert question[6 + (number >= each)] == 1  # relational ones are last
            assert ANSWERS[answer] == answer_by_a_loop(question, centers, is_square)


@given(seed=SEEDS)
def test_a_picture_shows_its_objects_and_nothing_else(seed):
    pictures = sample_sort_of_clevr(3, 1, seed)
    assert pictures.images.dtype == np.uint8
    for image, centers, is_square in zip(pictures.images, pictures.centers, pictures.is_square):
        rest = np.ones((75, 75), bool)
        for color, (row, column), square in zip(COLORS.values(), centers, is_square):
            own = (image == color).all(axis=-1)
            rest &= ~own
            rows, columns = np.nonzero(own)
            assert (rows.min(), rows.max()) == (row - 5, row + 5)
            assert (columns.min(), columns.max()) == (column - 5, column + 5)
            inside = (rows - row) ** 2 + (columns - column) ** 2 <= 5.5**2
            assert len(rows) == (121 if square else inside.sum())
            assert square or inside.all()
        assert (image[rest] == 255).all()


def test_shapes_colours_and_kinds_are_uniform():
    pictures = sample_sort_of_clevr(4000, 10, seed=1)
    np.testing.assert_allclose(pictures.is_square.mean(axis=0), 0.5, atol=0.03)
    np.testing.assert_allclose(pictures.questions[..., :6].mean(axis=(0, 1)), 1 / 6, atol=0.01)
    kinds = kinds_of(pictures.questions)
    for part in (kinds[:, :10], kinds[:, 10:] - 3):
        np.testing.assert_allclose(np.bincount(part.ravel()) / part.size, 1 / 3, atol=0.01)
    # Rejection sampling moves objects towards all edges equally, so the mean stays in the middle.
    np.testing.assert_allclose(pictures.centers.mean(axis=(0, 1)), 37, atol=0.4)
    assert {*pictures.answers.ravel()} == set(range(10))


def test_equal_seeds_give_equal_pictures():
    first, again, other = (sample_sort_of_clevr(4, 2, seed) for seed in (5, 5, 6))
    for part, same, different in zip(first, again, other):
        assert (part == same).all() and (part != different).any()


def test_images_are_scaled_to_0_to_1():
    pictures = sample_sort_of_clevr(2)
    inputs, answers = examples(pictures)
    assert inputs["images"].dtype == np.float32
    np.testing.assert_allclose(255 * (1 - inputs["images"]), pictures.images, atol=1e-4)
    assert inputs["images"].min() == 0  # white background
    assert (inputs["questions"] == pictures.questions).all() and (answers == pictures.answers).all()


def test_question_text_names_colour_and_kind():
    question = np.zeros(11)
    question[[3, 7, 9]] = 1
    assert question_text(question) == "what shape is farthest from the orange object?"


@pytest.mark.parametrize(
    "make",
    [
        lambda: sample_sort_of_clevr(0),
        lambda: sample_sort_of_clevr(1, questions_each=0),
        lambda: SortOfClevr(batch_size=2, steps=-1),
    ],
)
def test_invalid_arguments_raise(make):
    with pytest.raises(ValueError, match=r"must be a positive integer; received (0|-1)"):
        make()
