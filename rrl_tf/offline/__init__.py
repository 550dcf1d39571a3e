"""Record episodes, train Decision Transformers on them, and fine-tune the policies online."""

from rrl_tf._lazy import lazy_attributes

_MODULES = {
    "agent": "DecisionTransformerAgent",
    "config": "DecisionTransformerConfig FineTuningConfig OfflineAgentConfig",
    "decision_transformer": "train_decision_transformer",
    "dense_policy": "DensePolicy",
    "episodes": "Episode OfflineData RecordedEnv",
    "fine_tuning": "fine_tune",
    "networks": "",
    "recipes": "RECIPES Recipe",
    "recording": "Player record_episodes",
    "scaling": "Scaling",
    "sources": "load_episodes",
    "trajectory_policy": "TrajectoryPolicy play_episodes",
    "windows": "LastSteps Windows",
}

__all__ = sorted(" ".join(_MODULES.values()).split())

__getattr__ = lazy_attributes(__name__, _MODULES)
