"""Fine-tune a policy that was trained on recorded episodes by playing in its environment.

Example:
    >>> import gymnasium
    >>> from rrl_tf.models import BehaviorCloning
    >>> make_env = functools.partial(gymnasium.make, "CartPole-v1", max_episode_steps=5)
    >>> episodes = (Episode(np.eye(4), [0, 1, 0], np.ones(3), True, False) for _ in range(2))
    >>> data = OfflineData("mine", tuple(episodes), make_env().action_space, "CartPole", make_env)
    >>> scaling = Scaling.of(data)
    >>> network = BehaviorCloning(4, 2, discrete=True, return_conditioned=True)  # train it first
    >>> training = DecisionTransformerConfig(evaluation_episodes=2, progress_episodes=1)
    >>> config = FineTuningConfig(name="mine-fine-tuned", steps=10, episodes=2)
    >>> run = fine_tune(data, network, scaling, training, config)  # doctest: +ELLIPSIS
    data ...
    step 10: mine: mean return 3, best 3; ...
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Iterable

import keras
import numpy as np
from tqdm import tqdm

from rrl_tf.errors import InvalidInput
from rrl_tf.offline.config import DecisionTransformerConfig, FineTuningConfig
from rrl_tf.offline.decision_transformer import (
    compile_network,
    dataset_fingerprint,
    describe_data,
    evaluate_progress,
    make_windows,
    return_conditioned,
    trained_output,
)
from rrl_tf.offline.episodes import Episode, OfflineData, RecordedEnv
from rrl_tf.offline.evaluation import (
    ReturnEvaluator,
    check_network,
    default_targets,
    finish,
    make_envs,
)
from rrl_tf.offline.saved_weights import BestWeights, SavedWeights
from rrl_tf.offline.scaling import Scaling
from rrl_tf.offline.trajectory_policy import TrajectoryPolicy, play_episodes
from rrl_tf.offline.windows import windows_dataset
from rrl_tf.training.fit import model_state, passes, set_model_state
from rrl_tf.training.run import LogCallback, Run
from rrl_tf.training.run_folder import checksum
from rrl_tf.training.safeguards import GracefulShutdown, require_finite, translate_xla_errors
from rrl_tf.training.summary import describe_network


class EpisodeBuffer:
    """Buffer of the newest episodes with a limited number of steps.

    Args:
        episodes: initial episodes. The buffer orders them by their return, so that those with the
            lowest returns are dropped first.
        max_steps: maximum number of steps. The newest episode is kept even if it is longer.

    Attributes:
        episodes: list of `Episode`, the oldest first.

    Example:
        >>> def episode(n):
        ...     return Episode(np.zeros((n + 1, 2)), np.zeros(n, int), np.ones(n), True, False)
        >>> buffer = EpisodeBuffer(map(episode, (5, 2, 4)), max_steps=10)
        >>> buffer.add([episode(1)])
        >>> [len(episode) for episode in buffer.episodes]
        [4, 5, 1]
    """

    def __init__(self, episodes: Iterable[Episode], max_steps: int) -> None:
        self.max_steps = max_steps
        self.episodes: list[Episode] = []
        self.add(sorted(episodes, key=lambda episode: episode.total))

    def add(self, episodes: Iterable[Episode]) -> None:
        """Add episodes, and drop the oldest ones while there are more than `max_steps` steps."""
        self.episodes += episodes
        steps = np.cumsum([len(episode) for episode in reversed(self.episodes)])
        count = max(1, int(np.searchsorted(steps, self.max_steps, side="right")))
        self.episodes = self.episodes[-count:]

    @property
    def best(self) -> float:
        """The highest return of the episodes in the buffer."""
        return max(episode.total for episode in self.episodes)

    def get_state(self) -> dict[str, np.ndarray]:
        """Return the episodes as concatenated arrays."""
        state = {
            name: np.concatenate([getattr(episode, name) for episode in self.episodes])
            for name in ("observations", "actions", "rewards")
        }
        ends = [(e.terminated, e.truncated) for e in self.episodes]
        return {**state, "ends": np.array(ends), "lengths": np.array(list(map(len, self.episodes)))}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Restore the episodes from the result of `get_state`."""
        splits = np.cumsum(state["lengths"])[:-1]
        self.episodes = [
            Episode(observations, actions, rewards, *ends)
            for observations, actions, rewards, ends in zip(
                np.split(state["observations"], splits + np.arange(1, len(splits) + 1)),
                np.split(state["actions"], splits),
                np.split(state["rewards"], splits),
                state["ends"].tolist(),
            )
        ]


def fine_tune(
    data: OfflineData,
    network: keras.Model,
    scaling: Scaling,
    training: DecisionTransformerConfig,
    config: FineTuningConfig,
    callbacks: Iterable[LogCallback] = (),
) -> Run:
    """Fine-tune a trained policy with episodes that it plays in its environment.

    This is the Online Decision Transformer. The policy explores with the best return of the buffer
    as its target return. Its episodes are added to the buffer with the return that they reached.
    The final evaluation plays the largest target of the training configuration, before and after
    fine-tuning, and the best return of the buffer.

    Fine-tuning uses one device. On Ctrl-C or SIGTERM, the run saves a checkpoint and stops.
    Repeating the call resumes from the last checkpoint; the network must then have its weights from
    before the run, or those of the last checkpoint. If the run is finished, it does not train
    again; if the largest target or the number of evaluation episodes in `training` changed, the
    policy is evaluated and exported again.

    Args:
        data: training data of the network, with an environment.
        network: trained network, fine-tuned in place.
        scaling: scaling that the network was trained with.
        training: configuration that the network was trained with. It sets the windows, the batches
            and the evaluation.
        config: hyper-parameters and run folder of the fine-tuning.
        callbacks: functions `callback(step, metrics)` that are called after every log entry. If one
            returns True, training stops, and the policy is evaluated and exported.

    Returns:
        The run.

    Raises:
        InvalidInput: if the data has no environment, if the network is not conditioned on returns
            or does not match the data, if a number is out of range, or if the folder contains a run
            with different arguments.

    Example: at the top of this module.

    References:
        - [Zheng et al., 2022](https://arxiv.org/abs/2202.05607)
    """
    _check_arguments(data, network, scaling, training)
    target = max(training.targets or default_targets(data.returns()))
    with (
        make_envs(data, training.evaluation_episodes) as evaluation_envs,
        make_envs(data, config.episodes) as envs,
    ):
        tuning = _FineTuning(data, network, scaling, training, config, target, envs)
        run = tuning.run
        if run.is_finished():
            return run
        policy = TrajectoryPolicy(network, scaling)
        evaluator = ReturnEvaluator(policy, evaluation_envs, [target])
        best = BestWeights(run.folder.path / "best.npz", network, target)
        _play_and_learn(tuning, evaluator, best, tuple(callbacks))
        tuning.finish(evaluator, best)
        return run


def _play_and_learn(tuning, evaluator, best, callbacks):
    """Run rounds until all steps are played, a shutdown is requested or a callback stops."""
    run, network = tuning.run, tuning.network
    stops = []
    with (
        translate_xla_errors(),
        GracefulShutdown() as shutdown,
        tqdm(total=run.steps, initial=tuning.step, unit="step") as bar,
    ):
        while not (run.is_over() or shutdown.requested() or any(stops)):
            metrics = tuning.run_round(
                functools.partial(evaluate_progress, evaluator, best, tuning.training)
            )
            run.keep_best(network)
            stops = [callback(tuning.step, metrics) for callback in callbacks]
            bar.update(tuning.step - bar.n)
            bar.set_postfix({"return": f"{metrics['rollout/return']:.4g}"})


def _check_arguments(data, network, scaling, training):
    """Raise `InvalidInput` unless the network can be fine-tuned and evaluated."""
    if not return_conditioned(network):
        raise InvalidInput(
            "the network must be a DecisionTransformer or a return_conditioned BehaviorCloning; "
            f"received {network.name}"
        )
    check_network(data, network, scaling)
    if data.make_env is None or not training.evaluation_episodes:
        raise InvalidInput(
            "fine-tuning must have data with an environment, and evaluation_episodes; received "
            f"{data.name} and evaluation_episodes={training.evaluation_episodes}"
        )


class _FineTuning:
    """State of a fine-tuning run: the network, the episodes to learn from and the counters."""

    def __init__(self, data, network, scaling, training, config, target, envs):
        self.data = data
        self.training_data, self.held_out = training.split(data)
        self.network, self.scaling, self.config = network, scaling, config
        self.training = dataclasses.replace(
            training, learning_rate=config.learning_rate, schedule="constant", warmup_steps=0
        )
        self.first_weights = checksum(*network.get_weights())
        compile_network(network, self.training)
        network.optimizer.build(network.trainable_variables)
        exploration = config.exploration
        if exploration is None:
            exploration = 1.0 if network.discrete else 0.1
        self.policy = TrajectoryPolicy(network, scaling, exploration)
        self.envs = [RecordedEnv(env) for env in envs]
        self.buffer = EpisodeBuffer(self.training_data.episodes, config.buffer_steps)
        self.step = self.rounds = self.updates = 0
        ignored = training.mutable_fields() | training.evaluation_fields()
        settings = training.settings()
        self.run = Run(
            dataclasses.replace(
                config, targets=(target,), evaluation_episodes=training.evaluation_episodes
            ),
            config.steps,
            identity={
                **dataset_fingerprint(data, scaling),
                "training": {name: settings[name] for name in settings if name not in ignored},
            },
            restore=self._restore,
            setup={**describe_data(data, scaling), "network": describe_network(network)},
        )
        self.first = SavedWeights(self.run.folder.path / "first.npz", network)
        if not self.step:
            self.first.save()

    def _restore(self, step, state):
        counters = state["counters"]
        first, last = counters["first_weights"], counters["last_weights"]
        if self.first_weights not in (first, last):
            raise InvalidInput(
                "the network must have its weights from before the fine-tuning (checksum "
                f"{first}) or those of the last checkpoint (checksum {last}); received the "
                f"checksum {self.first_weights}. Load or train the network again."
            )
        self.first_weights = first
        set_model_state(self.network, state["variables"])
        self.buffer.set_state(state["episodes"])
        self.step, self.rounds, self.updates = step, counters["rounds"], counters["updates"]

    def run_round(self, evaluate):
        """Play one round of episodes, learn from the buffer, evaluate if due, save a checkpoint."""
        earlier, begin = self.step, time.perf_counter()
        metrics = self._play()
        metrics |= self._learn(self.step - earlier)
        if passes(earlier, self.step, self.config.evaluate_every):
            metrics |= evaluate()
        seconds = time.perf_counter() - begin
        metrics["time/steps_per_second"] = (self.step - earlier) / seconds
        self.run.log.write(self.step, metrics)
        self._save()
        return metrics

    def finish(self, evaluator, best):
        """Evaluate the original and the fine-tuned policy, and finish the run."""
        target, best_return = evaluator.targets[0], self.buffer.best
        with self.first.restored():
            before = {"before_fine_tuning": evaluator.table([target])}
        # The export and the final evaluation use the best return of the buffer.
        evaluator.policy.scaling = dataclasses.replace(self.scaling, target_return=best_return)
        if f"{best_return:.3g}" != f"{target:.3g}":
            evaluator.targets = sorted([target, best_return])
        finish(self.run, self.data, self.held_out, evaluator, best, before)

    def _play(self):
        rng = np.random.default_rng((self.config.seed, self.rounds))
        seeds = rng.integers(2**31, size=len(self.envs)).tolist()
        target = self.buffer.best
        played = play_episodes(self.policy, self.envs, target, seeds)
        self.buffer.add(env.episode() for env in self.envs)
        self.step += int(played["length"].sum())
        self.rounds += 1
        return {
            "rollout/return": float(played["return"].mean()),
            "rollout/length": float(played["length"].mean()),
            "rollout/target": target,
        }

    @functools.cached_property
    def _batches(self):
        """Endless dataset of batches, which each round samples from the current windows."""
        size, seed = self.training.batch_size, self.config.seed
        return windows_dataset(
            lambda: (self.windows, self.updates),
            size,
            self.scaling,
            seed,
            trained_output(self.network),
        )

    def _learn(self, steps):
        count = max(1, round(steps * self.config.updates_per_step))
        episodes = dataclasses.replace(self.training_data, episodes=tuple(self.buffer.episodes))
        self.windows = make_windows(episodes, self.network, self.scaling, self.training)
        history = self.network.fit(self._batches, steps_per_epoch=count, shuffle=False, verbose=0)
        self.updates += count
        metrics = {"train/loss": history.history["loss"][-1], "train/updates": self.updates}
        require_finite(self.step, metrics)
        return metrics

    def _save(self):
        arrays = model_state(self.network)
        require_finite(self.step, arrays)
        counters = {
            "rounds": self.rounds,
            "updates": self.updates,
            "first_weights": self.first_weights,
            "last_weights": checksum(*self.network.get_weights()),
        }
        state = {"variables": arrays, "episodes": self.buffer.get_state(), "counters": counters}
        self.run.save(self.step, state, self.network)
