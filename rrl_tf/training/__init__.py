"""What every training run shares: configuration, run folder, resume, logs, report, devices."""

from rrl_tf.training.config import (
    EVALUATION,
    MUTABLE,
    FitConfig,
    RunConfig,
    require_fraction,
    require_multiple,
    require_not_negative,
    require_positive,
)
from rrl_tf.training.devices import Replicas, make_replicas
from rrl_tf.training.fit import FitRun, LogImages, LogMetrics
from rrl_tf.training.loggers import Logger, MetricsLog, make_loggers
from rrl_tf.training.optimizers import make_optimizer
from rrl_tf.training.profiling import Profile, profiled
from rrl_tf.training.run import EarlyStop, Run
from rrl_tf.training.run_folder import RunFolder, atomic_file, checksum
from rrl_tf.training.safeguards import GracefulShutdown
from rrl_tf.training.schedules import LinearDecay, learning_rate_schedule, linear_schedule

__all__ = [
    "EVALUATION",
    "MUTABLE",
    "EarlyStop",
    "FitConfig",
    "FitRun",
    "GracefulShutdown",
    "LinearDecay",
    "LogImages",
    "LogMetrics",
    "Logger",
    "MetricsLog",
    "Profile",
    "Replicas",
    "Run",
    "RunConfig",
    "RunFolder",
    "atomic_file",
    "checksum",
    "learning_rate_schedule",
    "linear_schedule",
    "make_loggers",
    "make_optimizer",
    "make_replicas",
    "profiled",
    "require_fraction",
    "require_multiple",
    "require_not_negative",
    "require_positive",
]
