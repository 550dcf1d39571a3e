"""Train the agent that a script's configuration describes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import rrl_tf

if TYPE_CHECKING:  # `--help` is shown without Keras
    import keras


def train(
    config: Any,
    make_task: Callable[[Any], rrl_tf.envs.Task],
    make_network: Callable[[Any, rrl_tf.envs.Task], keras.Model],
    **options: Any,
) -> tuple[rrl_tf.training.Run, rrl_tf.agents.DoubleDQN]:
    """Train a double DQN, or resume its run, and draw an episode.

    Args:
        config: configuration of the run, whose seed also determines the new network.
        make_task: function of the configuration that returns the task.
        make_network: function of the configuration and the task that returns a new network.
        **options: further arguments of `rrl_tf.agents.train_double_dqn`.
    """
    import keras

    # This connects several hosts, which is impossible once TensorFlow is in use.
    replicas = rrl_tf.training.make_replicas(config, config.batch_size)
    task = make_task(config)
    keras.utils.set_random_seed(config.seed)
    return rrl_tf.agents.train_double_dqn(
        *(task, make_network(config, task), config, replicas),
        draw_episode=rrl_tf.interpret.draw_episode,
        **options,
    )
