"""Errors that a user can correct."""


class InvalidInput(ValueError):
    """An invalid value, file or data set.

    The message names the value, the expected and the received. Command lines print it as one line;
    every other exception is a bug and keeps its traceback.

    Example:
        >>> raise InvalidInput("batch_size must be at least 1; received 0")
        Traceback (most recent call last):
        rrl_tf.errors.InvalidInput: batch_size must be at least 1; received 0
    """
