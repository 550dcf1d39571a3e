"""Writes a Decision Transformer as a servable SavedModel version."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rrl_tf.export.writer import input_spec, model_endpoints, write_version

if TYPE_CHECKING:
    from rrl_tf.data.windows import Scaling
    from rrl_tf.models import DecisionTransformer


def export_decision_transformer(
    directory: str | os.PathLike,
    model: DecisionTransformer,
    scaling: Scaling,
    observation_shape: Sequence[int],
    observation_dtype: Any = "float32",
    policy: Mapping[str, Any] | None = None,
    version: int | None = None,
) -> Path:
    """Writes a Decision Transformer with its scaling as `directory/<version>/`.

    A server keeps nothing, so the last K steps come with every request, padded with zeros in front
    (`serving.sessions.WindowSession` keeps them). Values are raw: states and actions are the
    environment's, actions one-hot where they are discrete, returns unscaled. Signatures:

    - `act`, also called `serving_default`: `{"states" (B, K, ...), "actions" (B, K, A),
      "returns_to_go" (B, K, 1), "timesteps" (B, K) int32, "mask" (B, K)} -> {"action" (B, A)}`, or
      `(B,)` where actions are discrete;
    - `act_with_attention`: the same and one output `attention_block_<i>` (B, H, 3 K, 3 K) for each
      block, rows and columns `r_0 s_0 a_0 r_1 ...`.

    Args:
        directory, version: As in `rrl_tf.export.writer.write_version`.
        model: Built `DecisionTransformer`.
        scaling: `rrl_tf.data.Scaling` of the data it was trained on.
        observation_shape, observation_dtype: Of one raw observation.
        policy: JSON-able dict for `policy.json`: `environment`, `scores`, ...

    Returns:
        The version folder.

    Raises:
        InvalidInput, FileExistsError: As in `write_version`; nothing is written.

    Example:

    >>> export_decision_transformer("runs/walker2d/export", model, scaling, (17,))
    PosixPath('runs/walker2d/export/1')
    """
    length = model.context_length
    observation = input_spec("observation", observation_shape, observation_dtype)
    inputs = [
        input_spec(name, (length, *shape), dtype)
        for name, shape, dtype in (
            ("states", observation.shape[1:], observation.dtype.name),
            ("actions", (model.action_size,), "float32"),
            ("returns_to_go", (1,), "float32"),
            ("timesteps", (), "int32"),
            ("mask", (), "float32"),
        )
    ]

    def act(ask, *window):
        named = {spec.name: tensor for spec, tensor in zip(inputs, window)}
        prediction = ask(scaling.window(named), last_action=True)
        return {"action": scaling.action(prediction["action"])}

    details = {"context_length": length, "discrete": model.discrete, **(policy or {})}
    endpoints = model_endpoints("act", model, act, inputs)
    return write_version(directory, model, endpoints, details, version)
