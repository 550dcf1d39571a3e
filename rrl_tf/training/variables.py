"""Store the variables of a model or an agent in a checkpoint, and restore them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rrl_tf._arguments import not_finite
from rrl_tf.errors import InvalidInput


def variable_arrays(groups: Mapping[str, Sequence[Any]]) -> dict[str, np.ndarray]:
    """Return the values of variables as a dict name → array.

    The names contain the number of the variable in its group, because paths of variables are not
    unique.

    Args:
        groups: dict name → Keras variables, always in the same order.

    Example:
        >>> import keras
        >>> layer = keras.layers.Dense(1)
        >>> layer.build((None, 2))
        >>> arrays = variable_arrays({"layer": layer.variables})
        >>> {name: array.shape for name, array in arrays.items()}
        {'layer/000': (2, 1), 'layer/001': (1,)}
    """
    return {name: np.asarray(variable) for name, variable in _numbered(groups).items()}


def assign_arrays(
    part: str, groups: Mapping[str, Sequence[Any]], arrays: Mapping[str, np.ndarray]
) -> None:
    """Set variables to the arrays that `variable_arrays` returned.

    Args:
        part: what has the variables, for the error message.
        groups: as for `variable_arrays`.
        arrays: dict name → array.

    Raises:
        InvalidInput: if an array is missing, unknown, not finite or of a wrong shape. The message
            lists up to three problems, and no variable is changed.
    """
    variables = _numbered(groups)
    # Older checkpoints of `fit` have names without leading zeros.
    arrays = {re.sub(r"\d+$", lambda i: i[0].zfill(3), name): arrays[name] for name in arrays}
    wrong = [f"missing {name}" for name in variables if name not in arrays]
    wrong += [f"unknown {name}" for name in arrays if name not in variables]
    wrong += [
        f"{name} is {arrays[name].shape}, expected {tuple(variable.shape)}"
        for name, variable in variables.items()
        if name in arrays and arrays[name].shape != tuple(variable.shape)
    ]
    wrong += [
        f"{name} contains {received}, expected finite numbers"
        for name, array in arrays.items()
        if (received := not_finite(array)) is not None
    ]
    if wrong:
        more = f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise InvalidInput(f"the stored variables do not fit {part}: {'; '.join(wrong[:3])}{more}")
    for name, variable in variables.items():
        variable.assign(arrays[name])


def _numbered(groups):
    return {
        f"{group}/{position:03d}": variable
        for group, variables in groups.items()
        for position, variable in enumerate(variables)
    }
