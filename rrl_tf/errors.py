"""The mistakes that a user can mend."""


class InvalidInput(ValueError):
    """A value, file or data set that cannot be worked with.

    The message says what is wrong, what was received and what was expected. Command lines show it
    as one line; every other exception is a bug and keeps its traceback.

    Example:
        >>> raise InvalidInput("batch_size must be at least 1; received 0")
        Traceback (most recent call last):
        rrl_tf.errors.InvalidInput: batch_size must be at least 1; received 0
    """
