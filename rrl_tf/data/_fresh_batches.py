"""The base class of data sets whose batches are sampled."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from rrl_tf._arguments import batch_generator, natural, positive_int


class FreshBatches(keras.utils.PyDataset):
    """A data set for `fit` whose batches never repeat; a subclass defines `draw`.

    A batch depends only on the seed, the epoch and its index, so that a resumed training sees the
    batches that it would have seen.

    Args:
        steps: batches per epoch.
        seed: int from 0 up.
        epoch: number of the first epoch. Keras also counts once before the first epoch.
        **kwargs: arguments of `keras.utils.PyDataset`.

    Raises:
        InvalidInput: if `steps` is not positive, or the seed or epoch is negative.
    """

    def __init__(self, steps: int, seed: int, epoch: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.steps = positive_int("steps", steps)
        self.seed, self.epoch = natural("seed", seed), natural("epoch", epoch)

    def draw(self, rng: np.random.Generator) -> tuple[Any, np.ndarray]:
        """Return the inputs and targets of a batch."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, index: int) -> tuple[Any, np.ndarray]:
        return self.draw(batch_generator(self.seed, self.epoch, index))

    def on_epoch_end(self) -> None:
        self.epoch += 1
