"""Sample Sort-of-CLEVR: pictures of six objects with relational and non-relational questions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rrl_tf._arguments import Seed, positive_int, random_generator
from rrl_tf.data._fresh_batches import FreshBatches

IMAGE_SIZE, RADIUS = 75, 5
IMAGE_SHAPE = (IMAGE_SIZE, IMAGE_SIZE, 3)
COLORS = {
    "red": (255, 0, 0),
    "green": (0, 255, 0),
    "blue": (0, 0, 255),
    "orange": (255, 156, 0),
    "gray": (128, 128, 128),
    "yellow": (255, 255, 0),
}
TEXTS = (
    "what shape is the {} object",
    "is the {} object on the left",
    "is the {} object in the upper half",
    "what shape is closest to the {} object",
    "what shape is farthest from the {} object",
    "how many objects have the shape of the {} object",
)
"""The six kinds of questions; the last three are relational."""
ANSWERS = ("yes", "no", "square", "circle", "1", "2", "3", "4", "5", "6")
QUESTION_SIZE = len(COLORS) + 2 + 3
_YES, _SQUARE, _ONE = 0, 2, 4
_OFFSETS = np.indices((2 * RADIUS + 1,) * 2).reshape(2, -1) - RADIUS  # (2, 121): row and column
_IN_CIRCLE = (_OFFSETS**2).sum(axis=0) <= (RADIUS + 0.5) ** 2


class Pictures(NamedTuple):
    """M pictures with Q questions each, and the objects in the pictures.

    Attributes:
        images: `(M, 75, 75, 3)` uint8.
        questions: `(M, Q, 11)` float32, bits as `sample_sort_of_clevr` describes.
        answers: `(M, Q)` int32, indices of `ANSWERS`.
        centers: `(M, 6, 2)`, row and column of each object's centre, in the order of `COLORS`.
        is_square: `(M, 6)` bool, true for squares and false for circles.
    """

    images: np.ndarray
    questions: np.ndarray
    answers: np.ndarray
    centers: np.ndarray
    is_square: np.ndarray


def sample_sort_of_clevr(num_pictures: int, questions_each: int = 10, seed: Seed = 0) -> Pictures:
    """Sample pictures of Sort-of-CLEVR with questions and answers.

    A white picture contains one object of each of six colours. An object is a square of 11 x 11
    pixels or the circle inside it, with equal probability. Objects do not overlap and lie
    completely inside the picture.

    A question is 11 bits, made of three one-hot vectors: the colour of an object (6 bits),
    non-relational or relational (2 bits), and one of three kinds (3 bits), whose texts are in
    `TEXTS`. Colour and kind are drawn uniformly. These rules decide ambiguous cases:

    - The middle row belongs to the upper half, the middle column to the left.
    - Distances are those between centres. Of equally close or far objects, the first in the order
      of `COLORS` is the answer.
    - The number of objects with the same shape includes the object itself.

    Args:
        num_pictures: number of pictures M.
        questions_each: number of non-relational questions per picture, which as many relational
            questions follow, so Q is twice this number.
        seed: int, sequence of ints or `numpy.random.Generator`.

    Returns:
        `Pictures`.

    Raises:
        InvalidInput: if a number is not positive, or the seed is invalid.

    Example:

    >>> pictures = sample_sort_of_clevr(100)
    >>> pictures.images.shape, pictures.questions.shape, pictures.answers.shape
    ((100, 75, 75, 3), (100, 20, 11), (100, 20))

    Source: [Santoro et al., 2017](https://arxiv.org/abs/1706.01427). Sizes, colours and the order
    of the bits are those of github.com/kimhc6028/relational-networks.
    """
    count = positive_int("num_pictures", num_pictures)
    each = positive_int("questions_each", questions_each)
    rng = random_generator(seed)
    centers = _centers(rng, count)
    is_square = rng.random((count, len(COLORS))) < 0.5
    colors = rng.integers(len(COLORS), size=(count, 2 * each))
    kinds = rng.integers(3, size=(count, 2 * each))
    kinds[:, each:] += 3
    answers = np.take_along_axis(_answers(centers, is_square), colors[..., None], axis=1)
    answers = np.take_along_axis(answers, kinds[..., None], axis=2)[..., 0]
    return Pictures(
        _drawn(centers, is_square),
        _bits(colors, kinds),
        answers.astype("int32"),
        centers,
        is_square,
    )


def _centers(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return centres `(M, 6, 2)` of squares that lie inside the picture and do not overlap."""
    centers = np.empty((count, len(COLORS), 2), np.int64)
    for i in range(len(COLORS)):
        wrong = np.arange(count)
        while len(wrong):
            centers[wrong, i] = rng.integers(RADIUS, IMAGE_SIZE - RADIUS, size=(len(wrong), 2))
            apart = np.abs(centers[wrong, i, None] - centers[wrong, :i]).max(axis=-1)
            wrong = wrong[(apart <= 2 * RADIUS).any(axis=-1)]
    return centers


def _drawn(centers, is_square):
    images = np.full((len(centers), *IMAGE_SHAPE), 255, np.uint8)
    pixels = centers[..., None] + _OFFSETS  # (M, 6, 2, 121)
    picture, color, pixel = np.nonzero(is_square[..., None] | _IN_CIRCLE)
    rows, columns = pixels[picture, color, :, pixel].T
    images[picture, rows, columns] = np.array(list(COLORS.values()), np.uint8)[color]
    return images


def _answers(centers, is_square):
    """Return the answers `(M, 6, 6)` to all questions: `[m, object, kind of question]`."""
    distances = ((centers[:, :, None] - centers[:, None]) ** 2).sum(axis=-1)  # (M, 6, 6)
    farthest = distances.argmax(axis=-1)
    closest = (distances + 2 * IMAGE_SIZE**2 * np.eye(len(COLORS), dtype=int)).argmin(axis=-1)
    shapes = np.where(is_square, _SQUARE, _SQUARE + 1)
    after_middle = _YES + (centers > IMAGE_SIZE // 2)
    same = (is_square[:, :, None] == is_square[:, None]).sum(axis=-1)
    return np.stack(
        [
            shapes,
            after_middle[..., 1],
            after_middle[..., 0],
            np.take_along_axis(shapes, closest, axis=1),
            np.take_along_axis(shapes, farthest, axis=1),
            _ONE + same - 1,
        ],
        axis=-1,
    )


def _bits(colors, kinds):
    """Return questions `(M, Q, 11)` float32: one-hot colour, relational or not, and kind."""
    parts = ((colors, len(COLORS)), (kinds // 3, 2), (kinds % 3, 3))
    return np.concatenate([np.eye(size, dtype="float32")[part] for part, size in parts], axis=-1)


def kinds_of(questions: np.ndarray) -> np.ndarray:
    """Return the kind of each question: indices of `TEXTS` `(...)` for questions `(..., 11)`.

    Example:

    >>> kinds_of(sample_sort_of_clevr(1, questions_each=2).questions)[0] >= 3
    array([False, False,  True,  True])
    """
    _, family, kind = np.split(questions, (len(COLORS), len(COLORS) + 2), axis=-1)
    return 3 * family.argmax(axis=-1) + kind.argmax(axis=-1)


def question_text(question: np.ndarray) -> str:
    """Return a question `(11,)` as a sentence.

    Example:

    >>> question_text(np.eye(11)[[0, 7, 10]].sum(axis=0))
    'how many objects have the shape of the red object?'
    """
    color = list(COLORS)[question[: len(COLORS)].argmax()]
    return f"{TEXTS[kinds_of(question)].format(color)}?"


class SortOfClevr(FreshBatches):
    """A dataset for `fit` that samples new pictures in every batch.

    Inputs are a dict with the keys `"images"` and `"questions"`. `sample_sort_of_clevr` never
    returns the same pictures for a seed below 2**128, so it can generate test data.

    Args:
        batch_size: number of pictures B in a batch.
        steps, seed, epoch: as in `FreshBatches`.
        questions_each: as in `sample_sort_of_clevr`.

    Raises:
        InvalidInput: if a size is not positive, or `seed` or `epoch` is negative.

    Example:

    >>> data = SortOfClevr(batch_size=64, steps=1000)
    >>> inputs, answers = data[0]
    >>> inputs["images"].shape, inputs["questions"].shape, answers.shape
    ((64, 75, 75, 3), (64, 20, 11), (64, 20))
    >>> question_text(inputs["questions"][0, 0]), ANSWERS[answers[0, 0]]
    ('is the blue object in the upper half?', 'yes')
    """

    def __init__(
        self,
        batch_size: int,
        steps: int,
        questions_each: int = 10,
        seed: int = 0,
        epoch: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(steps, seed, epoch, **kwargs)
        self.batch_size = positive_int("batch_size", batch_size)
        self.questions_each = positive_int("questions_each", questions_each)

    def draw(self, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Sample the inputs and answers of one batch."""
        return examples(sample_sort_of_clevr(self.batch_size, self.questions_each, rng))


def examples(pictures: Pictures) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the inputs of a model, with images preprocessed by `ink`, and the answers."""
    inputs = {"images": ink(pictures.images), "questions": pictures.questions}
    return inputs, pictures.answers


def ink(images: Any) -> Any:
    """Invert pictures and scale them from [0, 255] to [0, 1], so that white is 0.

    The zero padding of convolutions then looks like white background instead of a black frame.

    Args:
        images: array or tensor.
    """
    return 1 - images / np.float32(255)
