"""Store the weights of a model in a file during a run, and use them again for an evaluation."""

from __future__ import annotations

import contextlib
import os
import pathlib
import zipfile
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from rrl_tf._arguments import finite
from rrl_tf._atomic import atomic_file
from rrl_tf.errors import InvalidInput


class SavedWeights:
    """Weights of a model in a file.

    Args:
        file: path of an `.npz` file, which appears only when it is complete.
        model: built `keras.Model`.

    Example:
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
        >>> model.set_weights([np.array([[1.0]])])
        >>> saved = SavedWeights("first.npz", model)
        >>> saved.save()
        >>> model.set_weights([np.array([[2.0]])])
        >>> with saved.restored():
        ...     model.get_weights()[0].tolist()
        [[1.0]]
    """

    def __init__(self, file: str | os.PathLike, model: keras.Model) -> None:
        self.file, self.model = pathlib.Path(file), model

    def save(self, **values: Any) -> None:
        """Store the current weights, with further named values."""
        kept = {f"arr_{i}": weights for i, weights in enumerate(self.model.get_weights())}
        with atomic_file(self.file) as draft, draft.open("wb") as file:
            np.savez(file, **kept, **values)

    def exists(self) -> bool:
        """Return whether weights are stored."""
        return self.file.exists()

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Set the model to the stored weights inside the `with` block.

        Raises:
            InvalidInput: if the file cannot be read.
        """
        current, kept = self.model.get_weights(), self._read()
        self.model.set_weights([kept[f"arr_{i}"] for i in range(len(current))])
        try:
            yield
        finally:
            self.model.set_weights(current)

    def _read(self) -> dict[str, np.ndarray]:
        try:
            with np.load(self.file) as arrays:
                return dict(arrays)
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise InvalidInput(
                f"{self.file} cannot be read ({error}). Remove it to continue without it."
            ) from error


class BestWeights(SavedWeights):
    """The weights of a model that have reached the best score.

    Args:
        file, model: as for `SavedWeights`.
        target: target return of the scores. If the file contains weights with a score for another
            target, the next call of `update` replaces them.

    Attributes:
        score: best score for `target`, or -infinity.
        kept_target: target return of the score of the stored weights.

    Raises:
        InvalidInput: if the file cannot be read, or its score is not finite.

    Example:
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
        >>> best = BestWeights("best.npz", model, target=1.0)
        >>> for score, weight in ((0.7, 1.0), (0.5, 2.0)):
        ...     model.set_weights([np.array([[weight]])])
        ...     best.update(score)
        >>> with best.restored():
        ...     model.get_weights()[0].tolist()
        [[1.0]]
    """

    def __init__(self, file: str | os.PathLike, model: keras.Model, target: float) -> None:
        super().__init__(file, model)
        self.score, self._target, self.kept_target = -np.inf, target, target
        if self.exists():
            kept = self._read()
            self.kept_target = float(kept["target"])
            score = float(finite(f"the score in {self.file}", kept["score"]))
            self.score = score if self.kept_target == target else -np.inf

    def update(self, score: float) -> None:
        """Store the current weights if their score is at least the best score.

        Raises:
            InvalidInput: if the score is not finite.
        """
        finite("`score`", np.asarray(score))
        if score >= self.score:
            self.score, self.kept_target = score, self._target
            self.save(score=score, target=self._target)
