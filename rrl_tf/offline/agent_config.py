"""Define `OfflineAgentConfig`, and make the scaling and the network that it describes."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, TypeVar, cast

import keras

from rrl_tf.envs import preprocessing
from rrl_tf.errors import InvalidInput
from rrl_tf.models import BehaviorCloning, DecisionTransformer
from rrl_tf.offline.decision_transformer import DecisionTransformerConfig
from rrl_tf.offline.episodes import OfflineData
from rrl_tf.offline.scaling import Scaling, largest_return
from rrl_tf.training.config import require_fraction, require_multiple, require_positive

TRANSFORMER_FIELDS = ("network", "width", "num_blocks", "num_heads", "positions")
"""Fields that have no effect on behavior cloning."""
MAX_RETURN_SCALE = 1000.0


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
        require_multiple(self, ("batch_size",), "members")
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

ConfigT = TypeVar("ConfigT", bound=OfflineAgentConfig)


def prepare(
    config: ConfigT, data: OfflineData, preset: OfflineAgentConfig
) -> tuple[ConfigT, Scaling, DecisionTransformer | BehaviorCloning]:
    """Return the configuration, scaling and network for `train_decision_transformer`.

    Args:
        config: hyper-parameters.
        data: episodes.
        preset: configuration that supplied the defaults of `config`.

    Returns:
        The configuration for the actions of the data, the scaling of the training episodes, and a
        network with new weights, which depend only on the seed.

    Raises:
        InvalidInput: if a field differs from the preset but has no effect on the network, or the
            preprocessor does not fit the observations.
    """
    if data.discrete:
        config = dataclasses.replace(config, distribution="point", noise_scales=(), noise_scale=1.0)
    scaling = make_scaling(config, data)
    changed = [n for n in TRANSFORMER_FIELDS if getattr(config, n) != getattr(preset, n)]
    if config.model == "behavior_cloning" and changed:
        raise InvalidInput(
            f"{', '.join(changed)} needs model decision_transformer; received {config.model}"
        )
    keras.utils.set_random_seed(config.seed)
    network = make_network(config, data, scaling)
    network.build()
    return config, scaling, network


def make_scaling(config: OfflineAgentConfig, data: OfflineData) -> Scaling:
    """Return the scaling of the training episodes."""
    training, _ = config.split(data)
    scale = config.return_scale
    if scale is None:
        scale = min(MAX_RETURN_SCALE, largest_return(training, config.condition))
    one_hot, space = config.preprocessor == "one_hot", cast(Any, data.observation_space)
    if one_hot and space is None:
        raise InvalidInput(
            "preprocessor one_hot needs data with an observation space, such as Minari's; "
            f"received {data.name}"
        )
    preprocessor = preprocessing.one_hot(space) if one_hot else None
    return Scaling.of(training, scale, preprocessor, config.condition)


def make_network(
    config: OfflineAgentConfig, data: OfflineData, scaling: Scaling
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
    if config.model == "behavior_cloning":
        return BehaviorCloning(
            return_conditioned=config.return_conditioned, members=config.members, **shared
        )
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
