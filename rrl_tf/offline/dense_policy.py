"""Policies of dense layers whose weights are kept as NumPy arrays: nothing else is needed to play.

The arrays have the names that they have where the policies are trained:

| arrays | network | of |
|---|---|---|
| `actor.latent_pi.I`, `actor.mu` | ReLU, tanh at the end | Stable-Baselines3: SAC, TQC |
| `actor.mu.I` | ReLU, tanh at the end | Stable-Baselines3: TD3, DDPG |
| `mlp_extractor.policy_net.I`, `action_net` | tanh, linear | Stable-Baselines3: A2C, PPO, TRPO |
| `action_net`, `action_net.I` | linear; ReLU and tanh at the end | Stable-Baselines3: ARS |
| `W0`, `b0`, `W1`, `b1`, ... | tanh, linear; `W` is (in, out) | anything of yours |

PyTorch's have `.weight` and `.bias`, and their default activations are assumed.
With `obs_mean` and `obs_std`, or `obs_mean`, `obs_var`, `epsilon` and `clip_obs` (`VecNormalize`),
observations are standardised first. With `action_low` and `action_high`, the tanh at the end spans
them instead of [-1, 1]. Whatever else is in the file, such as a critic, is not looked at.
"""

from __future__ import annotations

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

HELD = "weights of dense layers, named as Stable-Baselines3 names them or W0, b0, W1, b1, ..."
"""What a file has to hold, in words."""


class DensePolicy:
    """A deterministic policy of dense layers, `observation (S,) → action (A,)` in float64.

    Args:
        arrays: name → array, as the module's table says.
        name: what errors call it.

    Raises:
        InvalidInput: if arrays are missing or do not fit each other; when called, if the
            observation is not `(S,)`.

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
            values = self._normalise(np.zeros(self.observation_size))
            for weights, bias in self._layers:
                if bias.shape != weights.shape[1:]:
                    raise ValueError(f"a bias {bias.shape} of weights {weights.shape}")
                values = values @ weights + bias
            finite = bool(np.isfinite(self._end(values)).all())
        # A name is missing, or a product impossible; TypeError: weights that are a single number.
        except (KeyError, ValueError, TypeError) as error:
            raise InvalidInput(f"{name} must hold {HELD}; received {_listed(arrays)}") from error
        if not finite:
            raise InvalidInput(f"{name} must hold finite weights; received {_listed(arrays)}")

    @classmethod
    def load(cls, file: str | os.PathLike) -> DensePolicy:
        """The policy in a file that `np.savez` wrote.

        Raises:
            InvalidInput: if there is none.
        """
        try:
            with np.load(file) as held:
                arrays = {name: held[name] for name in held.files}
        # TypeError: an array alone; EOFError: an empty file.
        except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise InvalidInput(
                f"{file} must be a file of np.savez that holds {HELD}; received {error}"
            ) from error
        return cls(arrays, str(file))

    @property
    def observation_size(self) -> int:
        """S."""
        return len(self._layers[0][0])

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        if np.shape(observation) != (self.observation_size,):
            raise InvalidInput(
                f"{self.name} is for observations of the shape ({self.observation_size},); "
                f"received the shape {np.shape(observation)}"
            )
        values = self._normalise(observation)
        *hidden, (weights, bias) = self._layers
        for w, b in hidden:
            values = self._hidden(values @ w + b)
        return self._end(values @ weights + bias)


def _network(arrays: Arrays) -> tuple[list[Layer], Function, Function]:
    """Layers, what follows every hidden one, and what follows the last."""
    hidden: Function = _relu
    if "W0" in arrays:
        count = sum(re.fullmatch(r"W\d+", name) is not None for name in arrays)
        return [(arrays[f"W{i}"], arrays[f"b{i}"]) for i in range(count)], np.tanh, _as_it_is
    if "actor.mu.weight" in arrays:
        names, squashed = [*_numbered(arrays, "actor.latent_pi"), "actor.mu"], True
    elif names := _numbered(arrays, "actor.mu"):
        squashed = True
    elif names := _numbered(arrays, "action_net"):
        squashed = len(names) > 1
    else:
        names = [*_numbered(arrays, "mlp_extractor.policy_net"), "action_net"]
        hidden, squashed = np.tanh, False
    weights = {name: arrays[f"{name}.weight"].T for name in names}  # PyTorch's are (out, in)
    layers = [(w, arrays.get(f"{name}.bias", np.zeros(w.shape[1:]))) for name, w in weights.items()]
    return layers, hidden, _spanning(arrays) if squashed else _as_it_is


def _numbered(arrays: Arrays, prefix: str) -> list[str]:
    """Layers of a `torch.nn.Sequential`, whose numbers between them are activations."""
    found = [re.fullmatch(rf"{re.escape(prefix)}\.(\d+)\.weight", name) for name in arrays]
    return [f"{prefix}.{i}" for i in sorted(int(each[1]) for each in found if each)]


def _relu(values: np.ndarray) -> np.ndarray:
    return np.maximum(values, 0)


def _spanning(arrays: Arrays) -> Function:
    """A tanh between the bounds of the actions."""
    low, high = arrays.get("action_low", np.array(-1.0)), arrays.get("action_high", np.array(1.0))
    middle, half = (low + high) / 2, (high - low) / 2
    return lambda values: middle + half * np.tanh(values)


def _as_it_is(values: np.ndarray) -> np.ndarray:
    return values


def _normaliser(arrays: Arrays) -> Function:
    """Standardises observations, where the file says how."""
    if "obs_mean" not in arrays:
        return _as_it_is
    mean = arrays["obs_mean"]
    if "obs_std" in arrays:
        deviation = arrays["obs_std"] + 1e-6
        return lambda values: (values - mean) / deviation
    deviation, clip = np.sqrt(arrays["obs_var"] + arrays["epsilon"]), arrays["clip_obs"]
    return lambda values: np.clip((values - mean) / deviation, -clip, clip)


def _listed(arrays: Arrays) -> str:
    held = {name: np.asarray(value) for name, value in arrays.items()}
    return ", ".join(f"{name} {each.dtype}{each.shape}" for name, each in held.items()) or "nothing"
