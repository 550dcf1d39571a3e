"""Define `DensePolicy`, a policy of dense layers that runs with NumPy only.

The names of the arrays are those of the library that trained the policy:

| arrays | network | trained by |
|---|---|---|
| `actor.latent_pi.I`, `actor.mu` | ReLU, tanh at the end | Stable-Baselines3: SAC, TQC |
| `actor.mu.I` | ReLU, tanh at the end | Stable-Baselines3: TD3, DDPG |
| `mlp_extractor.policy_net.I`, `action_net` | tanh, linear | Stable-Baselines3: A2C, PPO, TRPO |
| `action_net`, `action_net.I` | linear; ReLU and tanh at the end | Stable-Baselines3: ARS |
| `W0`, `b0`, `W1`, `b1`, ... | tanh, linear; `W` is (in, out) | your own code |

Names of PyTorch arrays end in `.weight` and `.bias`. The activations are the defaults of
Stable-Baselines3. The policy standardises observations if there are arrays `obs_mean` and
`obs_std`, or `obs_mean`, `obs_var`, `epsilon` and `clip_obs` (of `VecNormalize`). With the arrays
`action_low` and `action_high`, the output of the last tanh is scaled to this interval instead of
[-1, 1]. Other arrays, such as those of a critic, are ignored.
"""

from __future__ import annotations

import functools
import os
import re
import zipfile
from collections.abc import Callable, Mapping

import numpy as np

from rrl_tf._arguments import array_of
from rrl_tf.errors import InvalidInput

Arrays = Mapping[str, np.ndarray]
Function = Callable[[np.ndarray], np.ndarray]
Layer = tuple[np.ndarray, np.ndarray]
"""Weights (in, out) and bias (out,)."""

CONTENTS = "weights of dense layers, named as in Stable-Baselines3 or W0, b0, W1, b1, ..."


class DensePolicy:
    """Deterministic policy of dense layers; maps an observation `(S,)` to a float64 action `(A,)`.

    Args:
        arrays: dict name -> array; see the table at the top of the module.
        name: name of the policy in error messages.

    Raises:
        InvalidInput: if arrays are missing, are not finite or do not fit together. A call of the
            policy raises it if the shape of the observation is not `(S,)`.

    Example:
        >>> policy = DensePolicy({"W0": np.array([[2.0], [0.5]]), "b0": np.array([1.0])})
        >>> policy(np.array([3.0, 4.0]))
        array([9.])
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], name: str = "the policy") -> None:
        self.name = name
        try:
            arrays = {key: array_of(key, value, "float64") for key, value in arrays.items()}
            self._layers, self._hidden, self._end = _network(arrays)
            self._normalise = _normaliser(arrays)
            if any(bias.shape != weights.shape[1:] for weights, bias in self._layers):
                raise ValueError("the shape of a bias does not fit its weights")
            is_finite = np.isfinite(self(np.zeros(self.observation_size))).all()
            if not is_finite or not all(
                np.isfinite(each).all() for pair in self._layers for each in pair
            ):
                raise ValueError("weights are not finite")
        # KeyError for a missing array; TypeError and IndexError for weights that are a number.
        except (KeyError, ValueError, TypeError, IndexError) as error:
            received = ", ".join(
                f"{key} {np.asarray(value).dtype}{np.shape(value)}" for key, value in arrays.items()
            )
            raise InvalidInput(
                f"{name} must hold finite {CONTENTS}; received {received or 'nothing'}"
            ) from error

    @classmethod
    def load(cls, file: str | os.PathLike) -> DensePolicy:
        """Load a policy from a file that `np.savez` wrote.

        Raises:
            InvalidInput: if the file cannot be read or does not contain a policy.
        """
        try:
            with np.load(file) as contents:
                arrays = {name: contents[name] for name in contents.files}
        # TypeError for a file with a single array; EOFError for an empty file.
        except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise InvalidInput(
                f"{file} must be a file of np.savez that contains {CONTENTS}; received {error}"
            ) from error
        return cls(arrays, str(file))

    @property
    def observation_size(self) -> int:
        """S, the size of an observation."""
        return len(self._layers[0][0])

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        if np.shape(observation) != (self.observation_size,):
            raise InvalidInput(
                f"observations of {self.name} must have the shape ({self.observation_size},); "
                f"received the shape {np.shape(observation)}"
            )
        values = self._normalise(observation)
        *hidden, (weights, bias) = self._layers
        for w, b in hidden:
            values = self._hidden(values @ w + b)
        return self._end(values @ weights + bias)


def _network(arrays: Arrays) -> tuple[list[Layer], Function, Function]:
    """Return the layers, the hidden activation and the last activation."""
    if "W0" in arrays:
        count = sum(re.fullmatch(r"W\d+", name) is not None for name in arrays)
        return [(arrays[f"W{i}"], arrays[f"b{i}"]) for i in range(count)], np.tanh, _identity
    hidden: Function = functools.partial(np.maximum, 0)
    end = _tanh_between_bounds(arrays)
    names = _numbered(arrays, "actor.mu") or _numbered(arrays, "action_net")
    if "actor.mu.weight" in arrays:
        names = [*_numbered(arrays, "actor.latent_pi"), "actor.mu"]
    elif not names:
        names = [*_numbered(arrays, "mlp_extractor.policy_net"), "action_net"]
        hidden, end = np.tanh, _identity
    elif names == ["action_net.0"]:  # linear
        end = _identity
    weights = {name: arrays[f"{name}.weight"].T for name in names}  # PyTorch's are (out, in)
    layers = [(w, arrays.get(f"{name}.bias", np.zeros(w.shape[1:]))) for name, w in weights.items()]
    return layers, hidden, end


def _numbered(arrays: Arrays, prefix: str) -> list[str]:
    """Return the names of the dense layers of a `torch.nn.Sequential`.

    Their numbers are not consecutive, because activations are numbered, too.
    """
    found = [re.fullmatch(rf"{re.escape(prefix)}\.(\d+)\.weight", name) for name in arrays]
    return [f"{prefix}.{i}" for i in sorted(int(match[1]) for match in found if match)]


def _identity(values: np.ndarray) -> np.ndarray:
    return values


def _tanh_between_bounds(arrays: Arrays) -> Function:
    low, high = arrays.get("action_low", np.array(-1.0)), arrays.get("action_high", np.array(1.0))
    middle, half = (low + high) / 2, (high - low) / 2
    return lambda values: middle + half * np.tanh(values)


def _normaliser(arrays: Arrays) -> Function:
    if "obs_mean" not in arrays:
        return _identity
    mean = arrays["obs_mean"]
    if "obs_std" in arrays:
        deviation = arrays["obs_std"] + 1e-6
        return lambda values: (values - mean) / deviation
    deviation, clip = np.sqrt(arrays["obs_var"] + arrays["epsilon"]), arrays["clip_obs"]
    return lambda values: np.clip((values - mean) / deviation, -clip, clip)
