"""Define the names that options of a run take, and check a schedule, without importing Keras."""

from typing import Literal, TypeAlias

from rrl_tf.errors import InvalidInput

ClusterKind: TypeAlias = Literal["tf_config", "slurm"]
LoggerName: TypeAlias = Literal["csv", "tensorboard"]
OptimizerName: TypeAlias = Literal["muon", "adam"]
Schedule: TypeAlias = Literal["constant", "cosine"]


def require_steps_after_warmup(schedule: Schedule, steps: int, warmup_steps: int) -> None:
    """Raise `InvalidInput` if the warm-up of a cosine schedule is as long as the run."""
    if schedule == "cosine" and steps <= warmup_steps:
        raise InvalidInput(
            f"`warmup_steps` must be less than the {steps:,} steps of the run; "
            f"received {warmup_steps:,}"
        )
