"""Value-based agents: double DQN, replay, training loop, evaluation, curriculum, actors."""

from rrl_tf._lazy import lazy_attributes

_MODULES = {
    "actors": "Actor ActorCollector RayPool Rollout",
    "collector": "Collector",
    "config": "AgentConfig DoubleDQNConfig RecurrentDoubleDQNConfig",
    "curriculum": "Curriculum CurriculumEnv training_env",
    "double_dqn": "DoubleDQN",
    "environments": "GraphEnvs PythonEnvs",
    "evaluation": "Evaluation GraphEvaluation evaluate make_play",
    "loop": "Loop Record",
    "losses": "double_dqn_loss double_dqn_target",
    "recurrent_double_dqn": "GreedyRecurrentPolicy RecurrentDoubleDQN",
    "replay": "ReplayBuffer SequenceReplayBuffer",
    "rollout": "RolloutStatistics",
    "train": "make_agent make_loop train_double_dqn train_recurrent_double_dqn",
}

__all__ = sorted(" ".join(_MODULES.values()).split())

__getattr__ = lazy_attributes(__name__, _MODULES)
