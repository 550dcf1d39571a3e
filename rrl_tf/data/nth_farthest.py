"""Sample questions of the Nth farthest task: which vector is the n-th farthest from vector m?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rrl_tf._arguments import Seed, natural, one_of, positive_int, random_generator
from rrl_tf.data._fresh_batches import FreshBatches
from rrl_tf.errors import InvalidInput

ORDERS = ("paper", "sonnet")


def sample_nth_farthest(
    batch_size: int,
    num_vectors: int = 8,
    dimension: int = 16,
    order: str = "paper",
    seed: Seed = 0,
    active_vectors: int | None = None,
    active_dimensions: int | None = None,
    farthest_ranks: int | None = None,
    preceding_vectors: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Sample questions of the Nth farthest task with their answers.

    A question has `num_vectors` vectors, drawn uniformly from [-1, 1)^dimension. Their labels are a
    random permutation of 0 ... num_vectors - 1. The question names a label m and a rank n; the
    answer is the label of the vector with rank n among the distances to vector m. A model reads the
    question as a sequence of rows, one per vector, and each row repeats m and n. The answer depends
    on all vectors, so the model can rarely know it before the last row.

    Args:
        batch_size: number of questions B.
        num_vectors: number of vectors T in a question, and of labels and ranks.
        dimension: size of a vector.
        order: order of ranks and of the parts of a row. `"paper"`: n = 0 is the farthest vector,
            n = T - 1 is vector m itself, and a row is [vector, label, n, m]. `"sonnet"`, as in the
            code of Sonnet's example: n = 0 is vector m itself, n = T - 1 is the farthest vector,
            and a row is [vector, label, m, n].
        seed: int, sequence of ints or `numpy.random.Generator`.
        active_vectors: number of vectors in a question, for an easier task of the same shape;
            `None` is T. They are in random rows. The vector and label of the other rows are zero,
            and n is smaller than `active_vectors`.
        active_dimensions: number of leading components of a vector that are not zero; `None` is
            `dimension`.
        farthest_ranks: number of ranks that n is drawn from, counted from the farthest vector. With
            1, the answer is always the farthest vector. `None` means all ranks.
        preceding_vectors: smallest number of vectors in rows before that of vector m, less than
            `active_vectors`. A model must store them until it reads vector m. `None` is 0.

    Returns:
        `(sequences, answers)`: sequences `(B, T, dimension + 3 * T)` float32, with labels, n and m
        as one-hot vectors, and answers `(B,)` int32, which are labels.

    Raises:
        InvalidInput: if a size is not positive, `active_vectors`, `active_dimensions` or
            `farthest_ranks` is larger than its size, `preceding_vectors` is negative or at least
            `active_vectors`, or the order or seed is invalid.

    Example:

    >>> sequences, answers = sample_nth_farthest(32, num_vectors=8, dimension=16)
    >>> sequences.shape, answers.shape
    ((32, 8, 40), (32,))

    Source: [Santoro et al., 2018](https://arxiv.org/abs/1806.01822), section 4.1; Sonnet 1's
    `examples/dataset_nth_farthest.py`.
    """
    batch, count = positive_int("batch_size", batch_size), positive_int("num_vectors", num_vectors)
    size = positive_int("dimension", dimension)
    active_count = _part_of("active_vectors", active_vectors, count)
    active_size = _part_of("active_dimensions", active_dimensions, size)
    ranks = _part_of("farthest_ranks", farthest_ranks, active_count)
    before = natural("preceding_vectors", preceding_vectors or 0)
    if before >= active_count:
        raise InvalidInput(
            f"`preceding_vectors` must be less than {active_count}; received {preceding_vectors!r}"
        )
    one_of("order", order, ORDERS)
    rng = random_generator(seed)
    vectors, labels, active = _drawn(rng, (batch, count, size), active_count, active_size)
    lowest = active_count - ranks if order == "sonnet" else 0
    n = rng.integers(lowest, lowest + ranks, size=batch)
    late = active & (np.cumsum(active, axis=1) > before)
    reference = np.argmax(np.where(late, rng.random((batch, count)), -1), axis=1)  # m's row
    nearest = n if order == "sonnet" else active_count - 1 - n
    rows = np.arange(batch)
    answers = labels[rows, _ranked(vectors, active, reference)[rows, nearest]]
    m = labels[rows, reference]
    question = (n, m) if order == "paper" else (m, n)
    return _sequences(vectors, labels, active, question), answers.astype("int32")


def _drawn(
    rng: np.random.Generator, shape: tuple[int, int, int], active_count: int, active_size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return vectors, their labels, and which of them are active."""
    batch, count, _ = shape
    vectors = np.zeros(shape, "float32")
    vectors[..., :active_size] = rng.uniform(-1, 1, (batch, count, active_size))
    labels = rng.permuted(np.tile(np.arange(count), (batch, 1)), axis=1)
    active = rng.permuted(np.tile(np.arange(count) < active_count, (batch, 1)), axis=1)
    return vectors, labels, active


def _sequences(
    vectors: np.ndarray, labels: np.ndarray, active: np.ndarray, question: tuple[np.ndarray, ...]
) -> np.ndarray:
    """Return the rows of every question; a row is a vector, its label and the question (n, m)."""
    count = labels.shape[1]
    one_hot = np.eye(count, dtype="float32")
    rows = [np.repeat(one_hot[part][:, None], count, axis=1) for part in question]
    contents = np.concatenate([vectors, one_hot[labels]], axis=-1) * active[..., None]
    return np.concatenate([contents, *rows], axis=-1).astype("float32")


def _ranked(vectors: np.ndarray, active: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return row numbers `(B, T)` in ascending order of the distance to row `reference`."""
    center = vectors[np.arange(len(vectors)), reference][:, None]
    distances = ((vectors - center) ** 2).sum(axis=-1)  # (B, T)
    return np.argsort(np.where(active, distances, np.inf), axis=1)


def _part_of(name: str, value: int | None, whole: int) -> int:
    """Return `value` as an int from 1 to `whole`; `None` is `whole`."""
    part = whole if value is None else positive_int(name, value)
    if part > whole:
        raise InvalidInput(f"`{name}` must be at most {whole}; received {value!r}")
    return part


def nth_farthest_floors(
    num_vectors: int = 8, dimension: int = 16, num_questions: int = 200_000, seed: int = 0
) -> dict[str, float]:
    """Estimate the accuracy of baselines that do not compare vectors with each other.

    - `"chance"` answers a random label.
    - `"no geometry"` answers m if n is the rank of vector m itself, and otherwise a random label
      except m.
    - `"norms only"` also answers m in this case; otherwise, it ranks the vectors by their norms
      instead of their distances to vector m.

    Only an accuracy above that of `"norms only"` shows that a model compares vectors. The
    accuracies are the same for both orders of the task.

    Args:
        num_vectors: number of vectors T in a question.
        dimension: size of a vector.
        num_questions: number of simulated questions. The standard error of an accuracy is at most
            `0.5 / sqrt(num_questions)`.
        seed: int.

    Returns:
        A dict baseline → accuracy, from 0 to 1.

    Raises:
        InvalidInput: if a size is not positive.

    Example:

    >>> floors = nth_farthest_floors(8, 16, num_questions=50_000)
    >>> {policy: round(accuracy, 2) for policy, accuracy in floors.items()}
    {'chance': 0.13, 'no geometry': 0.25, 'norms only': 0.31}
    """
    drawn = sample_nth_farthest(num_questions, num_vectors, dimension, "paper", [seed, 0])
    sequences, answers = drawn
    vectors, labels, n, m = np.split(sequences, dimension + num_vectors * np.arange(3), axis=-1)
    labels, n, m = labels.argmax(-1), n[:, 0].argmax(-1), m[:, 0].argmax(-1)
    rng = np.random.default_rng([seed, 1])
    questions = np.arange(num_questions)

    def accuracy(guessed_distances):
        guessed_distances = np.where(labels == m[:, None], -1.0, guessed_distances)
        ranked = np.argsort(-guessed_distances, axis=1)
        return float(np.mean(labels[questions, ranked[questions, n]] == answers))

    return {
        "chance": float(np.mean(rng.integers(num_vectors, size=num_questions) == answers)),
        "no geometry": accuracy(rng.random(labels.shape)),
        "norms only": accuracy((vectors**2).sum(axis=-1)),
    }


class NthFarthest(FreshBatches):
    """A dataset for `fit` that samples new questions in every batch.

    `sample_nth_farthest` never returns the same questions for a seed below 2**128, so it can
    generate test data.

    Args:
        batch_size: number of questions B in a batch.
        steps, seed, epoch: as in `FreshBatches`.
        num_vectors, dimension, order: as in `sample_nth_farthest`.
        stages: stages of a curriculum from the easiest to the hardest: tuples (`active_vectors`,
            `active_dimensions`, `farthest_ranks`, `preceding_vectors`) as in
            `sample_nth_farthest`. By default, there is one stage, the full task.

    Attributes:
        stage: index of the current stage; set it to move to another stage.

    Raises:
        InvalidInput: if an argument is invalid, as in `FreshBatches` and `sample_nth_farthest`.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(4, "softmax")])
    >>> model.compile("adam", "sparse_categorical_crossentropy")
    >>> data = NthFarthest(batch_size=8, steps=5, num_vectors=4, dimension=4)
    >>> history = model.fit(data, epochs=2, verbose=0)
    >>> len(history.history["loss"])
    2
    """

    def __init__(
        self,
        batch_size: int,
        steps: int,
        num_vectors: int = 8,
        dimension: int = 16,
        order: str = "paper",
        seed: int = 0,
        stages: Sequence[tuple[int | None, ...]] = ((None, None, None, None),),
        epoch: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(steps, seed, epoch, **kwargs)
        self.batch_size = batch_size
        self.num_vectors, self.dimension, self.order = num_vectors, dimension, order
        self.stages = tuple(stages)
        self.stage = 0
        for stage in self.stages:  # raises an error for invalid arguments
            self._sample(0, stage)

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Sample the questions and answers of one batch of the current stage."""
        return self._sample(rng, self.stages[self.stage])

    def _sample(self, seed, stage):
        return sample_nth_farthest(
            self.batch_size, self.num_vectors, self.dimension, self.order, seed, *stage
        )
