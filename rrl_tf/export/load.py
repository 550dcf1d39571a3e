"""Exported policies in this process."""

from __future__ import annotations

import json
import operator
import os
import re
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from rrl_tf._arguments import array_of, finite, path_of
from rrl_tf.errors import InvalidInput
from rrl_tf.export.session import SavedModelSession
from rrl_tf.export.versions import newest_version
from rrl_tf.presets import METADATA, POLICY, is_on_hub, preset_folder, trained_presets

# Frozen weights take seven times their memory, and twenty times while that is done; a step of a
# network that has more of them is mostly arithmetic.
_MOST_BYTES_FROZEN = 8 * 2**20


class Policy:
    """An exported policy, answering in this process; made by `load_policy`.

    Weights of up to 8 MB become constants of its graph (`SavedModelSession.freeze`): one step costs
    a quarter to a half less, and the numbers are those of the export within 1e-6.
    """

    def __init__(self, directory: str | os.PathLike) -> None:
        #: What `policy.json` says: signatures, environment, action names, scores.
        self.details: dict[str, Any]
        #: name -> {"inputs", "outputs"} of name -> (dtype, shape), -1 for a free size.
        self.signatures: dict[str, dict[str, Any]]
        self._directory = Path(directory)
        self.details, self.signatures = _described(self._directory)
        self._session = _opened(self._directory, self.signatures)

    def __repr__(self) -> str:
        environment = self.details.get("environment")
        return (
            f"Policy({str(self._directory)!r}, environment={environment!r}, "
            f"signatures={sorted(self.signatures)})"
        )

    def act(self, observation: Any, return_attention_scores: bool = False) -> Any:
        """Returns the greedy action of one observation (an int) or of a batch (an array (B,)).

        Args:
            observation: Raw, of the shape and dtype that `details` states, or a batch of them.
            return_attention_scores: Whether to return (action, dict of scores) instead; the scores
                are (H, N, S) for one observation and (B, H, N, S) for a batch.

        A policy that remembers is asked through `serving.sessions.MemorySession`, or by `predict`.

        Raises:
            InvalidInput: If shape or dtype is another, or a list's numbers are none of the dtype;
                if the policy has no attention to show, needs its memory as well, or is closed.
        """
        if "classify" in self.signatures:
            raise InvalidInput("`act` takes a policy; received a classifier, use `classify`")
        if "act" not in self.signatures:
            raise InvalidInput(
                "`act` takes a policy; ask this one by `predict`, with a signature of "
                f"`details`; received a model that can {', '.join(sorted(self.signatures))}"
            )
        inputs = self.signatures["act"]["inputs"]
        if inputs.keys() != {"observation"}:
            session = "MemorySession" if "memory" in inputs else "WindowSession"
            raise InvalidInput(
                "`act` is for policies that take an observation alone; ask this one through "
                f"serving.sessions.{session}, or by predict; received a policy of {sorted(inputs)}"
            )
        return self._answer("act", "observation", observation, "action", return_attention_scores)

    def classify(self, raw: Any, return_attention_scores: bool = False) -> Any:
        """Returns the class of one raw input (an int) or of a batch (an array (B,)).

        Args:
            raw: What the classifier takes, such as an image of the shape and dtype that `details`
                states, or a batch of them.
            return_attention_scores: As of `act`.

        Raises:
            InvalidInput: As of `act`, or if this is a policy that acts.
        """
        if "classify" not in self.signatures:
            raise InvalidInput(
                f"this policy is no classifier; ask it by predict: {self.signatures}"
            )
        (name,) = self.signatures["classify"]["inputs"]
        return self._answer("classify", name, raw, "class", return_attention_scores)

    def _answer(self, signature, takes, value, gives, with_attention):
        """What a signature gives for one value or a batch of them; and the scores, if wanted."""
        batch, single = self._as_batch(signature, takes, value)
        outputs = self.predict(
            {takes: batch}, f"{signature}_with_attention" if with_attention else signature
        )
        if single:
            outputs = {name: value[0] for name, value in outputs.items()}
        answer = int(outputs[gives]) if single else outputs[gives]
        if not with_attention:
            return answer
        # A signature keeps no order of its outputs; `serving.client` knows nothing of this package.
        prefix = "attention_"
        names = [name.removeprefix(prefix) for name in outputs if name.startswith(prefix)]
        names.sort(key=lambda name: [part.zfill(9) for part in re.split(r"(\d+)", name)])
        return answer, {name: outputs[prefix + name] for name in names}

    def predict(
        self, inputs: Mapping[str, Any], signature: str = "serving_default"
    ) -> dict[str, np.ndarray]:
        """Returns name -> array of any signature, for name -> array of its inputs.

        Raises:
            InvalidInput: If there is no such signature, or it takes other inputs: of other names,
                dtypes, shapes or values; if a number is not finite. If it is closed.
        """
        if signature not in self.signatures:
            raise InvalidInput(f"this policy has no signature {signature!r}")
        names = self.signatures[signature]["inputs"]
        if not isinstance(inputs, Mapping) or inputs.keys() != names.keys():
            received = list(inputs) if isinstance(inputs, Mapping) else reprlib.repr(inputs)
            raise InvalidInput(
                f"{signature!r} takes a dict of {sorted(names)}; received {received}"
            )
        arrays = {name: _as_array(name, inputs[name], names[name][0]) for name in names}
        for name, array in arrays.items():
            dtype, shape = names[name]
            if array.dtype != dtype or not _fits(array.shape, shape):
                raise InvalidInput(
                    f"expected {name!r} of shape {shape}, dtype {dtype}; "
                    f"received shape {array.shape}, dtype {array.dtype}"
                )
            if dtype.kind == "f":  # nan would answer, too, and stay in what is remembered
                finite(name, array)
        try:
            return self._session.run(signature, arrays)
        except tf.errors.InvalidArgumentError as error:
            raise InvalidInput(f"{signature!r} failed: {error.message}") from error
        except (tf.errors.CancelledError, RuntimeError) as error:
            if not self._session.closed:
                raise
            raise InvalidInput("expected an open policy; received one that was closed") from error

    def _as_batch(self, signature, name, value):
        dtype, (_, *shape) = self.signatures[signature]["inputs"][name]
        shape = tuple(shape)
        value = _as_array(name, value, dtype)
        single = value.shape == shape
        if value.dtype != dtype or value.shape[not single :] != shape or 0 in value.shape:
            raise InvalidInput(
                f"expected {name} of shape {shape} or a batch of them, dtype "
                f"{dtype}; received shape {value.shape}, dtype {value.dtype}"
            )
        return (value[np.newaxis] if single else value), single

    def close(self) -> None:
        """Frees the model; who asks it from then on gets an `InvalidInput`."""
        self._session.close()


def _as_array(name, value, dtype):
    """An array as it is, to be looked at, and anything else as one of the dtype."""
    return value if isinstance(value, np.ndarray) else array_of(name, value, dtype)


def _fits(shape, expected):
    """Whether a shape is the expected one, where -1 is any size."""
    sizes = zip(shape, expected)
    return len(shape) == len(expected) and all(size == e or e == -1 for size, e in sizes)


def _described(folder):
    """What `policy.json` holds, and its signatures with the dtypes of NumPy."""
    file = folder / "assets.extra" / "policy.json"
    try:
        details = json.loads(file.read_text(encoding="utf-8"))
        signatures = {
            name: {
                side: {key: _spec(spec) for key, spec in signature[side].items()}
                for side in ("inputs", "outputs")
            }
            for name, signature in details["signatures"].items()
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InvalidInput(
            f"expected a policy as export_policy writes it; received {str(folder)!r}, whose "
            f"{file.relative_to(folder)} cannot be read ({type(error).__name__}: {error})"
        ) from error
    return details, signatures


def _spec(described):
    sizes = [-1 if size is None else operator.index(size) for size in described["shape"]]
    return np.dtype(str(described["dtype"])), sizes


def _opened(folder, signatures):
    """A session with the graph, if that takes and gives what `policy.json` says."""
    try:
        session = SavedModelSession(folder)
    except (OSError, ValueError, RuntimeError, tf.errors.OpError) as error:
        # What runs to restore weights says above why it failed only that it did.
        lines = str(error).strip().removeprefix("Graph execution error:").split("\n")
        first = next((line for line in lines if line.strip()), type(error).__name__)
        part = "weights in variables/" if "RestoreV2" in str(error) else "graph"
        raise InvalidInput(
            f"expected a policy as export_policy writes it; received {str(folder)!r}, whose {part} "
            f"cannot be loaded ({first})"
        ) from error
    found = {
        name: {
            side: {key: _graph_spec(info) for key, info in getattr(signature, side).items()}
            for side in ("inputs", "outputs")
        }
        for name, signature in session.signatures.items()
    }
    if not _agree(signatures, found):
        session.close()
        raise InvalidInput(
            f"expected a policy.json of the signatures of its graph, {found}; received another "
            f"one in {str(folder)!r}"
        )
    if sum(file.stat().st_size for file in folder.glob("variables/*")) <= _MOST_BYTES_FROZEN:
        session.freeze()
    return session


def _graph_spec(info):
    shape = info.tensor_shape
    sizes = None if shape.unknown_rank else [dim.size for dim in shape.dim]
    return np.dtype(tf.as_dtype(info.dtype).as_numpy_dtype), sizes


def _agree(told, found):
    """Whether signatures are those of a graph, which may know less of the shapes of outputs."""
    return told.keys() == found.keys() and all(
        told[name]["inputs"] == found[name]["inputs"]
        and _are_given(told[name]["outputs"], found[name]["outputs"])
        for name in told
    )


def _are_given(told, found):
    return told.keys() == found.keys() and all(
        dtype == found[key][0] and (found[key][1] is None or _fits(shape, found[key][1]))
        for key, (dtype, shape) in told.items()
    )


def load_policy(directory: str | os.PathLike) -> Policy:
    """Loads an exported or a trained policy for use in this process, as the graph a server runs.

    Args:
        directory: What `export_policy` returned, or a folder of such versions, for the newest. Or
            a trained preset: one of `rrl_tf.presets.trained_presets()`, the folder of one, or
            `hf://owner/name` on the Hugging Face Hub, with `@revision` perhaps.

    Raises:
        InvalidInput: If there is no exported version, its files are damaged, or the Hub does not
            give them.

    Example:

    >>> policy = load_policy("doorkey-5x5")
    >>> policy.act(np.zeros((7, 7, 4), "uint8")) in range(5)
    True
    """
    folder = path_of("directory", directory)
    is_packaged = str(directory) in trained_presets()
    if is_packaged or is_on_hub(directory) or (folder / METADATA).exists():
        folder = preset_folder(directory) / POLICY
    elif not folder.exists():
        known = ", ".join(trained_presets())
        raise InvalidInput(
            f"expected the folder of an exported policy, or one of {known}; received "
            f"{str(directory)!r}"
        )
    is_version = (folder / "saved_model.pb").exists()
    return Policy(folder if is_version else newest_version(folder))
