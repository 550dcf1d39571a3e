"""Value-based agents: double DQN, replay buffers, training loop, evaluation and curriculum."""

from rrl_tf._lazy import lazy_attributes

_MODULES = {
    "actors": "Actor ActorCollector RayPool Rollout",
    "config": "AgentConfig DQNConfig DoubleDQNConfig RecurrentDQNConfig RecurrentDoubleDQNConfig",
    "double_dqn": "DoubleDQN",
    "environments": "Curriculum CurriculumEnv GraphEnvs PythonEnvs training_env",
    "evaluation": "Evaluation GraphEvaluation evaluate make_play",
    "loop": "Collector Loop Record RolloutStatistics",
    "losses": "double_dqn_loss double_dqn_target",
    "networks": "fitting_network make_q_network make_recurrent_q_network",
    "recurrent_double_dqn": "GreedyRecurrentPolicy RecurrentDoubleDQN",
    "replay": "ReplayBuffer SequenceReplayBuffer",
    "train": "export_agent make_agent make_loop train_double_dqn",
}

__all__ = sorted(" ".join(_MODULES.values()).split())

__getattr__ = lazy_attributes(__name__, _MODULES)
