"""Load exported policies and classifiers into the current process."""

from __future__ import annotations

import json
import os
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from rrl_tf._arguments import array_of, finite, path_of
from rrl_tf._observations import batch_of, observation_parts
from rrl_tf.errors import InvalidInput
from rrl_tf.export.session import SavedModelSession
from rrl_tf.export.writer import newest_version
from rrl_tf.pretrained import METADATA, POLICY, is_on_hub, pretrained_folder, pretrained_models

# Freezing multiplies the memory of the weights by seven (by twenty while it runs). It saves little
# in larger networks, because they spend most of a step in arithmetic.
_MOST_BYTES_FROZEN = 8 * 2**20


class Policy:
    """An exported policy or classifier that runs in this process; `load_policy` returns it.

    If the weights take at most 8 MB, they become constants of the graph (see
    `SavedModelSession.freeze`). This makes a step 25 to 50 % cheaper; outputs equal those of the
    export within 1e-6.

    Attributes:
        directory: Version folder of the export.
        details: Content of `policy.json`: signatures, environment, action names, scores.
        signatures: dict signature name -> `{"inputs": specs, "outputs": specs}`, where `specs` is a
            dict name -> (dtype, shape). In a shape, -1 means any size; None is an unknown shape.
    """

    def __init__(self, directory: str | os.PathLike) -> None:
        self.directory = Path(directory)
        try:
            text = (self.directory / "assets.extra" / "policy.json").read_text(encoding="utf-8")
            self.details: dict[str, Any] = dict(json.loads(text))
            self._session = SavedModelSession(self.directory)
        except (OSError, TypeError, ValueError, RuntimeError, tf.errors.OpError) as error:
            # TensorFlow puts the cause into the first line after this heading.
            lines = str(error).removeprefix("Graph execution error:").split("\n")
            reason = next((line for line in lines if line.strip()), type(error).__name__)
            raise InvalidInput(
                f"`directory` must hold a policy from rrl_tf.export; received "
                f"{str(self.directory)!r}, which cannot be loaded ({reason})."
            ) from error
        self.signatures: dict[str, dict[str, Any]] = {
            name: {
                side: {key: _spec(info) for key, info in sorted(getattr(signature, side).items())}
                for side in ("inputs", "outputs")
            }
            for name, signature in self._session.signatures.items()
        }
        files = self.directory.glob("variables/*")
        if sum(file.stat().st_size for file in files) <= _MOST_BYTES_FROZEN:
            self._session.freeze()

    def __repr__(self) -> str:
        environment = self.details.get("environment")
        return (
            f"Policy({str(self.directory)!r}, environment={environment!r}, "
            f"signatures={sorted(self.signatures)})"
        )

    def act(self, observation: Any, return_attention_scores: bool = False) -> Any:
        """Return the greedy action for one observation (an int) or a batch (an array (B,)).

        A `MultiDiscrete` action with D numbers is an array (D,), or (B, D) for a batch.

        Args:
            observation: A raw observation with the shape and dtype in `signatures`, or a batch. For
                a policy with several inputs, a dict, or a nested dict or tuple whose parts have
                these names; see `rrl_tf.envs.packing`.
            return_attention_scores: Whether to return (action, dict of scores) instead; the scores
                are (H, N, S) for one observation and (B, H, N, S) for a batch.

        Raises:
            InvalidInput: If the shape or dtype differs from the signature, if the dtype cannot
                represent the values of a list, or if scores are requested from a policy without
                attention. It is also raised for a policy that needs a memory or the last steps of
                the episode; use `serving.sessions` or `predict` for such a policy.
        """
        return self._call("act", observation, "action", return_attention_scores)

    def classify(self, raw: Any, return_attention_scores: bool = False) -> Any:
        """Return the class of one raw input (an int) or of a batch (an array (B,)).

        Args:
            raw: An input of the classifier, such as an image, or a batch of them.
            return_attention_scores: As for `act`.

        Raises:
            InvalidInput: As for `act`, or if the export is not a classifier.
        """
        return self._call("classify", raw, "class", return_attention_scores)

    def _call(self, signature, value, output, return_attention_scores):
        """Run a signature on a single value or a batch, and return `output`."""
        specs = self.signatures.get(signature, {}).get("inputs", {})
        if not specs or {"memory", "returns_to_go"} & specs.keys():
            raise InvalidInput(
                f"`{signature}` needs a policy whose signature {signature!r} takes observations "
                f"only; received the signatures {sorted(self.signatures)} and the inputs "
                f"{sorted(specs)}. Use `predict`, or serving.sessions."
            )
        inputs, single = batch_of(observation_parts(value, specs), specs, _as_array)
        outputs = self.predict(
            inputs, f"{signature}_with_attention" if return_attention_scores else signature
        )
        if single:
            outputs = {key: array[0] for key, array in outputs.items()}
        result = outputs[output]
        result = int(result) if np.ndim(result) == 0 else result
        if not return_attention_scores:
            return result
        names = [key for key in outputs if key.startswith("attention_")]
        names.sort(key=lambda key: (len(key), key))  # round_2 before round_10
        return result, {key.removeprefix("attention_"): outputs[key] for key in names}

    def predict(
        self, inputs: Mapping[str, Any], signature: str = "serving_default"
    ) -> dict[str, np.ndarray]:
        """Run a signature.

        Args:
            inputs: dict input name -> array with a batch axis.
            signature: Name of the signature.

        Returns:
            dict output name -> array.

        Raises:
            InvalidInput: If the signature does not exist, if the names, dtypes or shapes of the
                inputs differ from those of the signature, if a number is not finite, or if a check
                in the graph fails.
        """
        if signature not in self.signatures:
            raise InvalidInput(
                f"`signature` must be one of {sorted(self.signatures)}; received {signature!r}."
            )
        specs = self.signatures[signature]["inputs"]
        if not isinstance(inputs, Mapping) or inputs.keys() != specs.keys():
            received = list(inputs) if isinstance(inputs, Mapping) else reprlib.repr(inputs)
            raise InvalidInput(
                f"`inputs` must be a dict with the names {sorted(specs)}; received {received}."
            )
        arrays = {}
        for name, (dtype, shape) in specs.items():
            array = arrays[name] = _as_array(name, inputs[name], dtype)
            fits = array.ndim == len(shape) and all(
                size in (-1, given) for size, given in zip(shape, array.shape)
            )
            if array.dtype != dtype or not fits:
                raise InvalidInput(
                    f"`{name}` must have shape {shape} and dtype {dtype}; "
                    f"received shape {array.shape} and dtype {array.dtype}."
                )
            if dtype.kind == "f":  # NaN would stay in the memory of a recurrent policy
                finite(name, array)
        try:
            return self._session.run(signature, arrays)
        except tf.errors.InvalidArgumentError as error:
            raise InvalidInput(f"{signature!r} failed: {error.message}") from error

    def close(self) -> None:
        """Free the model. Later calls raise TensorFlow's error for a closed Session."""
        self._session.close()


def _spec(info):
    """Return the NumPy dtype and the shape that a TensorInfo describes."""
    shape = info.tensor_shape
    sizes = None if shape.unknown_rank else [dim.size for dim in shape.dim]
    return np.dtype(tf.as_dtype(info.dtype).as_numpy_dtype), sizes


def _as_array(name, value, dtype):
    """Convert a value that is not an array to the dtype; `predict` checks the dtype of an array."""
    is_array = isinstance(value, np.ndarray) and value.dtype != bool
    return value if is_array else array_of(name, value, dtype)


def load_policy(directory: str | os.PathLike) -> Policy:
    """Load an exported or a pretrained policy into this process.

    Args:
        directory: One of

            - the version folder of an export;
            - a folder with version folders, of which the newest is loaded;
            - the folder of a training run, whose newest export is loaded;
            - the name of a pretrained policy, see `rrl_tf.pretrained.pretrained_models()`;
            - a folder that `save_to_preset` wrote;
            - `hf://owner/name` or `hf://owner/name@revision`, a repository on the Hugging Face Hub.

    Raises:
        InvalidInput: If there is no exported version, or its files are damaged or cannot be
            downloaded from the Hub.

    Example:

    >>> policy = load_policy("doorkey-5x5")
    >>> policy.act(np.zeros((7, 7, 4), "uint8")) in range(5)
    True
    """
    folder = path_of("directory", directory)
    is_packaged = str(directory) in pretrained_models()
    if is_packaged or is_on_hub(directory) or (folder / METADATA).exists():
        folder = pretrained_folder(directory) / POLICY
    elif not folder.exists():
        raise InvalidInput(
            "`directory` must be the folder of a run or of an exported policy, or one of "
            f"{', '.join(pretrained_models())}; received {str(directory)!r}."
        )
    if (folder / "export").is_dir():  # a run folder
        folder /= "export"
    is_version = (folder / "saved_model.pb").exists()
    return Policy(folder if is_version else newest_version(folder))
