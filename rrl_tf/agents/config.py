"""Define the configurations of double DQN runs."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from rrl_tf.errors import InvalidInput
from rrl_tf.training.config import (
    MUTABLE,
    RunConfig,
    require_fraction,
    require_not_negative,
    require_positive,
)
from rrl_tf.training.names import OptimizerName

NETWORKS = ("dense", "convolutional", "book", "zambaldi", "fast", "fast-relative", "grid", "atari")
"""Names of the networks of `DQNConfig`."""


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """Sizes of a relational network; `None` keeps the size of the architecture.

    Example:
        >>> NetworkConfig(num_heads=4, hidden_units=(128,)).network_sizes()
        {'hidden_units': (128,), 'block': {'num_heads': 4}}
    """

    num_heads: int | None = None
    """Attention heads of a round; by default those of the architecture."""
    key_size: int | None = None
    """Size of a head's queries and keys; by default that of the architecture."""
    num_rounds: int | None = None
    """Rounds of attention; by default those of the architecture."""
    hidden_units: tuple[int, ...] | None = None
    """Sizes of the dense layers before the Q values; by default those of the architecture."""

    def network_sizes(self, relational: bool = True) -> dict[str, Any]:
        """Return the sizes that are set, as arguments of a relational network.

        Args:
            relational: whether the network is relational.

        Raises:
            InvalidInput: if a size is not positive, or is set for another network.
        """
        require_positive(self, "num_heads", "key_size", "num_rounds")
        names = [each.name for each in dataclasses.fields(NetworkConfig)]
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if given and not relational:
            raise InvalidInput(
                f"sizes of a relational network must be None for other networks; received {given}"
            )
        block = {name: given.pop(name) for name in ("num_heads", "key_size") if name in given}
        return {**given, "block": block} if block else given


@dataclasses.dataclass(frozen=True)
class GymnasiumConfig:
    """Set the environment, and properties that the environment does not report itself."""

    env: str = ""
    """Id of the environment, `Name-v0` or `module:Name-v0`."""
    test_env: str = ""
    """Id of the environment for evaluation, if it differs from `env`."""
    curriculum: tuple[str, ...] | None = None
    """Ids of easier environments to begin with, the easiest first; by default only `env`."""
    success_return: float | None = None
    """Minimum return of a success, if the environment does not report success; by default its
    registered threshold, and any reward in MiniGrid."""
    max_steps: int | None = None
    """Time limit of an episode; by default the environment's own."""
    frames: int = 1
    """Observations stacked."""
    actions: tuple[int, ...] = ()
    """Actions to choose from; by default all."""

    @property
    def env_name(self) -> str:
        """The id as part of a folder name."""
        return self.env.rpartition(":")[2].replace("/", "-")


@dataclasses.dataclass(frozen=True)
class AgentConfig(RunConfig):
    """Base configuration of double DQN runs. Steps are counted over all environments together."""

    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """Keras dtype policy of the network."""
    optimizer: OptimizerName = "adam"
    """Optimizer. `muon` orthogonalizes the momentum of weight matrices and updates all other
    weights like Adam."""
    learning_rate: float = 1e-3
    """Initial learning rate."""
    learning_rate_end: float = 1e-4
    """Final learning rate, after a linear decay."""
    learning_rate_updates: int = 5000
    """Number of updates after which the learning rate reaches `learning_rate_end`."""
    learning_rate_hold: int = 0
    """Number of updates before the decay begins; less than `learning_rate_updates`, which includes
    them."""
    clip_norm: float = 10.0
    """Clip the global norm of the gradient to this value."""
    loss: Literal["huber", "mse"] = "huber"
    """Loss function for the temporal-difference errors."""
    target_period: int = 1
    """Number of gradient steps between updates of the target network."""
    target_rate: float = 0.01
    """Fraction by which a target update moves the target network towards the online network. 1
    copies the online network. With a smaller value, the target network is a moving average, and is
    the network that is evaluated and exported."""
    jit_compile: bool = dataclasses.field(default=True, metadata=MUTABLE)
    """Compile acting, the replay buffer and gradient steps with XLA. The gradient steps of a
    recurrent network are never compiled, because XLA needs minutes for them."""

    steps: int = dataclasses.field(default=25_000, metadata=MUTABLE)
    """Number of environment steps to train for. Repeat the command with a larger number to continue
    the run."""
    stop_after_perfect: int = 0
    """Stop after this many consecutive evaluations in which every episode succeeds; 0 never
    stops."""
    loop: Literal["python", "graph"] = "python"
    """Where the environments run: `python` supports any Gymnasium environment; `graph` runs
    DoorKey (with one frame) and Box-World as TensorFlow operations, which is faster."""
    num_envs: int = 16
    """Number of parallel environments, per actor if there are actors. All environments step
    together, so a run may exceed `steps` by less than their number."""
    actors: int | None = None
    """Number of Ray processes that collect experience in `num_envs` environments each; by default
    the learner's process collects it."""
    updates_per_step: float = 0.25
    """Gradient steps per environment step."""
    batch_size: int = 64
    """Transitions or sequences per gradient step."""
    learning_starts: int = 1000
    """Number of transitions to collect before the first gradient step."""
    replay_capacity: int = 50_000
    """Number of environment steps that the replay buffer holds."""
    n_step: int = 3
    """Number of rewards in an n-step return before bootstrapping."""
    discount: float = 0.93
    """Discount factor, from 0 to 1."""
    priority_exponent: float = 0.6
    """Exponent of the priorities in prioritised replay; 0 samples uniformly."""
    use_return_lower_bound: bool = False
    """Raise targets that are below the observed return to that return. Valid only if the
    environment is deterministic."""
    epsilon_start: float = 1.0
    """Initial probability of a random action."""
    epsilon_end: float = 0.15
    """Final probability of a random action, after a linear decay."""
    epsilon_steps: int = 10_000
    """Number of environment steps over which the probability of a random action decays."""
    epsilon_exponent: float | None = None
    """α, which makes environments explore differently, as in Ape-X: environment i of E acts
    randomly with probability ε^(1 + α i / (E - 1)). By default 7 with actors and 0 without."""

    evaluation_episodes: int = 300
    """Maximum number of episodes per evaluation; every evaluation uses the same episodes."""
    log_every: int = 500
    """Number of steps between log entries. Evaluations, checkpoints and figures add entries."""
    evaluate_every: int = 1000
    """Number of steps between evaluations."""
    checkpoint_every: int = 5000
    """Number of steps between checkpoints."""
    draw_every: int = dataclasses.field(default=0, metadata=MUTABLE)
    """Number of steps between figures and videos of an episode; 0 draws only at the end."""
    export_best: bool = dataclasses.field(default=False, metadata=MUTABLE)
    """Export the weights that `keep_best` keeps instead of the last weights."""

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
        if self.export_best and not self.keep_best:
            raise InvalidInput("`export_best` needs `keep_best`; received it alone")
        if self.actors and self.loop == "graph":
            raise InvalidInput(
                f"`actors` needs loop='python'; received {self.actors} actors and loop='graph'. "
                "Use `--loop python`."
            )
        require_fraction(self, "discount", "target_rate", "epsilon_start", "epsilon_end")

    @property
    def all_envs(self) -> int:
        """Number of environments of all actors together."""
        return self.num_envs * (self.actors or 1)


@dataclasses.dataclass(frozen=True)
class DoubleDQNConfig(AgentConfig):
    """Configuration of a double DQN run. Steps are counted over all environments together."""

    select_at_t: bool = False
    """Select the bootstrap action from the Q values at t instead of t + n. This reproduces an error
    in the book's code."""
    positive_copies: int = 1
    """Factor by which the replay buffer samples transitions with a positive return more often."""
    ignore_time_limit: bool = False
    """Do not reset an environment when its time limit is reached, as in the book's code."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "positive_copies")


@dataclasses.dataclass(frozen=True)
class RecurrentDoubleDQNConfig(AgentConfig):
    """Configuration of a recurrent double DQN run. Steps are counted over all environments
    together."""

    burn_in: int = 5
    """Number of steps at the start of a sequence that update the recurrent state and have no
    loss."""
    unroll_length: int = 16
    """Number of steps with a loss, after the burn-in. `n_step` further steps follow for
    bootstrapping."""
    sequence_period: int = 8
    """Number of steps between the starts of successive sequences in the replay buffer."""
    stored_state: bool = True
    """Start replayed sequences from the recurrent state stored while acting; otherwise from the
    initial state."""
    priority_max_weight: float = 0.9
    """η in the priority of a sequence, η max |δ| + (1 - η) mean |δ| over its errors δ."""
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
        """Number of steps in a replayed sequence."""
        return self.burn_in + self.unroll_length + self.n_step


@dataclasses.dataclass(frozen=True)
class DQNConfig(NetworkConfig, GymnasiumConfig, DoubleDQNConfig):
    """Configuration of a double DQN run on any Gymnasium environment."""

    runs: str = "runs/dqn"
    discount: float | None = None  # type: ignore[assignment]  # `DQN` replaces None
    """Discount factor; by default 0.95 for small grids except MiniGrid's, otherwise 0.99."""
    n_step: int | None = None  # type: ignore[assignment]  # `DQN` replaces None
    """Number of rewards in an n-step return before bootstrapping; by default 1 for small grids
    except MiniGrid's, otherwise 3."""
    updates_per_step: float = 0.5
    epsilon_end: float = 0.05
    steps: int = 50_000
    learning_rate_end: float = 5e-4
    learning_rate_updates: int = 12_000
    evaluation_episodes: int = 100
    evaluate_every: int = 2500
    network: str = ""
    """dense, convolutional, or an architecture of `RelationalQNetwork`: book, zambaldi, fast,
    fast-relative, grid or atari; by default grid for grids, fast for MiniGrid, convolutional for
    pictures and dense for vectors."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "frames")
        if self.preset:
            raise InvalidInput(f"`preset` must be empty for this run; received {self.preset!r}")
        if not self.env:
            raise InvalidInput("`env` must be an id such as CartPole-v1; received ''. Use `--env`.")

    @property
    def default_name(self) -> str:
        """The environment and the seed."""
        return f"{self.env_name}-seed{self.seed}"


@dataclasses.dataclass(frozen=True)
class RecurrentDQNConfig(NetworkConfig, GymnasiumConfig, RecurrentDoubleDQNConfig):
    """Configuration of a recurrent double DQN run on any Gymnasium environment."""

    runs: str = "runs/recurrent"
    discount: float = 0.97
    updates_per_step: float = 0.25
    steps: int = 60_000
    learning_rate_updates: int = 10_000
    network: Literal[
        "lstm",
        "lstm-dense",
        "lstm-long",
        "lstm-long-dense",
        "relational-memory",
        "relational-memory-dense",
        "relational-memory-entities",
        "relational-memory-long",
        "relational-memory-long-dense",
        "window",
        "window-dense",
        "none",
        "none-dense",
    ] = "lstm-dense"
    """Architecture of `RecurrentQNetwork`: a memory that reads related cells or, as lstm-dense, two
    dense layers."""
    hidden_activation: Literal["relu", "leaky_relu"] = "relu"
    """Activation after the memory. With rare rewards all units of a ReLU may become inactive."""

    @property
    def default_name(self) -> str:
        """The environment, or the preset, and the seed."""
        return f"{self.env_name}-seed{self.seed}" if self.env else super().default_name
