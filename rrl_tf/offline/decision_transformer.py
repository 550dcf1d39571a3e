"""Train a Decision Transformer, or a model with the same inputs, on recorded episodes.

Example:
    >>> from gymnasium.spaces import Discrete
    >>> from rrl_tf.models import BehaviorCloning
    >>> from rrl_tf.offline import Episode
    >>> episodes = (Episode(np.eye(3), [0, 1], [r, 0.0], True, False) for r in (1.0, 2.0))
    >>> data = OfflineData("mine", tuple(episodes), Discrete(2), "none")
    >>> config = DecisionTransformerConfig(
    ...     name="mine", steps=4, warmup_steps=2, log_every=2, evaluation_episodes=0
    ... )
    >>> scaling = Scaling.of(config.split(data)[0])
    >>> network = BehaviorCloning(3, 2, discrete=True)  # or a DecisionTransformer
    >>> run = train_decision_transformer(data, network, scaling, config)  # doctest: +ELLIPSIS
    data ...
    step 4: mine: mean return 1.5, best 2; ...
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np

from rrl_tf.errors import InvalidInput
from rrl_tf.export.writer import input_spec
from rrl_tf.layers import CensoredNormalLoss
from rrl_tf.models import DecisionTransformer
from rrl_tf.offline.advantages import reweight_by_advantage
from rrl_tf.offline.config import DecisionTransformerConfig
from rrl_tf.offline.episodes import OfflineData
from rrl_tf.offline.evaluation import (
    PROGRESS_SEED,
    ReturnEvaluator,
    check_network,
    choose_noise_scale,
    default_targets,
    finish,
    make_envs,
    set_noise_scale,
    validation_windows,
)
from rrl_tf.offline.saved_weights import BestWeights
from rrl_tf.offline.scaling import Scaling
from rrl_tf.offline.trajectory_policy import TrajectoryPolicy
from rrl_tf.offline.windows import Windows
from rrl_tf.training.devices import Replicas, make_replicas
from rrl_tf.training.fit import FitRun, passes
from rrl_tf.training.optimizers import AdamW
from rrl_tf.training.run_folder import checksum
from rrl_tf.training.summary import describe_env


def train_decision_transformer(
    data: OfflineData,
    network: keras.Model,
    scaling: Scaling,
    config: DecisionTransformerConfig,
    replicas: Replicas | None = None,
    callbacks: Iterable[keras.callbacks.Callback] = (),
) -> FitRun:
    """Train a network on recorded episodes, evaluate it for target returns and export it.

    All arguments are checked before the run folder is created. On Ctrl-C or SIGTERM, the run saves
    a checkpoint and stops. Repeating the call resumes from the last checkpoint. If the run is
    finished, it is not trained again; if `targets` or `evaluation_episodes` changed, the policy is
    evaluated and exported again.

    Args:
        data: episodes; `config.split` splits them into training and held-out episodes.
        network: `DecisionTransformer` or `BehaviorCloning`, trained in place.
        scaling: scaling of the training episodes.
        config: hyper-parameters and run folder.
        replicas: devices and hosts that share each batch. None means those of `config`. With
            several hosts, join them before you create the network.
        callbacks: Keras callbacks of the training.

    Returns:
        The run, whose `model` is the network.

    Raises:
        InvalidInput: if a number is out of range, the network does not match the data, the
            environment cannot be created, or the folder contains a run with different arguments.

    Example: at the top of this module.
    """
    check_network(data, network, scaling)
    if not config.evaluation_episodes:
        data = dataclasses.replace(data, make_env=None)
    replicas = replicas or make_replicas(config, config.batch_size)
    _check_members(network, replicas)
    training, held_out = config.split(data)
    windows = make_windows(training, network, scaling, config)
    with _make_evaluator(data, network, scaling, config) as evaluator:
        is_new = not config.path.exists()
        if is_new:  # a failure leaves no folder behind
            _reweight(windows, scaling, config)
        run = _open_run(data, network, scaling, config, replicas)
        results = _chosen_noise_scale(run) if run.is_over() else {}
        if run.is_finished():
            return run
        if not run.is_over() and not is_new:
            _reweight(windows, scaling, config)
        best = BestWeights(run.folder.path / "best.npz", network, max(evaluator.targets))
        _fit(run, windows, held_out, evaluator, best, callbacks)

        def evaluate():
            found = results or _choose_noise_scale(run, evaluator)
            finish(run, data, held_out, evaluator, best, found)

        run.by_chief(evaluate)
        return run


def _fit(run, windows, held_out, evaluator, best, callbacks):
    config, network, scaling = run.config, run.model, evaluator.policy.scaling

    def progress(step):
        before = int(run.log.rows[-1]["step"]) if run.log.rows else 0
        is_due = passes(before, step, config.evaluate_every)
        return evaluate_progress(evaluator, best, config) if is_due and evaluator.envs else {}

    action, length = trained_output(network), network.context_length
    run.fit(
        windows.dataset(config.batch_size, scaling, config.seed, run.step, action),
        validation_data=validation_windows(held_out, scaling, length, output=action),
        measure=progress,
        callbacks=callbacks,
    )


def _check_members(network, replicas):
    """Raise `InvalidInput` for an ensemble on several devices.

    Devices split the batch, so each member would learn from different steps than on one device.
    """
    members = getattr(network, "members", 1)
    if members > 1 and replicas.count > 1:
        raise InvalidInput(
            f"a network of several members must be trained on one device; received {members} "
            f"members and {replicas.count} devices"
        )


def _open_run(data, network, scaling, config, replicas):
    return FitRun(
        config,
        network,
        steps=config.steps,
        steps_per_epoch=config.log_every,
        checkpoint_every=config.checkpoint_every,
        identity=dataset_fingerprint(data, scaling),
        replicas=replicas,
        setup=describe_data(data, scaling),
    )


def describe_data(data: OfflineData, scaling: Scaling) -> dict[str, str]:
    """Return what a run prints at its start about its data and the environment."""
    returns = data.returns()
    setup = {
        "data": f"{data.name}, {len(returns):,} episodes, returns {returns.min():.4g} to "
        f"{returns.max():.4g}",
        "preprocessing": f"states of size {scaling.state_size}",
        "environment": data.environment if data.make_env else "none, so no evaluation",
    }
    if data.make_env:
        with contextlib.closing(data.make_env()) as env:
            setup |= describe_env(env)
    return setup


def make_windows(
    data: OfflineData, network: keras.Model, scaling: Scaling, config: DecisionTransformerConfig
) -> Windows:
    """Return the sampler of windows that the configuration describes."""
    return Windows(
        data,
        network.context_length,
        config.sampling,
        config.start_fraction,
        config.start_steps,
        scaling.condition,
        config.return_power,
    )


def _reweight(windows, scaling, config):
    options = (config.seed, config.advantage_trace, config.advantage_rounds)
    reweight_by_advantage(windows, scaling, config.advantage_power, *options)


@contextlib.contextmanager
def _make_evaluator(data, network, scaling, config) -> Iterator[ReturnEvaluator]:
    """Compile the network and yield its evaluator. Invalid arguments of both raise errors here."""
    if network.action_distribution is None:
        data.warn_of_bounds()
        if config.noise_scales:
            raise InvalidInput(
                "`noise_scales` must be empty for a network without a distribution of actions; "
                f"received {config.noise_scales}"
            )
    observations = data.episodes[0].observations
    input_spec("observation", observations.shape[1:], observations.dtype)  # checks the export
    with make_envs(data, config.evaluation_episodes) as envs:
        compile_network(network, config)
        targets = config.targets or default_targets(data.returns())
        targets = targets if return_conditioned(network) else targets[-1:]
        yield ReturnEvaluator(TrajectoryPolicy(network, scaling), envs, targets)


def return_conditioned(network: keras.Model) -> bool:
    """Return whether the network reads returns-to-go."""
    return isinstance(network, DecisionTransformer) or network.return_conditioned


def trained_output(network: keras.Model) -> str:
    """Return the name of the output that the loss trains."""
    return "action" if network.action_distribution is None else "distribution"


def compile_network(network: keras.Model, config: DecisionTransformerConfig) -> None:
    """Build a network and compile it with AdamW and the loss of its actions."""
    if not network.built:
        network.build()
    loss: Any = keras.losses.MeanSquaredError
    if network.discrete:
        loss = functools.partial(keras.losses.CategoricalCrossentropy, from_logits=True)
    if network.action_distribution is not None:
        loss = CensoredNormalLoss
    network.compile(
        AdamW(weight_decay=config.weight_decay, **config.optimizer_options(config.steps)),
        # The mean over all steps except padding.
        {trained_output(network): loss(reduction="mean_with_sample_weight")},
        jit_compile=config.jit_compile,
    )


def evaluate_progress(
    evaluator: ReturnEvaluator, best: BestWeights, config: DecisionTransformerConfig
) -> dict[str, float]:
    """Play episodes with the largest target, update the best weights and return metrics."""
    means = evaluator.means(max(evaluator.targets), PROGRESS_SEED, config.progress_episodes)
    best.update(means["return"])
    return {"eval/return": means["return"], "eval/episode_length": means["length"]}


def _chosen_noise_scale(run):
    """Set the noise scale that a finished run has chosen, and return its summary entries."""
    summary = run.folder.evaluation(run.step)
    if "chosen_noise" not in summary:
        return {}
    set_noise_scale(run.model, summary["chosen_noise"])
    return {name: summary[name] for name in ("noise_scales", "chosen_noise")}


def _choose_noise_scale(run, evaluator):
    """Choose the best of `config.noise_scales` for the policy, and return summary entries."""
    config, model = run.config, evaluator.policy.model
    if not config.noise_scales:
        return {}
    if not evaluator.envs:
        warnings.warn(
            "noise_scales have no effect without an environment; the noise scale remains "
            f"{model.noise_scale:g}",
            stacklevel=2,
        )
        return {}
    tried = choose_noise_scale(evaluator, config.noise_scales, config.progress_episodes)
    run.folder.replace_model(model)
    return {"noise_scales": tried, "chosen_noise": model.noise_scale}


def dataset_fingerprint(data: OfflineData, scaling: Scaling) -> dict[str, Any]:
    """Return JSON-able values that identify a dataset and its scaling."""
    arrays = (a for e in data.episodes for a in (e.observations, e.actions, e.rewards))
    ends = np.array([(e.terminated, e.truncated) for e in data.episodes])
    bounds = (scaling.action_low, scaling.action_high)
    return {
        "dataset": checksum(*arrays, ends),
        "scaling": {
            # Rounded, because the last digits of a sum of returns differ between machines.
            "return_scale": f"{scaling.return_scale:.5g}",
            "condition": scaling.condition,
            "bounds": [None if each is None else np.asarray(each).tolist() for each in bounds],
        },
    }
