"""The inputs of an agent that remembers: steps, or sequences of them, and the memory before."""

from __future__ import annotations

from collections.abc import Mapping

import keras

from rrl_tf.errors import InvalidInput
from rrl_tf.layers.base import same_shape

INPUTS = ("observation", "previous_action", "previous_reward")


def observation_of(inputs):
    """The observation of a dict of inputs, or its shape."""
    if not isinstance(inputs, Mapping) or "observation" not in inputs:
        raise _not_the_inputs(
            sorted(inputs, key=str) if isinstance(inputs, Mapping) else type(inputs)
        )
    return inputs["observation"]


def check_arrays(inputs, memory, first):
    """Raises an `InvalidInput` unless these are the inputs, and arrays."""
    observation_of(inputs)
    if inputs.keys() != set(INPUTS):
        raise _not_the_inputs(sorted(inputs, key=str))
    for name, value in {**inputs, "memory": memory, "first": first}.items():
        if not hasattr(value, "shape") and (name in INPUTS or value is not None):
            raise InvalidInput(f"`{name}` must be an array; received a {type(value).__name__}")
    dtype = keras.backend.standardize_dtype(inputs["previous_action"].dtype)
    if not keras.backend.is_int_dtype(dtype):  # others would be cut to an action that was not taken
        raise InvalidInput(f"`previous_action` must be of integers; received the dtype {dtype}")


def check_steps(inputs, memory, first, num_axes, observation_shape, memory_size):
    """Raises an `InvalidInput` unless all shapes fit; the first axes are B, or B and T."""
    check_arrays(inputs, memory, first)
    leading = tuple(inputs["observation"].shape[:num_axes])
    wanted = {
        "observation": (*leading, *observation_shape),
        "previous_action": leading,
        "previous_reward": leading,
        "memory": (*leading[:1], memory_size),
        "first": leading,
    }
    for name, value in {**inputs, "memory": memory, "first": first}.items():
        if value is not None and not same_shape(value.shape, wanted[name]):
            raise InvalidInput(
                f"`{name}` must have the shape {wanted[name]} with this network and batch; "
                f"received the shape {tuple(value.shape)}"
            )
    if num_axes == 2 and not leading[1]:
        raise InvalidInput(
            "`unroll` needs a known number of steps T, at least one; "
            f"received observations of the shape {tuple(inputs['observation'].shape)}"
        )


def _not_the_inputs(received):
    return InvalidInput(f"RecurrentQNetwork takes a dict of {INPUTS}; received {received}")
