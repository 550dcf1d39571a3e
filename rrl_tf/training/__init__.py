"""Runs: their folder, logs, checkpoints, callbacks of `fit`, evaluation and profile."""

from rrl_tf.training.callbacks import Checkpoint, EarlyStop, LogImages, LogMetrics, Profile
from rrl_tf.training.evaluation import Evaluation, evaluate
from rrl_tf.training.metrics_log import MetricsLog
from rrl_tf.training.profiling import profiled
from rrl_tf.training.rollout import RolloutStatistics
from rrl_tf.training.run_folder import RunFolder, atomic_file

__all__ = [
    "Checkpoint",
    "EarlyStop",
    "Evaluation",
    "LogImages",
    "LogMetrics",
    "MetricsLog",
    "Profile",
    "RolloutStatistics",
    "RunFolder",
    "atomic_file",
    "evaluate",
    "profiled",
]
