"""Training runs: configuration, run folder, resuming, logging, reports and devices."""

from rrl_tf._lazy import lazy_attributes

_MODULES = {
    "config": "FitConfig RunConfig SupervisedConfig require_fraction "
    "require_not_negative require_positive",
    "devices": "Replicas make_replicas",
    "fit": "FitRun LogFigures LogMetrics compile_classifier",
    "loggers": "Logger MetricsLog TensorBoardLogger",
    "optimizers": "LinearDecay learning_rate_schedule linear_schedule make_optimizer",
    "profiling": "Profile profiled",
    "run": "EarlyStop Run",
    "run_folder": "RunFolder atomic_file checksum",
    "safeguards": "GracefulShutdown require_finite translate_xla_errors",
}

__all__ = sorted(" ".join(_MODULES.values()).split())

__getattr__ = lazy_attributes(__name__, _MODULES)
