"""All that a compiled Keras model needs to go on as if it had never stopped."""

from __future__ import annotations

from collections.abc import Mapping

import keras
import numpy as np

from rrl_tf._arguments import not_finite
from rrl_tf.errors import InvalidInput


def model_state(model: keras.Model) -> dict[str, np.ndarray]:
    """Weights, random states and the optimiser's variables of a built and compiled model.

    Example:
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> {name: array.shape for name, array in model_state(model).items()}
        {'model/0': (2, 1), 'model/1': (1,), 'optimizer/0': (), 'optimizer/1': ()}
    """
    return {name: np.asarray(value) for name, value in _variables(model).items()}


def set_model_state(model: keras.Model, arrays: Mapping[str, np.ndarray]) -> None:
    """Fills a model from what `model_state` gave, all of it or nothing.

    Raises:
        InvalidInput: if it is of another model.
        ValueError: if it holds what no training leaves: other than numbers, nan or infinity.
    """
    variables = _variables(model)
    stored = {name: array.shape for name, array in arrays.items()}
    if stored != {name: tuple(variable.shape) for name, variable in variables.items()}:
        raise InvalidInput(f"its checkpoint is of another model than {model.name}")
    for name, array in arrays.items():
        if (received := not_finite(array)) is not None:
            raise ValueError(f"{name} must be real numbers that are finite; received {received}")
    for name, variable in variables.items():
        variable.assign(arrays[name])


def _variables(model):
    """Name → variable of weights, random states and optimiser; by position, as paths repeat."""
    parts = {"model": model.variables, "optimizer": model.optimizer.variables}
    return {f"{part}/{i}": v for part, values in parts.items() for i, v in enumerate(values)}
