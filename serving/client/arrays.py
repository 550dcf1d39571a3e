"""Observations and inputs as arrays, and the outputs of `act`."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from serving.errors import ServingError

#: The dtype of an array of strings.
STRINGS = np.dtype(object)


def as_batch(observation: Any, signature: Mapping[str, Any]) -> tuple[np.ndarray, bool]:
    """Return the observations as a batch, and whether a single one was given.

    Raises:
        ValueError: If the policy takes more than an observation, or the dtype of its observations
            does not hold the values of a list.
    """
    inputs = signature["inputs"]
    if inputs.keys() != {"observation"}:
        session = "MemorySession" if "memory" in inputs else "WindowSession"
        raise ValueError(
            "`act` needs a policy with the single input 'observation'; received a policy with "
            f"{sorted(inputs)}. Use `serving.sessions.{session}` or `predict`."
        )
    dtype, shape = inputs["observation"]
    if not isinstance(observation, np.ndarray):
        observation = _exact_array(observation, dtype, shape)
    # The server reports an array of another shape or dtype.
    single = observation.ndim == len(shape) - 1
    return (observation[np.newaxis] if single else observation), single


def _exact_array(observation, dtype, shape):
    """Return a list as an array; NumPy alone converts 0.9 to 0 in an array of integers."""
    dtype = np.dtype(dtype)
    try:
        array = np.array(observation, dtype)
        exact = dtype.kind not in "iu" or np.array_equal(array, np.asarray(observation))
    except (OverflowError, TypeError, ValueError):
        exact = False
    if not exact:
        raise ValueError(
            f"`observation` must be an array of {dtype} of shape {shape[1:]}, or a batch of them; "
            f"received {reprlib.repr(observation)}."
        )
    return array


def split_outputs(
    outputs: Mapping[str, np.ndarray], single: bool, return_attention_scores: bool
) -> Any:
    """Return the action, and the scores if they are requested, of the outputs for a batch.

    Scores are a dict from the name of a round to its array, in the order of the rounds: signatures
    and protocols keep no order.
    """
    if single:
        outputs = {name: array[0] for name, array in outputs.items()}
    action: Any = outputs["action"]
    if single and np.ndim(action) == 0:
        action = int(action)
    if not return_attention_scores:
        return action
    names = [name for name in outputs if name.startswith("attention_")]
    names.sort(key=lambda name: (len(name), name))  # round_2 before round_10
    return action, {name.removeprefix("attention_"): outputs[name] for name in names}


def as_arrays(inputs: Mapping[str, Any], signature: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the inputs as arrays to send; strings become bytes in an array of objects."""
    if not isinstance(inputs, Mapping):
        raise ValueError(
            f"`inputs` must be a dict with the names {sorted(signature['inputs'])}; "
            f"received {reprlib.repr(inputs)}."
        )
    arrays = {}
    for name, value in inputs.items():
        dtype, _ = signature["inputs"].get(name, (None, None))
        # Arrays of NumPy's string dtypes drop zero bytes at the end of each string.
        as_objects = dtype == STRINGS and not isinstance(value, np.ndarray)
        array = np.asarray(value, object if as_objects else None)
        arrays[name] = as_bytes(name, array) if array.dtype.kind in "OSU" else array
    return arrays


def as_bytes(name: str, strings: np.ndarray) -> np.ndarray:
    """Return an array of strings as an array of `bytes` objects."""

    def encode(entry):
        if not isinstance(entry, str | bytes):
            raise ServingError(
                "INVALID_ARGUMENT",
                f"the entries of {name!r} must be strings or bytes; received {reprlib.repr(entry)}",
            )
        return entry.encode() if isinstance(entry, str) else entry

    return np.asarray(np.frompyfunc(encode, 1, 1)(strings.astype(object)), object)
