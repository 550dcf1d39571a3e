"""Export Decision Transformers, and models with the same inputs, as SavedModels."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from rrl_tf.export.writer import (
    BATCH_SIZE,
    argmax,
    checked_batch_size,
    input_spec,
    model_endpoints,
    write_version,
)


def export_decision_transformer(
    directory: str | os.PathLike,
    model: keras.Model,
    scaling: Any,
    observation_shape: Sequence[int],
    observation_dtype: Any = "float32",
    details: Mapping[str, Any] | None = None,
    version: int | None = None,
) -> Path:
    """Write a Decision Transformer, or a model with the same inputs, as `directory/<version>/`.

    The graph keeps no state. Every request contains the last K steps of an episode, with zeros in
    front of the first step; the client `serving.sessions.WindowSession` stores the steps. States,
    actions and returns are those of the environment, without scaling. Discrete actions are one-hot.
    Signatures:

    - `act` and `serving_default`: `{"states" (B, K, ...), "actions" (B, K, A), "returns_to_go"
      (B, K, 1), "timesteps" (B, K) int32, "mask" (B, K)} -> {"action" (B, A)}`. For discrete
      actions, the outputs are `{"action" (B,), "probabilities" (B, A)}`, where the probabilities
      are those of the softmax, which predict how often the data has each action;
    - `act_with_attention`, if the model returns attention scores: adds one output
      `attention_block_<i>` (B, H, 3 K, 3 K) for each block, rows and columns `r_0 s_0 a_0 r_1 ...`;
    - `default_target`: `{"batch_size"} -> {"target_return" (B,), "subtracts_rewards" (B,) int32}`,
      the target return to start an episode with, and whether the client must subtract each reward
      from it.

    Args:
        directory: See `rrl_tf.export.write_version`.
        model: Built `DecisionTransformer` or `BehaviorCloning`.
        scaling: `Scaling` of the data that the model was trained on.
        observation_shape: Shape of one raw observation.
        observation_dtype: Dtype of a raw observation.
        details: JSON-able dict for `policy.json`: `environment`, `scores`, ...
        version: See `rrl_tf.export.write_version`.

    Returns:
        The version folder.

    Raises:
        InvalidInput, FileExistsError: See `rrl_tf.export.write_version`; nothing is written.

    Example:
        >>> from rrl_tf import models, offline
        >>> model = models.BehaviorCloning(state_size=4, action_size=2, discrete=True)
        >>> model.build()
        >>> scaling = offline.Scaling(ops.zeros(4), ops.ones(4), return_scale=500.0)
        >>> export_decision_transformer("runs/cartpole/export", model, scaling, (4,))
        PosixPath('runs/cartpole/export/1')
    """
    observation = input_spec("observation", observation_shape, observation_dtype)
    length = model.context_length
    inputs = [
        input_spec("states", (length, *observation.shape[1:]), observation.dtype.name),
        input_spec("actions", (length, model.action_size), "float32"),
        input_spec("returns_to_go", (length, 1), "float32"),
        input_spec("timesteps", (length,), "int32"),
        input_spec("mask", (length,), "float32"),
    ]

    def act(predict, *window):
        named = {spec.name: tensor for spec, tensor in zip(inputs, window)}
        values = predict(scaling.window(named), last_action=True)["action"]
        if model.discrete:
            return {"action": argmax(values), "probabilities": ops.softmax(values)}
        return {"action": scaling.action(values)}

    def default_target(batch_size):
        rows = tf.reshape(checked_batch_size(batch_size), (1,))
        return {
            "target_return": tf.fill(rows, tf.constant(scaling.target_return, "float32")),
            "subtracts_rewards": tf.fill(rows, int(scaling.condition == "return_to_go")),
        }

    endpoints = dict(model_endpoints("act", model, act, inputs))
    if scaling.target_return is not None:
        endpoints["default_target"] = (default_target, [BATCH_SIZE])
    details = {"context_length": length, "discrete": model.discrete, **(details or {})}
    return write_version(directory, model, endpoints, details, version)
