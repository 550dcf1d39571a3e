"""Agents: experience replay, double DQN, exploration schedules, curriculum, the training loop."""

from rrl_tf.agents.loop import Loop, Record
from rrl_tf.agents.losses import double_dqn_loss, double_dqn_target
from rrl_tf.agents.replay import Batch, ReplayBuffer
from rrl_tf.agents.schedules import linear_schedule

__all__ = [
    "Batch",
    "DoubleDQN",
    "Loop",
    "Record",
    "ReplayBuffer",
    "double_dqn_loss",
    "double_dqn_target",
    "linear_schedule",
]


def __getattr__(name):
    # The agent compiles its update with tf.function; the losses above run on any backend.
    if name == "DoubleDQN":
        from rrl_tf.agents.double_dqn import DoubleDQN

        return DoubleDQN
    raise AttributeError(f"module 'rrl_tf.agents' has no attribute {name!r}")
