"""Writes a Q network, with or without a memory, as a servable policy."""

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
    checked_batch_size,
    input_spec,
    model_endpoints,
    write_version,
)


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

    `prepare`, the model and the greedy choice become one graph, that answers for raw observations.
    Signatures (batch dimension free, float32 and int32 out, no Python, no forced XLA):

    - `act`, also called `serving_default`: `{"observation" (B, ...)} -> {"action" (B,),
      "q_values" (B, A)}`;
    - `act_with_attention`, where the model can return its attention: the same and one output
      `attention_<name>` (B, H, N, S) for each entry of the model's dict of scores;
    - `initial_memory` of a recurrent model: `{"batch_size" ()} -> {"memory" (B, ...)}`. A server
      keeps no memory: it comes in beside the observation as `memory` and goes out as `next_memory`.
      So any server may answer any step, and requests of many episodes merge into one batch.

    Args:
        directory, version: As in `rrl_tf.export.writer.write_version`.
        model: Any Keras model, `model(x) -> q_values (B, A)` for preprocessed observations `x`; a
            recurrent one, `model(x, memory) -> (q_values, next_memory)`. Where its `call` takes
            `return_attention_scores`, a dict of scores is one more result, the last.
        prepare: Function over `keras.ops`, raw observations (B, ...) to the model's input.
        observation_shape: Shape of one raw observation, without the batch.
        observation_dtype: Its dtype; a request of another dtype is refused by the server.
        policy: JSON-able dict for `policy.json`: `environment`, `action_names`, `scores`, ...
        initial_memory: Function of a batch size (scalar int32 tensor) to a recurrent model's memory
            before the first step (B, ...), alone or in a list, as Keras' cells have their states.

    Returns:
        The version folder.

    Raises:
        InvalidInput: If an argument cannot describe a policy; nothing is written.
        FileExistsError: If the version is already there.

    Example:

    >>> from rrl_tf.envs import doorkey_task
    >>> from rrl_tf.models import grid_q_network
    >>> task = doorkey_task()
    >>> network = grid_q_network(task.num_actions)
    >>> export_policy("runs/doorkey/mine/export", network, task.preprocessor, (7, 7, 4))
    PosixPath('runs/doorkey/mine/export/1')
    """
    inputs = [input_spec("observation", observation_shape, observation_dtype)]
    others = {}
    if initial_memory is not None:
        start = _initial_memory(initial_memory)
        inputs.append(_memory_spec(start))
        others["initial_memory"] = (start, [BATCH_SIZE])
    answer = _answer(prepare, (policy or {}).get("action_names"))
    endpoints = model_endpoints("act", model, answer, inputs)
    return write_version(directory, model, {**endpoints, **others}, policy, version)


def export_recurrent_policy(
    directory: str | os.PathLike,
    network: keras.Model,
    prepare: Callable[[Any], Any],
    observation_shape: Sequence[int],
    observation_dtype: Any = "uint8",
    policy: Mapping[str, Any] | None = None,
    version: int | None = None,
) -> Path:
    """Writes a `RecurrentQNetwork` with its preprocessing, as `export_policy` does other networks.

    The network also looks at its last action and at what that earned. The action goes with the
    memory, as it is the one that was answered; the reward is asked for. With the memory goes a
    number, too, that tells whose it is:

    - `act`, also called `serving_default`: `{"observation" (B, ...), "memory" (B, M + 2),
      "reward" (B,)} -> {"action" (B,), "q_values" (B, A), "next_memory" (B, M + 2)}`. In the first
      step of an episode the reward is not looked at. A memory of another batch, or that a policy of
      other weights or numbers returned, is refused; one of zeros, as warm-up requests have it, is
      not.
    - `act_with_attention` and `initial_memory`: as of `export_policy`. Where the memory has slots,
      `policy.json` has their number as `memory_slots`; in `attention_block_<i>` they come first.

    Args:
        network: `RecurrentQNetwork`, built.
        directory, prepare, observation_shape, observation_dtype, policy, version: As in
            `export_policy`.

    Returns:
        The version folder.

    Raises:
        InvalidInput: If an argument cannot describe a policy; nothing is written.
        FileExistsError: If the version is already there.

    Example:

    >>> from rrl_tf.envs import memory_task
    >>> from rrl_tf.models import RecurrentQNetwork
    >>> task = memory_task()
    >>> network = RecurrentQNetwork.from_preset("memory-s17")
    >>> export_recurrent_policy("runs/memory/mine/export", network, task.preprocessor, (7, 7, 4))
    PosixPath('runs/memory/mine/export/1')
    """
    owner = _owner(network)
    start = _initial_memory(lambda size: _packed(network.initial_memory(size), -1, owner))
    inputs = [
        input_spec("observation", observation_shape, observation_dtype),
        _memory_spec(start),
        input_spec("reward", (), "float32"),
    ]
    answer = _recurrent_answer(prepare, owner, (policy or {}).get("action_names"))
    endpoints = {
        **model_endpoints("act", network, answer, inputs),
        "initial_memory": (start, [BATCH_SIZE]),
    }
    slots = getattr(getattr(network.core_layer, "cell", None), "mem_slots", None)
    details = {**({} if slots is None else {"memory_slots": slots}), **(policy or {})}
    return write_version(directory, network, endpoints, details, version)


def _owner(network):
    """A number of the network's configuration and weights: not 0, and one that float32 holds."""
    if not (hasattr(network, "initial_memory") and network.built):
        built = "a built" if getattr(network, "built", False) else "an unbuilt"
        raise InvalidInput(
            "export_recurrent_policy needs a built RecurrentQNetwork; received "
            f"{built} {type(network).__name__}"
        )
    config = {name: each for name, each in network.get_config().items() if name != "name"}
    checksum = zlib.crc32(json.dumps(config, sort_keys=True, default=repr).encode())
    for weight in network.get_weights():
        checksum = zlib.crc32(np.ascontiguousarray(weight).tobytes(), checksum)
    return float(1 + checksum % (2**24 - 1))


def _packed(memory, action, owner):
    """A network's memory, its last action, and whose they are, as one array."""
    ones = tf.ones((tf.shape(memory)[0], 1))  # there may be no memory to make them like
    action = ops.reshape(ops.cast(action, "float32"), (-1, 1)) * ones
    return ops.concatenate([memory, action, owner * ones], axis=-1)


def _checked(memory, owner, *others):
    """The memory `(B, M + 2)`, if it is this policy's and of the same batch as the others."""
    sizes = tf.stack([tf.shape(each)[0] for each in (memory, *others)])
    owners = memory[:, -1]
    checks = [
        tf.debugging.Assert(
            tf.reduce_all(tf.equal(sizes, sizes[0])),
            ["memory, observation and reward must be one batch; received the sizes", sizes],
        ),
        tf.debugging.Assert(
            tf.reduce_all(tf.equal(owners, owner) | tf.reduce_all(tf.equal(memory, 0.0), axis=1)),
            [f"memory must come from this version of this policy, {owner:.0f}; received", owners],
        ),
    ]
    with tf.control_dependencies([check for check in checks if check is not None]):
        return tf.identity(memory)


def _recurrent_answer(prepare, owner, names):
    def act(ask, observation, memory, reward):
        memory = _checked(memory, owner, observation, reward)
        memory, previous_action = memory[:, :-2], memory[:, -2]
        step = {
            "observation": prepare(observation),
            "previous_action": ops.cast(previous_action, "int32"),
            "previous_reward": ops.where(previous_action < 0, 0.0, reward),
        }
        q_values, next_memory = ask(step, memory)
        answer = _greedy(q_values, names)
        return {**answer, "next_memory": _packed(next_memory, answer["action"], owner)}

    return act


def _answer(prepare, action_names):
    def act(ask, observation, *memory):
        results = ask(prepare(observation), *memory)
        if not memory:
            return _greedy(results, action_names)
        q_values, next_memory = results
        return {**_greedy(q_values, action_names), "next_memory": _next(next_memory, *memory)}

    return act


def _greedy(q_values, action_names):
    shape = tuple(q_values.shape)
    if len(shape) != 2:
        raise InvalidInput(f"the model must answer with Q values (B, A); received shape {shape}")
    if action_names is not None and len(action_names) != shape[1]:
        raise InvalidInput(
            f"action_names must name the model's {shape[1]} actions; received {action_names!r}"
        )
    return {"action": ops.argmax(q_values, axis=-1), "q_values": q_values}


def _next(next_memory, memory):
    next_memory = _single(next_memory)
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
        return {"memory": _single(make(checked_batch_size(batch_size)))}

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
