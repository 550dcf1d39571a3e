"""Define functions that check arguments and arrays of checkpoints, and return or assign them."""

from __future__ import annotations

import math
import numbers
import pathlib
import reprlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from rrl_tf.errors import InvalidInput

Value = TypeVar("Value")
Seed = int | Sequence[int] | np.random.Generator
"""The type of the argument of `random_generator`."""


def one_of(name: str, value: Value, choices: Collection[Any]) -> Value:
    """Return `value`, or raise an `InvalidInput` that lists the `choices`."""
    if value not in choices:
        raise InvalidInput(f"`{name}` must be one of {choices}; received {value!r}")
    return value


def integer(name: str, value: Any) -> int:
    """Return a Python or NumPy integer as an int, or raise an `InvalidInput`."""
    if not _is_integer(value):
        raise InvalidInput(f"`{name}` must be an integer; received {value!r}")
    return int(value)


def _is_integer(value, least=-math.inf):
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and value >= least


def natural(name: str, value: Any) -> int:
    """Return `value` as an int of at least 0, or raise an `InvalidInput`."""
    if not _is_integer(value, 0):
        raise InvalidInput(f"`{name}` must be an integer of at least 0; received {value!r}")
    return int(value)


def integers_from(name: str, value: Any, least: int) -> tuple[int, ...]:
    """Return an integer, or a sequence of integers, as a tuple.

    Raises:
        InvalidInput: if the sequence is empty, or an element is not an integer or is below `least`.
    """
    values = tuple(value) if isinstance(value, Iterable) else (value,)
    if not values or not all(_is_integer(each, least) for each in values):
        raise InvalidInput(
            f"`{name}` must be an integer of at least {least}, or a sequence of these; "
            f"received {value!r}"
        )
    return tuple(map(int, values))


def optional_integer(name: str, value: Any) -> int | None:
    """Return None if `value` is None, and otherwise the result of `integer`."""
    return None if value is None else integer(name, value)


def optional_dict(name: str, value: Any, default: dict[str, Any] | None = None) -> Any:
    """Return a copy of the dict `value`, or the default if `value` is None.

    Raises:
        InvalidInput: if `value` is neither a mapping nor None.
    """
    if not isinstance(value, Mapping | None):
        raise InvalidInput(f"`{name}` must be a dict; received {value!r}")
    return default if value is None else dict(value)


def positive_int(name: str, value: Any) -> int:
    """Return `value` as an int of at least 1, or raise an `InvalidInput`."""
    if not _is_integer(value, 1):
        raise InvalidInput(f"`{name}` must be a positive integer; received {value!r}")
    return int(value)


def optional_positive_int(name: str, value: Any) -> int | None:
    """Return None if `value` is None, and otherwise the result of `positive_int`."""
    return None if value is None else positive_int(name, value)


def positive_ints(name: str, values: Iterable[Any]) -> tuple[int, ...]:
    """Return an iterable of positive integers as a tuple, or raise an `InvalidInput`."""
    if not isinstance(values, Iterable):
        raise InvalidInput(f"`{name}` must be a sequence of positive integers; received {values!r}")
    return tuple(positive_int(name, value) for value in values)


def number_from(name: str, value: Any, least: float, most: float = math.inf) -> Any:
    """Return `value`, or raise an `InvalidInput` unless it is finite and in [`least`, `most`]."""
    try:
        is_valid = least <= value <= most and value != math.inf  # nan makes the comparison false
    except (TypeError, ValueError):  # not comparable with numbers
        is_valid = False
    if not is_valid:
        bounds = f"at least {least} and finite" if most == math.inf else f"from {least} to {most}"
        raise InvalidInput(f"`{name}` must be {bounds}; received {value!r}")
    return value


def random_generator(seed: Seed) -> np.random.Generator:
    """Return `np.random.default_rng(seed)`, or raise an `InvalidInput` if the seed is not valid."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            "`seed` must be an integer of at least 0, a sequence of these, or a "
            f"numpy.random.Generator; received {reprlib.repr(seed)}"
        ) from error


def batch_generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """Return the random generator of one training batch.

    Its random numbers differ from those of every integer seed. A seed `[seed, epoch, index]` would
    not ensure this: NumPy pads seeds with zeros, so `[7, 0, 0]` equals 7.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(epoch, index)))


def dropout_rate(name: str, value: Any) -> float:
    """Return `value`, or raise an `InvalidInput` unless it is in [0, 1)."""
    if not isinstance(value, numbers.Real) or not 0 <= float(value) < 1:
        raise InvalidInput(f"`{name}` must be in [0, 1); received {value!r}")
    return float(value)


def path_of(name: str, value: Any) -> pathlib.Path:
    """Return `value` as a path, or raise an `InvalidInput` if no file can have this path."""
    try:
        path = pathlib.Path(value)
        str(path).encode()  # TensorFlow cannot open a path that is not UTF-8
        path.lstat()
    except FileNotFoundError:
        pass
    except (OSError, TypeError, ValueError) as error:  # not UTF-8, too long, or below a file
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(
            f"`{name}` must be a path; received {reprlib.repr(value)} ({reason})"
        ) from error
    return path


def finite(name: str, values: np.ndarray) -> np.ndarray:
    """Return `values`, or raise an `InvalidInput` if a value is nan or too large for float32."""
    held = np.abs(values) <= np.finfo(np.float32).max  # nan makes the comparison false
    if not held.all():
        raise InvalidInput(f"{name} must be finite in float32; received {values[~held][0]}")
    return values


def array_of(name: str, value: Any, dtype: Any) -> np.ndarray:
    """Convert a number, a nested list or a tensor to a NumPy array of the given dtype.

    Raises:
        InvalidInput: if the value is not numeric, or if the dtype is an integer type and a number
            is a float or out of range.
    """
    dtype = np.dtype(dtype)
    is_whole, is_number = dtype.kind in "iu", dtype.kind in "iuf"
    kind = f"{'whole ' if is_whole else ''}numbers ({dtype})"
    try:
        array = np.asarray(value, None if is_number else dtype)
    except (RuntimeError, TypeError, ValueError) as error:  # RuntimeError for a symbolic tensor
        raise InvalidInput(
            f"{name} must be an array of {kind}; received {reprlib.repr(value)}"
        ) from error
    if array.dtype == dtype or not array.size:
        return array.astype(dtype, copy=False)
    if array.dtype.kind not in ("biu" if is_whole else "biuf"):
        values = array.ravel()
        first = np.argmax(values != np.trunc(values)) if array.dtype.kind == "f" else 0
        received = reprlib.repr(values[first : first + 1].tolist()[0])
        raise InvalidInput(f"{name} must be {kind}; received {received}")
    if is_whole:
        limits = np.iinfo(dtype)
        beyond = array[(array < limits.min) | (array > limits.max)]
        if beyond.size:
            raise InvalidInput(
                f"{name} must be {dtype}, {limits.min} to {limits.max}; received {beyond[0]}"
            )
    return array.astype(dtype)


def not_finite(array: np.ndarray) -> str | None:
    """Return why an array does not hold finite real numbers, or None if it does.

    The reason is the first value that is not finite, or the name of the dtype if that is complex,
    an object or a string.
    """
    if array.dtype.kind in "cOSU":
        return str(array.dtype)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return str(array[~np.isfinite(array)].flat[0])
    return None


def stored_arrays(
    part: str,
    stored: Mapping[str, Any],
    expected: Mapping[str, tuple[Sequence[int], Any]],
) -> dict[str, np.ndarray]:
    """Return the expected arrays of one part of a checkpoint.

    Args:
        part: name of the part, for the error message.
        stored: dict name -> array; names that are not expected are ignored.
        expected: dict name -> (shape, dtype).

    Raises:
        InvalidInput: if an array is missing, or has a wrong shape or dtype, or contains nan.
    """
    for name, (shape, dtype) in expected.items():
        array = np.asarray(stored.get(name))
        received = f"{array.dtype}{array.shape}" if name in stored else "none"
        wanted = f"{np.dtype(dtype)}{tuple(shape)}"
        if received == wanted and array.dtype.kind == "f":
            received += " with nan" if np.isnan(array).any() else ""
        if received != wanted:
            raise InvalidInput(f"{part} state {name!r} must be {wanted}; received {received}")
    return {name: stored[name] for name in expected}


def variable_arrays(groups: Mapping[str, Sequence[Any]]) -> dict[str, np.ndarray]:
    """Return the values of variables; `groups` is a dict name -> Keras variables in fixed order."""
    return {name: np.asarray(variable) for name, variable in _numbered(groups).items()}


def assign_arrays(
    part: str, groups: Mapping[str, Sequence[Any]], arrays: Mapping[str, Any]
) -> None:
    """Set the variables of a `part` to the arrays that `variable_arrays` returned.

    Raises:
        InvalidInput: if an array is missing, unknown, not finite or of a wrong shape. The message
            lists up to three problems, and no variable is changed.
    """
    variables = _numbered(groups)
    wrong = [f"missing {name}" for name in variables if name not in arrays]
    wrong += [f"unknown {name}" for name in arrays if name not in variables]
    wrong += [
        f"{name} is {arrays[name].shape}, expected {tuple(variable.shape)}"
        for name, variable in variables.items()
        if name in arrays and arrays[name].shape != tuple(variable.shape)
    ]
    received = {name: not_finite(array) for name, array in arrays.items()}
    wrong += [f"{name} contains {x}, expected finite numbers" for name, x in received.items() if x]
    if wrong:
        more = f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise InvalidInput(f"stored variables do not fit {part}: {'; '.join(wrong[:3])}{more}")
    for name, variable in variables.items():
        variable.assign(arrays[name])


def _numbered(groups):
    """Return the variables by group and number, because their own paths are not unique."""
    return {f"{group}/{i:03d}": x for group, values in groups.items() for i, x in enumerate(values)}


def reset_option(name: str, options: Mapping[str, Any] | None) -> Any:
    """Return `options[name]` for an environment whose `reset` has this option only.

    Returns None if `options` is None or lacks the name. Any other name raises an `InvalidInput`,
    because ignoring a misspelled option would start an episode that the caller did not ask for.
    """
    if options is None:
        return None
    if not isinstance(options, Mapping):
        raise InvalidInput(f"options of reset must be a dict; received {options!r}")
    if others := [other for other in options if other != name]:
        raise InvalidInput(f"the only option of reset is {name!r}; received {others}")
    return options.get(name)
