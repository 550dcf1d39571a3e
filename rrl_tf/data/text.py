"""Texts as sequences of characters, cut into lanes that go on from batch to batch."""

import pathlib

import keras
import numpy as np

from rrl_tf._arguments import positive_int
from rrl_tf.errors import InvalidInput

SHAKESPEARE = pathlib.Path(__file__).with_name("shakespeare.txt")
"""Coriolanus and most of Richard III by William Shakespeare, 280 KB, in the public domain."""


def load_text(path=None, min_characters=1):
    """Reads a text.

    Args:
        path: a file in UTF-8. `None` is `SHAKESPEARE`.
        min_characters: how many the text must have.

    Returns:
        A string.

    Raises:
        ValueError: if the file cannot be read, is not UTF-8, or is too short.

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
            f"the text file {path} is not UTF-8: byte {error.object[error.start]:#x} at position "
            f"{error.start}"
        ) from error
    if len(text) < min_characters:
        raise InvalidInput(
            f"the text file {path} is too short: {len(text):,} characters, and at least "
            f"{min_characters:,} are needed"
        )
    return text


class Characters:
    """The characters of a text and their numbers, 0, 1, ... in the order of their code points.

    Args:
        text: the text.

    Example:

    >>> characters = Characters("banana")
    >>> characters.encode("nab").tolist(), characters.decode([2, 0, 1])
    ([2, 0, 1], 'nab')
    """

    def __init__(self, text):
        self._known = sorted(set(text))
        self._codes = {character: code for code, character in enumerate(self._known)}

    def __len__(self):
        return len(self._known)

    def encode(self, text):
        """Numbers of a text's characters, `(T,)` int32.

        Raises:
            ValueError: for a character that the text did not have.
        """
        if unknown := sorted(set(text) - set(self._known)):
            raise InvalidInput(f"{unknown[0]!r} in {text[:40]!r} is no character of the text")
        return np.array([self._codes[character] for character in text], "int32")

    def decode(self, codes):
        """The text of a sequence of numbers."""
        return "".join(self._known[code] for code in codes)


def split_text(codes, held_out=0.1):
    """Cuts a text into a beginning to train on, a part to validate on, and an end to test on.

    Args:
        codes: `(M,)`, the whole text.
        held_out: share of the text in each of the last two parts.

    Returns:
        A dict `"train"`, `"validation"`, `"test"` → array.

    Example:

    >>> {part: len(codes) for part, codes in split_text(np.arange(100)).items()}
    {'train': 80, 'validation': 10, 'test': 10}
    """
    size = int(len(codes) * held_out)
    parts = np.split(codes, [len(codes) - 2 * size, len(codes) - size])
    return dict(zip(("train", "validation", "test"), parts))


class TextLanes(keras.utils.PyDataset):
    """A text for `fit`: lanes side by side, and a batch is the next few characters of every lane.

    A recurrent layer that keeps its state from batch to batch reads every lane from its beginning
    to its end. What to predict is the character after each one.

    Args:
        codes: `(M,)` int, the text. What does not fill a batch at the end of a lane is left out.
        lanes: B.
        length: T, characters of every lane in a batch.

    Raises:
        ValueError: if the text is too short for one batch.

    Example:

    >>> inputs, targets = TextLanes(np.arange(100), lanes=4, length=8)[0]
    >>> inputs.shape, inputs[1, :3].tolist(), targets[1, :3].tolist()
    ((4, 8), [24, 25, 26], [25, 26, 27])
    """

    def __init__(self, codes, lanes, length, **kwargs):
        super().__init__(**kwargs)
        self.lanes, self.length = positive_int("lanes", lanes), positive_int("length", length)
        characters = (len(codes) - 1) // self.lanes
        self.steps = characters // self.length
        if self.steps == 0:
            raise InvalidInput(
                f"{len(codes):,} characters are too few for {lanes} lanes of {length}, which take "
                f"{lanes * length + 1:,}"
            )
        starts = characters * np.arange(self.lanes)[:, None]
        self.codes = np.asarray(codes)[starts + np.arange(self.steps * self.length + 1)]

    def __len__(self):
        return self.steps

    def __getitem__(self, index):
        begin = index * self.length
        batch = self.codes[:, begin : begin + self.length + 1]
        return batch[:, :-1], batch[:, 1:]


def character_frequencies_bits(train, held_out):
    """Bits per character of held-out text for a model that knows how frequent characters are.

    Args:
        train: `(M,)` int codes whose frequencies it knows; every count is raised by one.
        held_out: `(M,)` int codes.

    Example:

    >>> round(character_frequencies_bits([0, 1, 0, 1], [0, 1, 1]), 3)
    1.0
    """
    size = max(np.max(train), np.max(held_out)) + 1
    counts = np.bincount(train, minlength=size) + 1
    return float(-np.log2(counts / counts.sum())[held_out].mean())
