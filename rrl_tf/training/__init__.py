"""Runs: their folder, logs, checkpoints, callbacks of `fit`, evaluation and profile."""

from rrl_tf.training.callbacks import Checkpoint, EarlyStop, LogImages, LogMetrics, Profile
from rrl_tf.training.config import (
    RunConfig,
    require_multiple,
    require_not_negative,
    require_positive,
    require_share,
)
from rrl_tf.training.evaluation import Evaluation, evaluate
from rrl_tf.training.interruption import Interruption
from rrl_tf.training.metrics_log import MetricsLog
from rrl_tf.training.profiling import profiled
from rrl_tf.training.rollout import RolloutStatistics
from rrl_tf.training.run import Run
from rrl_tf.training.run_folder import RunFolder, atomic_file, checksum

__all__ = [
    "Checkpoint",
    "EarlyStop",
    "Evaluation",
    "Interruption",
    "LogImages",
    "LogMetrics",
    "MetricsLog",
    "Profile",
    "RolloutStatistics",
    "Run",
    "RunConfig",
    "RunFolder",
    "atomic_file",
    "checksum",
    "evaluate",
    "profiled",
    "require_multiple",
    "require_not_negative",
    "require_positive",
    "require_share",
]
