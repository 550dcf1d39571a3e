"""The optimisers that runs choose between."""

from __future__ import annotations

from typing import Any, Literal

import keras

OptimizerName = Literal["muon", "adam"]


def make_optimizer(name: OptimizerName, **options: Any) -> keras.optimizers.Optimizer:
    """Muon or Adam.

    Muon updates matrices by the orthogonal part of their momentum, and the rest, the layer `head`
    too, as Adam.

    Args:
        name: `"muon"` or `"adam"`.
        **options: of both, such as `FitConfig.optimizer_options` gives.

    Example:
        >>> optimizer = make_optimizer("muon", **config.optimizer_options(config.steps))
    """
    if name == "adam":
        return keras.optimizers.Adam(**options)
    return keras.optimizers.Muon(exclude_layers=["head"], weight_decay=1e-4, **options)
