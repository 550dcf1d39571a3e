"""Runs: their folder, logs, checkpoints, callbacks of `fit`, evaluation and profile."""

from rrl_tf.training.callbacks import (
    Checkpoint,
    EarlyStop,
    LogImages,
    LogMetrics,
    StopWhen,
)
from rrl_tf.training.config import (
    FitConfig,
    RunConfig,
    require_multiple,
    require_not_negative,
    require_positive,
    require_share,
)
from rrl_tf.training.fit import FitRun
from rrl_tf.training.interruption import Interruption
from rrl_tf.training.linear_schedules import LinearDecay, linear_schedule
from rrl_tf.training.loggers import Logger, make_loggers
from rrl_tf.training.metrics_log import MetricsLog
from rrl_tf.training.optimizers import make_optimizer
from rrl_tf.training.profile_summary import ProfileSummary, read_profile
from rrl_tf.training.profiling import Profile, profiled
from rrl_tf.training.replicas import Replicas, make_replicas
from rrl_tf.training.run import Run
from rrl_tf.training.run_folder import RunFolder, atomic_file, checksum
from rrl_tf.training.schedules import learning_rate_schedule

__all__ = [
    "Checkpoint",
    "EarlyStop",
    "FitConfig",
    "FitRun",
    "Interruption",
    "LinearDecay",
    "LogImages",
    "LogMetrics",
    "Logger",
    "MetricsLog",
    "Profile",
    "ProfileSummary",
    "Replicas",
    "Run",
    "RunConfig",
    "RunFolder",
    "StopWhen",
    "atomic_file",
    "checksum",
    "learning_rate_schedule",
    "linear_schedule",
    "make_loggers",
    "make_optimizer",
    "make_replicas",
    "profiled",
    "read_profile",
    "require_multiple",
    "require_not_negative",
    "require_positive",
    "require_share",
]
