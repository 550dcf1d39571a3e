"""Define functions that name the parts of observations, as the inputs of an exported policy."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from rrl_tf.errors import InvalidInput


def named_parts(value: Any, name: str = "") -> dict[str, Any]:
    """Return a dict name -> part of a nested observation, or of a nested space of Gymnasium.

    Parts of a mapping have its keys as names, and those of a tuple `part_0`, `part_1`, ... Names of
    nested parts are joined by `_`. An array, a list or a number is one part, `observation`.

    Raises:
        InvalidInput: if two parts have the same name.
    """
    if isinstance(value, Mapping):
        items = [(str(key), part) for key, part in value.items()]
    elif isinstance(value, Sequence) and not isinstance(value, list | str | bytes):
        items = [(f"part_{i}", part) for i, part in enumerate(value)]
    else:
        return {name or "observation": value}
    named = [named_parts(part, f"{name}_{key}" if name else key) for key, part in items]
    parts = {name: part for each in named for name, part in each.items()}
    if len(parts) < sum(map(len, named)):
        raise InvalidInput(f"parts of an observation must have different names; received {value!r}")
    return parts


def observation_parts(observation: Any, names: Collection[str]) -> dict[str, Any]:
    """Return `named_parts` of an observation, or of a batch; a single part needs no name.

    Raises:
        InvalidInput: if the parts do not have these names.
    """
    if len(names) == 1 and not isinstance(observation, Mapping):
        return dict.fromkeys(names, observation)
    parts = named_parts(observation)
    if parts.keys() != set(names):
        received = sorted(parts) if parts.keys() != {"observation"} else reprlib.repr(observation)
        raise InvalidInput(
            f"`observation` must have the parts {sorted(names)}; received {received}"
        )
    return parts


def batch_of(
    parts: Mapping[str, Any],
    specs: Mapping[str, tuple[Any, Sequence[int]]],
    as_array: Callable[[str, Any, Any], np.ndarray],
) -> tuple[dict[str, np.ndarray], bool]:
    """Return the parts of an observation with a batch axis, and whether they had none.

    Args:
        parts: dict name -> part of one observation, or of a batch.
        specs: dict name -> (dtype, shape), where the shape includes the batch axis.
        as_array: function of a name, a part and a dtype that returns the part as an array.

    Raises:
        InvalidInput: if some parts have a batch axis, and others have none.
    """
    arrays = {name: as_array(name, part, specs[name][0]) for name, part in parts.items()}
    single = {array.ndim == len(specs[name][1]) - 1 for name, array in arrays.items()}
    if len(single) > 1:
        raise InvalidInput(
            "the parts of an observation must have a batch axis either all or none; received the "
            f"shapes { {name: array.shape for name, array in arrays.items()} }"
        )
    if single == {True}:
        arrays = {name: array[np.newaxis] for name, array in arrays.items()}
    return arrays, single == {True}
