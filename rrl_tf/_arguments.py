"""Checks of constructor arguments."""

import operator

from rrl_tf.errors import InvalidInput


def one_of(name, value, choices):
    """Returns `value`, or raises a `ValueError` that lists the `choices`."""
    if value not in choices:
        raise InvalidInput(f"`{name}` must be one of {choices}. Received: {value!r}")
    return value


def positive_int(name, value):
    """Returns `value` as an int (NumPy's count too), or raises a `ValueError`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1 or isinstance(value, bool):
        raise InvalidInput(f"`{name}` must be a positive integer. Received: {value!r}")
    return number


def optional_positive_int(name, value):
    """As `positive_int`, and None stays None."""
    return None if value is None else positive_int(name, value)


def positive_ints(name, values):
    """A tuple of positive integers, or raises a `ValueError`."""
    return tuple(positive_int(name, value) for value in values)
