"""Optimizers of training runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import keras

OptimizerName = Literal["muon", "adam"]


class _OneLearningRate:
    """Evaluates a schedule once per update; Keras evaluates it for every weight that decays.

    A cosine after a warm-up is a condition in the graph, which takes time to trace and to run.
    """

    def _apply_weight_decay(self, variables: Sequence[keras.Variable]) -> None:
        decay = super()._apply_weight_decay.__func__  # type: ignore[misc]
        decay(_WithLearningRate(self), variables)


class _WithLearningRate:
    """An optimizer with the current value of its schedule."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self.learning_rate = optimizer.learning_rate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)


@keras.saving.register_keras_serializable("rrl_tf")
class AdamW(_OneLearningRate, keras.optimizers.AdamW):
    """Keras' AdamW, faster with a schedule of the learning rate.

    Example:
        >>> from rrl_tf.training import learning_rate_schedule
        >>> optimizer = AdamW(learning_rate_schedule("cosine", 1e-3, 1000, 50))
        >>> float(optimizer.learning_rate)  # at the start of the warm-up
        0.0
    """


@keras.saving.register_keras_serializable("rrl_tf")
class Muon(_OneLearningRate, keras.optimizers.Muon):
    """Keras' Muon, faster with a schedule of the learning rate.

    Example:
        >>> from rrl_tf.training import learning_rate_schedule
        >>> optimizer = Muon(learning_rate_schedule("cosine", 1e-3, 1000, 50), weight_decay=1e-4)
        >>> float(optimizer.learning_rate)  # at the start of the warm-up
        0.0
    """


def make_optimizer(name: OptimizerName, **options: Any) -> keras.optimizers.Optimizer:
    """Return a Muon or Adam optimizer.

    Muon updates matrices by the orthogonal part of their momentum. It updates other weights, and
    the layer `head`, like Adam.

    Args:
        name: `"muon"` or `"adam"`.
        **options: options of both, such as `FitConfig.optimizer_options`.

    Example:
        >>> from rrl_tf.training import FitConfig
        >>> config = FitConfig(learning_rate=1e-3, warmup_steps=50, clip_norm=1.0)
        >>> optimizer = make_optimizer("muon", **config.optimizer_options(steps=1000))
        >>> optimizer.global_clipnorm
        1.0
    """
    if name == "adam":
        return keras.optimizers.Adam(**options)
    return Muon(exclude_layers=["head"], weight_decay=1e-4, **options)
