"""Trains a Decision Transformer on recorded episodes and asks it for different returns.

python -m train_scripts.train_decision_transformer                   # DoorKey, data made here
python -m train_scripts.train_decision_transformer --preset pendulum  # as well
python -m train_scripts.train_decision_transformer --preset fast \
    --data tfds:d4rl_mujoco_walker2d/v2-medium
python -m train_scripts.train_decision_transformer --preset bc-10 --data minari:FOLDER
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal

import keras
import numpy as np

from rrl_tf.envs import Preprocessor, preprocessing
from rrl_tf.errors import InvalidInput
from rrl_tf.models import BehaviorCloning, DecisionTransformer
from rrl_tf.offline import OfflineData, Scaling, load_episodes
from rrl_tf.offline.decision_transformer import (
    DecisionTransformerConfig,
    train_decision_transformer,
)
from rrl_tf.offline.fine_tuning import FineTuningConfig, fine_tune
from rrl_tf.training import FitRun, Run, make_replicas, require_multiple, require_positive
from rrl_tf.training.config import require_fraction, require_not_negative
from train_scripts import collect_dataset, command_line


@dataclasses.dataclass(frozen=True)
class Config(DecisionTransformerConfig):
    """The numbers of the training, of the data and of the network."""

    preset: str = "doorkey"
    """Where the numbers below come from."""
    name: str = ""
    """Folder under `runs`; by default the preset, its data where they are others, and the seed."""
    runs: str = "runs/decision_transformer"
    """Where runs are kept."""

    data: str = "doorkey"
    """`minari:ID`, `tfds:NAME`, `hdf5:FILE`, a path after minari: or tfds:, or `doorkey`,
    `pendulum` or `cartpole`, which `train_scripts.collect_dataset` records."""
    preprocessor: Literal["standardise", "one_hot"] = "one_hot"
    """How observations become states: vectors standardised, or codes of a grid one-hot."""
    return_scale: float | None = None
    """What returns are divided by; by default the largest one in the data, at most 1,000, the
    paper's for MuJoCo's tasks."""

    condition: Literal["return_to_go", "return"] = "return_to_go"
    """What a step is told: the return that was still to come, or its episode's whole return."""

    model: Literal["decision_transformer", "behavior_cloning"] = "decision_transformer"
    return_conditioned: bool = False
    """Whether one that imitates is told a return; a Decision Transformer always is."""
    network: str = "fast"
    """Preset of `DecisionTransformer`."""
    width: int = 64
    """Size of a token."""
    num_blocks: int = 2
    num_heads: int = 1
    context_length: int = 10
    """Steps of a window; imitation sees one."""
    positions: Literal["episode", "window"] = "episode"
    """What a Decision Transformer has an embedding of, the time in the episode, as the originals
    have, or the place in the window."""
    dropout: float = 0.1
    """Rate in the network in training."""
    distribution: Literal["point", "censored_normal"] = "point"
    """What is learned of continuous actions: a point, by its squared error, or where the normal
    noise lies that was cut off at their bounds, by its likelihood. Of discrete ones, which is most
    likely, whatever is said here."""
    members: int = 1
    """Networks that imitate side by side, and whose mean is played."""
    played_noise: float = 1.0
    """Share of that noise over which an action is averaged as it is played."""

    fine_tune: int = 0
    """Steps that the trained policy then plays in its environment and learns from, in a run of its
    own whose name ends in `-fine-tuned`; episodes that have begun are played to their end."""
    exploration: float | None = None
    """How it explores meanwhile: noise on continuous actions, in half intervals between their
    bounds, by default 0.1; of discrete ones the temperature, by default 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "members", "width", "num_blocks", "num_heads", "context_length")
        require_not_negative(self, "fine_tune")
        require_fraction(self, "dropout", "played_noise")
        if self.fine_tune and not self.evaluation_episodes:
            raise InvalidInput(
                f"fine_tune needs evaluation_episodes; received {self.fine_tune} steps of it and 0"
            )
        if self.distribution == "point" and self.played_noise != 1:
            raise InvalidInput(
                f"played_noise needs distribution censored_normal; received {self.played_noise} "
                "and point"
            )
        if self.exploration is not None:
            require_not_negative(self, "exploration")
            if not self.fine_tune:
                raise InvalidInput(
                    f"exploration needs fine_tune; received {self.exploration} and 0 steps of it"
                )
        if self.model == "decision_transformer" and self.members > 1:
            raise InvalidInput(
                f"members must be 1 unless model is behavior_cloning; received {self.members}"
            )
        if self.model == "behavior_cloning" and self.fine_tune and not self.return_conditioned:
            raise InvalidInput(
                "fine_tune needs a model that is told returns, a decision_transformer or one with "
                f"return_conditioned; received {self.fine_tune} steps of {self.model}"
            )
        require_multiple(self, ("batch_size",), "members")
        if self.return_scale is not None:
            require_positive(self, "return_scale")

    def settings(self) -> dict[str, Any]:
        """All fields, by name, but those of what comes after the run."""
        later = ("fine_tune", "exploration")
        return {name: value for name, value in super().settings().items() if name not in later}

    @property
    def default_name(self) -> str:
        """The preset, the data unless they are the preset's own, and the seed."""
        data = self.data.rstrip("/").replace("\\", "/").split(":")[-1]
        words = "-".join(part for part in data.split("/")[-2:] if part)
        own = PRESETS.get(self.preset, DOORKEY).data
        name = self.preset if self.data == own else f"{self.preset}-{words}"
        return f"{name}-seed{self.seed}"


OF_TRANSFORMERS = ("network", "width", "num_blocks", "num_heads", "positions")
"""Fields that a network which imitates has nothing to do with; nor has `context_length`."""
LARGEST_SCALE = 1000.0
"""Of returns, unless another one is given."""
RECORDED: dict[str, Callable[[], collect_dataset.Config]] = {
    "doorkey": collect_dataset.Config,
    "pendulum": functools.partial(collect_dataset.Config, recipe="pendulum"),
    "cartpole": functools.partial(collect_dataset.Config, recipe="cartpole"),
}
"""Data that are recorded when they are first asked for: name → what makes their configuration."""

# Most steps of DoorKey's data are random play, as it lasts longest; most episodes are not.
DOORKEY = Config(sampling="episodes", targets=(0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95))
FAST = dataclasses.replace(
    DOORKEY,
    preset="fast",
    data="",  # of others
    preprocessor="standardise",
    width=128,
    num_blocks=3,
    dropout=0.2,
    steps=5000,
    sampling="returns",
    starts=0.2,
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
    starts=0.0,
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
    starts=0.0,
    batch_size=256,
    learning_rate=3e-4,
    evaluate_every=5000,
)
# What is learned of actions that were clipped, and from which steps.
WEIGHED: dict[str, Any] = {
    "condition": "return",
    "distribution": "censored_normal",
    "played_noises": (0.0, 0.5, 1.0),
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
    starts=0.4,
    **WEIGHED,
)
TRANSFORMER = dataclasses.replace(
    FAST,
    preset="transformer",
    positions="window",
    width=64,
    num_blocks=2,
    dropout=0.1,
    steps=10_000,
    starts=0.1,
    **WEIGHED,
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
    "bc-10": dataclasses.replace(BC, preset="bc-10", best_share=0.1),
    "dense": DENSE,
    "transformer": TRANSFORMER,
}


def main(config: Config) -> Run:
    """Trains a Decision Transformer on recorded episodes; the same command again continues."""
    if not config.fine_tune:
        return train(config)
    online = FineTuningConfig(
        seed=config.seed,
        name=f"{config.name or config.default_name}-fine-tuned",
        runs=config.runs,
        logger=config.logger,
        steps=config.fine_tune,
        exploration=config.exploration,
    )
    data = load(config)
    if data.make_env is None:  # told before anything is trained
        raise InvalidInput(f"fine_tune needs data with an environment; received {data.name}")
    run = train(config)
    config = suited(config, data)
    return fine_tune(data, run.model, make_scaling(config, data), config, online)


def train(config: Config) -> FitRun:
    """The run on recorded episodes."""
    replicas = make_replicas(config, config.batch_size)
    data = load(config)
    config = suited(config, data)
    scaling = make_scaling(config, data)
    keras.utils.set_random_seed(config.seed)
    network = NETWORKS[config.model](config, data, scaling)
    return train_decision_transformer(data, network, scaling, config, replicas)


def load(config: Config) -> OfflineData:
    """The data, recorded first where they are ours; another recording in their place is refused."""
    source = config.data
    if not source:
        raise InvalidInput(f"preset {config.preset} needs data, as minari:FOLDER; received none")
    if source == DOORKEY.data and config.preprocessor != DOORKEY.preprocessor:
        raise InvalidInput(
            f"data {source} need preprocessor {DOORKEY.preprocessor}; "
            f"received {config.preprocessor}"
        )
    if source in RECORDED:
        source = f"minari:{collect_dataset.main(RECORDED[source]())}"
    return load_episodes(source)


def suited(config: Config, data: OfflineData) -> Config:
    """The numbers for the data's kind of actions: discrete ones have no noise to learn or try."""
    if not data.discrete:
        return config
    return dataclasses.replace(config, distribution="point", played_noises=(), played_noise=1.0)


def make_scaling(config: Config, data: OfflineData) -> Scaling:
    """The scaling of the episodes that are trained on."""
    training, _ = config.split(data)
    return scaling_of(config, training)


def scaling_of(config: Config, data: OfflineData) -> Scaling:
    """The scaling of all of the data."""
    scale = config.return_scale
    if scale is None:
        scale = min(LARGEST_SCALE, float(np.abs(data.returns()).max())) or None
    return Scaling.of(data, scale, PREPROCESSORS[config.preprocessor](data), config.condition)


def one_hot(data: OfflineData) -> Preprocessor:
    """Codes of a grid as one-hot vectors; the data's space tells how many there are."""
    if data.observation_space is None:
        raise InvalidInput(
            "preprocessor one_hot needs data that tell their codes, as Minari's do; "
            f"received {data.name}"
        )
    return preprocessing.one_hot(data.observation_space)


PREPROCESSORS = {"standardise": lambda data: None, "one_hot": one_hot}


def make_transformer(config: Config, data: OfflineData, scaling: Scaling) -> DecisionTransformer:
    """A Decision Transformer with new weights."""
    return DecisionTransformer.from_preset(
        config.network,
        state_size=scaling.state_size,
        action_size=data.action_size,
        discrete=data.discrete,
        width=config.width,
        num_blocks=config.num_blocks,
        num_heads=config.num_heads,
        context_length=config.context_length,
        positions=config.positions,
        dropout=config.dropout,
        distribution=config.distribution,
        noise_scale=config.played_noise,
        heads=("action",),  # nothing is learned from the other predictions
        dtype=config.dtype,
    )


def make_imitator(config: Config, data: OfflineData, scaling: Scaling) -> BehaviorCloning:
    """A network that imitates, whatever came of it or what brought the return asked for."""
    own = PRESETS.get(config.preset, config)
    told = [name for name in OF_TRANSFORMERS if getattr(config, name) != getattr(own, name)]
    if told:
        raise InvalidInput(
            f"{', '.join(told)}: of a decision_transformer; received with model {config.model}"
        )
    return BehaviorCloning(
        scaling.state_size,
        data.action_size,
        discrete=data.discrete,
        dropout=config.dropout,
        return_conditioned=config.return_conditioned,
        distribution=config.distribution,
        noise_scale=config.played_noise,
        members=config.members,
        dtype=config.dtype,
    )


NETWORKS = {"decision_transformer": make_transformer, "behavior_cloning": make_imitator}


if __name__ == "__main__":
    command_line.run_preset(main, PRESETS, default="doorkey")
