"""Convert observations and inputs to arrays, and the outputs of `act` to actions and scores."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from rrl_tf._observations import batch_of, observation_parts
from serving.errors import ServingError

#: The dtype of an array of strings.
STRINGS = np.dtype(object)


def as_batch(observation: Any, signature: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], bool]:
    """Return (input name -> batch, whether `observation` was a single one).

    Args:
        observation: One observation or a batch, as an array or as nested lists; or a dict or tuple
            of its parts, if the policy has an input for each.
        signature: The signature of the policy, from `Client.signatures`.

    Raises:
        ValueError: If the policy needs more than an observation, if a part is missing, or if a
            dtype cannot represent the values of a list.
    """
    inputs = signature["inputs"]
    if {"memory", "returns_to_go"} & inputs.keys():
        session = "MemorySession" if "memory" in inputs else "WindowSession"
        raise ValueError(
            "`act` needs a policy whose inputs are an observation; received a policy with "
            f"{sorted(inputs)}. Use `serving.sessions.{session}` or `predict`."
        )

    def as_array(name, value, dtype):
        # The server rejects an array of a wrong shape or dtype, so there is no check here.
        if isinstance(value, np.ndarray) and value.dtype != bool:
            return value
        return _exact_array(name, value, *inputs[name])

    return batch_of(observation_parts(observation, inputs), inputs, as_array)


def _exact_array(name, observation, dtype, shape):
    """Return a list as an array of `dtype`; raise ValueError if a value would change.

    NumPy by itself would convert 0.9 to 0 in an array of integers.
    """
    dtype = np.dtype(dtype)
    try:
        array = np.array(observation, dtype)
        exact = dtype.kind not in "iu" or np.array_equal(array, np.asarray(observation))
    except (OverflowError, TypeError, ValueError):
        exact = False
    if not exact:
        raise ValueError(
            f"`{name}` must have dtype {dtype} and shape {shape[1:]}, or be a batch of such "
            "observations; "
            f"received {reprlib.repr(observation)}."
        )
    return array


def split_outputs(
    outputs: Mapping[str, np.ndarray], single: bool, return_attention_scores: bool
) -> Any:
    """Return the action, or (action, dict of attention scores) if the scores are requested.

    The dict maps the name of each attention round to its array. It is sorted by round here, because
    neither signatures nor the two protocols preserve an order.

    Args:
        outputs: name -> array of the outputs for a batch.
        single: Whether the batch consists of one observation that had no batch dimension; the
            results then have none either.
        return_attention_scores: Whether to return the scores.
    """
    if single:
        outputs = {name: array[0] for name, array in outputs.items()}
    action: Any = outputs["action"]
    if single and np.ndim(action) == 0:
        action = int(action)
    if not return_attention_scores:
        return action
    names = [name for name in outputs if name.startswith("attention_")]
    names.sort(key=lambda name: (len(name), name))  # puts round_2 before round_10
    return action, {name.removeprefix("attention_"): outputs[name] for name in names}


def as_arrays(inputs: Mapping[str, Any], signature: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the inputs as arrays for a request; strings become `bytes` in an object array."""
    if not isinstance(inputs, Mapping):
        raise ValueError(
            f"`inputs` must be a dict with the names {sorted(signature['inputs'])}; "
            f"received {reprlib.repr(inputs)}."
        )
    arrays = {}
    for name, value in inputs.items():
        dtype, _ = signature["inputs"].get(name, (None, None))
        # NumPy's string dtypes would drop the zero bytes at the end of a string.
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
