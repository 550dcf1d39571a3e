"""Writes a Q network, with or without a memory, as a servable policy."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from rrl_tf.errors import InvalidInput
from rrl_tf.export.writer import input_spec, model_endpoints, write_version

# What one request may ask of `initial_memory`, so that a few bytes do not fill a server's memory.
_LARGEST_INITIAL_BATCH = 4096


def export_policy(
    directory: str | os.PathLike,
    model: keras.Layer,
    prepare: Callable[[Any], Any],
    observation_shape: Sequence[int],
    observation_dtype: Any = "uint8",
    policy: Mapping[str, Any] | None = None,
    version: int | None = None,
    initial_memory: Callable[[Any], Any] | None = None,
) -> Path:
    """Writes a Q network with its preprocessing as `directory/<version>/`, ready to be served.

    The SavedModel answers for raw observations: `prepare`, the model and the greedy choice are one
    graph. Signatures (batch dimension free, float32 and int32 out, no Python, no forced XLA):

    - `act`, also called `serving_default`: `{"observation" (B, ...)} -> {"action" (B,),
      "q_values" (B, A)}`;
    - `act_with_attention`, where the model can return its attention: the same and one output
      `attention_<name>` (B, H, N, S) for each entry of the model's dict of scores.

    A server keeps no memory between requests: that of a recurrent model comes in beside the
    observation, as `memory` (B, ...), and goes out as `next_memory`. So any server may answer any
    step of an episode, and requests of many episodes merge into one batch. Such a policy has one
    more signature, `initial_memory`: `{"batch_size" ()} -> {"memory" (B, ...)}`.

    Args:
        directory, version: As in `rrl_tf.export.writer.write_version`.
        model: Keras model, a plain `keras.Sequential` too: `model(x) -> q_values (B, A)` for
            prepared observations `x`; a recurrent one, `model(x, memory) -> (q_values,
            next_memory)`. Where its `call` takes `return_attention_scores`, a dict of scores is one
            more result, the last.
        prepare: Function over `keras.ops`, raw observations (B, ...) to the model's input; a
            `Preparation` is one.
        observation_shape: Shape of one raw observation, without the batch.
        observation_dtype: Its dtype; a request of another dtype is refused by the server.
        policy: JSON-able dict for `policy.json`: `environment`, `action_names`, `scores`, ...
        initial_memory: For a recurrent model, function of a batch size (a scalar int32 tensor) to
            the memory before the first step: a tensor (B, ...), alone or in a list, as
            `RelationalMemoryCell.get_initial_state` gives it.

    Returns:
        The version folder.

    Raises:
        InvalidInput: If an argument cannot describe a policy; nothing is written.
        FileExistsError: If the version is already there.

    Example:

    >>> export_policy("runs/doorkey/fast/export", q_network, task.preparation, (7, 7, 4))
    PosixPath('runs/doorkey/fast/export/1')
    """
    inputs = [input_spec("observation", observation_shape, observation_dtype)]
    action_names = (policy or {}).get("action_names")
    others = {}
    if initial_memory is not None:
        start = _initial_memory(initial_memory)
        inputs.append(_memory_spec(start))
        others["initial_memory"] = (start, [tf.TensorSpec((), "int32", name="batch_size")])

    def act(ask, observation):
        return _greedy(ask(prepare(observation)), action_names)

    def step(ask, observation, memory):
        q_values, next_memory = ask(prepare(observation), memory)
        return _greedy(q_values, action_names) | {"next_memory": _next_memory(next_memory, memory)}

    endpoints = model_endpoints("act", model, step if others else act, inputs)
    return write_version(directory, model, {**endpoints, **others}, policy, version)


def _greedy(q_values, action_names):
    shape = tuple(q_values.shape)
    if len(shape) != 2:
        raise InvalidInput(f"the model must answer with Q values (B, A); received shape {shape}")
    if action_names is not None and len(action_names) != shape[1]:
        raise InvalidInput(
            f"action_names must name the model's {shape[1]} actions; received {action_names!r}"
        )
    return {"action": ops.argmax(q_values, axis=-1), "q_values": q_values}


def _next_memory(results, memory):
    next_memory = _single(results)
    if next_memory.shape[1:] != memory.shape[1:]:
        raise InvalidInput(
            f"the next memory must have the shape of the memory, {tuple(memory.shape)}; "
            f"received {tuple(next_memory.shape)}"
        )
    return next_memory


def _single(memory):
    """The memory, alone or in a list, as Keras' cells have their states."""
    (memory,) = keras.tree.flatten(memory)
    return ops.cast(memory, "float32")


def _initial_memory(make):
    def initial_memory(batch_size):
        limit = _LARGEST_INITIAL_BATCH
        message = f"batch_size must be 0 to {limit}"
        checks = [
            tf.debugging.assert_non_negative(batch_size, message),
            tf.debugging.assert_less_equal(batch_size, limit, message),
        ]
        # In a graph nothing else keeps the memories from being made before the checks.
        with tf.control_dependencies([check for check in checks if check is not None]):
            batch_size = tf.identity(batch_size)
        return {"memory": _single(make(batch_size))}

    return initial_memory


def _memory_spec(start):
    """The TensorSpec of a batch of memories."""
    try:
        shape = start(tf.constant(2))["memory"].shape
    except Exception as error:
        raise InvalidInput(f"initial_memory cannot make 2 memories: {error}") from error
    if len(shape) < 2 or shape[0] != 2:
        raise InvalidInput(f"initial_memory must make 2 memories (2, ...); received {shape}")
    return tf.TensorSpec((None, *shape[1:]), "float32", name="memory")
