"""Define the names that options of a run take, without importing Keras."""

from typing import Literal, TypeAlias

ClusterKind: TypeAlias = Literal["tf_config", "slurm"]
LoggerName: TypeAlias = Literal["csv", "tensorboard"]
OptimizerName: TypeAlias = Literal["muon", "adam"]
Schedule: TypeAlias = Literal["constant", "cosine"]
