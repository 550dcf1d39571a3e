"""The run of a Decision Transformer on recorded episodes: train, ask for returns, export.

Example:

>>> from gymnasium.spaces import Discrete
>>> from rrl_tf.offline import Episode
>>> from rrl_tf.models import BehaviorCloning
>>> played = (Episode(np.eye(3), [0, 1], [pay, 0.0], True, False) for pay in (1.0, 2.0))
>>> data = OfflineData("mine", tuple(played), Discrete(2), "none")
>>> config = DecisionTransformerConfig(
...     name="mine", steps=4, warmup_steps=2, log_every=2, evaluation_episodes=0
... )
>>> scaling = Scaling.of(config.split(data)[0])
>>> network = BehaviorCloning(3, 2, discrete=True)  # or a DecisionTransformer
>>> run = train_decision_transformer(data, network, scaling, config)  # doctest: +ELLIPSIS
step 4: mine, mean return 1.5, best 2; ...
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Literal

import keras
import numpy as np

from rrl_tf.errors import InvalidInput
from rrl_tf.export.writer import input_spec
from rrl_tf.layers import CensoredNormalLoss
from rrl_tf.models import DecisionTransformer
from rrl_tf.offline.advantages import weigh_by_advantage
from rrl_tf.offline.episodes import OfflineData
from rrl_tf.offline.evaluation import (
    BestWeights,
    TargetReturns,
    check_network,
    default_targets,
    make_envs,
    validation_windows,
)
from rrl_tf.offline.noise_scale import (
    PROGRESS_SEED,
    check_noise,
    choose_noise,
    take_up_noise,
    warn_of_untried,
)
from rrl_tf.offline.scaling import Scaling
from rrl_tf.offline.target_outcomes import finish
from rrl_tf.offline.trajectory_policy import TrajectoryPolicy
from rrl_tf.offline.windows import Windows
from rrl_tf.training.config import (
    EVALUATION,
    MUTABLE,
    FitConfig,
    require_fraction,
    require_multiple,
    require_not_negative,
    require_positive,
)
from rrl_tf.training.devices import Replicas, make_replicas
from rrl_tf.training.fit import FitRun
from rrl_tf.training.optimizers import AdamW
from rrl_tf.training.run import Run
from rrl_tf.training.run_folder import checksum


@dataclasses.dataclass(frozen=True)
class DecisionTransformerConfig(FitConfig):
    """Every number of a run. A step is one update."""

    best_share: float = 1.0
    """Train on the best episodes that hold this share of the steps: 0.1 makes BC %BC."""
    held_out: float = 0.05
    """Share of the episodes kept from training, for the error of predicted actions."""
    sampling: Literal["steps", "returns", "episodes"] = "steps"
    """What is equally likely: every step to end a window, or every episode to be in one. Or steps
    count for more the higher their episode's return."""
    return_power: float = 1.0
    """Of sampling by returns: the power by which steps of higher returns count for more."""
    advantage_power: float = 0.0
    """The power by which steps count for more, the more came of them than is usual where they were
    taken, in standard deviations (`rrl_tf.offline.advantages`); 0 trains no value function."""
    advantage_trace: float = 0.95
    """λ of the returns that the value function learns: 1 believes what came of an episode, 0 what
    the function says of the next state, which other episodes may have left better."""
    advantage_rounds: int = 5
    """Passes over the data that the value function learns in."""
    starts: float = 0.0
    """Share of the windows that end within the first steps of an episode."""
    start_steps: int | None = None
    """How many steps these are; by default twice the context."""

    steps: int = dataclasses.field(default=3000, metadata=MUTABLE)
    """When to stop. The same command with a larger number goes on, unless the schedule is cosine,
    which plans for the end."""
    batch_size: int = 64
    warmup_steps: int = 200
    weight_decay: float = 1e-4
    """AdamW's."""
    clip_norm: float | None = 0.25

    targets: tuple[float, ...] = dataclasses.field(default=(), metadata=EVALUATION)
    """Returns to ask for; by default some between the data's worst and best."""
    evaluation_episodes: int = dataclasses.field(default=100, metadata=EVALUATION)
    """Played in the end for each target with the last weights, for the largest with the best; 0
    plays nothing, and so needs no environment."""
    progress_episodes: int = 20
    """Played for the largest target during the training, and with each of `played_noises`; of the
    environments of `evaluation_episodes`, so no more than these."""
    played_noises: tuple[float, ...] = ()
    """Shares of the learned noise, from 0 to 1, that are tried in the end: each plays
    `progress_episodes`, asked for the largest target, and the share that did best is played from
    then on. By default, that of the network; so, too, where there is no environment."""
    evaluate_every: int = 1000
    """Steps between these, a multiple of `log_every`; 0 plays only in the end."""
    log_every: int = 100
    """Steps between rows of the log; a divisor of `steps`."""
    checkpoint_every: int = 500
    """Steps between checkpoints, a multiple of `log_every`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(
            self,
            *("steps", "batch_size", "log_every", "checkpoint_every", "best_share"),
            *("progress_episodes", "advantage_rounds"),
        )
        require_not_negative(
            self,
            *("evaluation_episodes", "evaluate_every", "weight_decay"),
            *("return_power", "advantage_power"),
        )
        if not all(0 <= share <= 1 for share in self.played_noises):
            raise InvalidInput(f"played_noises must be from 0 to 1; received {self.played_noises}")
        if self.start_steps is not None:
            require_positive(self, "start_steps")
        require_fraction(self, "best_share", "held_out", "starts", "advantage_trace")
        require_multiple(self, ("steps", "checkpoint_every", "evaluate_every"), "log_every")
        are_played = self.evaluation_episodes and (self.evaluate_every or self.played_noises)
        if are_played and self.progress_episodes > self.evaluation_episodes:
            raise InvalidInput(
                "progress_episodes must not be more than evaluation_episodes; received "
                f"{self.progress_episodes} and {self.evaluation_episodes}"
            )
        if not all(map(math.isfinite, self.targets)):
            raise InvalidInput(f"targets must be finite; received {self.targets}")
        self.optimizer_options(self.steps)  # raises where the schedule has no steps left

    def mutable_fields(self) -> set[str]:
        """Return the fields that may change on resume; a cosine schedule depends on `steps`."""
        fixed = set() if self.schedule == "constant" else {"steps"}
        return super().mutable_fields() - fixed

    def split(self, data: OfflineData) -> tuple[OfflineData, OfflineData]:
        """What is trained on and what is held out, the same whatever the seed."""
        training, held_out = data.split(self.held_out)
        return training.best(self.best_share), held_out


def train_decision_transformer(
    data: OfflineData,
    network: keras.Model,
    scaling: Scaling,
    config: DecisionTransformerConfig,
    replicas: Replicas | None = None,
) -> FitRun:
    """Trains a network to act as recorded episodes did, asks it for returns, and exports it.

    Everything is checked before the run's folder is made. The same call again goes on from the
    last checkpoint; a run that is finished is left as it is, or only evaluated and exported again
    where `targets` or `evaluation_episodes` are others. Ctrl-C and SIGTERM save first.

    Args:
        data: episodes; `config.split` tells which are trained on.
        network: `DecisionTransformer`, or a `BehaviorCloning`, which may not listen to what is
            asked for. Its weights are trained in place.
        scaling: of the episodes that are trained on.
        config: every number, and the folder.
        replicas: the devices and hosts that share every batch, by default those that `config`
            asks for; several hosts must be joined before the network is made.

    Returns:
        The run, whose folder holds everything and whose `model` is the network.

    Raises:
        InvalidInput: if a number is out of range, data and network do not fit each other, the
            environment cannot be made, or the folder holds another run.

    Example: at the top of this module.
    """
    data = _checked(data, network, scaling, config)
    replicas = replicas or make_replicas(config, config.batch_size)
    _check_members(network, replicas)
    training, held_out = config.split(data)
    windows = make_windows(training, network, scaling, config)
    play = _player(data, network, scaling, config)
    if is_new := not config.path.exists():  # what cannot be weighed leaves nothing behind
        _weigh(windows, scaling, config)
    run = _opened(data, network, scaling, config, replicas)
    if run.is_finished():
        take_up_noise(run, network)
        return run
    if not is_new and not run.is_over():
        _weigh(windows, scaling, config)
    best = best_weights(run, play)
    run.fit(
        windows.dataset(config.batch_size, scaling, config.seed, run.step, output(network)),
        validation_data=_validation(held_out, scaling, network),
        measure=functools.partial(_progress, play, best, config),
    )
    run.by_chief(_finish, run, data, held_out, play, best)
    return run


def _checked(data, network, scaling, config):
    """The data if the network is for them, without their environment where nothing is played."""
    check_network(data, network, scaling)
    return data if config.evaluation_episodes else dataclasses.replace(data, make_env=None)


def _check_members(network, replicas):
    """Members share a batch between them: in the parts of devices they would get other rows."""
    members = getattr(network, "members", 1)
    if members > 1 and replicas.count > 1:
        raise InvalidInput(
            f"a network of several members must be trained on one device; received {members} "
            f"members and {replicas.count} devices"
        )


def _weigh(windows, scaling, config):
    """Has steps count for more that brought more, if the configuration wants that."""
    how = (config.advantage_trace, config.advantage_rounds)
    weigh_by_advantage(windows, scaling, config.advantage_power, config.seed, *how)


def _player(data, network, scaling, config):
    """What asks the compiled network for returns; what could not be evaluated is told now."""
    if network.action_distribution is None:
        data.warn_of_bounds()
    observations = data.episodes[0].observations
    input_spec("observation", observations.shape[1:], observations.dtype)  # of the export
    envs = make_envs(data, config.evaluation_episodes)
    check_noise(config.played_noises, network)
    compile_network(network, config)
    return TargetReturns(TrajectoryPolicy(network, scaling), envs, _targets(data, network, config))


def best_weights(run: Run, play: TargetReturns) -> BestWeights:
    """What did best so far, in the run's folder."""
    reached = [row["eval/return"] for row in run.log.rows if "eval/return" in row]
    known, asked = max(reached, default=-math.inf), max(play.targets)
    return BestWeights(run.folder.path / "best.npz", play.policy.model, known, asked)


def _finish(run, data, held_out, play, best):
    """Chooses the noise that is played, if there is a choice, before everything else."""
    finish(run, data, held_out, play, best, _chosen_noise(run, play))


def _chosen_noise(run, play):
    """What was tried and chosen; it stands where the same weights are only asked again."""
    tried = run.folder.evaluation(run.step).get("played_noise")
    if tried:
        take_up_noise(run, play.policy.model)  # which has not been traced yet
    elif run.config.played_noises and play.envs:
        tried = choose_noise(play, run.config.played_noises, run.config.progress_episodes)
        run.folder.replace_model(play.policy.model)
    else:
        return {}
    return {"played_noise": tried, "chosen_noise": play.policy.model.noise_scale}


def listens(network: keras.Model) -> bool:
    """Whether it makes a difference which return a network is asked for."""
    return isinstance(network, DecisionTransformer) or network.return_conditioned


def output(network: keras.Model) -> str:
    """The output of a network that tells the actions of what it was trained on."""
    return "action" if network.action_distribution is None else "distribution"


def _targets(data, network, config):
    """What is asked for: where it makes no difference, one return."""
    targets = config.targets or default_targets(data.returns())
    return targets if listens(network) else targets[-1:]


def make_windows(
    data: OfflineData, network: keras.Model, scaling: Scaling, config: DecisionTransformerConfig
) -> Windows:
    """The windows of what is trained on, in batches that fit in memory."""
    windows = Windows(
        data,
        network.context_length,
        config.sampling,
        config.starts,
        config.start_steps,
        scaling.condition,
        config.return_power,
    )
    windows.check_batch(config.batch_size)
    return windows


def _validation(data, scaling, network):
    return validation_windows(data, scaling, network.context_length, output=output(network))


def _opened(data, network, scaling, config, replicas):
    """The run, in a folder that holds it or will."""
    run = FitRun(
        config,
        network,
        steps=config.steps,
        steps_per_epoch=config.log_every,
        checkpoint_every=config.checkpoint_every,
        identity={"episodes": data_checksum(data), **more_identity(data, scaling)},
        replicas=replicas,
    )
    if not run.folder.evaluation(run.step):  # nor has a share been chosen
        warn_of_untried(config.played_noises, network, data.make_env is not None)
    return run


def compile_network(network: keras.Model, config: DecisionTransformerConfig) -> None:
    """Builds a network and compiles it with AdamW and the loss of its actions.

    Args:
        network: as in `train_decision_transformer`.
        config: step size and precision.
    """
    if not network.built:
        network.build()
    loss: Any = keras.losses.MeanSquaredError
    if network.discrete:
        loss = functools.partial(keras.losses.CategoricalCrossentropy, from_logits=True)
    if network.action_distribution is not None:
        loss = CensoredNormalLoss
    network.compile(
        AdamW(weight_decay=config.weight_decay, **config.optimizer_options(config.steps)),
        # The mean over the steps that are there.
        {output(network): loss(reduction="mean_with_sample_weight")},
        jit_compile=config.jit_compile,
    )


def progress(
    play: TargetReturns, best: BestWeights, config: DecisionTransformerConfig
) -> dict[str, float]:
    """Metrics of some episodes, whose return chooses the best weights."""
    means = play.means(max(play.targets), PROGRESS_SEED, config.progress_episodes)
    best.offer(means["return"])
    return {"eval/return": means["return"], "eval/length": means["length"]}


def _progress(play, best, config, step):
    """The same every now and then, where there is an environment."""
    if not play.envs or not config.evaluate_every or step % config.evaluate_every:
        return {}
    return progress(play, best, config)


def data_checksum(data: OfflineData) -> str:
    """Of what was seen, done and earned."""
    return checksum(*(a for e in data.episodes for a in (e.observations, e.actions, e.rewards)))


def more_identity(data: OfflineData, scaling: Scaling) -> dict[str, Any]:
    """What else of the data tells one run from another, beyond its episodes."""
    bounds = {
        name: None if values is None else np.asarray(values).tolist()
        for name, values in (("low", scaling.action_low), ("high", scaling.action_high))
    }
    return {
        "ends": checksum(np.array([(e.terminated, e.truncated) for e in data.episodes])),
        # Sums of returns differ in their last digits from machine to machine.
        "scaling": {"returns": f"{scaling.return_scale:.5g}", "told": scaling.condition, **bounds},
    }
