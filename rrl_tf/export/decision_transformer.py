"""Writes a Decision Transformer as a servable SavedModel version."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from keras import ops

from rrl_tf.export.writer import (
    BATCH_SIZE,
    checked_batch_size,
    input_spec,
    model_endpoints,
    write_version,
)

if TYPE_CHECKING:
    from rrl_tf.models import BehaviorCloning, DecisionTransformer


def export_decision_transformer(
    directory: str | os.PathLike,
    model: DecisionTransformer | BehaviorCloning,
    scaling: Any,
    observation_shape: Sequence[int],
    observation_dtype: Any = "float32",
    policy: Mapping[str, Any] | None = None,
    version: int | None = None,
) -> Path:
    """Writes a Decision Transformer, or what is called alike, as `directory/<version>/`.

    A server keeps nothing, so the last K steps come with every request, padded with zeros in front
    (`serving.sessions.WindowSession` keeps them). Values are raw: states and actions are the
    environment's, actions one-hot where they are discrete, returns unscaled. Signatures:

    - `act`, also called `serving_default`: `{"states" (B, K, ...), "actions" (B, K, A),
      "returns_to_go" (B, K, 1), "timesteps" (B, K) int32, "mask" (B, K)} -> {"action" (B, A)}`;
      where actions are discrete `{"action" (B,), "probabilities" (B, A)}`, how often the data did
      what there;
    - `act_with_attention`: the same and one output `attention_block_<i>` (B, H, 3 K, 3 K) for each
      block, rows and columns `r_0 s_0 a_0 r_1 ...`, where the model has any;
    - `default_target`: `{"batch_size"} -> {"target_return" (B,), "subtracts_rewards" (B,) int32}`:
      what is asked for where nobody says it, and whether what was earned is subtracted from it.

    Args:
        directory, version: As in `rrl_tf.export.writer.write_version`.
        model: Built `DecisionTransformer` or `BehaviorCloning`.
        scaling: `rrl_tf.offline.Scaling` of the data it was trained on.
        observation_shape, observation_dtype: Of one raw observation.
        policy: JSON-able dict for `policy.json`: `environment`, `scores`, ...

    Returns:
        The version folder.

    Raises:
        InvalidInput, FileExistsError: As in `write_version`; nothing is written.

    Example:
        >>> from rrl_tf import models, offline
        >>> model = models.BehaviorCloning(state_size=4, action_size=2, discrete=True)
        >>> model.build()
        >>> scaling = offline.Scaling(ops.zeros(4), ops.ones(4), return_scale=500.0)
        >>> export_decision_transformer("runs/cartpole/export", model, scaling, (4,))
        PosixPath('runs/cartpole/export/1')
    """
    inputs = _window_specs(model, input_spec("observation", observation_shape, observation_dtype))

    def act(ask, *window):
        named = {spec.name: tensor for spec, tensor in zip(inputs, window)}
        prediction = ask(scaling.window(named), last_action=True)
        answer = {"action": scaling.action(prediction["action"])}
        if model.discrete:
            answer["probabilities"] = ops.softmax(prediction["action"])
        return answer

    details = {"context_length": model.context_length, "discrete": model.discrete, **(policy or {})}
    endpoints = dict(model_endpoints("act", model, act, inputs))
    if scaling.target_return is not None:
        endpoints["default_target"] = _default_target(scaling)
    return write_version(directory, model, endpoints, details, version)


def _window_specs(model, observation):
    """What comes with every request: a window of raw values."""
    return [
        input_spec(name, (model.context_length, *shape), dtype)
        for name, shape, dtype in (
            ("states", observation.shape[1:], observation.dtype.name),
            ("actions", (model.action_size,), "float32"),
            ("returns_to_go", (1,), "float32"),
            ("timesteps", (), "int32"),
            ("mask", (), "float32"),
        )
    ]


def _default_target(scaling):
    """The endpoint that says what is asked for where nobody does."""

    def default_target(batch_size):
        rows = tf.reshape(checked_batch_size(batch_size), (1,))
        return {
            "target_return": tf.fill(rows, tf.constant(scaling.target_return, "float32")),
            "subtracts_rewards": tf.fill(rows, int(scaling.condition == "return_to_go")),
        }

    return default_target, [BATCH_SIZE]
