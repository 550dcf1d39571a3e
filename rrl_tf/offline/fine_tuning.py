"""A policy trained on recorded episodes learns on from its own play.

Example:

>>> import gymnasium
>>> from rrl_tf.models import BehaviorCloning
>>> make_env = functools.partial(gymnasium.make, "CartPole-v1", max_episode_steps=5)
>>> played = (Episode(np.eye(4), [0, 1, 0], np.ones(3), True, False) for _ in range(2))
>>> data = OfflineData("mine", tuple(played), make_env().action_space, "CartPole", make_env)
>>> scaling = Scaling.of(data)
>>> network = BehaviorCloning(4, 2, discrete=True, return_conditioned=True)  # train it first
>>> training = DecisionTransformerConfig(evaluation_episodes=2, progress_episodes=1)
>>> config = FineTuningConfig(name="mine-fine-tuned", steps=10, episodes=2)
>>> run = fine_tune(data, network, scaling, training, config)  # doctest: +ELLIPSIS
step 10: mine, mean return 3, best 3; ...
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Iterable

import keras
import numpy as np
from tqdm import tqdm

from rrl_tf._arguments import natural
from rrl_tf.errors import InvalidInput
from rrl_tf.offline._batches import batches_of
from rrl_tf.offline.decision_transformer import (
    DecisionTransformerConfig,
    best_weights,
    compile_network,
    data_checksum,
    listens,
    make_windows,
    more_identity,
    output,
    progress,
)
from rrl_tf.offline.episodes import Episode, OfflineData, RecordedEnv
from rrl_tf.offline.evaluation import (
    BestWeights,
    TargetReturns,
    check_network,
    default_targets,
    is_among,
    make_envs,
)
from rrl_tf.offline.scaling import Scaling
from rrl_tf.offline.target_outcomes import finish
from rrl_tf.offline.trajectory_policy import TrajectoryPolicy, play_episodes
from rrl_tf.training.config import (
    EVALUATION,
    MUTABLE,
    RunConfig,
    require_not_negative,
    require_positive,
)
from rrl_tf.training.fit import model_state, set_model_state
from rrl_tf.training.run import Run
from rrl_tf.training.run_folder import checksum
from rrl_tf.training.safeguards import GracefulShutdown, require_finite, translate_xla_errors


@dataclasses.dataclass(frozen=True)
class FineTuningConfig(RunConfig):
    """Every number of a run that goes on in the environment. A step is one of the environment's."""

    steps: int = dataclasses.field(default=50_000, metadata=MUTABLE)
    """When to stop; episodes that have begun are played to their end. The same command with a
    larger number goes on."""
    episodes: int = 5
    """Played side by side between two rows of the log."""
    exploration: float | None = None
    """Of `TrajectoryPolicy`; by default noise of 0.1 on continuous actions, and discrete ones are
    drawn as often as they were recorded."""
    updates_per_step: float = 0.1
    learning_rate: float = 1e-3
    """AdamW's step size."""
    kept_steps: int = 50_000
    """Steps to learn from: of the best recorded episodes in the beginning, whose place is taken by
    those that are played."""
    evaluate_every: int = 10_000
    """Steps between the episodes that choose the best weights; 0 plays only in the end."""
    targets: tuple[float, ...] = dataclasses.field(default=(), metadata=EVALUATION)
    """Target returns of the evaluation; `fine_tune` sets the largest one of the training."""
    evaluation_episodes: int = dataclasses.field(default=0, metadata=EVALUATION)
    """Episodes per target; `fine_tune` sets those of the training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(
            self, "steps", "episodes", "updates_per_step", "learning_rate", "kept_steps"
        )
        require_not_negative(self, "evaluate_every")
        if self.exploration is not None:
            require_not_negative(self, "exploration")


class KeptEpisodes:
    """The episodes to learn from: the newest, so many that they hold a number of steps.

    Args:
        episodes: to begin with; the best of them are kept, and the worst of those leave first.
        most_steps: that are held, unless a single episode is longer.

    Attributes:
        episodes: list of `Episode`, the first to leave in front.

    Example:

    >>> def of_steps(n):
    ...     return Episode(np.zeros((n + 1, 2)), np.zeros(n, int), np.ones(n), True, False)
    >>> kept = KeptEpisodes(map(of_steps, (5, 2, 4)), most_steps=10)
    >>> kept.add([of_steps(1)])
    >>> [len(episode) for episode in kept.episodes]
    [4, 5, 1]
    """

    def __init__(self, episodes: Iterable[Episode], most_steps: int) -> None:
        self.most_steps = most_steps
        self.episodes: list[Episode] = []
        self.add(sorted(episodes, key=lambda episode: episode.total))

    def add(self, episodes: Iterable[Episode]) -> None:
        """Takes in episodes; the oldest leave."""
        self.episodes += episodes
        ages = np.cumsum([len(episode) for episode in reversed(self.episodes)])
        count = max(1, int(np.searchsorted(ages, self.most_steps, side="right")))
        self.episodes = self.episodes[-count:]

    @property
    def best(self) -> float:
        """The highest return."""
        return max(episode.total for episode in self.episodes)

    def get_state(self) -> dict[str, np.ndarray]:
        """All episodes, one behind the other."""
        state = {
            name: np.concatenate([getattr(episode, name) for episode in self.episodes])
            for name in ("observations", "actions", "rewards")
        }
        ends = [(e.terminated, e.truncated) for e in self.episodes]
        return {**state, "ends": np.array(ends), "lengths": np.array(list(map(len, self.episodes)))}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Takes the place of what is held by what `get_state` gave."""
        ends = np.cumsum(state["lengths"])[:-1]
        self.episodes = [
            Episode(observations, actions, rewards, *how)
            for observations, actions, rewards, how in zip(
                np.split(state["observations"], ends + np.arange(1, len(ends) + 1)),
                np.split(state["actions"], ends),
                np.split(state["rewards"], ends),
                state["ends"].tolist(),
            )
        ]


def fine_tune(
    data: OfflineData,
    network: keras.Model,
    scaling: Scaling,
    training: DecisionTransformerConfig,
    config: FineTuningConfig,
) -> Run:
    """Lets a policy play in its environment and learn from what it played, told what came of it.

    Online Decision Transformer (Zheng et al., 2022): the policy is asked for the best return there
    is to learn from, explores, and the episodes it plays are learned from like recorded ones, told
    the return they had and not what was asked for. It begins with the best recorded episodes. In
    the end it is asked for the training's largest target, as it was before and as it is then, and
    for the best return that it has learned from.

    It takes one device, whatever the training took. The same call again goes on from the last
    checkpoint, with the network as it was before or as the run has left it; a run that is finished
    is only evaluated again where the training's largest target or its number of episodes is
    another. Ctrl-C and SIGTERM save first.

    Args:
        data: what the network was trained on, with an environment.
        network: trained; its weights are trained in place.
        scaling: what it was trained with.
        training: how it was trained: windows, batches, evaluation.
        config: every other number, and the folder.

    Returns:
        The run, whose folder holds everything.

    Raises:
        InvalidInput: if the data have no environment, the network does not listen to returns or
            does not fit the data, a number is out of range, or the folder holds another run.

    Example: at the top of this module.

    References:
        - [Zheng et al., 2022](https://arxiv.org/abs/2202.05607)
    """
    envs = _checked(data, network, scaling, training)
    # What was asked for before, so that both can be compared.
    asked = max(training.targets or default_targets(data.returns()))
    tuning = _FineTuning(data, network, scaling, training, config, asked)
    play = TargetReturns(TrajectoryPolicy(network, scaling), envs, [asked])
    best = best_weights(tuning.run, play)
    if not tuning.run.is_finished():
        with translate_xla_errors(), GracefulShutdown() as shutdown:
            tuning.go_on(functools.partial(progress, play, best, training), shutdown)
        before = {"before_fine_tuning": tuning.before(play)}
        tuning.ask_for_the_best(play)
        finish(tuning.run, data, training.split(data)[1], play, best, before)
    return tuning.run


def _checked(data, network, scaling, training):
    """The environments to evaluate in, if the network can be tuned in them."""
    if not listens(network):
        raise InvalidInput(
            "fine-tuning needs a policy that is told returns, a Decision Transformer or one that "
            f"is return_conditioned; received {network.name}"
        )
    check_network(data, network, scaling)
    if not (envs := make_envs(data, training.evaluation_episodes)):
        raise InvalidInput(
            "fine-tuning needs data with an environment, and episodes to evaluate it by; received "
            f"{data.name} and evaluation_episodes={training.evaluation_episodes}"
        )
    return envs


class _FineTuning:
    """The run, from its newest checkpoint on: its network, and what there is to learn from."""

    def __init__(self, data, network, scaling, training, config, asked):
        self.data, _ = training.split(data)
        self.network, self.scaling, self.config = network, scaling, config
        self.training = dataclasses.replace(
            training, learning_rate=config.learning_rate, schedule="constant", warmup_steps=0
        )
        ignored = training.mutable_fields() | training.evaluation_fields()
        settings = training.settings().items()
        identity = {
            "recorded": data_checksum(data),
            **more_identity(data, scaling),
            "training": {name: value for name, value in settings if name not in ignored},
        }
        config = dataclasses.replace(
            config, targets=(asked,), evaluation_episodes=training.evaluation_episodes
        )
        self.first_weights = checksum(*network.get_weights())
        compile_network(network, self.training)
        network.optimizer.build(network.trainable_variables)
        exploration = config.exploration
        if exploration is None:
            exploration = 1.0 if network.discrete else 0.1
        self.policy = TrajectoryPolicy(network, scaling, exploration)
        self.envs = [RecordedEnv(env) for env in make_envs(data, config.episodes)]
        self.kept = KeptEpisodes(self.data.episodes, config.kept_steps)
        self.step = self.rounds = self.updates = 0
        self.run = Run(config, config.steps, identity=identity, restore=self._restore)
        self.first = BestWeights(self.run.folder.path / "first.npz", network)
        if not self.step:
            self.first.offer(0.0)

    def _restore(self, step, state):
        self._check_weights(state["done"])
        set_model_state(self.network, state["variables"])
        self.kept.set_state(state["episodes"])
        self.step = step
        self.rounds = natural("done.rounds", state["done"]["rounds"])
        self.updates = natural("done.updates", state["done"]["updates"])

    def _check_weights(self, done):
        """The network is as it was before the run, or as the run has left it."""
        first, last = done["first_weights"], done["last_weights"]
        if (received := self.first_weights) not in (first, last):
            raise InvalidInput(
                "the network must have the weights that the fine-tuning began with, as training "
                f"left them ({first}), or those of this checkpoint ({last}), so load or train it "
                f"anew; received {received}"
            )
        self.first_weights = first

    def go_on(self, measure, shutdown):
        """Plays, learns and saves until the run is over or interrupted."""
        with tqdm(total=self.run.steps, initial=self.step, unit="step") as bar:
            while not (self.run.is_over() or shutdown.requested()):
                before, begun = self.step, time.perf_counter()
                metrics = self.play()
                bar.update(self.step - before)
                metrics |= self.learn(self.step - before)
                every = self.config.evaluate_every
                if every and self.step // every > before // every:
                    metrics |= measure()
                passed = time.perf_counter() - begun
                metrics["time/steps_per_second"] = (self.step - before) / passed
                bar.set_postfix({"return": f"{metrics['rollout/return']:.4g}"})
                self.run.log.write(self.step, metrics)
                self.save()

    def before(self, play):
        """What the policy reached before, in the episodes of the last evaluation."""
        with self.first.in_place():
            return play.table(play.targets)

    def ask_for_the_best(self, play):
        """Has the last evaluation and the export ask for the best return that was learned from."""
        target = self.kept.best
        play.policy.scaling = dataclasses.replace(self.scaling, target_return=target)
        if not is_among(target, play.targets):
            play.targets = sorted([*play.targets, target])

    def play(self):
        """A round of episodes, each asked for the best return there is to learn from."""
        seeds = np.random.default_rng((self.config.seed, self.rounds)).integers(
            2**31, size=len(self.envs)
        )
        target = self.kept.best
        played = play_episodes(self.policy, self.envs, target, seeds.tolist())
        self.kept.add(env.episode() for env in self.envs)
        self.step += int(played["length"].sum())
        self.rounds += 1
        return {
            "rollout/return": float(played["return"].mean()),
            "rollout/length": float(played["length"].mean()),
            "rollout/target": target,
        }

    @functools.cached_property
    def batches(self):
        """Of the windows of the round, from the update on that is due; one for all rounds."""
        return batches_of(
            lambda: (self.windows, self.updates),
            *(self.training.batch_size, self.scaling, self.config.seed, output(self.network)),
        )

    def learn(self, steps):
        """As many updates as belong to so many steps."""
        count = max(1, round(steps * self.config.updates_per_step))
        episodes = dataclasses.replace(self.data, episodes=tuple(self.kept.episodes))
        self.windows = make_windows(episodes, self.network, self.scaling, self.training)
        how = {"steps_per_epoch": count, "shuffle": False, "verbose": 0}
        history = self.network.fit(self.batches, **how).history
        self.updates += count
        metrics = {"train/loss": history["loss"][-1], "train/updates": self.updates}
        require_finite(self.step, metrics)
        return metrics

    def save(self):
        arrays = model_state(self.network)
        require_finite(self.step, arrays)
        done = {
            "rounds": self.rounds,
            "updates": self.updates,
            "first_weights": self.first_weights,
            "last_weights": checksum(*self.network.get_weights()),
        }
        state = {"variables": arrays, "episodes": self.kept.get_state(), "done": done}
        self.run.save(self.step, state, self.network)
