"""Agents: experience replay, double DQN, exploration, curriculum, the training loop, actors."""

import importlib

from rrl_tf.agents.actor import Actor, Rollout
from rrl_tf.agents.actors import ActorLoop, Actors
from rrl_tf.agents.curriculum import Curriculum, CurriculumEnv
from rrl_tf.agents.loop import Loop, Record
from rrl_tf.agents.losses import double_dqn_loss, double_dqn_target
from rrl_tf.agents.replay import Batch, ReplayBuffer
from rrl_tf.agents.schedules import LinearDecay, linear_schedule

__all__ = [
    "Actor",
    "ActorLoop",
    "Actors",
    "Batch",
    "Curriculum",
    "CurriculumEnv",
    "CurriculumGraph",
    "DoubleDQN",
    "GraphLoop",
    "LinearDecay",
    "Loop",
    "PythonEnvs",
    "Record",
    "RecurrentDoubleDQN",
    "ReplayBuffer",
    "Rollout",
    "SequenceTimeline",
    "Timeline",
    "TrajectoryPolicy",
    "double_dqn_loss",
    "double_dqn_target",
    "linear_schedule",
    "play_episodes",
]

# What compiles its step with tf.function; the losses above run on any backend.
_WITH_TENSORFLOW = {
    "CurriculumGraph": "graph_envs",
    "DoubleDQN": "double_dqn",
    "GraphLoop": "graph_loop",
    "PythonEnvs": "graph_envs",
    "RecurrentDoubleDQN": "recurrent_double_dqn",
    "SequenceTimeline": "sequence_timeline",
    "Timeline": "timeline",
    "TrajectoryPolicy": "trajectory_policy",
    "play_episodes": "trajectory_policy",
}


def __getattr__(name):
    if name in _WITH_TENSORFLOW:
        return getattr(importlib.import_module(f"rrl_tf.agents.{_WITH_TENSORFLOW[name]}"), name)
    raise AttributeError(f"module 'rrl_tf.agents' has no attribute {name!r}")
