"""Exported policies in this process."""

import json
from pathlib import Path

import numpy as np

from rrl_tf.export.session import SavedModelSession


class Policy:
    """An exported policy, answering in this process; made by `load_policy`."""

    def __init__(self, directory):
        self._session = SavedModelSession(directory)
        document = Path(directory) / "assets.extra" / "policy.json"
        #: What `policy.json` says: signatures, environment, action names, scores.
        self.details = json.loads(document.read_text(encoding="utf-8"))
        spec = self.details["signatures"]["act"]["inputs"]["observation"]
        self._shape, self._dtype = tuple(spec["shape"][1:]), np.dtype(spec["dtype"])

    def act(self, observation, return_attention_scores=False):
        """Returns the greedy action of one observation (an int) or of a batch (an array (B,)).

        Args:
            observation: Raw, of the shape and dtype that `details` states, or a batch of them.
            return_attention_scores: Whether to return (action, dict of scores) instead; the scores
                are (H, N, S) for one observation and (B, H, N, S) for a batch.

        Raises:
            ValueError: If shape or dtype is another, or the policy has no attention to show.
        """
        signature = "act_with_attention" if return_attention_scores else "act"
        if signature not in self._session.signatures:
            raise ValueError(f"this policy has no signature {signature!r}")
        batch, single = self._as_batch(observation)
        outputs = self._session.run(signature, {"observation": batch})
        if single:
            outputs = {name: value[0] for name, value in outputs.items()}
        action = int(outputs["action"]) if single else outputs["action"]
        if not return_attention_scores:
            return action
        prefix = "attention_"
        return action, {
            name.removeprefix(prefix): scores
            for name, scores in outputs.items()
            if name.startswith(prefix)
        }

    def _as_batch(self, observation):
        if not isinstance(observation, np.ndarray):
            observation = np.asarray(observation, self._dtype)
        single = observation.shape == self._shape
        if observation.dtype != self._dtype or observation.shape[not single :] != self._shape:
            raise ValueError(
                f"expected an observation of shape {self._shape} or a batch of them, dtype "
                f"{self._dtype}; received shape {observation.shape}, dtype {observation.dtype}"
            )
        return (observation[np.newaxis] if single else observation), single

    def close(self):
        """Frees the model."""
        self._session.close()


def load_policy(version_directory):
    """Loads an exported policy for use in this process, through the graph that a server runs.

    Args:
        version_directory: What `export_policy` returned.

    Returns:
        A `Policy`; its `act(observation)` answers one observation or a batch.

    Example:

    >>> policy = load_policy("runs/doorkey/fast/export/1")
    >>> policy.act(observation)
    2
    """
    return Policy(version_directory)
