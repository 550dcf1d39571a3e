"""Define `InvalidInput`, the error for mistakes that the user can correct."""


class InvalidInput(ValueError):
    """Error for an invalid value, file or dataset.

    The message names the argument, says what is valid and shows what was received. Commands print
    the message without a traceback. Any other exception is a bug and keeps its traceback.

    Example:
        >>> raise InvalidInput("batch_size must be at least 1; received 0")
        Traceback (most recent call last):
        rrl_tf.errors.InvalidInput: batch_size must be at least 1; received 0
    """
