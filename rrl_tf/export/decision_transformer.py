"""Writes a Decision Transformer as a servable SavedModel version."""

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from rrl_tf.errors import InvalidInput
from rrl_tf.export.policy import policy_details, write_version


def export_decision_transformer(
    directory,
    model,
    scaling,
    observation_shape,
    observation_dtype="float32",
    policy=None,
    version=None,
):
    """Writes a Decision Transformer with its scaling as `directory/<version>/`.

    A server keeps nothing between requests, so the last K steps come with every one of them, padded
    with zeros in front (`serving.sessions.WindowSession` keeps them). Values are raw: states as the
    environment gives them, returns unscaled, actions as the environment takes them, one-hot where
    they are discrete. Signatures (batch dimension free, no Python, no forced XLA):

    - `act`, also called `serving_default`: `{"states" (B, K, ...), "actions" (B, K, A),
      "returns_to_go" (B, K, 1), "timesteps" (B, K) int32, "mask" (B, K)} -> {"action" (B, A)}`, or
      `(B,)` where actions are discrete;
    - `act_with_attention`: the same and one output `attention_block_<i>` (B, H, 3 K, 3 K) for each
      block, rows and columns `r_0 s_0 a_0 r_1 ...`.

    Args:
        directory: The model's base folder, made if missing.
        model: Built `DecisionTransformer`.
        scaling: `rrl_tf.data.Scaling` of the data it was trained on.
        observation_shape: Shape of one raw observation.
        observation_dtype: Its dtype.
        policy: JSON-able dict for `policy.json`: `environment`, `scores`, ...
        version: Positive integer; by default one more than the highest version in `directory`.

    Returns:
        `pathlib.Path` of the version folder.

    Raises:
        ValueError: If the details are no JSON, or the model fails; nothing is written.
        FileExistsError: If the version is already there.

    Example:

    >>> export_decision_transformer("runs/walker2d/export", model, scaling, (17,))
    PosixPath('runs/walker2d/export/1')
    """
    if keras.backend.backend() != "tensorflow":
        raise InvalidInput(
            "export_decision_transformer needs Keras' TensorFlow backend; "
            f"received a model of the {keras.backend.backend()!r} backend"
        )
    length = model.context_length
    specs = [
        tf.TensorSpec((None, length, *shape), dtype, name=name)
        for name, shape, dtype in (
            ("states", observation_shape, np.dtype(observation_dtype).name),
            ("actions", (model.action_size,), "float32"),
            ("returns_to_go", (1,), "float32"),
            ("timesteps", (), "int32"),
            ("mask", (), "float32"),
        )
    ]
    answer = _Answer(model, scaling)
    endpoints = {
        "act": (answer.act, specs),
        "act_with_attention": (answer.act_with_attention, specs),
        "serving_default": (answer.act, specs),
    }
    details = {"context_length": length, "discrete": model.discrete, **(policy or {})}
    return write_version(directory, model, endpoints, policy_details(details), version)


class _Answer:
    """Scaling, model and choice; the arguments' names are those of the inputs."""

    def __init__(self, model, scaling):
        self._model, self._scaling = model, scaling

    def act(self, states, actions, returns_to_go, timesteps, mask):
        window = self._window(states, actions, returns_to_go, timesteps, mask)
        return self._choice(self._model(window, last_action=True))

    def act_with_attention(self, states, actions, returns_to_go, timesteps, mask):
        window = self._window(states, actions, returns_to_go, timesteps, mask)
        prediction, scores = self._model(window, last_action=True, return_attention_scores=True)
        attention = {f"attention_{name}": ops.cast(s, "float32") for name, s in scores.items()}
        return self._choice(prediction) | attention

    def _window(self, states, actions, returns_to_go, timesteps, mask):
        return self._scaling.window(
            {
                "states": states,
                "actions": actions,
                "returns_to_go": returns_to_go,
                "timesteps": timesteps,
                "mask": mask,
            }
        )

    def _choice(self, prediction):
        return {"action": self._scaling.action(prediction["action"])}
