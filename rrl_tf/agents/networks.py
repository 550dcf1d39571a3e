"""Define functions that make the Q networks of `DQNConfig` and `RecurrentDQNConfig`."""

from __future__ import annotations

from typing import Any

import keras

from rrl_tf._arguments import one_of
from rrl_tf.agents.config import NETWORKS, DQNConfig, RecurrentDQNConfig
from rrl_tf.envs.task import Task
from rrl_tf.errors import InvalidInput
from rrl_tf.models import (
    MultiInputQNetwork,
    RecurrentQNetwork,
    RelationalQNetwork,
    convolutional_q_network,
    dense_q_network,
    grid_q_network,
)
from rrl_tf.models.architectures import RECURRENT_Q_NETWORK
from rrl_tf.models.encoders import SMALLEST_PICTURE


def fitting_network(preprocessor: Any) -> str:
    """Return the name of the default network for preprocessed observations.

    For observations with several parts, this is the network of their grids.

    Example:
        >>> from rrl_tf.envs import gymnasium_task
        >>> fitting_network(gymnasium_task("CartPole-v1").preprocessor)
        'dense'
    """
    if preprocessor.parts:
        fitting = set(map(fitting_network, preprocessor.parts.values()))
        return next(name for name in ("grid", "fast", "convolutional", "dense") if name in fitting)
    if len(preprocessor.shape) != 3:
        return "dense"
    if _is_picture(preprocessor.shape):
        return "convolutional"
    return "grid" if preprocessor.agent_cell is None else "fast"


def _is_picture(shape):
    return min(shape[:2]) >= SMALLEST_PICTURE


def make_q_network(config: DQNConfig, task: Task) -> keras.Model:
    """Return a Q network with new weights, by default one that fits the observations.

    Raises:
        InvalidInput: if the network of the configuration does not fit the observations.
    """
    preprocessor, shape = task.preprocessor, task.preprocessor.shape
    name = one_of("network", config.network or fitting_network(preprocessor), NETWORKS)
    arguments: dict[str, Any] = {"num_actions": task.num_actions, "dtype": config.dtype}
    sizes = config.network_sizes(name not in ("dense", "convolutional"))
    if preprocessor.parts:
        return MultiInputQNetwork.for_preprocessor(preprocessor, name, **arguments, **sizes)
    if name == "dense":
        return dense_q_network(**arguments)
    if len(shape) != 3:
        raise InvalidInput(
            f"network {name!r} takes grids (height, width, features); received observations of "
            f"shape {shape}. Use `--network dense`."
        )
    if name == "convolutional":
        return (convolutional_q_network if _is_picture(shape) else grid_q_network)(**arguments)
    network = RelationalQNetwork.from_preset(name, preprocessor, **arguments, **sizes)
    try:
        network.grid_shape((None, *shape))
    except ValueError as error:  # from Keras
        raise InvalidInput(
            f"network {name!r} takes larger grids; received observations of shape {shape}. Use "
            "`--network grid`."
        ) from error
    return network


def make_recurrent_q_network(
    config: RecurrentDQNConfig, task: Task, max_entities: int | None = None
) -> RecurrentQNetwork:
    """Return a recurrent Q network with new weights.

    Args:
        config: sizes and name of the network.
        task: task to learn.
        max_entities: as in `RelationalQNetwork`; networks that are dense or read all cells ignore
            it.

    Raises:
        InvalidInput: if there is no such network, or a size is set for a network without relations.
    """
    name: str = one_of("network", config.network, tuple(RECURRENT_Q_NETWORK))
    arguments: dict[str, Any] = {
        "num_actions": task.num_actions,
        "hidden_activation": config.hidden_activation,
        "dtype": config.dtype,
    }
    architecture = RECURRENT_Q_NETWORK[name]["config"]
    encoder, is_relational = architecture["encoder_arguments"], architecture["encoder"] != "dense"
    sizes = config.network_sizes(is_relational)
    if "hidden_units" in sizes:
        arguments["hidden_units"] = sizes.pop("hidden_units")
    if "block" in sizes:
        sizes["block"] = {**encoder["block"], **sizes["block"]}
    if max_entities is not None and is_relational and "readout" not in encoder:
        sizes["max_entities"] = max_entities
    return RecurrentQNetwork.from_preset(
        name, task.preprocessor, encoder_arguments=sizes, **arguments
    )
