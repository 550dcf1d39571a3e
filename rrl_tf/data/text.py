"""Load a text and cut it into batches of characters for stateful recurrent models."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from rrl_tf._arguments import positive_int
from rrl_tf.errors import InvalidInput

SHAKESPEARE = pathlib.Path(__file__).with_name("shakespeare.txt")
"""Coriolanus and most of Richard III by William Shakespeare, 280 KB, in the public domain."""


def load_text(path: str | os.PathLike | None = None, min_characters: int = 1) -> str:
    """Read a text file.

    Args:
        path: a file in UTF-8. `None` is `SHAKESPEARE`.
        min_characters: minimum length of the text in characters.

    Returns:
        A string.

    Raises:
        InvalidInput: if the file cannot be read, is not UTF-8, or is too short.

    Example:

    >>> load_text()[:14]
    'First Citizen:'
    """
    path = SHAKESPEARE if path is None else pathlib.Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"the text file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"the text file {path} must be in UTF-8; received the byte "
            f"{error.object[error.start]:#x} at position {error.start}"
        ) from error
    if len(text) < min_characters:
        raise InvalidInput(
            f"the text file {path} must have at least {min_characters:,} characters; "
            f"received {len(text):,}"
        )
    return text


class Characters:
    """The characters of a text, numbered 0, 1, ... in the order of their code points.

    Args:
        text: text whose characters are numbered.

    Example:

    >>> characters = Characters("banana")
    >>> characters.encode("nab").tolist(), characters.decode([2, 0, 1])
    ([2, 0, 1], 'nab')
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._known = sorted(set(text))
        self._codes = {character: code for code, character in enumerate(self._known)}

    def __len__(self) -> int:
        return len(self._known)

    def encode(self, text: str) -> np.ndarray:
        """Return the numbers of a text's characters, `(T,)` int32.

        Raises:
            InvalidInput: if a character does not occur in the original text.
        """
        if unknown := sorted(set(text) - set(self._known)):
            raise InvalidInput(
                f"`text` must have only characters of the original text; received {unknown[0]!r}"
            )
        return np.array([self._codes[character] for character in text], "int32")

    def decode(self, codes: Sequence[int] | np.ndarray) -> str:
        """Return the text of a sequence of character numbers."""
        return "".join(self._known[code] for code in codes)


def split_text(codes: np.ndarray, held_out: float = 0.1) -> dict[str, np.ndarray]:
    """Split a text into three consecutive parts for training, validation and testing.

    Args:
        codes: `(M,)`, character numbers of the whole text.
        held_out: fraction of the text in the validation part, and in the test part.

    Returns:
        A dict `"train"`, `"validation"`, `"test"` → array.

    Example:

    >>> {part: len(codes) for part, codes in split_text(np.arange(100)).items()}
    {'train': 80, 'validation': 10, 'test': 10}
    """
    size = int(len(codes) * held_out)
    parts = np.split(codes, [len(codes) - 2 * size, len(codes) - size])
    return dict(zip(("train", "validation", "test"), parts))


class TextBatches(keras.utils.PyDataset):
    """A dataset for `fit` of a text that is cut into B rows; a batch has T characters of each row.

    Row i of a batch continues row i of the previous batch, so a stateful recurrent layer reads each
    row from its beginning to its end. The target of a character is the next character of the row.

    Args:
        codes: `(M,)` int, character numbers of the text. Characters at the end of each row that do
            not fill a batch are not used.
        batch_size: number of rows B.
        length: number of characters T of each row in a batch.

    Attributes:
        rows: `(B, R)`, the character numbers of the rows; `R - 1` is a multiple of T.

    Raises:
        InvalidInput: if the text is too short for one batch.

    Example:

    >>> inputs, targets = TextBatches(np.arange(100), batch_size=4, length=8)[0]
    >>> inputs.shape, inputs[1, :3].tolist(), targets[1, :3].tolist()
    ((4, 8), [24, 25, 26], [25, 26, 27])
    """

    def __init__(self, codes: np.ndarray, batch_size: int, length: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.codes = np.asarray(codes)
        self.batch_size = positive_int("batch_size", batch_size)
        self.length = positive_int("length", length)
        characters = (len(codes) - 1) // self.batch_size
        self.steps = characters // self.length
        if self.steps == 0:
            raise InvalidInput(
                f"`codes` must have at least {batch_size * length + 1:,} characters for one batch "
                f"of {batch_size} rows of {length}; received {len(codes):,}"
            )
        starts = characters * np.arange(self.batch_size)[:, None]
        self.rows = self.codes[starts + np.arange(self.steps * self.length + 1)]

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        begin = index * self.length
        batch = self.rows[:, begin : begin + self.length + 1]
        return batch[:, :-1], batch[:, 1:]


def character_frequencies_bits(
    train: Sequence[int] | np.ndarray, held_out: Sequence[int] | np.ndarray
) -> float:
    """Return the loss, in bits per character, of a model that predicts character frequencies.

    Args:
        train: `(M,)` int, character numbers of the text whose frequencies the model predicts; one
            is added to every count.
        held_out: `(K,)` int, character numbers of the text on which the loss is computed.

    Example:

    >>> round(character_frequencies_bits([0, 1, 0, 1], [0, 1, 1]), 3)
    1.0
    """
    size = max(np.max(train), np.max(held_out)) + 1
    counts = np.bincount(train, minlength=size) + 1
    return float(-np.log2(counts / counts.sum())[held_out].mean())
