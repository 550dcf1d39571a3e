"""Export Q networks, feed-forward or recurrent, as SavedModels."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from rrl_tf.errors import InvalidInput
from rrl_tf.export.writer import (
    BATCH_SIZE,
    after_checks,
    argmax,
    checked_batch_size,
    input_spec,
    model_endpoints,
    write_version,
)


def export_policy(
    directory: str | os.PathLike,
    model: keras.Layer,
    preprocessor: Callable[[Any], Any],
    observation_shape: Sequence[int] | Mapping[str, Sequence[int]],
    observation_dtype: Any = "uint8",
    details: Mapping[str, Any] | None = None,
    version: int | None = None,
    initial_memory: Callable[[Any], Any] | None = None,
    env_actions: Sequence[Any] = (),
) -> Path:
    """Write a Q network with its preprocessing as `directory/<version>/`, ready to be served.

    The preprocessor, the model and the argmax over the Q values become one graph whose input is the
    raw observation. Signatures (free batch dimension, float32 and int32 outputs, no Python, no
    forced XLA):

    - `act` and `serving_default`: `{"observation" (B, ...)} -> {"action" (B,), "q_values" (B, A)}`;
    - `act_with_attention`, if the model returns attention scores: adds one output
      `attention_<name>` (B, H, N, S) for each entry of the model's dict of scores;
    - `initial_memory`, for a recurrent model: `{"batch_size" ()} -> {"memory" (B, ...)}`. In this
      case, `act` also has the input `memory` and the output `next_memory`. Since the state is part
      of the request, any server can answer any step, and a batch can mix steps of different
      episodes.

    Args:
        directory: See `rrl_tf.export.write_version`.
        model: Any Keras model. `model(x)` returns the Q values (B, A) of preprocessed observations
            `x`; a recurrent `model(x, memory)` returns `(q_values, next_memory)`. If `call` has the
            argument `return_attention_scores`, it returns the dict of scores as the last result.
        preprocessor: Function that maps a tensor of raw observations (B, ...) to the model's input.
        observation_shape: Shape of one raw observation; or a dict name -> shape of its parts, each
            of which becomes an input. The preprocessor then takes a dict name -> tensor.
        observation_dtype: Dtype of a raw observation, or a dict name -> dtype of its parts.
        details: JSON-able dict for `policy.json`: `environment`, `action_names`, `scores`, ...
        version: See `rrl_tf.export.write_version`.
        initial_memory: Function that maps a batch size (scalar int32 tensor) to the memory (B, ...)
            of a recurrent model before the first step: one tensor, or a list with one tensor, as
            Keras cells return their state. None for a model without a memory.
        env_actions: The environment's action for each Q value: A integers or tuples of integers,
            which the output `action` contains. By default, it contains the index of the Q value.

    Returns:
        The version folder.

    Raises:
        InvalidInput, FileExistsError: See `rrl_tf.export.write_version`; nothing is written.

    Example:

    >>> from rrl_tf.envs import doorkey_task
    >>> from rrl_tf.models import grid_q_network
    >>> task = doorkey_task()
    >>> network = grid_q_network(task.num_actions)
    >>> export_policy("runs/doorkey/mine/export", network, task.preprocessor, (7, 7, 4))
    PosixPath('runs/doorkey/mine/export/1')
    """
    observation, preprocess = _observation_inputs(
        preprocessor, observation_shape, observation_dtype
    )
    action_names = (details or {}).get("action_names")

    def outputs(q_values):
        return _own_action(_greedy(q_values, action_names), env_actions)

    if initial_memory is None:

        def act(predict, *observation):
            return outputs(predict(preprocess(*observation)))

        endpoints = model_endpoints("act", model, act, observation)
        return write_version(directory, model, endpoints, details, version)

    def act_with_memory(predict, *inputs):
        *observation, memory = inputs
        q_values, next_memory = predict(preprocess(*observation), memory)
        next_memory = tf.ensure_shape(_flat_memory(next_memory), memory.shape)
        return {**outputs(q_values), "next_memory": next_memory}

    start, memory = _memory_endpoint(initial_memory)
    endpoints = dict(model_endpoints("act", model, act_with_memory, [*observation, memory]))
    endpoints["initial_memory"] = start
    return write_version(directory, model, endpoints, details, version)


def export_recurrent_policy(
    directory: str | os.PathLike,
    network: keras.Model,
    preprocessor: Callable[[Any], Any],
    observation_shape: Sequence[int] | Mapping[str, Sequence[int]],
    observation_dtype: Any = "uint8",
    details: Mapping[str, Any] | None = None,
    version: int | None = None,
    env_actions: Sequence[Any] = (),
) -> Path:
    """Write a `RecurrentQNetwork` with its preprocessing, as `export_policy` does.

    Inputs of the network are the observation, the previous action and the previous reward. The
    client sends the reward. The previous action is part of the policy's memory, which contains the
    network's memory (M numbers), the previous action and a fingerprint of the policy:

    - `act` and `serving_default`: `{"observation" (B, ...), "memory" (B, M + 2), "reward" (B,)} ->
      {"action" (B,), "q_values" (B, A), "next_memory" (B, M + 2)}`. The reward is ignored in the
      first step of an episode. The call fails if the memory has a different batch size, or comes
      from a policy with different weights or settings. A row of zeros, as in warm-up requests,
      stands for the row of `initial_memory`: the step is the first of an episode.
    - `act_with_attention` and `initial_memory`: as for `export_policy`. If the memory has slots,
      `policy.json` stores their number as `memory_slots`, and they are the first rows and columns
      of `attention_block_<i>`.

    Args:
        directory: See `rrl_tf.export.write_version`.
        network: Built `RecurrentQNetwork`.
        preprocessor: See `export_policy`.
        observation_shape, observation_dtype, env_actions: See `export_policy`.
        details: JSON-able dict for `policy.json`.
        version: See `rrl_tf.export.write_version`.

    Returns:
        The version folder.

    Raises:
        InvalidInput, FileExistsError: See `rrl_tf.export.write_version`; nothing is written.

    Example:

    >>> from rrl_tf.envs import memory_task
    >>> from rrl_tf.models import RecurrentQNetwork
    >>> task = memory_task()
    >>> network = RecurrentQNetwork.from_preset("memory-s17")
    >>> export_recurrent_policy("runs/memory/mine/export", network, task.preprocessor, (7, 7, 4))
    PosixPath('runs/memory/mine/export/1')
    """
    fingerprint = _fingerprint(network)
    observation, preprocess = _observation_inputs(
        preprocessor, observation_shape, observation_dtype
    )
    action_names = (details or {}).get("action_names")

    def start_of(batch_size):
        return _policy_memory(network.initial_memory(batch_size), -1, fingerprint)

    def act(predict, *inputs):
        *observation, memory, reward = inputs
        memory = _checked_memory(memory, fingerprint, *observation, reward)
        is_first = tf.reduce_all(tf.equal(memory, 0.0), axis=1, keepdims=True)
        memory = tf.where(is_first, start_of(1), memory)
        memory, previous_action = memory[:, :-2], memory[:, -2]
        step = {
            "observation": preprocess(*observation),
            "previous_action": ops.cast(previous_action, "int32"),
            "previous_reward": ops.where(previous_action < 0, 0.0, reward),
        }
        q_values, next_memory = predict(step, memory)
        outputs = _greedy(q_values, action_names)
        next_memory = _policy_memory(next_memory, outputs["action"], fingerprint)
        return {**_own_action(outputs, env_actions), "next_memory": next_memory}

    start, memory = _memory_endpoint(start_of)
    inputs = [*observation, memory, input_spec("reward", (), "float32")]
    endpoints = {**model_endpoints("act", network, act, inputs), "initial_memory": start}
    slots = getattr(getattr(network.core_layer, "cell", None), "mem_slots", None)
    details = {**({} if slots is None else {"memory_slots": slots}), **(details or {})}
    return write_version(directory, network, endpoints, details, version)


def _fingerprint(network):
    """Return a nonzero checksum of configuration and weights that float32 represents exactly."""
    if not (hasattr(network, "initial_memory") and network.built):
        raise InvalidInput(
            "`network` must be a built RecurrentQNetwork; received "
            f"{'a built' if network.built else 'an unbuilt'} {type(network).__name__}."
        )
    config = {name: value for name, value in network.get_config().items() if name != "name"}
    checksum = zlib.crc32(json.dumps(config, sort_keys=True, default=repr).encode())
    for weight in network.get_weights():
        checksum = zlib.crc32(np.ascontiguousarray(weight).tobytes(), checksum)
    return float(1 + checksum % (2**24 - 1))


def _policy_memory(memory, action, fingerprint):
    """Concatenate a network's memory, the last action and the fingerprint."""
    ones = tf.ones((tf.shape(memory)[0], 1))
    action = ops.reshape(ops.cast(action, "float32"), (-1, 1)) * ones
    return ops.concatenate([memory, action, fingerprint * ones], axis=-1)


def _checked_memory(memory, fingerprint, *others):
    """Check the batch size and the fingerprint of a memory (B, M + 2), and return the memory."""
    sizes = tf.stack([tf.shape(each)[0] for each in (memory, *others)])
    found = memory[:, -1]
    is_known = tf.equal(found, fingerprint) | tf.reduce_all(tf.equal(memory, 0.0), axis=1)
    message = f"memory must come from this version of this policy, {fingerprint:.0f}; received"
    checks = [
        tf.debugging.Assert(
            tf.reduce_all(tf.equal(sizes, sizes[0])),
            ["memory, observation and reward must be one batch; received the sizes", sizes],
        ),
        tf.debugging.Assert(tf.reduce_all(is_known), [message, found]),
    ]
    return after_checks(checks, memory)


def _greedy(q_values, action_names):
    shape = tuple(q_values.shape)
    if len(shape) != 2:
        raise InvalidInput(f"`model` must return Q values (B, A); received shape {shape}.")
    if action_names is not None and len(action_names) != shape[1]:
        raise InvalidInput(
            f"`action_names` must name the model's {shape[1]} actions; received {action_names!r}."
        )
    return {"action": argmax(q_values), "q_values": q_values}


def _own_action(outputs, env_actions):
    """Replace the index of the action by the environment's own action."""
    if not len(env_actions):
        return outputs
    action = tf.gather(tf.constant(env_actions, outputs["action"].dtype), outputs["action"])
    return {**outputs, "action": action}


def _observation_inputs(preprocessor, shape, dtype):
    """Return the TensorSpecs of an observation, and the preprocessor as a function of these."""
    if not isinstance(shape, Mapping):
        return [input_spec("observation", shape, dtype)], preprocessor
    inputs = [input_spec(name, each, dtype[name]) for name, each in shape.items()]
    return inputs, lambda *parts: preprocessor(dict(zip(shape, parts)))


def _flat_memory(memory):
    """Unwrap a recurrent state, one tensor or a list with one tensor, and cast it to float32."""
    (memory,) = keras.tree.flatten(memory)
    return ops.cast(memory, "float32")


def _memory_endpoint(initial_memory):
    """Return the endpoint `initial_memory`, and the TensorSpec of the input `memory`."""

    def start(batch_size):
        return {"memory": _flat_memory(initial_memory(checked_batch_size(batch_size)))}

    shape = start(tf.constant(2))["memory"].shape
    if len(shape) < 2 or shape[0] != 2:
        raise InvalidInput(
            f"`initial_memory(2)` must return an array of shape (2, ...); received shape {shape}."
        )
    return (start, [BATCH_SIZE]), tf.TensorSpec((None, *shape[1:]), "float32", name="memory")
