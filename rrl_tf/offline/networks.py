"""Make the scaling and the network that an `OfflineAgentConfig` describes."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, cast

import keras

from rrl_tf.envs import preprocessing
from rrl_tf.errors import InvalidInput
from rrl_tf.models import BehaviorCloning, DecisionTransformer
from rrl_tf.offline.config import OfflineAgentConfig
from rrl_tf.offline.episodes import OfflineData
from rrl_tf.offline.scaling import Scaling, largest_return

TRANSFORMER_FIELDS = ("network", "width", "num_blocks", "num_heads", "positions", "context_length")
"""Fields that have no effect on behavior cloning."""
MAX_RETURN_SCALE = 1000.0

ConfigT = TypeVar("ConfigT", bound=OfflineAgentConfig)


def make_agent_parts(
    config: ConfigT, data: OfflineData, preset: OfflineAgentConfig
) -> tuple[ConfigT, Scaling, DecisionTransformer | BehaviorCloning]:
    """Return the configuration, scaling and network for `train_decision_transformer`.

    Args:
        config: hyper-parameters.
        data: episodes.
        preset: configuration that supplied the defaults of `config`.

    Returns:
        The configuration for the actions of the data, the scaling of the training episodes, and a
        network with new weights, which depend only on the seed.

    Raises:
        InvalidInput: if a field differs from the preset but has no effect on the network, or the
            preprocessor does not fit the observations.
    """
    if data.discrete:
        config = dataclasses.replace(config, distribution="point", noise_scales=(), noise_scale=1.0)
    scaling = make_scaling(config, data)
    changed = [  # a context of one step, which behavior cloning reads, is valid
        n
        for n in TRANSFORMER_FIELDS
        if getattr(config, n) not in (getattr(preset, n), getattr(BehaviorCloning, n, None))
    ]
    if config.model == "behavior_cloning" and changed:
        raise InvalidInput(
            f"`{'`, `'.join(changed)}` must be unchanged for behavior_cloning, which ignores them; "
            f"received {[getattr(config, n) for n in changed]}"
        )
    keras.utils.set_random_seed(config.seed)
    network = make_network(config, data, scaling)
    network.build()
    return config, scaling, network


def make_scaling(config: OfflineAgentConfig, data: OfflineData) -> Scaling:
    """Return the scaling of the training episodes."""
    training, _ = config.split(data)
    scale = config.return_scale
    if scale is None:
        scale = min(MAX_RETURN_SCALE, largest_return(training, config.condition))
    one_hot, space = config.preprocessor == "one_hot", cast(Any, data.observation_space)
    if one_hot and space is None:
        raise InvalidInput(
            "preprocessor one_hot needs data with an observation space, such as Minari's; "
            f"received {data.name}"
        )
    preprocessor = preprocessing.one_hot(space) if one_hot else None
    return Scaling.of(training, scale, preprocessor, config.condition)


def make_network(
    config: OfflineAgentConfig, data: OfflineData, scaling: Scaling
) -> DecisionTransformer | BehaviorCloning:
    """Return a network with new weights."""
    shared: dict[str, Any] = {
        "state_size": scaling.state_size,
        "action_size": data.action_size,
        "discrete": data.discrete,
        "dropout": config.dropout,
        "distribution": config.distribution,
        "noise_scale": config.noise_scale,
        "dtype": config.dtype,
    }
    if config.model == "behavior_cloning":
        return BehaviorCloning(
            return_conditioned=config.return_conditioned, members=config.members, **shared
        )
    return DecisionTransformer.from_preset(
        config.network,
        width=config.width,
        num_blocks=config.num_blocks,
        num_heads=config.num_heads,
        context_length=config.context_length,
        positions=config.positions,
        heads=("action",),  # no loss trains the others
        **shared,
    )
