"""Learning from recorded episodes: recording, sources, windows, the Decision Transformer."""

from rrl_tf._lazy import lazy_attributes

_MODULES = {
    "episodes": "Episode OfflineData RecordedEnv",
    "recording": "Player record_episodes",
    "scaling": "Scaling",
    "sources": "load_episodes",
    "trajectory_policy": "TrajectoryPolicy play_episodes",
    "windows": "LastSteps Windows",
}

__all__ = sorted(" ".join(_MODULES.values()).split())

__getattr__ = lazy_attributes(__name__, _MODULES)
