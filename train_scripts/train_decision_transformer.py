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

from rrl_tf import offline, training
from rrl_tf.errors import InvalidInput
from rrl_tf.offline import config as configs
from rrl_tf.training.config import MUTABLE, require_not_negative
from train_scripts import collect_dataset, command_line


@dataclasses.dataclass(frozen=True)
class Config(configs.OfflineAgentConfig):
    """Set the hyper-parameters of the training, the data and the network."""

    preset: str = "doorkey"
    data: str = "doorkey"
    """`minari:ID`, `minari:FOLDER`, `tfds:NAME` or `tfds:FOLDER`; or `doorkey`, `pendulum` or
    `cartpole`, which `train_scripts.collect_dataset` records."""
    preprocessor: Literal["standardise", "one_hot"] = "one_hot"
    """How observations become states: standardised vectors, or one-hot codes of a grid."""

    fine_tune: int = dataclasses.field(default=0, metadata=MUTABLE)
    """Environment steps of online fine-tuning after the training. Fine-tuning is a separate run,
    whose name ends in `-fine-tuned`."""
    exploration: float | None = dataclasses.field(default=None, metadata=MUTABLE)
    """Exploration of the fine-tuning: noise in units of half the interval between the action
    bounds, by default 0.1; for discrete actions the temperature, by default 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative(self, "fine_tune", "exploration")
        if self.exploration is not None and not self.fine_tune:
            raise InvalidInput(
                f"`exploration` must be None without fine_tune; received {self.exploration}"
            )
        reads_returns = self.model == "decision_transformer" or self.return_conditioned
        if self.fine_tune and not (self.evaluation_episodes and reads_returns):
            raise InvalidInput(
                "`fine_tune` must be 0 without evaluation_episodes and a model that is conditioned "
                f"on returns; received {self.fine_tune}"
            )

    @property
    def default_name(self) -> str:
        """The preset, the data if they are not the preset's, and the seed."""
        is_own = self.data == PRESETS.get(self.preset, DOORKEY).data
        return f"{self.preset}-seed{self.seed}" if is_own else super().default_name


RECORDED = {
    "doorkey": collect_dataset.Config(),
    "pendulum": collect_dataset.Config(recipe="pendulum"),
    "cartpole": collect_dataset.Config(recipe="cartpole"),
}
"""Data that is recorded on first use: name -> configuration of `collect_dataset`."""

# Random episodes are the longest, so most steps of DoorKey's data are random.
DOORKEY = Config(sampling="episodes", targets=(0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95))
FAST = Config(**vars(configs.FAST))
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


def main(config: Config) -> training.Run:
    """Train a Decision Transformer on recorded episodes. Repeat the command to resume the run."""
    replicas = training.make_replicas(config, config.batch_size)
    data = load(config)
    if config.fine_tune and data.make_env is None:
        raise InvalidInput(f"fine_tune needs data with an environment; received {data.name}")
    preset = PRESETS.get(config.preset, config)
    config, scaling, network = offline.networks.make_agent_parts(config, data, preset)
    run = offline.train_decision_transformer(data, network, scaling, config, replicas)
    if not config.fine_tune:
        return run
    online = configs.FineTuningConfig(
        seed=config.seed,
        name=f"{config.name or config.default_name}-fine-tuned",
        runs=config.runs,
        logger=config.logger,
        steps=config.fine_tune,
        exploration=config.exploration,
    )
    return offline.fine_tune(data, network, scaling, config, online)


def load(config: Config) -> offline.OfflineData:
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
    return offline.load_episodes(source)


if __name__ == "__main__":
    command_line.run_preset(main, PRESETS, "doorkey", ABOUT, {"data": preset_of})
