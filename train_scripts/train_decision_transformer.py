"""Train a Decision Transformer on recorded episodes and evaluate it for target returns.

python -m train_scripts.train_decision_transformer                   # DoorKey, recorded here
python -m train_scripts.train_decision_transformer --preset pendulum  # recorded here, too
python -m train_scripts.train_decision_transformer --preset fast \
    --data tfds:d4rl_mujoco_walker2d/v2-medium
python -m train_scripts.train_decision_transformer --preset bc-10 --data minari:FOLDER
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import keras

from rrl_tf.envs import preprocessing
from rrl_tf.errors import InvalidInput
from rrl_tf.models import BehaviorCloning, DecisionTransformer
from rrl_tf.offline import OfflineData, Scaling, load_episodes
from rrl_tf.offline.decision_transformer import (
    DecisionTransformerConfig,
    train_decision_transformer,
)
from rrl_tf.offline.fine_tuning import FineTuningConfig, fine_tune
from rrl_tf.offline.scaling import largest_return
from rrl_tf.training.config import (
    MUTABLE,
    require_fraction,
    require_multiple,
    require_not_negative,
    require_positive,
)
from rrl_tf.training.devices import make_replicas
from rrl_tf.training.run import Run
from train_scripts import collect_dataset, command_line


@dataclasses.dataclass(frozen=True)
class Config(DecisionTransformerConfig):
    """Set the hyper-parameters of the training, the data and the network."""

    preset: str = "doorkey"
    runs: str = "runs/decision_transformer"

    data: str = "doorkey"
    """`minari:ID`, `minari:FOLDER`, `tfds:NAME` or `tfds:FOLDER`; or `doorkey`, `pendulum` or
    `cartpole`, which `train_scripts.collect_dataset` records."""
    preprocessor: Literal["standardise", "one_hot"] = "one_hot"
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

    fine_tune: int = dataclasses.field(default=0, metadata=MUTABLE)
    """Environment steps of online fine-tuning after the training. Fine-tuning is a separate run,
    whose name ends in `-fine-tuned`."""
    exploration: float | None = dataclasses.field(default=None, metadata=MUTABLE)
    """Exploration of the fine-tuning: noise in units of half the interval between the action
    bounds, by default 0.1; for discrete actions the temperature, by default 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "members", "width", "num_blocks", "num_heads", "context_length")
        require_positive(self, "return_scale")
        require_not_negative(self, "fine_tune", "exploration")
        require_fraction(self, "dropout", "noise_scale")
        require_multiple(self, ("batch_size",), "members")
        is_transformer = self.model == "decision_transformer"
        needs = {
            "noise_scale": (self.noise_scale != 1, "distribution", self.distribution != "point"),
            "members": (self.members > 1, "model behavior_cloning", not is_transformer),
            "exploration": (self.exploration is not None, "fine_tune", self.fine_tune),
            "fine_tune": (
                self.fine_tune,
                "evaluation_episodes and a model that is conditioned on returns",
                self.evaluation_episodes and (is_transformer or self.return_conditioned),
            ),
        }
        for name, (is_set, requirement, is_met) in needs.items():
            if is_set and not is_met:
                raise InvalidInput(
                    f"{name} needs {requirement}; received {name} {getattr(self, name)} without it"
                )

    @property
    def default_name(self) -> str:
        """The preset, the data if they are not the preset's, and the seed."""
        source = self.data.rstrip("/").replace("\\", "/").split(":")[-1]
        words = "-".join(part for part in source.split("/")[-2:] if part)
        is_own = self.data == PRESETS.get(self.preset, DOORKEY).data
        return f"{self.preset if is_own else f'{self.preset}-{words}'}-seed{self.seed}"


TRANSFORMER_FIELDS = ("network", "width", "num_blocks", "num_heads", "positions")
"""Fields that have no effect on behavior cloning."""
MAX_RETURN_SCALE = 1000.0
RECORDED = {
    "doorkey": collect_dataset.Config(),
    "pendulum": collect_dataset.Config(recipe="pendulum"),
    "cartpole": collect_dataset.Config(recipe="cartpole"),
}
"""Data that is recorded on first use: name -> configuration of `collect_dataset`."""

# Random episodes are the longest, so most steps of DoorKey's data are random.
DOORKEY = Config(sampling="episodes", targets=(0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95))
FAST = dataclasses.replace(
    DOORKEY,
    preset="fast",
    data="",
    preprocessor="standardise",
    width=128,
    num_blocks=3,
    dropout=0.2,
    steps=5000,
    sampling="returns",
    start_fraction=0.2,
    warmup_steps=500,
    targets=(),
    log_every=250,
    evaluate_every=1250,
    checkpoint_every=1000,
)
PENDULUM = dataclasses.replace(
    FAST,
    preset="pendulum",
    data="pendulum",
    width=64,
    num_blocks=2,
    steps=1000,
    evaluation_episodes=20,
    evaluate_every=0,
)
MIN_DT = dataclasses.replace(
    FAST,
    preset="min-dt",
    network="min-dt",
    context_length=20,
    dropout=0.1,
    steps=20_000,
    sampling="episodes",
    start_fraction=0.0,
    learning_rate=1e-4,
    warmup_steps=10_000,
    schedule="constant",
)
BC = dataclasses.replace(
    FAST,
    preset="bc",
    model="behavior_cloning",
    context_length=1,
    dropout=0.1,
    steps=20_000,
    sampling="steps",
    start_fraction=0.0,
    batch_size=256,
    learning_rate=3e-4,
    evaluate_every=5000,
)
# The loss of clipped actions, and the sampling of steps.
WEIGHTED: dict[str, Any] = {
    "condition": "return",
    "distribution": "censored_normal",
    "noise_scales": (0.0, 0.5, 1.0),
    "sampling": "returns",
    "return_power": 2.0,
    "advantage_power": 2.0,
    "start_steps": 100,
    "evaluate_every": 0,
}
DENSE = dataclasses.replace(
    BC,
    preset="dense",
    return_conditioned=True,
    members=4,
    batch_size=1024,
    dropout=0.0,
    steps=10_000,
    learning_rate=1e-3,
    warmup_steps=0,
    start_fraction=0.4,
    **WEIGHTED,
)
TRANSFORMER = dataclasses.replace(
    FAST,
    preset="transformer",
    positions="window",
    width=64,
    num_blocks=2,
    dropout=0.1,
    steps=10_000,
    start_fraction=0.1,
    **WEIGHTED,
)
PRESETS = {
    "doorkey": DOORKEY,
    "doorkey-bc": dataclasses.replace(
        DOORKEY, preset="doorkey-bc", model="behavior_cloning", context_length=1
    ),
    "pendulum": PENDULUM,
    "cartpole": dataclasses.replace(PENDULUM, preset="cartpole", data="cartpole"),
    "fast": FAST,
    "min-dt": MIN_DT,
    "paper": dataclasses.replace(
        MIN_DT, preset="paper", network="paper", steps=100_000, sampling="steps"
    ),
    "bc": BC,
    "bc-10": dataclasses.replace(BC, preset="bc-10", best_fraction=0.1),
    "dense": DENSE,
    "transformer": TRANSFORMER,
}

ABOUT = {
    "doorkey": "DoorKey-5x5, recorded on first use",
    "doorkey-bc": "behavior cloning on the same data",
    "pendulum": "Pendulum, recorded on first use; the default with --data pendulum",
    "cartpole": "CartPole, recorded on first use; the default with --data cartpole",
    "fast": "any data of vectors; the default with --data",
    "min-dt": "min-decision-transformer's architecture and settings",
    "paper": "the settings of the Decision Transformer paper",
    "bc": "behavior cloning",
    "bc-10": "behavior cloning on the best 10 % of the steps",
    "dense": "dense layers that read the return, weighted by advantage",
    "transformer": "a Decision Transformer with the loss and the sampling of dense",
}


def preset_of(data: str) -> str:
    """Return the preset for `--data` without `--preset`."""
    return data if data in PRESETS else "fast"


def main(config: Config) -> Run:
    """Train a Decision Transformer on recorded episodes. Repeat the command to resume the run."""
    replicas = make_replicas(config, config.batch_size)
    data = load(config)
    if config.fine_tune and data.make_env is None:
        raise InvalidInput(f"fine_tune needs data with an environment; received {data.name}")
    if data.discrete:
        config = dataclasses.replace(config, distribution="point", noise_scales=(), noise_scale=1.0)
    scaling = make_scaling(config, data)
    keras.utils.set_random_seed(config.seed)
    network = make_network(config, data, scaling)
    run = train_decision_transformer(data, network, scaling, config, replicas)
    if not config.fine_tune:
        return run
    online = FineTuningConfig(
        seed=config.seed,
        name=f"{config.name or config.default_name}-fine-tuned",
        runs=config.runs,
        logger=config.logger,
        steps=config.fine_tune,
        exploration=config.exploration,
    )
    return fine_tune(data, network, scaling, config, online)


def load(config: Config) -> OfflineData:
    """Load the data; `doorkey`, `pendulum` and `cartpole` are recorded first."""
    source = config.data
    if not source:
        raise InvalidInput(
            f"preset {config.preset} needs `data`, such as minari:FOLDER; received ''"
        )
    if source == DOORKEY.data and config.preprocessor != DOORKEY.preprocessor:
        raise InvalidInput(
            f"data {source} needs preprocessor {DOORKEY.preprocessor}; received "
            f"{config.preprocessor}"
        )
    if source in RECORDED:
        source = f"minari:{collect_dataset.main(RECORDED[source])}"
    return load_episodes(source)


def make_scaling(config: Config, data: OfflineData) -> Scaling:
    """Return the scaling of the training episodes."""
    training, _ = config.split(data)
    scale = config.return_scale
    if scale is None:
        scale = min(MAX_RETURN_SCALE, largest_return(training, config.condition))
    one_hot = config.preprocessor == "one_hot"
    if one_hot and data.observation_space is None:
        raise InvalidInput(
            "preprocessor one_hot needs data with an observation space, such as Minari's; "
            f"received {data.name}"
        )
    preprocessor = preprocessing.one_hot(data.observation_space) if one_hot else None
    return Scaling.of(training, scale, preprocessor, config.condition)


def make_network(
    config: Config, data: OfflineData, scaling: Scaling
) -> DecisionTransformer | BehaviorCloning:
    """Return a network with new weights."""
    shared: dict[str, Any] = {
        "state_size": scaling.state_size,
        "action_size": data.action_size,
        "discrete": data.discrete,
        "dropout": config.dropout,
        "distribution": config.distribution,
        "noise_scale": config.noise_scale,
        "dtype": config.dtype,
    }
    if config.model == "decision_transformer":
        return DecisionTransformer.from_preset(
            config.network,
            width=config.width,
            num_blocks=config.num_blocks,
            num_heads=config.num_heads,
            context_length=config.context_length,
            positions=config.positions,
            heads=("action",),  # no loss trains the others
            **shared,
        )
    preset = PRESETS.get(config.preset, config)
    changed = [n for n in TRANSFORMER_FIELDS if getattr(config, n) != getattr(preset, n)]
    if changed:
        raise InvalidInput(
            f"{', '.join(changed)} needs model decision_transformer; received {config.model}"
        )
    return BehaviorCloning(
        return_conditioned=config.return_conditioned, members=config.members, **shared
    )


if __name__ == "__main__":
    command_line.run_preset(main, PRESETS, "doorkey", ABOUT, {"data": preset_of})
