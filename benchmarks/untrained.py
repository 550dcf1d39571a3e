"""The scripts' agents with new weights: what a step or an action costs does not depend on them."""

import dataclasses

from rrl_tf.agents.loops import make_agent
from train_scripts import train_box_world, train_decision_transformer, train_doorkey


def double_dqn(training, replicas=None, **overrides):
    """Task and agent of a configuration of `train_doorkey` or `train_box_world`.

    `overrides` are arguments of the network.
    """
    script = train_box_world if isinstance(training, train_box_world.Config) else train_doorkey
    task = script.make_task(training)
    network = script.make_network(training, task, **overrides)
    return task, make_agent(task, network, training, replicas)


def decision_transformer(data, preset="fast", **changes):
    """Model and `Scaling` of a Decision Transformer with some changes, for recorded data."""
    config = dataclasses.replace(train_decision_transformer.PRESETS[preset], **changes)
    scaling = train_decision_transformer.make_scaling(config, data)
    return train_decision_transformer.make_network(config, data, scaling), scaling
