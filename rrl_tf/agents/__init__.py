"""Value-based agents: double DQN, replay, training loop, evaluation, curriculum, actors."""

from rrl_tf._lazy import lazy_attributes

_MODULES = {
    "actor": "Actor Rollout",
    "actors": "ActorLoop Actors",
    "curriculum": "Curriculum CurriculumEnv",
    "double_dqn": "DoubleDQN",
    "evaluation": "Evaluation evaluate",
    "graph_envs": "CurriculumGraph PythonEnvs",
    "graph_loop": "GraphLoop",
    "loop": "Loop Record",
    "losses": "double_dqn_loss double_dqn_target",
    "recurrent_double_dqn": "RecurrentDoubleDQN",
    "replay": "Batch ReplayBuffer",
    "rollout": "RolloutStatistics",
    "sequence_timeline": "SequenceTimeline",
    "timeline": "Timeline",
}

__all__ = sorted(" ".join(_MODULES.values()).split())

__getattr__ = lazy_attributes(__name__, _MODULES)
