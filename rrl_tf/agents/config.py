"""Hyper-parameters of a double DQN run."""

from __future__ import annotations

import dataclasses
from typing import Literal

from rrl_tf.errors import InvalidInput
from rrl_tf.training.config import (
    MUTABLE,
    RunConfig,
    require_fraction,
    require_not_negative,
    require_positive,
)
from rrl_tf.training.optimizers import OptimizerName


@dataclasses.dataclass(frozen=True)
class AgentConfig(RunConfig):
    """Hyper-parameters of every agent. Steps are environment steps over all environments."""

    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """Precision of the network."""
    optimizer: OptimizerName = "adam"
    """`muon` updates matrices by the orthogonal part of their momentum, the rest like Adam."""
    learning_rate: float = 1e-3
    """Initial learning rate."""
    learning_rate_end: float = 1e-4
    """Learning rate from `learning_rate_updates` on, after a linear decay."""
    learning_rate_updates: int = 5000
    """Updates after which the learning rate is `learning_rate_end`."""
    learning_rate_hold: int = 0
    """Updates before the decay begins, counted within `learning_rate_updates`."""
    clip_norm: float = 10.0
    """Largest global norm of the gradient."""
    loss: Literal["huber", "mse"] = "huber"
    """Loss of the temporal-difference errors."""
    target_period: int = 1
    """Updates between moves of the target network."""
    target_rate: float = 0.01
    """Fraction of the way that it moves to the online network; 1 copies it. Below 1 the target
    network is a running average, and it is evaluated and exported."""

    steps: int = dataclasses.field(default=25_000, metadata=MUTABLE)
    """Environment steps. The same command with a larger number resumes the run."""
    stop_after_perfect: int = 0
    """Stop after this number of consecutive evaluations without a failure; 0 never stops."""
    loop: Literal["python", "graph"] = "python"
    """Where the environments run: in Python, which any Gymnasium environment can, or as tensors in
    TensorFlow's graph (DoorKey with one frame, Box-World)."""
    num_envs: int = 16
    """Parallel environments; a run ends with the step of all of them that reaches `steps`."""
    actors: int | None = None
    """Ray processes that play `num_envs` environments each; by default the learner plays."""
    updates_per_step: float = 0.25
    """Gradient steps per environment step."""
    batch_size: int = 64
    """Transitions or sequences per gradient step."""
    learning_starts: int = 1000
    """Transitions collected before the first update."""
    replay_capacity: int = 50_000
    """Steps kept in the replay buffer."""
    n_step: int = 3
    """Rewards summed before bootstrapping."""
    discount: float = 0.93
    """Discount factor."""
    priority_exponent: float = 0.6
    """Exponent of the sampling priorities; 0 samples uniformly."""
    use_return_lower_bound: bool = False
    """Raise targets to observed returns; correct in deterministic environments only."""
    epsilon_start: float = 1.0
    """Initial fraction of random actions."""
    epsilon_end: float = 0.15
    """Fraction of random actions from `epsilon_steps` on."""
    epsilon_steps: int = 10_000
    """Steps of the linear decay of the fraction of random actions."""
    epsilon_exponent: float | None = None
    """α: environment i of E explores with ε^(1 + α i / (E - 1)). By default 0, and 7 with actors,
    as Ape-X does."""

    evaluation_episodes: int = 300
    """Largest number of evaluation episodes; they are always the same ones."""
    log_every: int = 500
    """Steps between rows of the log; evaluations, checkpoints and figures write one as well."""
    evaluate_every: int = 1000
    """Steps between evaluations."""
    checkpoint_every: int = 5000
    """Steps between checkpoints."""
    draw_every: int = dataclasses.field(default=0, metadata=MUTABLE)
    """Steps between figures and films of an episode; 0 draws only at the end."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(
            self,
            *("steps", "num_envs", "batch_size", "replay_capacity", "n_step", "learning_rate"),
            *("learning_rate_updates", "clip_norm", "evaluation_episodes"),
            *("log_every", "evaluate_every", "checkpoint_every", "target_period", "actors"),
        )
        require_not_negative(
            self,
            *("updates_per_step", "learning_starts", "epsilon_steps", "stop_after_perfect"),
            *("learning_rate_end", "learning_rate_hold", "priority_exponent", "draw_every"),
            "epsilon_exponent",
        )
        if self.learning_rate_hold >= self.learning_rate_updates:
            raise InvalidInput(
                "`learning_rate_hold` must be less than "
                f"learning_rate_updates={self.learning_rate_updates}; "
                f"received {self.learning_rate_hold}."
            )
        if self.actors and self.loop == "graph":
            raise InvalidInput(
                f"`actors` play environments in Python; received {self.actors} actors and "
                "loop='graph'. Use `--loop python`."
            )
        require_fraction(self, "discount", "target_rate", "epsilon_start", "epsilon_end")

    @property
    def all_envs(self) -> int:
        """Number of environments of all actors."""
        return self.num_envs * (self.actors or 1)


@dataclasses.dataclass(frozen=True)
class DoubleDQNConfig(AgentConfig):
    """Hyper-parameters of a double DQN. Steps are environment steps over all environments."""

    select_at_t: bool = False
    """Choose the action evaluated at t + n from the values at t, as the book's code does."""
    jit_compile: bool = True
    """Compile the update with XLA."""
    positive_copies: int = 1
    """How many times likelier a transition with a positive return is drawn."""
    ignore_time_limit: bool = False
    """Continue an episode after its time limit, as the book's code does."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "positive_copies")


@dataclasses.dataclass(frozen=True)
class RecurrentDoubleDQNConfig(AgentConfig):
    """Hyper-parameters of a recurrent double DQN. Steps are environment steps over all
    environments."""

    burn_in: int = 5
    """Steps of a sequence that only bring its memory up to date."""
    unroll_length: int = 16
    """Steps of a sequence with a loss, after the burn-in; `n_step` more follow."""
    sequence_period: int = 8
    """Steps from the first step of a sequence to that of the next."""
    stored_state: bool = True
    """Begin a sequence with the memory it was played with; otherwise with the initial one."""
    priority_max_weight: float = 0.9
    """η: the priority of a sequence is η times its largest error plus 1 - η times the mean."""
    batch_size: int = 16
    """Sequences per gradient step."""
    updates_per_step: float = 0.125
    discount: float = 0.95
    epsilon_end: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "unroll_length", "sequence_period")
        require_not_negative(self, "burn_in")
        require_fraction(self, "priority_max_weight")

    @property
    def sequence_length(self) -> int:
        """L, the number of steps of a sequence."""
        return self.burn_in + self.unroll_length + self.n_step
