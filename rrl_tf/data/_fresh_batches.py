"""Define `FreshBatches`, the base class of datasets whose batches are sampled."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from rrl_tf._arguments import batch_generator, natural, positive_int


class FreshBatches(keras.utils.PyDataset):
    """A dataset for `fit` that samples new batches in every epoch; a subclass defines `draw`.

    A batch depends only on the seed, the epoch and its index in the epoch. A resumed training
    therefore gets the same batches as an uninterrupted one.

    Args:
        steps: number of batches per epoch.
        seed: non-negative integer.
        epoch: number of the first epoch, not negative. Keras calls `on_epoch_end` once before
            training, so training itself begins with `epoch + 1`.
        **kwargs: arguments of `keras.utils.PyDataset`.

    Raises:
        InvalidInput: if `steps` is not positive, or `seed` or `epoch` is negative.
    """

    def __init__(self, steps: int, seed: int, epoch: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.steps = positive_int("steps", steps)
        self.seed, self.epoch = natural("seed", seed), natural("epoch", epoch)

    def draw(self, rng: np.random.Generator) -> tuple[Any, np.ndarray]:
        """Sample the inputs and targets of one batch."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, index: int) -> tuple[Any, np.ndarray]:
        return self.draw(batch_generator(self.seed, self.epoch, index))

    def on_epoch_end(self) -> None:
        self.epoch += 1
