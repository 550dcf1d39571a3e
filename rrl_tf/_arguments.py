"""Checks of arguments."""

from __future__ import annotations

import math
import numbers
import operator
import pathlib
import reprlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from rrl_tf.errors import InvalidInput

Value = TypeVar("Value")
Seed = int | Sequence[int] | np.random.Generator
"""What `random_generator` takes."""


def one_of(name: str, value: Value, choices: Collection[Any]) -> Value:
    """Returns `value`, or raises an `InvalidInput` that lists the `choices`."""
    if value not in choices:
        raise InvalidInput(f"`{name}` must be one of {choices}; received {value!r}")
    return value


def integer(name: str, value: Any) -> int:
    """Returns `value` as an int (NumPy's count too), or raises an `InvalidInput`."""
    if not _is_integer(value):
        raise InvalidInput(f"`{name}` must be an integer; received {value!r}")
    return int(value)


def _is_integer(value):
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def natural(name: str, value: Any) -> int:
    """As `integer`, and none below 0."""
    return int(number_from(name, integer(name, value), 0))


def integers_from(name: str, value: Any, least: int) -> tuple[int, ...]:
    """A tuple of an integer, or of several, none below `least`, or an `InvalidInput`."""
    values = tuple(value) if isinstance(value, Iterable) else (value,)
    if not values or not all(_is_integer(each) and each >= least for each in values):
        raise InvalidInput(
            f"{name} must be an integer from {least} up, or several; received {value!r}"
        )
    return tuple(map(int, values))


def optional_integer(name: str, value: Any) -> int | None:
    """As `integer`, and None stays None."""
    return None if value is None else integer(name, value)


def optional_dict(name: str, value: Any, default: dict[str, Any] | None = None) -> Any:
    """Return a new dict, or raise an `InvalidInput`; None becomes the default."""
    if not isinstance(value, Mapping | None):
        raise InvalidInput(f"`{name}` must be a dict; received {value!r}")
    return default if value is None else dict(value)


def positive_int(name: str, value: Any) -> int:
    """Returns `value` as an int (NumPy's count too), or raises an `InvalidInput`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1 or isinstance(value, bool):
        raise InvalidInput(f"`{name}` must be a positive integer; received {value!r}")
    return number


def optional_positive_int(name: str, value: Any) -> int | None:
    """As `positive_int`, and None stays None."""
    return None if value is None else positive_int(name, value)


def positive_ints(name: str, values: Iterable[Any]) -> tuple[int, ...]:
    """A tuple of positive integers, or raises an `InvalidInput`."""
    if not isinstance(values, Iterable):
        raise InvalidInput(f"`{name}` must be a sequence of positive integers; received {values!r}")
    return tuple(positive_int(name, value) for value in values)


def number_from(name: str, value: Any, least: float, most: float = math.inf) -> Any:
    """Returns `value`, or raises an `InvalidInput` unless it is finite and from `least` to `most`.

    Every comparison with nan is false, so that it is refused as well.
    """
    try:
        lies_between = least <= value <= most and value != math.inf
    except (TypeError, ValueError):  # it has no order with numbers
        lies_between = False
    if not lies_between:
        bounds = f"at least {least} and finite" if most == math.inf else f"from {least} to {most}"
        raise InvalidInput(f"{name} must be {bounds}; received {value!r}")
    return value


def random_generator(seed: Seed) -> np.random.Generator:
    """NumPy's generator of a seed, or an `InvalidInput` that says what a seed is."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            "`seed` must be an integer from 0 up, a sequence of these, or a "
            f"numpy.random.Generator; received {reprlib.repr(seed)}"
        ) from error


def batch_generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """What a batch of a training with this seed is drawn from: not what any seed gives alone.

    `[seed, epoch, index]` would not do: NumPy pads with zeros, so that [7, 0, 0] is 7.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(epoch, index)))


def dropout_rate(name: str, value: Any) -> float:
    """Returns `value`, or raises an `InvalidInput` unless it lies in [0, 1)."""
    is_number = isinstance(value, numbers.Real)
    if not is_number or not 0 <= value < 1:
        raise InvalidInput(f"`{name}` must be in [0, 1); received {value!r}")
    return value


def path_of(name: str, value: Any) -> pathlib.Path:
    """Returns a path, or raises an `InvalidInput` unless something is there or could be."""
    try:
        path = pathlib.Path(value)
        path.lstat()
    except FileNotFoundError:
        pass
    except (OSError, TypeError, ValueError) as error:  # the name is too long, below a file, no text
        why = getattr(error, "strerror", None) or error
        raise InvalidInput(
            f"`{name}` must be a path; received {reprlib.repr(value)} ({why})"
        ) from error
    return path


def finite(name: str, values: np.ndarray) -> np.ndarray:
    """Returns `values`, or raises an `InvalidInput` unless float32 holds them all as numbers."""
    held = np.abs(values) <= np.finfo(np.float32).max  # nan is not
    if not held.all():
        raise InvalidInput(f"{name} must be finite in float32; received {values[~held][0]}")
    return values


def array_of(name: str, value: Any, dtype: Any) -> np.ndarray:
    """Returns lists, a tensor, numbers as an array of a dtype of numbers that holds them all.

    Raises:
        InvalidInput: where NumPy's cast would cut off, wrap or make something up.
    """
    dtype = np.dtype(dtype)
    is_whole, is_number = dtype.kind in "iu", dtype.kind in "iuf"
    kind = f"{'whole ' if is_whole else ''}numbers ({dtype})"
    try:
        array = np.asarray(value, None if is_number else dtype)
    except (RuntimeError, TypeError, ValueError) as error:  # Runtime: a tensor that has no values
        raise InvalidInput(
            f"{name} takes an array of {kind}; received {reprlib.repr(value)}"
        ) from error
    if array.dtype == dtype or not array.size:
        return array.astype(dtype, copy=False)
    if array.dtype.kind not in ("biu" if is_whole else "biuf"):
        values = array.ravel()
        first = np.argmax(values != np.trunc(values)) if array.dtype.kind == "f" else 0
        received = reprlib.repr(values[first : first + 1].tolist()[0])
        raise InvalidInput(f"{name} takes {kind}; received {received}")
    if is_whole:
        limits = np.iinfo(dtype)
        beyond = array[(array < limits.min) | (array > limits.max)]
        if beyond.size:
            raise InvalidInput(
                f"{name} takes {dtype}, {limits.min} to {limits.max}; received {beyond[0]}"
            )
    return array.astype(dtype)


def not_finite(array: np.ndarray) -> str | None:
    """What keeps an array from being real numbers that are finite: a value, or its dtype."""
    if array.dtype.kind in "cOSU":
        return str(array.dtype)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return str(array[~np.isfinite(array)].flat[0])
    return None


def stored_arrays(
    part: str,
    stored: Mapping[str, Any],
    expected: Mapping[str, tuple[Sequence[int], Any]],
    may_be_nan: Collection[str] = (),
) -> dict[str, np.ndarray]:
    """The arrays of a part of a checkpoint, or an `InvalidInput` for the first that is another.

    Args:
        part: what the message calls it.
        stored: name → array.
        expected: name → shape and dtype.
        may_be_nan: names of those that may hold nan.
    """
    for name, (shape, dtype) in expected.items():
        array = np.asarray(stored.get(name))
        received = f"{array.dtype}{array.shape}" if name in stored else "none"
        wanted = f"{np.dtype(dtype)}{tuple(shape)}"
        if received == wanted and name not in may_be_nan and array.dtype.kind == "f":
            received += " with nan" if np.isnan(array).any() else ""
        if received != wanted:
            raise InvalidInput(f"{part} state {name!r} must be {wanted}; received {received}")
    return {name: stored[name] for name in expected}


def reset_option(name: str, options: Mapping[str, Any] | None) -> Any:
    """What `env.reset(options=options)` asks for under the only `name` it may have, or `None`.

    A name that is misspelt would otherwise begin some episode, and not the one that was meant.
    """
    if options is None:
        return None
    if not isinstance(options, Mapping):
        raise InvalidInput(f"options of reset must be a dict; received {options!r}")
    if others := [other for other in options if other != name]:
        raise InvalidInput(f"the only option of reset is {name!r}; received {others}")
    return options.get(name)
