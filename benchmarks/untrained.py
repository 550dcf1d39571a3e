"""The scripts' agents with new weights: what a step or an action costs does not depend on them."""

import dataclasses

from rrl_tf.data.windows import Scaling
from train_scripts import train_decision_transformer, train_doorkey


def double_dqn(training):
    """Environment and agent of a configuration of `train_doorkey`."""
    env = train_doorkey.make_env(training)
    return env, train_doorkey.make_agent(training, env.observation_space, env.action_space)


def decision_transformer(data, **changes):
    """Model and `Scaling` of our Decision Transformer with some changes, for recorded data."""
    config = dataclasses.replace(train_decision_transformer.FAST, **changes)
    scaling = Scaling.of(data, config.return_scale)
    return train_decision_transformer.make_model(config, data, scaling), scaling
