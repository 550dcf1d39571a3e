"""What XLA cannot compile, told in one sentence."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from rrl_tf.errors import InvalidInput


@contextlib.contextmanager
def compilation_told() -> Iterator[None]:
    """A step that XLA cannot compile, while this is entered, is told with what to do.

    Raises:
        InvalidInput: instead of what TensorFlow raises, pages long.

    Example:
        >>> length = tf.function(tf.strings.length, jit_compile=True)  # XLA knows no text
        >>> with compilation_told():  # doctest: +ELLIPSIS
        ...     length(tf.constant("abc"))
        Traceback (most recent call last):
        rrl_tf.errors.InvalidInput: jit_compile needs a step that XLA can compile: ...
    """
    try:
        yield
    except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError) as error:
        if "XLA" not in error.message:
            raise
        first = error.message.strip().splitlines()[0]
        raise InvalidInput(
            f"jit_compile needs a step that XLA can compile: use --no-jit-compile; received one "
            f"of which XLA says: {first[:200]}"
        ) from error
