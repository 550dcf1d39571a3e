"""Define `Effects`, the outputs of a model after changes, and intervals over states."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Effects:
    """The outputs of a model for B states, without and with K changes.

    Attributes:
        names: K names of the changes.
        before: `(B, A)`, outputs without a change, such as Q values.
        after: `(K, B, A)`, outputs with each change.
    """

    names: tuple[str, ...]
    before: np.ndarray
    after: np.ndarray

    @property
    def choice(self) -> np.ndarray:
        """The original choice `(B,)`: the index of the largest output."""
        return self.before.argmax(axis=-1)

    @property
    def drop(self) -> np.ndarray:
        """The decrease of the output of the original choice, `(K, B)`."""
        rows = np.arange(len(self.before))
        return (self.before - self.after)[..., rows, self.choice]

    @property
    def same(self) -> np.ndarray:
        """Whether the choice stays the same, `(K, B)`."""
        return self.after.argmax(axis=-1) == self.choice

    def rows(self) -> list[dict[str, object]]:
        """Return a table with one row per change: means over states, with 95 % intervals."""
        low, high = interval(self.drop)
        return [
            {
                "change": name,
                "drop of the output": float(drop.mean()),
                "low": float(a),
                "high": float(b),
                "same choice": float(same.mean()),
            }
            for name, drop, a, b, same in zip(self.names, self.drop, low, high, self.same)
        ]


def interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the 95 % interval of the mean over the last axis, from 1,000 samples of B states.

    Args:
        values: `(..., B)`.

    Example:
        >>> low, high = interval(np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 3.0]]))
        >>> low.tolist(), high.tolist()
        ([1.0, 0.0], [1.0, 3.0])
    """
    count = values.shape[-1]
    draws = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), size=1000)
    low, high = np.quantile(values @ (draws / count).T, (0.025, 0.975), axis=-1)
    return low, high
