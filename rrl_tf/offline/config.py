"""Define the configurations of offline training and of fine-tuning, without importing Keras."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

from rrl_tf.errors import InvalidInput
from rrl_tf.offline.episodes import OfflineData
from rrl_tf.training.config import (
    EVALUATION,
    MUTABLE,
    FitConfig,
    RunConfig,
    require_fraction,
    require_not_negative,
    require_positive,
)
from rrl_tf.training.names import require_steps_after_warmup


@dataclasses.dataclass(frozen=True)
class DecisionTransformerConfig(FitConfig):
    """Hyper-parameters of a training run. A step is one update of the weights."""

    best_fraction: float = 1.0
    """Train only on the episodes with the highest returns that contain this fraction of all steps.
    0.1 is known as %BC."""
    held_out: float = 0.05
    """Fraction of the episodes that are held out to measure the error of predicted actions."""
    sampling: Literal["steps", "returns", "episodes"] = "steps"
    """How windows are sampled: all steps are equally likely, steps of episodes with high returns
    are more likely, or all episodes are equally likely."""
    return_power: float = 1.0
    """Exponent of the probabilities with `sampling="returns"`."""
    advantage_power: float = 0.0
    """Sample steps with weights exp(power * advantage / standard deviation), see
    `rrl_tf.offline.advantages`. 0 means equal weights and no value network."""
    advantage_trace: float = 0.95
    """λ of the returns that the value network learns, from 0 (only the value of the next state) to
    1 (only recorded rewards)."""
    advantage_rounds: int = 5
    """Number of passes over the data that train the value network."""
    start_fraction: float = 0.0
    """Fraction of the windows that end within the first `start_steps` steps of an episode."""
    start_steps: int | None = None
    """Number of steps at the start of an episode, for `start_fraction`. None means twice the
    context length."""

    steps: int = dataclasses.field(default=3000, metadata=MUTABLE)
    """Number of updates. With a constant schedule, the same command with a larger number continues
    a finished run."""
    batch_size: int = 64
    warmup_steps: int = 200
    weight_decay: float = 1e-4
    """Weight decay of AdamW."""
    clip_norm: float | None = 0.25

    targets: tuple[float, ...] = dataclasses.field(default=(), metadata=EVALUATION)
    """Target returns of the evaluation. An empty tuple means five targets, evenly spaced from the
    worst to the best recorded return."""
    evaluation_episodes: int = dataclasses.field(default=100, metadata=EVALUATION)
    """Episodes of the final evaluation: this number for each target with the last weights, and for
    the largest target with the best weights. 0 plays no episodes and needs no environment."""
    progress_episodes: int = 20
    """Episodes of an evaluation during training, with the largest target, and episodes to compare
    each of `noise_scales`; at most `evaluation_episodes`."""
    noise_scales: tuple[float, ...] = ()
    """Candidates for the `noise_scale` of the network, from 0 to 1. The final evaluation and the
    export use the scale with the highest return. An empty tuple keeps the network's own scale."""
    evaluate_every: int = 1000
    """Steps between evaluations; 0 evaluates only at the end."""
    log_every: int = 100
    """Steps between log entries. Evaluations and checkpoints wait for the next entry."""
    checkpoint_every: int = 500
    """Steps between checkpoints."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(
            self,
            *("steps", "batch_size", "log_every", "checkpoint_every", "best_fraction"),
            *("progress_episodes", "advantage_rounds", "start_steps"),
        )
        require_not_negative(
            self,
            *("evaluation_episodes", "evaluate_every", "weight_decay"),
            *("return_power", "advantage_power"),
        )
        require_fraction(self, "best_fraction", "held_out", "start_fraction", "advantage_trace")
        if not all(0 <= scale <= 1 for scale in self.noise_scales):
            raise InvalidInput(f"`noise_scales` must be from 0 to 1; received {self.noise_scales}")
        if not all(map(math.isfinite, self.targets)):
            raise InvalidInput(f"`targets` must be finite; received {self.targets}")
        require_steps_after_warmup(self.schedule, self.steps, self.warmup_steps)

    def mutable_fields(self) -> set[str]:
        """Return the fields that may change on resume; a cosine schedule depends on `steps`."""
        fixed = set() if self.schedule == "constant" else {"steps"}
        return super().mutable_fields() - fixed

    def split(self, data: OfflineData) -> tuple[OfflineData, OfflineData]:
        """Return the training and the held-out episodes, the same for every seed."""
        training, held_out = data.split(self.held_out)
        return training.best(self.best_fraction), held_out


@dataclasses.dataclass(frozen=True)
class OfflineAgentConfig(DecisionTransformerConfig):
    """Hyper-parameters of the training, the data and the network.

    Example:
        >>> FAST.width, dataclasses.replace(FAST, data="minari:runs/datasets/x/random-v0").path
        (128, PosixPath('runs/decision_transformer/fast-x-random-v0-seed0'))
    """

    runs: str = "runs/decision_transformer"

    data: str = ""
    """`minari:ID`, `minari:FOLDER`, `tfds:NAME` or `tfds:FOLDER`."""
    preprocessor: Literal["standardise", "one_hot"] = "standardise"
    """How observations become states: standardised vectors, or one-hot codes of a grid."""
    return_scale: float | None = None
    """Divisor of returns; by default the largest return, or return-to-go, that the network receives
    from the data, at most 1,000, the paper's value for MuJoCo."""
    condition: Literal["return_to_go", "return"] = "return_to_go"
    """Return at each step: the return-to-go, or the return of the whole episode."""

    model: Literal["decision_transformer", "behavior_cloning"] = "decision_transformer"
    return_conditioned: bool = False
    """Whether behavior cloning reads returns; a Decision Transformer always does."""
    network: Literal["fast", "min-dt", "paper"] = "fast"
    """Architecture of `DecisionTransformer`."""
    width: int = 64
    """Size of a token."""
    num_blocks: int = 2
    num_heads: int = 1
    context_length: int = 10
    """Number of steps in a window; behavior cloning reads one."""
    positions: Literal["episode", "window"] = "episode"
    """Position embedding of a Decision Transformer: the time step in the episode, as in the
    originals, or the position in the window."""
    dropout: float = 0.1
    distribution: Literal["point", "censored_normal"] = "point"
    """Model of continuous actions: a point with a squared error, or the mean of normal noise that
    was clipped at the bounds, by its likelihood. Discrete actions are always categorical."""
    members: int = 1
    """Number of networks in behavior cloning, which train together; the policy is their mean."""
    noise_scale: float = 1.0
    """Scale of the clipped noise; the played action is the mean over this noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "members", "width", "num_blocks", "num_heads", "context_length")
        require_positive(self, "return_scale")
        require_fraction(self, "dropout", "noise_scale")
        if self.batch_size % self.members:
            raise InvalidInput(
                "`batch_size` must be a multiple of `members`; received "
                f"{self.batch_size} and {self.members}"
            )
        is_cloning = self.model == "behavior_cloning"
        self.require(
            noise_scale=(self.noise_scale != 1, "distribution", self.distribution != "point"),
            members=(self.members > 1, "model behavior_cloning", is_cloning),
        )

    def require(self, **needs: tuple[Any, str, Any]) -> None:
        """Raise `InvalidInput` for the first field that is set without its requirement.

        Args:
            **needs: field name -> (whether it is set, requirement, whether this is met).
        """
        for name, (is_set, requirement, is_met) in needs.items():
            if is_set and not is_met:
                raise InvalidInput(
                    f"{name} needs {requirement}; received {name} {getattr(self, name)} without it"
                )

    @property
    def default_name(self) -> str:
        """The preset, the data and the seed."""
        source = self.data.rstrip("/").replace("\\", "/").split(":")[-1]
        words = "-".join(part for part in source.split("/")[-2:] if part)
        return f"{self.preset}-{words}-seed{self.seed}"


FAST = OfflineAgentConfig(
    preset="fast",
    width=128,
    num_blocks=3,
    dropout=0.2,
    steps=5000,
    sampling="returns",
    start_fraction=0.2,
    warmup_steps=500,
    log_every=250,
    evaluate_every=1250,
    checkpoint_every=1000,
)
"""Default configuration for any data of vectors."""


@dataclasses.dataclass(frozen=True)
class FineTuningConfig(RunConfig):
    """Hyper-parameters of online fine-tuning. A step is one environment step."""

    steps: int = dataclasses.field(default=50_000, metadata=MUTABLE)
    """Number of environment steps; the last episodes are completed. The same command with a larger
    number continues a finished run."""
    episodes: int = 5
    """Number of episodes that are played at the same time. A log entry follows them."""
    exploration: float | None = None
    """The `exploration` of `TrajectoryPolicy`. None means 0.1 for continuous actions and 1 for
    discrete actions."""
    updates_per_step: float = 0.1
    """Number of updates of the weights per environment step."""
    learning_rate: float = 1e-3
    """Learning rate of AdamW."""
    buffer_steps: int = 50_000
    """Maximum number of steps in the buffer of episodes to learn from. The buffer first contains
    the best recorded episodes. New episodes replace the oldest ones."""
    evaluate_every: int = 10_000
    """Environment steps between evaluations that select the best weights; 0 evaluates only at the
    end."""
    targets: tuple[float, ...] = dataclasses.field(default=(), metadata=EVALUATION)
    """Target returns of the evaluation. `fine_tune` sets this to the largest target of the
    training configuration."""
    evaluation_episodes: int = dataclasses.field(default=0, metadata=EVALUATION)
    """Episodes per target. `fine_tune` sets this to the number of the training configuration."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(
            self, "steps", "episodes", "updates_per_step", "learning_rate", "buffer_steps"
        )
        require_not_negative(self, "evaluate_every")
        require_not_negative(self, "exploration")
